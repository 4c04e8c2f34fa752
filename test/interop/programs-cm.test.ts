/** Debian's programs of librdmacm that need more than a server and a client, on `roce run` here and on a real rxe in the guest. */
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DeviceServer } from '@node-roce/device';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { meet } from '../programs/meet.ts';
import { listening } from '../programs/programs.ts';
import { guestListens } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';
import { canLend, lend, RSPRELOAD, takeBack } from './harness/lend.ts';
import { listensHere, type Playing, startHere, startThere } from './harness/programs.ts';
import { onRelease } from './harness/release.ts';

const guest = new Guest(inject('guest9000'));
const { hostIp4, ip4 } = guest.address;
const folder = mkdtempSync(join(tmpdir(), 'roce-programs-cm-'));
const QPERF = '/usr/bin/qperf';
const WEB_CLIENTS = ['/usr/bin/curl', '/usr/bin/wget'];

/** A port of its own for each case. */
let port = 7900;
let device: DeviceServer;

beforeAll(async () => {
  device = await DeviceServer.listen({ address: hostIp4, path: join(folder, 'device.sock') });
});
afterAll(async () => {
  await device.close();
  rmSync(folder, { recursive: true });
});

async function endsWell({ ended }: Playing, pattern = /^/): Promise<void> {
  const { code, output } = await ended;
  expect(code, output).toBe(0);
  expect(output).toMatch(pattern);
}

const here = (line: string) => startHere(device, ...line.split(' '));
const there = (line: string) => startThere(guest, line);

/** Resolves once nothing of a program is left at the device. */
const gone = () => expect.poll(() => device.ids, { timeout: 30_000 }).toEqual({ ids: 0, listening: 0 });

/** Sends a file to the guest. */
const give = (path: string, bytes: Uint8Array) =>
  guest.must(`base64 -d > ${path}`, { stdin: Buffer.from(bytes).toString('base64') });

const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describe('mckey', () => {
  const group = '239.77.1.12';

  test('here sends to a group, and the guest’s gets it', async () => {
    const receiver = there(`mckey -m ${group} -b ${ip4} -C 5`);
    await guest.must(
      `for i in $(seq 80); do ip maddr show dev eth0 | grep -q ${group} && exit 0; sleep 0.1; done; exit 1`,
    );
    await endsWell(here(`mckey -m ${group} -b ${hostIp4} -s -C 5`), /return status 0/);
    await endsWell(receiver, /return status 0/);
    await gone();
  });

  // On Linux 6.12, rxe sends some of its messages, and now and then none: see multicast.test.ts.
  test.each(onRelease({ debian12: [group], debian13: [] }))(
    'in the guest sends to %s, and ours gets it',
    async () => {
      const receiver = here(`mckey -m ${group} -b ${hostIp4} -C 5`);
      const member = () => readFileSync('/proc/net/igmp', 'utf8');
      await expect.poll(member, { timeout: 30_000 }).toContain('0C014DEF');
      await endsWell(there(`mckey -m ${group} -b ${ip4} -s -C 5`), /return status 0/);
      await endsWell(receiver, /return status 0/);
      await gone();
    },
  );
});

// cmtime of rdma-core 56 meets its own server over TCP first.
describe.each(onRelease({ debian12: ['cmtime'], debian13: [] }))('%s makes 20 connections', () => {
  test('from the guest', async () => {
    const server = here(`cmtime -b ${hostIp4} -p ${++port} -c 20`);
    await listensHere(device);
    await endsWell(there(`cmtime -s ${hostIp4} -p ${port} -c 20`), /^connect +:/m);
    // It serves on.
    server.kill();
    await server.ended;
    await gone();
  });

  test('to the guest', async () => {
    const server = there(`cmtime -b ${ip4} -p ${++port} -c 20`);
    await guestListens(guest, port);
    await endsWell(here(`cmtime -s ${ip4} -b ${hostIp4} -p ${port} -c 20`), /^connect +:/m);
    server.kill();
    await gone();
  });
});

describe('rcopy', () => {
  const bytes = randomBytes(1_234_567);

  test('copies a file of the guest', async () => {
    const to = join(folder, 'copied');
    await give('/tmp/from', bytes);
    const server = here(`rcopy -p ${++port}`);
    await listensHere(device);
    await endsWell(there(`rcopy /tmp/from ${hostIp4}:${to} -p ${port}`));
    expect(digest(readFileSync(to))).toBe(digest(bytes));
    server.kill();
    await server.ended;
    await gone();
  });

  test('copies a file to the guest', async () => {
    const from = join(folder, 'from');
    writeFileSync(from, bytes);
    const server = there(`rcopy -p ${++port}`);
    await guestListens(guest, port);
    await endsWell(here(`rcopy ${from} ${ip4}:/tmp/copied -p ${port}`));
    expect(await guest.must('sha256sum < /tmp/copied')).toContain(digest(bytes));
    server.kill();
    await gone();
  });
});

const canPlayQperf = canLend(QPERF);
if (!canPlayQperf) console.log('qperf is not run: not that of the guest’s Debian here');
if (canPlayQperf)
  // Its server tells the client the port of rdma_cm before it listens there, so that a quick client is refused ("Event rejected").
  describe('qperf -cm1', () => {
    const TESTS = 'rc_bw rc_lat quit';
    const isRight = /rc_bw:\s+bw +=.*\s+rc_lat:\s+latency +=/;

    test('from the guest', async () => {
      const lent = await lend(guest, [QPERF]);
      const [served, called] = await meet(
        async () => {
          const server = here(`qperf -lp ${++port}`);
          await listening(port);
          return server;
        },
        () => there(`${lent.environment} ${lent.path(QPERF)} -lp ${port} -cm1 -t 1 ${hostIp4} ${TESTS}`),
      );
      expect(called.output).toMatch(isRight);
      expect(served.code, served.output).toBe(0);
      await takeBack(guest);
      await gone();
    });

    test('to the guest', async () => {
      const lent = await lend(guest, [QPERF]);
      const [served, called] = await meet(
        async () => {
          const server = there(`${lent.environment} ${lent.path(QPERF)} -lp ${++port}`);
          await guest.must(
            `for i in $(seq 100); do ss -ltn | grep -q :${port} && exit 0; sleep 0.1; done; exit 1`,
          );
          return server;
        },
        () => here(`qperf -lp ${port} -cm1 -t 1 ${ip4} ${TESTS}`),
      );
      expect(called.output).toMatch(isRight);
      expect(served.code, served.output).toBe(0);
      await takeBack(guest);
      await gone();
    });
  });

const canBrowse = canLend(RSPRELOAD, ...WEB_CLIENTS);
if (canBrowse)
  test('curl and wget under librspreload fetch 4 MiB from a server over sockets of rxe', async () => {
    const program = join(folder, 'web-server');
    const source = fileURLToPath(new URL('web/server.c', import.meta.url));
    const { status, stderr } = spawnSync('cc', ['-Wall', '-Wextra', '-O2', source, '-o', program], {
      encoding: 'utf8',
    });
    expect(status, stderr).toBe(0);
    const body = randomBytes(4 * 2 ** 20);
    const lent = await lend(guest, [program], [RSPRELOAD]);
    await give('/tmp/body', body);
    const preload = `${lent.environment} LD_PRELOAD=${lent.path(RSPRELOAD)}`;
    const server = there(`${preload} ${lent.path(program)} ${ip4} ${++port} /tmp/body ${WEB_CLIENTS.length}`);
    // An id of RDMA listens there, and no socket of TCP.
    await guestListens(guest, port);
    expect(await guest.must('ss -ltn')).not.toContain(`:${port}`);
    for (const line of ['curl -sS -o', 'wget -nv -t 1 -O']) {
      const file = join(folder, 'body');
      const words = [...line.split(' '), file, `http://${ip4}:${port}/`];
      // Behind the libraries of `roce run`, which show the device.
      const script = `export LD_PRELOAD="${RSPRELOAD}:$LD_PRELOAD"; exec "$@"`;
      await endsWell(startHere(device, 'sh', '-c', script, 'sh', ...words));
      expect(digest(readFileSync(file))).toBe(digest(body));
    }
    await endsWell(server, /^ok$/m);
    await guest.must('rm /tmp/body');
    await takeBack(guest);
    await gone();
  });
