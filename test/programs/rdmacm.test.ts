/** Debian's programs of librdmacm, unmodified, on the connection manager of `roce device`; and its interface by itself. */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MEETINGS, meet } from './meet.ts';
import { Devices, type Ended, isThere, listening, type Running, whyMissing } from './programs.ts';
import { machineAt, migrate } from './qemu.ts';

const missing = whyMissing() ?? (isThere('rping') ? undefined : 'not installed: rdmacm-utils');
if (missing) console.log(`programs of librdmacm are not run: ${missing}`);

const SECONDS = Number(process.env.ROCE_HOSTILE_PROGRAM_SECONDS ?? 5);
const SERVER = '127.0.0.76';
const CLIENT = '127.0.0.77';
const ucma = fileURLToPath(new URL('ucma.py', import.meta.url));

/** qemu-utils with qemu-block-extra, which reads iser:// by libiscsi. */
const hasIscsiOfQemu =
  isThere('qemu-img') &&
  ['x86_64', 'aarch64'].some((machine) => existsSync(`/usr/lib/${machine}-linux-gnu/qemu/block-iscsi.so`));

/** A line that a program prints where it ended well. */
const WELL: Record<string, RegExp> = {
  ucmatose: /return status 0/,
  udaddy: /return status 0/,
  mckey: /return status 0/,
  rdma_server: /end 0/,
  rdma_client: /end 0/,
  rdma_xserver: /end 0/,
  rdma_xclient: /end 0/,
  rstream: /^custom +\S+ +20 /m,
  riostream: /^custom +\S+ +20 /m,
  ib_write_bw: /^ 65536 +50 /m,
  ib_send_bw: /^ 65536 +50 /m,
};

/** The server's command line, and the client's. */
const PAIRS = [
  ['rping -s -v -C 5', `rping -c -v -C 5 -a ${SERVER}`],
  ['rping -s -q -S 4000 -C 3', `rping -c -q -S 4000 -C 3 -a ${SERVER}`],
  ['ucmatose -c 3 -C 7 -S 3333', `ucmatose -s ${SERVER} -c 3 -C 7 -S 3333`],
  ['ucmatose -m -t 8', `ucmatose -s ${SERVER} -m -t 8`],
  ['udaddy -c 2', `udaddy -s ${SERVER} -c 2`],
  ['rdma_server', `rdma_client -s ${SERVER}`],
  ['rdma_xserver', `rdma_xclient -s ${SERVER}`],
  ['rstream -S 65536 -C 20 -T b -T v', `rstream -s ${SERVER} -S 65536 -C 20 -T b -T v`],
  ['rstream -S 777 -C 20 -T r -T n', `rstream -s ${SERVER} -S 777 -C 20 -T r -T n`],
  ['riostream -S 4096 -C 20', `riostream -s ${SERVER} -S 4096 -C 20`],
  ['ib_write_bw -R -F -n 50', `ib_write_bw -R -F -n 50 ${SERVER}`],
  ['ib_send_bw -R -F -n 50', `ib_send_bw -R -F -n 50 ${SERVER}`],
] as const;

describe.skipIf(missing !== undefined)('librdmacm', () => {
  let devices: Devices;
  beforeAll(async () => {
    devices = await Devices.open(SERVER, CLIENT);
  });
  afterAll(async () => {
    const { faults } = devices;
    await devices.close();
    expect(faults).toEqual([]);
  });

  const start = (device: number, line: string) => {
    const [program, ...args] = line.split(' ');
    return devices.start(device, program, args);
  };

  /** Resolves once a program listens at the first device, or has ended. */
  async function serving(ended: Promise<unknown>): Promise<void> {
    let isOver = false;
    void ended.then(() => {
      isOver = true;
    });
    while (!isOver && devices.servers[0].ids.listening === 0) await sleep(10);
  }

  /** Resolves once all ids of programs that ended are gone. */
  async function gone(): Promise<void> {
    for (let i = 0; i < 6000 && devices.servers.some(({ ids }) => ids.ids > 0); i++) await sleep(10);
    expect(devices.servers.map(({ ids }) => ids)).toEqual([
      { ids: 0, listening: 0 },
      { ids: 0, listening: 0 },
    ]);
  }

  test.each(PAIRS)('%s and %s end well', { tags: ['slow'] }, async (serverLine, clientLine) => {
    const started = ({ child, ended }: Running) => ({ ended, kill: () => void child.kill() });
    const ended = await meet(
      async () => {
        await gone();
        const server = start(0, serverLine);
        await serving(server.ended);
        return started(server);
      },
      () => started(start(1, clientLine)),
      // All others find each other at once, or it is our defect.
      serverLine.includes(' -R ') ? MEETINGS : 1,
    );
    for (const [i, { code, output }] of ended.entries()) {
      expect(code, output).toBe(0);
      expect(output).toMatch(WELL[[serverLine, clientLine][i].split(' ')[0]] ?? /^/);
    }
    await gone();
  });

  test('rping runs under a filter that refuses copies between processes', { tags: ['slow'] }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-filtered-'));
    const program = join(folder, 'filtered');
    const source = fileURLToPath(new URL('filtered.c', import.meta.url));
    expect(spawnSync('cc', [source, '-o', program], { encoding: 'utf8' }).stderr).toBe('');
    const filtered = `${program} ${constants.errno.EACCES}`;
    const server = start(0, `${filtered} rping -s -C 3 -a ${SERVER}`);
    await serving(server.ended);
    const client = start(1, `${filtered} rping -c -C 3 -a ${SERVER}`);
    for (const { code, output } of await Promise.all([server.ended, client.ended]))
      expect(code, output).toBe(0);
    rmSync(folder, { recursive: true });
    await gone();
  });

  test('mckey sends to a group, and the other gets it', { tags: ['slow'] }, async () => {
    const receiver = start(0, `mckey -m 239.7.7.7 -b ${SERVER} -C 5`);
    // Its queue pair is in the group once the kernel lists the group.
    while (!/070707EF/.test(readFileSync('/proc/net/igmp', 'utf8'))) await sleep(10);
    const sender = start(1, `mckey -m 239.7.7.7 -b ${CLIENT} -s -C 5`);
    for (const { code, output } of await Promise.all([receiver.ended, sender.ended])) {
      expect(code, output).toBe(0);
      expect(output).toMatch(WELL.mckey);
    }
  });

  test('cmtime makes 20 connections', { tags: ['slow'] }, async () => {
    const server = start(0, `cmtime -b ${SERVER} -c 20`);
    await serving(server.ended);
    const client = await start(1, `cmtime -s ${SERVER} -b ${CLIENT} -c 20`).ended;
    expect(client.code, client.output).toBe(0);
    expect(client.output).toMatch(/^connect +: /m);
    // It serves on.
    server.child.kill('SIGKILL');
    await server.ended;
    await gone();
  });

  test('rcopy copies a file', { tags: ['slow'] }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-rcopy-'));
    const [from, to] = ['from', 'to'].map((name) => join(folder, name));
    writeFileSync(from, randomBytes(1_234_567));
    const server = start(0, 'rcopy');
    await serving(server.ended);
    const client = await devices.start(1, 'rcopy', [from, `${SERVER}:${to}`]).ended;
    expect(client.code, client.output).toBe(0);
    expect(readFileSync(to).equals(readFileSync(from))).toBe(true);
    // It serves on.
    server.child.kill('SIGKILL');
    await server.ended;
    rmSync(folder, { recursive: true });
    await gone();
  });

  test.skipIf(!isThere('qperf'))('qperf -cm1 gives its figures', { tags: ['slow'] }, async () => {
    const port = 19_765;
    const server = devices.start(0, 'qperf', ['-lp', `${port}`]);
    await listening(port);
    const client = await devices.start(1, 'qperf', [
      '-lp',
      `${port}`,
      '-cm1',
      '-t',
      '1',
      SERVER,
      'rc_bw',
      'quit',
    ]).ended;
    expect(client.code, client.output).toBe(0);
    expect(client.output).toMatch(/bw +=/);
    await server.ended;
  });

  // The server is the one whose job reads, whatever the verb is.
  test.skipIf(!isThere('fio')).each(['write', 'send', 'read'])('fio %s', { tags: ['slow'] }, async (verb) => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-fio-'));
    const job = (rw: string) =>
      `[job]\nioengine=rdma\nhostname=${SERVER}\nport=7301\nverb=${verb}\nbs=64k\nsize=1m\nrw=${rw}\niodepth=16\n`;
    const [reads, writes] = ['read', 'write'].map((rw) => {
      const path = join(folder, rw);
      writeFileSync(path, job(rw));
      return path;
    });
    const server = devices.start(0, 'fio', [reads]);
    await serving(server.ended);
    const client = devices.start(1, 'fio', [writes]);
    for (const { code, output } of await Promise.all([server.ended, client.ended]))
      expect(code, output).toBe(0);
    expect((await client.ended).output).toMatch(/WRITE: .* io=1024KiB/);
    rmSync(folder, { recursive: true });
    await gone();
  });

  // libfabric leaves lo out.
  test.skipIf(!isThere('fi_pingpong') || process.getuid?.() !== 0)(
    'fi_pingpong runs over verbs, and over ofi_rxm on verbs',
    { tags: ['slow'] },
    async () => {
      const address = '10.76.0.1';
      const ip = (...args: string[]) => expect(spawnSync('ip', args, { encoding: 'utf8' }).stderr).toBe('');
      ip('link', 'add', 'roce-a', 'type', 'veth', 'peer', 'name', 'roce-b');
      ip('link', 'set', 'roce-b', 'up');
      ip('addr', 'add', `${address}/24`, 'dev', 'roce-a');
      ip('link', 'set', 'roce-a', 'up');
      const own = await Devices.open(address);
      for (const kind of ['-p verbs -e msg', '-p verbs;ofi_rxm -e rdm']) {
        const args = [...kind.split(' '), '-I', '10', '-S', '4096', '-c'];
        const server = own.start(0, 'fi_pingpong', args);
        // The port of its control connection.
        await listening(47_592);
        const client = own.start(0, 'fi_pingpong', [...args, address]);
        for (const { code, output } of await Promise.all([server.ended, client.ended])) {
          expect(code, output).toBe(0);
          expect(output).toMatch(/^4k +10 /m);
        }
      }
      await own.close();
      ip('link', 'del', 'roce-a');
    },
  );

  test.skipIf(!existsSync('/usr/sbin/tgtd') || !isThere('iscsi-inq'))(
    'tgtd serves a disk by iSER, and libiscsi’s programs read it',
    { tags: ['slow'] },
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'roce-iser-'));
      const disk = join(folder, 'disk');
      // 64 MiB.
      const bytes = randomBytes(64 << 20);
      writeFileSync(disk, bytes);
      const initiator = 'iqn.2026-11.test:initiator';
      const ipc = `TGT_IPC_SOCKET=${join(folder, 'ipc')}`;
      const target = devices.start(0, 'env', [ipc, '/usr/sbin/tgtd', '-f']);
      // At 0.0.0.0, and at :: for IPv6 alone.
      for (let isOver = false; !isOver && devices.servers[0].ids.listening < 2; await sleep(10))
        void target.ended.then(() => (isOver = true));
      const administer = async (words: string) => {
        const args = [ipc, '/usr/sbin/tgtadm', '--lld', 'iser', '--tid', '1', '--mode', ...words.split(' ')];
        const { code, output } = await devices.start(0, 'env', args).ended;
        expect(code, output).toBe(0);
      };
      await administer('target --op new --targetname iqn.2026-11.test:disk');
      await administer(`logicalunit --op new --lun 1 --backing-store ${disk}`);
      await administer('target --op bind --initiator-address ALL');
      await administer(`target --op bind --initiator-name ${initiator}`);
      const url = `iser://${SERVER}:3260/iqn.2026-11.test:disk/1`;
      const play = (line: string) => start(1, `${line} -i ${initiator} ${url}`).ended;
      expect((await play('iscsi-inq')).output).toMatch(/^Product:VIRTUAL-DISK/m);
      expect((await play('iscsi-readcapacity16')).output).toMatch(/RETURNED LOGICAL BLOCK ADDRESS:131071/);
      expect((await play('iscsi-perf -b 64 -m 8 -t 1')).output).toMatch(/iops average \d+ \(\d+ MB\/s\)/);
      if (hasIscsiOfQemu) {
        // QEMU's own name of an initiator.
        await administer('target --op bind --initiator-name iqn.2008-11.org.linux-kvm');
        const copy = join(folder, 'copy');
        // libiscsi refuses reads of more than 256 KiB, as those of `convert` are.
        const line = `qemu-img dd -f raw -O raw bs=128k if=${url} of=${copy}`;
        const { code, output } = await start(1, line).ended;
        expect(code, output).toBe(0);
        expect(readFileSync(copy).equals(bytes)).toBe(true);
      }
      target.child.kill('SIGKILL');
      await target.ended;
      rmSync(folder, { recursive: true });
      await gone();
    },
  );

  test.skipIf(!existsSync('/usr/include/librpma.h'))(
    'a program of librpma reads, writes and flushes memory of another',
    { tags: ['slow'] },
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'roce-rpma-'));
      const program = join(folder, 'persistent');
      const source = fileURLToPath(new URL('persistent.c', import.meta.url));
      const compiled = spawnSync('cc', [source, '-o', program, '-lrpma', '-libverbs'], { encoding: 'utf8' });
      expect(compiled.stderr).toBe('');
      const server = start(0, `${program} server ${SERVER}`);
      await serving(server.ended);
      const client = start(1, `${program} client ${SERVER}`);
      for (const { code, output } of await Promise.all([server.ended, client.ended])) {
        expect(output).toBe('ok\n');
        expect(code).toBe(0);
      }
      rmSync(folder, { recursive: true });
      await gone();
    },
  );

  test.skipIf(!isThere('qemu-system-x86_64')).each(['pc', 'none'])(
    'QEMU migrates a running machine of type %s by RDMA',
    { tags: ['slow'] },
    async (type) => {
      const folder = mkdtempSync(join(tmpdir(), 'roce-qemu-'));
      const sockets = ['from', 'to'].map((name) => join(folder, name));
      const machine = `-machine ${type},accel=tcg -m 64 -nodefaults -display none`;
      const play = (device: number, at: number, more = '') =>
        start(device, `qemu-system-x86_64 ${machine} -qmp unix:${sockets[at]},server=on,wait=off${more}`);
      const target = play(0, 1, ` -incoming rdma:${SERVER}:4444`);
      await serving(target.ended);
      const source = play(1, 0);
      const [from, to] = [await machineAt({ path: sockets[0] }), await machineAt({ path: sockets[1] })];
      await migrate(from, to, `rdma:${SERVER}:4444`);
      for (const ask of [from, to]) await ask('quit');
      for (const { code, output } of await Promise.all([source.ended, target.ended]))
        expect(code, output).toBe(0);
      rmSync(folder, { recursive: true });
      await gone();
    },
  );

  test('commands that are wrong get errno, and descriptors are what librdmacm expects', async () => {
    const { code, output } = await devices.start(0, '/usr/bin/python3', [ucma, 'rules', SERVER]).ended;
    expect(output).toBe('ok\n');
    expect(code).toBe(0);
    await gone();
  });

  test('a channel whose device has ended shows that once, and rests', async () => {
    const own = await Devices.open('127.0.0.79');
    const program = own.start(0, '/usr/bin/python3', [ucma, 'ended']);
    await once(program.child.stdout!, 'data');
    await own.close();
    const { code, output } = await program.ended;
    const lines = ['librdmacm of roce run: the device has ended', 'ok', 'ready'];
    expect(output.trimEnd().split('\n').sort()).toEqual(lines);
    expect(code).toBe(0);
  });

  // Some containers allow a process a thousand million descriptors.
  test.skipIf(!isThere('strace'))(
    'many channels cost no look at every number that a descriptor may have',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'roce-channels-'));
      const counts = join(folder, 'counts');
      const line = `ulimit -n $(ulimit -H -n) && exec strace -f -c -e trace=fstat -o ${counts} /usr/bin/python3 ${ucma} channels 200`;
      const { code, output } = await devices.start(0, 'sh', ['-c', line]).ended;
      expect(output).toBe('ok\n');
      expect(code).toBe(0);
      // Share, seconds and µs of a call; calls, and maybe errors.
      const row = /^ *[\d.]+ +[\d.]+ +\d+ +(\d+)(?: +\d+)? +fstat$/m;
      const calls = Number(row.exec(readFileSync(counts, 'utf8'))?.[1]);
      rmSync(folder, { recursive: true });
      expect(calls).toBeGreaterThan(200);
      expect(calls).toBeLessThan(20_000);
    },
  );

  test('the ids of a program that is killed end with it', async () => {
    const program = devices.start(0, '/usr/bin/python3', [ucma, 'hold', '4800']);
    await serving(program.ended);
    expect(devices.servers[0].ids).toEqual({ ids: 1, listening: 1 });
    program.child.kill('SIGKILL');
    await program.ended;
    await gone();
  });

  test('wild commands crash nothing and harm no other program', {
    timeout: 600_000 + SECONDS * 1000,
    tags: ['slow'],
  }, async () => {
    const wild = [0, 1, 0].map((device, seed) =>
      devices.start(
        device,
        '/usr/bin/python3',
        [ucma, 'wild', `${seed}`, `${SECONDS}`],
        SECONDS * 1000 + 240_000,
      ),
    );
    let isOver = false;
    const all = Promise.all(wild.map(({ ended }) => ended)).finally(() => {
      isOver = true;
    });
    for (let rounds = 0; !isOver || rounds === 0; rounds++) {
      const port = 20_000 + rounds;
      const server = start(0, `rping -s -C 3 -p ${port}`);
      // Others listen, too: a client that comes too early is refused, and its server does not hear of it.
      let client: Pick<Ended, 'code' | 'output'> = { code: 1, output: '' };
      for (let tries = 0; client.code !== 0 && tries < 1000; tries++)
        client = await start(1, `rping -c -C 3 -p ${port} -a ${SERVER}`).ended;
      expect(client.code, client.output).toBe(0);
      const { code, output } = await server.ended;
      expect(code, output).toBe(0);
    }
    for (const { code, output } of await all) {
      expect(code, output).toBe(0);
      const [, commands, succeeded] = /^(\d+) commands, (\d+) succeeded, \d+ channels$/m.exec(output) ?? [];
      expect(Number(commands)).toBeGreaterThan(500);
      expect(Number(succeeded)).toBeGreaterThan(100);
    }
    await gone();
  });
});
