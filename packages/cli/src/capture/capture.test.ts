/** `roce capture`: the table from a capture that is known, and real frames on loopback where that is allowed. */
import { spawn, spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { chownSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { macText, readPackets } from '@node-roce/capture/node';
import { openCapture } from '@node-roce/pcap/node';
import { buildPfc } from '@node-roce/wire';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../../testing/folder.ts';
import { run } from '../cli.ts';
import { Terminal } from '../terminal.ts';
import { FlowTable } from './flow-counts.ts';
import { InterfaceSource } from './interface-source.ts';
import { LiveView } from './live-view.ts';

const PROGRAM = join(import.meta.dirname, '../../bin/roce.js');
removeFolders();
const captures = join(import.meta.dirname, '../../../../test/fixtures/captures');

function collecting(isTTY = false, rows = 24) {
  const chunks: Buffer[] = [];
  const errors: string[] = [];
  const interrupt = new AbortController();
  const sink = {
    write: (data: string | Uint8Array, done?: () => void) => {
      chunks.push(Buffer.from(data));
      done?.();
    },
    isTTY,
    rows,
    columns: 200,
  };
  const streams = {
    stdin: Readable.from([]),
    stdout: sink,
    stderr: { write: (text: string | Uint8Array) => errors.push(String(text)) },
    env: { NO_COLOR: '1' },
    signal: interrupt.signal,
  };
  return {
    streams,
    interrupt,
    bytes: () => Buffer.concat(chunks),
    out: () => Buffer.concat(chunks).toString(),
    err: () => errors.join(''),
  };
}

async function tableOf(name: string) {
  const table = new FlowTable();
  const { addresses } = await readPackets(join(captures, name), { onPacket: (packet) => table.add(packet) });
  return { table, addresses };
}

describe('the table', () => {
  test('counts of a lossy exchange, and rates since the look before', async () => {
    const { table, addresses } = await tableOf('loss5_both_rc_pingpong.pcap');
    const { streams, out } = collecting();
    const view = new LiveView(table, addresses, new Terminal(streams), true);
    view.show({ seconds: 2, dropped: 3 });
    view.show({ seconds: 3, dropped: 3 });
    const [first, second] = out()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const { total, flows } = table;
    expect(first).toMatchObject({
      type: 'interval',
      dropped: 3,
      packets: total.packets,
      packetsPerSecond: total.packets / 2,
      bitsPerSecond: (total.bytes * 8) / 2,
    });
    expect(second.packetsPerSecond).toBe(0);
    expect(first.flows).toHaveLength(flows.length);
    const sums = first.flows.reduce(
      (sum: { packets: number; bytes: number; sentAgain: number; naks: number }, flow: typeof sum) => ({
        packets: sum.packets + flow.packets,
        bytes: sum.bytes + flow.bytes,
        sentAgain: sum.sentAgain + flow.sentAgain,
        naks: sum.naks + flow.naks,
      }),
      { packets: 0, bytes: 0, sentAgain: 0, naks: 0 },
    );
    expect(sums).toEqual({
      packets: total.packets,
      bytes: total.bytes,
      sentAgain: total.sentAgain,
      naks: total.naks,
    });
    expect(total.sentAgain).toBeGreaterThan(0);
  });

  test('without loss nothing is retransmitted', async () => {
    const { table } = await tableOf('op_all.pcap');
    expect(table.total).toMatchObject({ sentAgain: 0, icrcBad: 0 });
    expect(table.total.packets).toBe(42);
  });

  test('bad ICRCs are counted, and the contents of their packets ignored', async () => {
    const { table } = await tableOf('corrupt_A.pcap');
    expect(table.total.icrcBad).toBe(20);
  });

  test('a terminal shows as many flows as it has room for, over the last ones', async () => {
    const { table, addresses } = await tableOf('op_all.pcap');
    const { streams, out } = collecting(true, 6);
    const view = new LiveView(table, addresses, new Terminal(streams), false);
    view.show({ seconds: 1, dropped: 0 });
    const drawn = out().split('\n').length - 1;
    expect(out()).toContain(`and ${table.flows.length - 1} more`);
    view.show({ seconds: 2, dropped: 0 });
    expect(out()).toContain(`\u001b[${drawn}A\u001b[J`);
    view.end({ seconds: 3, dropped: 0 });
    for (const { destQp } of table.flows) expect(out()).toContain(destQp.toString(16).padStart(6, '0'));
  });
});

test.each([
  [['capture'], /capture needs -i <interface>; interfaces: .*\blo\b/],
  [['capture', '-i', 'lo', '-w', '-', '--live'], /-w - writes to standard output/],
])('%j: exit code 2', async (args, message) => {
  const { streams, out, err } = collecting();
  expect(await run(args, streams)).toBe(2);
  expect(out()).toBe('');
  expect(err()).toMatch(message);
});

const mayCapture = await InterfaceSource.open({ interface: 'lo' }).then(
  async (source) => {
    await source[Symbol.asyncDispose]();
    return true;
  },
  () => false,
);

describe.skipIf(!mayCapture)('on loopback', () => {
  /** An ACK, as far as the reader wants to know; a source port distinguishes it from other tests' packets. */
  const ACK = Uint8Array.of(0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0x48, 0, 0, 0, 7, 0x1f, 0, 0, 1, 1, 2, 3, 4);

  // Without it the kernel answers each packet with an ICMP error, which is captured, too.
  const receiver = createSocket({ type: 'udp4', reuseAddr: true });
  beforeAll(() => new Promise<void>((resolve) => receiver.bind(4791, '127.0.0.1', resolve)));
  afterAll(() => void receiver.close());

  async function sender(count: number): Promise<number> {
    const socket = createSocket('udp4');
    await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
    const { port } = socket.address();
    for (let i = 0; i < count; i++) {
      await new Promise((resolve) => socket.send(ACK, 4791, '127.0.0.1', resolve));
    }
    socket.close();
    return port;
  }

  async function portsIn(source: string | Readable): Promise<number[]> {
    const ports: number[] = [];
    await using capture = openCapture(source);
    for await (const batch of capture) {
      for (const { data } of batch) ports.push((data[34] << 8) | data[35]);
    }
    return ports;
  }

  test('pause frames too', async () => {
    const file = join(ownFolder(), 'lo.pcapng');
    const { streams, interrupt, err } = collecting();
    const done = run(['capture', '-i', 'lo', '-w', file], streams);
    await expect.poll(err).toContain('capturing');
    const frame = Buffer.from(buildPfc(Uint8Array.of(2, 0, 0, 0, 0x77, 1), { 3: 0xffff })).toString('hex');
    const script = `import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(("lo", 0)); s.send(bytes.fromhex("${frame}"))`;
    expect(spawnSync('python3', ['-c', script], { encoding: 'utf8' }).stderr).toBe('');
    interrupt.abort();
    expect(await done).toBe(0);
    const seen: string[] = [];
    await readPackets(file, { onPause: (pause) => seen.push(macText(pause.source)) });
    expect(seen).toEqual(['02:00:00:00:77:01']);
  });

  test('into a file until Ctrl-C: the sent packets, and the counts of the kernel', async () => {
    const file = join(ownFolder(), 'lo.pcapng');
    const { streams, interrupt, err } = collecting();
    const done = run(['capture', '-i', 'lo', '-w', file], streams);
    await expect.poll(err).toContain('capturing udp dst port 4791');
    const port = await sender(100);
    interrupt.abort();
    expect(await done).toBe(0);
    expect((await portsIn(file)).filter((p) => p === port)).toHaveLength(100);
    const { summary } = await readPackets(file);
    expect(summary).toMatchObject({ droppedByCapture: 0, damage: undefined, linkTypes: ['ETHERNET'] });
    expect(err()).toContain(`${summary.frames} frames captured on lo`);
  });

  test('ICMP errors about RoCE packets are counted by the reader', async () => {
    const file = join(ownFolder(), 'icmp.pcapng');
    const { streams, err } = collecting();
    const done = run(['capture', '-i', 'lo', '-c', '2', '-w', file], streams);
    await expect.poll(err).toContain('capturing');
    const socket = createSocket('udp4');
    // Nobody listens at this address, so that the kernel answers.
    await new Promise((resolve) => socket.send(ACK, 4791, '127.0.0.99', resolve));
    expect(await done).toBe(0);
    socket.close();
    const { summary } = await readPackets(file);
    expect(summary).toMatchObject({ frames: 2, rocePackets: 1, icmpErrors: 1 });
  });

  test('--count and --json', async () => {
    const { streams, out, err } = collecting();
    const done = run(['capture', '-i', 'lo', '--json', '-c', '5'], streams);
    await expect.poll(err).toContain('capturing');
    await sender(20);
    expect(await done).toBe(0);
    const last = JSON.parse(out().trim().split('\n').at(-1)!);
    expect(last).toMatchObject({ type: 'summary', interface: 'lo', frames: 5, packets: 5, dropped: 0 });
  });

  test('-w -: the capture on stdout', async () => {
    const { streams, interrupt, bytes, err } = collecting();
    const done = run(['capture', '-i', 'lo', '-w', '-'], streams);
    await expect.poll(err).toContain('capturing');
    const port = await sender(10);
    interrupt.abort();
    expect(await done).toBe(0);
    expect((await portsIn(Readable.from([bytes()]))).filter((p) => p === port)).toHaveLength(10);
  });

  test('-d: ends by itself', async () => {
    const { streams, err } = collecting();
    expect(await run(['capture', '-i', 'lo', '-d', '0.1'], streams)).toBe(0);
    expect(err()).toContain('captured on lo');
  });

  test('a file that can not be made: the system’s word, exit code 1', async () => {
    const { streams, err } = collecting();
    expect(await run(['capture', '-i', 'lo', '-w', '/nonexistent/x.pcapng'], streams)).toBe(1);
    expect(err()).toContain('/nonexistent/x.pcapng: no such file or directory');
  });

  test('under sudo root is given up once the socket is open', async () => {
    if (process.getuid!() !== 0) return; // With CAP_NET_RAW alone there is nothing to give up.
    const [uid, gid] = [54_321, 54_322];
    const folder = ownFolder();
    chownSync(folder, uid, gid);
    const file = join(folder, 'lo.pcapng');
    const child = spawn(process.execPath, [PROGRAM, 'capture', '-i', 'lo', '-w', file], {
      env: { ...process.env, SUDO_UID: `${uid}`, SUDO_GID: `${gid}`, SUDO_USER: 'nobody-of-this-name' },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let told = '';
    child.stderr.on('data', (text) => {
      told += text;
    });
    await expect.poll(() => told).toContain('capturing');
    const port = await sender(10);
    const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
    expect(status).toMatch(new RegExp(`^Uid:(\\s${uid}){4}$`, 'm'));
    expect(status).toMatch(new RegExp(`^Gid:(\\s${gid}){4}$`, 'm'));
    expect(status).toMatch(new RegExp(`^Groups:\\s${gid} *$`, 'm'));
    expect(status).toMatch(/^CapEff:\s0+$/m);
    child.kill('SIGINT');
    await once(child, 'exit');
    expect(statSync(file)).toMatchObject({ uid, gid });
    expect((await portsIn(file)).filter((p) => p === port)).toHaveLength(10);
  });

  test('a reader of --live that goes away: the file is whole', { tags: ['slow'] }, async () => {
    const folder = ownFolder();
    const file = join(folder, 'lo.pcapng');
    const child = spawn(process.execPath, [PROGRAM, 'capture', '-i', 'lo', '-w', file, '--live'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      // The user of this test keeps its rights.
      env: { ...process.env, SUDO_UID: undefined },
    });
    let told = '';
    child.stderr.on('data', (text) => {
      told += text;
    });
    await expect.poll(() => told).toContain('capturing');
    const port = await sender(10);
    child.stdout.destroy();
    const [code] = await once(child, 'close');
    expect(code).toBe(0);
    expect(told).toContain(`, written to ${file}`);
    expect((await portsIn(file)).filter((p) => p === port)).toHaveLength(10);
    expect((await readPackets(file)).summary).toMatchObject({ droppedByCapture: 0, damage: undefined });
  });

  test('no such interface: which there are', async () => {
    const { streams, err } = collecting();
    expect(await run(['capture', '-i', 'nix0'], streams)).toBe(1);
    expect(err()).toMatch(/there is no interface nix0 \(expected .*\blo\b/);
  });
});
