/** Programs of rdmacm-utils against our sockets, in both roles: each run is one over RDMA, and no TCP port is there. */
import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import { connect, createServer, listen } from '@node-roce/rsocket';
import { expect, inject, test } from 'vitest';
import { optionsOf, playDirect, playStream, receiveCopy, sendCopy } from '../programs/rsocket-peers.ts';
import { cmCases, guestListens, placeOf } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';
import { canLend, lend, RSPRELOAD, takeBack } from './harness/lend.ts';

const guest = new Guest(inject('guest9000'));

/** A port of its own for each case. */
let port = 7600;

const RUN = { size: 70_000, count: 8, rounds: 4 };

/** `rdma res` of the guest has the connection, and no program of it a TCP port. */
async function expectRdma(number: number): Promise<void> {
  const [ids, sockets] = (await guest.must('rdma res show cm_id; echo; ss -tnaH')).split('\n\n');
  expect(ids).toMatch(new RegExp(`state CONNECT .*:${number}`));
  expect(sockets ?? '').not.toContain(`:${number}`);
}

/** By program: its options, and what plays its other end. */
const PROGRAMS = {
  'rstream, blocking': { options: '-T b', play: playStream },
  'rstream, non-blocking': { options: '-T n', play: playStream },
  'rstream, asynchronous': { options: '-T a', play: playStream },
  'rstream, resolved': { options: '-T r', play: playStream },
  'riostream, blocking': { options: '-T b -T v', play: playDirect },
  'riostream, non-blocking': { options: '-T n -T v', play: playDirect },
} as const;

const roles = Object.fromEntries(Object.keys(PROGRAMS).map((program) => [program, ['client', 'server']]));

test.each(cmCases(roles))('$tool is our $role, IPv$version', async ({ tool, role, version }) => {
  port++;
  const { ours, theirs } = placeOf(guest.address, version);
  const { options, play } = PROGRAMS[tool as keyof typeof PROGRAMS];
  const family = version === 6 ? '-f ip6' : '';
  const line = `${tool.split(',')[0]} ${options} ${optionsOf(RUN)} -p ${port} ${family}`;
  const isClient = role === 'server';
  await using server = isClient ? undefined : await listen({ address: ours, port, ioMappings: 1 });
  const running = guest.exec(`${line} ${isClient ? `-b ${theirs}` : `-s ${ours}`}`, { timeout: 60_000 });
  if (isClient) await guestListens(guest, port);
  const socket = server
    ? await server.accept()
    : await connect({ host: theirs, port, source: ours, ioMappings: 1 });
  await expectRdma(port);
  const conversation = await play(socket, isClient, RUN);
  if (isClient) socket.end();
  const { code, stdout, stderr } = await running;
  expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
  expect(stdout).toMatch(/^custom +68k +8 +4 /m);
  await conversation.end();
});

test('rcopy copies a file to us, and one of ours', async () => {
  const { ours, theirs } = placeOf(guest.address, 4);
  const bytes = randomBytes(1_234_567);
  await using server = await listen({ address: ours, port: ++port });
  await guest.must('base64 -d > /tmp/from', { stdin: bytes.toString('base64') });
  const sending = guest.exec(`rcopy /tmp/from ${ours}:copy -p ${port}`, { timeout: 60_000 });
  const accepted = await server.accept();
  await expectRdma(port);
  expect(await receiveCopy(accepted)).toEqual({ path: 'copy', bytes });
  expect(await sending).toMatchObject({ code: 0 });
  const waiting = guest.spawn(`exec rcopy -p ${++port}`);
  await guestListens(guest, port);
  const socket = await connect({ host: theirs, port, source: ours });
  await expectRdma(port);
  await sendCopy(socket, '/tmp/to', bytes);
  expect(await guest.must('sha256sum < /tmp/to')).toBe(await guest.must('sha256sum < /tmp/from'));
  waiting.kill();
  await expect(waiting.exited).rejects.toThrow('dropped');
});

const TCP_PROGRAMS = ['/usr/bin/curl', '/usr/bin/wget'];

/** The guest has no programs of TCP. */
const canLendThem = canLend(RSPRELOAD, ...TCP_PROGRAMS);
if (!canLendThem) console.log('curl and wget do not run in the guest: not those of its Debian here');

if (canLendThem)
  test('curl and wget under librspreload fetch 16 MiB from a server of node:http', async () => {
    const lent = await lend(guest, TCP_PROGRAMS, [RSPRELOAD]);
    const { ours } = placeOf(guest.address, 4);
    const body = randomBytes(16 * 1024 * 1024);
    const service = http.createServer(async (_request, response) => {
      await expectRdma(port);
      response.end(body);
    });
    await using _server = await createServer({ address: ours, port: ++port }, (socket) => {
      // wget ends without rclose(3): no SHUTDOWN.
      socket.on('error', () => {});
      service.emit('connection', socket);
    });
    const environment = `${lent.environment} LD_PRELOAD=${lent.path(RSPRELOAD)}`;
    for (const line of ['curl -sS -o', 'wget -nv -t 1 -O']) {
      const command = `${environment} ${lent.path('/usr/bin/')}${line} /tmp/body http://${ours}:${port}/`;
      const { code, stdout, stderr } = await guest.exec(command, { timeout: 120_000 });
      expect(code, stdout + stderr).toBe(0);
      const digest = createHash('sha256').update(body).digest('hex');
      expect(await guest.must('sha256sum < /tmp/body; rm /tmp/body')).toContain(digest);
    }
    service.closeAllConnections();
    await takeBack(guest);
  });
