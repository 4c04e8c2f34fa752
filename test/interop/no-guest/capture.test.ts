/**
 * `roce capture` on interfaces of its own: it takes what is RoCE, loses nothing that it does not count, and sees
 * what the adapters' own tracers see.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as path } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  analyzeCapture,
  type DirectionCounts,
  type RetransmitCause,
  readPackets,
} from '@node-roce/capture/node';
import { openCapture } from '@node-roce/pcap/node';
import { buildPacket, fromHex, type Packet, parseFrame, setU16, toHex } from '@node-roce/wire';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { join, Namespace } from '../harness/namespaces.ts';
import { end } from '../harness/process.ts';

const root = path(import.meta.dirname, '../../..');
const roce = path(root, 'packages/cli/bin/roce.js');
const side = path(import.meta.dirname, '../harness/watched-side.mjs');
const scratch = mkdtempSync(path(tmpdir(), 'roce-capture-'));

const A = '10.78.0.1';
const B = '10.78.0.2';
const CABLE = 'cable';
let a: Namespace;
let b: Namespace;

beforeAll(async () => {
  a = await Namespace.make();
  b = await Namespace.make();
  join(a, b, CABLE, [A, B]);
});

afterAll(async () => {
  await a?.[Symbol.asyncDispose]();
  await b?.[Symbol.asyncDispose]();
  rmSync(scratch, { recursive: true });
});

interface Summary {
  frames: number;
  received: number;
  dropped: number;
  packets: number;
}

/** `roce capture` in a namespace. */
class Recording {
  readonly file: string;
  readonly child: ChildProcess;
  #out = '';
  #err = '';

  constructor(where: Namespace, name: string, ...args: string[]) {
    this.file = path(scratch, `${name}.pcapng`);
    const given = [
      'capture',
      '-w',
      this.file,
      '--json',
      ...(args.includes('-i') ? [] : ['-i', CABLE]),
      ...args,
    ];
    this.child = where.spawn(process.execPath, [roce, ...given], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.child.stdout!.on('data', (data) => {
      this.#out += data;
    });
    this.child.stderr!.on('data', (data) => {
      this.#err += data;
    });
  }

  /** Resolves when it captures. */
  async begun(): Promise<this> {
    while (!this.#err.includes('capturing')) {
      if (this.child.exitCode !== null) throw new Error(this.#err);
      await sleep(20);
    }
    return this;
  }

  /** Ends it by Ctrl-C; resolves to the summary that it prints. */
  async ended(): Promise<Summary> {
    await end(this.child, 'SIGINT', 30_000);
    expect(this.child.exitCode, this.#err).toBe(0);
    return JSON.parse(this.#out.trim().split('\n').at(-1)!);
  }

  async failed(): Promise<string> {
    if (this.child.exitCode === null) await once(this.child, 'exit');
    expect(this.child.exitCode).toBe(1);
    return this.#err;
  }
}

/** One end of a bench run, in a namespace. */
class Side {
  readonly #child: ChildProcess;

  /** @param retransmissions file that its device's retransmissions and their causes are written to */
  constructor(where: Namespace, retransmissions: string) {
    this.#child = where.spawn(process.execPath, [side, retransmissions], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
    });
  }

  // biome-ignore lint/suspicious/noExplicitAny: what bench/sides/node-roce.mjs answers.
  async ask(command: string, options: Record<string, unknown> = {}): Promise<any> {
    const answer = once(this.#child, 'message');
    this.#child.send({ command, ...options });
    const [{ result, error }] = await answer;
    if (error !== undefined) throw new Error(error);
    return result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await end(this.#child);
  }
}

interface RunOptions {
  name: string;
  messages: number;
  /** At B, so behind A's cable. */
  faults?: Record<string, unknown>;
}

interface Run {
  /** The tracers' files, A's first. */
  traces: [string, string];
  /** The retransmissions of A's adapter, in order. */
  sentAgain: { psn: number; cause: RetransmitCause }[];
}

/** WRITEs from A to B and READs back, with both tracers on. */
async function benchRun({ name, messages, faults }: RunOptions): Promise<Run> {
  const told = path(scratch, `${name}-a.json`);
  await using ours = new Side(a, told);
  await using theirs = new Side(b, path(scratch, `${name}-b.json`));
  const traces: [string, string] = [path(scratch, `${name}-a.pcapng`), path(scratch, `${name}-b.pcapng`)];
  const common = { mtu: 1024, offload: true };
  const at = await ours.ask('open', { ...common, address: A, trace: traces[0] });
  const bt = await theirs.ask('open', {
    ...common,
    address: B,
    trace: traces[1],
    ...(faults ? { faults } : {}),
  });
  await ours.ask('connect', { peer: bt.data });
  await theirs.ask('connect', { peer: at.data });
  for (const operation of ['WRITE', 'READ']) {
    await ours.ask('prepare', { operation, size: 20_000, depth: 16, remote: bt.remote });
    await ours.ask('stream', { count: messages });
  }
  await ours.ask('close');
  await theirs.ask('close');
  return { traces, sentAgain: JSON.parse(readFileSync(told, 'utf8')) };
}

/** How often each packet is in a file, by all that identifies it, and the file's summary. */
async function census(file: string) {
  const counts = new Map<string, number>();
  const { summary } = await readPackets(file, {
    onPacket: (packet, { addresses }) => {
      const { opcode, psn, destQp, ackReq, payloadLength, extensions, payload, icrc, bytes } = packet;
      const key = [
        `${addresses.text(packet.source)} → ${addresses.text(packet.destination)}`,
        ...[opcode, destQp, psn, ackReq, payloadLength, icrc],
        toHex(bytes.subarray(extensions, payload)),
      ].join(' ');
      counts.set(key, (counts.get(key) ?? 0) + 1);
    },
  });
  expect(summary.damage).toBeUndefined();
  return { counts, summary };
}

/** Findings that the times of packets decide, which differ by microseconds: the length of a stall, an answer that crossed a repetition. */
const BY_TIMES = [
  'stalls',
  'repeated-frames',
  'spurious-retransmission',
  'slow-responder',
  'host-stood-still',
  'idle-like-timeout',
];

/**
 * The analysis without the parts on which observers of one end can't agree: numbers of frames (a super-packet is one),
 * times, and so whether the cause of a retransmission is certain; and whether a response or an ACK came before or after its
 * request was retransmitted, because the tracer sees it when the adapter looks at it, and the capture when it arrives.
 */
async function verdictOn(file: string) {
  const { connections, findings } = await analyzeCapture(file);
  const plain = (counts: DirectionCounts) => {
    const { goBacks: _g, repeatedResponses: _r, ghostAcks: _a, repeatedFrames, requests, ...rest } = counts;
    // Times differ by microseconds between the two, and with them what is shown of causes, and how surely.
    const { retransmitCauses: _c, goBackCauses: _b, retransmitGrades: _d, retransmitted, ...others } = rest;
    // A packet that the requester sends twice at once may pass for a copy of itself, by its times again.
    const sent = { requests: requests + repeatedFrames, retransmitted: retransmitted + repeatedFrames };
    return { ...others, ...sent };
  };
  return {
    connections: connections.map(({ a, b, transport, pairing, pathMtu, ...rest }) => ({
      ...{ a, b, transport, pairing, pathMtu },
      aToB: plain(rest.aToB),
      bToA: plain(rest.bToA),
      messagesFromA: rest.messagesFromA,
      messagesFromB: rest.messagesFromB,
    })),
    findings: findings
      .filter(({ kind }) => !BY_TIMES.includes(kind))
      .map(({ kind, severity, connection }) => ({ kind, severity, connection })),
  };
}

/** The retransmissions of requesters in a file, in order. */
async function retransmissionsIn(file: string) {
  const found: (Run['sentAgain'][number] & { isCertain: boolean })[] = [];
  await analyzeCapture(file, {
    onPacket: ({ psn }, { retransmission: cause, grade }) => {
      if (cause !== undefined) found.push({ psn, cause, isCertain: grade === 'certain' });
    },
  });
  return found;
}

describe('a bench run between two namespaces', () => {
  test('the capture has the packets of both tracers, each once', async () => {
    const recording = await new Recording(a, 'whole', '--buffer', '256M').begun();
    const { traces } = await benchRun({ name: 'whole', messages: 500 });
    const { received, dropped, frames } = await recording.ended();
    expect({ dropped, frames }).toEqual({ dropped: 0, frames: received });
    const captured = await census(recording.file);
    expect(captured.summary).toMatchObject({ frames, droppedByCapture: 0 });
    expect(captured.summary.superPackets).toBeGreaterThan(0);
    expect(captured.summary.rocePackets).toBeGreaterThan(20_000);
    for (const trace of traces) {
      const traced = await census(trace);
      expect(traced.summary.droppedByCapture).toBeUndefined();
      expect(captured.counts).toEqual(traced.counts);
    }
    // The other end at times reads both copies of a retransmitted packet at once, and can't distinguish them from a packet that the capture shows twice.
    expect(await verdictOn(recording.file)).toEqual(await verdictOn(traces[0]));
  });

  test('with packets lost behind it: as the tracer at its end has it, and no NAK as a cause that was none', async () => {
    const recording = await new Recording(a, 'lossy', '--buffer', '256M').begun();
    const faults = { loss: 0.005, seed: 7 };
    const { traces, sentAgain } = await benchRun({ name: 'lossy', messages: 200, faults });
    const [trace] = traces;
    const { dropped } = await recording.ended();
    expect(dropped).toBe(0);
    const [captured, traced] = [await census(recording.file), await census(trace)];
    expect(captured.counts).toEqual(traced.counts);

    const verdict = await verdictOn(recording.file);
    expect(verdict).toEqual(await verdictOn(trace));
    expect(verdict.findings.map(({ kind }) => kind)).toContain('retransmissions');

    expect(sentAgain.length).toBeGreaterThan(20);
    for (const file of [recording.file, trace]) {
      const found = await retransmissionsIn(file);
      expect(found.map(({ psn }) => psn)).toEqual(sentAgain.map(({ psn }) => psn));
      // Timers show in their intervals, which a machine that stalls can bring about by chance.
      const byNak = (cause: RetransmitCause) => ['sequence-nak', 'implied-nak', 'rnr'].includes(cause);
      expect(found.some(({ cause }) => byNak(cause))).toBe(true);
      const wrong = found.filter(
        ({ cause, isCertain }, i) => isCertain && byNak(cause) && cause !== sentAgain[i].cause,
      );
      // Defect: a probe that crosses a NAK for the same packet is called its answer, certainly.
      expect(wrong.length, JSON.stringify(wrong)).toBeLessThanOrEqual(found.length / 50);
    }
  });

  test('counts the packets that it can not take, and writes all others', async () => {
    const whole = await new Recording(a, 'beside', '--buffer', '256M').begun();
    const stopped = await new Recording(a, 'stopped', '--buffer', '1M').begun();
    stopped.child.kill('SIGSTOP');
    await benchRun({ name: 'stopped', messages: 200 });
    stopped.child.kill('SIGCONT');
    const [all, some] = [await whole.ended(), await stopped.ended()];
    expect(all.dropped).toBe(0);
    expect(some.dropped).toBeGreaterThan(0);
    expect(some.received).toBe(all.received);
    expect(some.frames).toBe(some.received - some.dropped);
    const { summary } = await census(stopped.file);
    expect(summary).toMatchObject({ frames: some.frames, droppedByCapture: some.dropped });
  });
});

/** Frames that a filter should or should not take. */
const ACK = fromHex(
  '183d5ebf5192183d5ebf43710800450200300000400040112d60c0a84604c0a84606004512b7001c00001140ffff00000048000000000600000090d7755d',
);
const V1 = fromHex(
  '7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb',
);

function frameOf(change: (packet: Packet) => void): Uint8Array {
  const parsed = parseFrame(ACK);
  if (!parsed.ok) throw new Error(parsed.detail);
  change(parsed.packet);
  return buildPacket({ ...parsed.packet, icrc: undefined });
}

const tagged = (...tpids: number[]) =>
  frameOf((packet) => {
    packet.ethernet!.vlans = tpids.map((tpid, i) => ({ tpid, tci: 0x2005 + i }));
  });

const v6 = frameOf((packet) => {
  packet.ethernet!.etherType = 0x86dd;
  packet.ip = {
    version: 6,
    trafficClass: 2,
    flowLabel: 7,
    payloadLength: 0,
    nextHeader: 17,
    hopLimit: 9,
    source: fromHex('fd780000000000000000000000000001'),
    destination: fromHex('fd780000000000000000000000000002'),
  };
});

const withOptions = (() => {
  // Two words of no-operation behind the 20 bytes of IPv4.
  const frame = new Uint8Array(ACK.length + 8);
  frame.set(ACK.subarray(0, 34));
  frame.fill(1, 34, 42);
  frame.set(ACK.subarray(34), 42);
  frame[14] = 0x47;
  setU16(frame, 16, 0x38);
  return frame;
})();

const changed = (at: number, ...bytes: number[]) => {
  const frame = ACK.slice();
  frame.set(bytes, at);
  return frame;
};

const ROCE = {
  IPv4: ACK,
  IPv6: v6,
  'RoCE v1': V1,
  'a VLAN tag': tagged(0x8100),
  'two tags': tagged(0x88a8, 0x8100),
  'two tags of old': tagged(0x9100, 0x8100),
  'three tags': tagged(0x88a8, 0x8100, 0x8100),
  'IPv4 options': withOptions,
  'a first fragment': changed(20, 0x20, 0),
};
const OTHER = {
  'another port': changed(36, 0x12, 0xb8),
  'from port 4791': changed(34, 0x12, 0xb7, 0x12, 0xb8),
  'a later fragment': changed(20, 0x00, 0x10),
  TCP: changed(23, 6),
  ARP: Uint8Array.of(...ACK.subarray(0, 12), 8, 6, ...ACK.subarray(14)),
};
const MIRRORS = { VXLAN: changed(36, 0x12, 0xb5), GRE: changed(23, 47) };

/** Sends frames as they are; or packets without an Ethernet header into a tunnel that it opens. */
const SENDER = `
import fcntl, os, socket, struct, sys
how, name, frames = sys.argv[1], sys.argv[2], [bytes.fromhex(f) for f in sys.argv[3:]]
if how == 'raw':
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((name, 0))
    for f in frames: s.send(f)
else:
    t = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(t, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x1001))
    print('open', flush=True)
    sys.stdin.readline()
    for f in frames: os.write(t, f)
    sys.stdin.readline()
`;

async function framesIn(file: string): Promise<string[]> {
  const frames: string[] = [];
  await using capture = openCapture(file);
  for await (const batch of capture) frames.push(...batch.map(({ data }) => toHex(data)));
  return frames;
}

const hexOf = (frames: Record<string, Uint8Array>) => Object.values(frames).map((frame) => toHex(frame));

describe('the filter in the kernel', () => {
  test('takes RoCE, behind tags too, which are put back; leaves all else', async () => {
    const recording = await new Recording(b, 'filter').begun();
    a.run('python3', '-c', SENDER, 'raw', CABLE, ...hexOf({ ...ROCE, ...OTHER, ...MIRRORS }));
    await sleep(100);
    await recording.ended();
    expect(await framesIn(recording.file)).toEqual(hexOf(ROCE));
  });

  test('--mirrors takes VXLAN and GRE too', async () => {
    const recording = await new Recording(b, 'mirrors', '--mirrors').begun();
    a.run('python3', '-c', SENDER, 'raw', CABLE, ...hexOf({ ...OTHER, ...MIRRORS }));
    await sleep(100);
    await recording.ended();
    expect(await framesIn(recording.file)).toEqual(hexOf(MIRRORS));
  });

  test('on the sending side as well, and cut where that is wanted', async () => {
    const recording = await new Recording(a, 'sending', '--snaplen', '64', '--cut-all').begun();
    a.run('python3', '-c', SENDER, 'raw', CABLE, ...hexOf({ ...ROCE, ...OTHER }));
    await sleep(100);
    await recording.ended();
    expect(await framesIn(recording.file)).toEqual(hexOf(ROCE).map((frame) => frame.slice(0, 128)));
    const { summary } = await census(recording.file);
    expect(summary.cutFrames).toBe(Object.values(ROCE).filter(({ length }) => length > 64).length);
  });

  test('a veth shows super-packets: --snaplen alone does not cut, and a message is given', async () => {
    const recording = await new Recording(a, 'whole', '--snaplen', '64').begun();
    a.run('python3', '-c', SENDER, 'raw', CABLE, ...hexOf(ROCE));
    await sleep(100);
    await recording.ended();
    expect(await framesIn(recording.file)).toEqual(hexOf(ROCE));
  });

  test('interfaces without Ethernet: packets from IP on', async () => {
    const packets = [ACK.subarray(14), v6.subarray(14), changed(36, 0x12, 0xb8).subarray(14)].map((p) =>
      toHex(p),
    );
    const sender = a.spawn('python3', ['-c', SENDER, 'tun', 'tunnel', ...packets], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    await once(sender.stdout!, 'data');
    a.run('ip', 'link', 'set', 'tunnel', 'up');
    const recording = await new Recording(a, 'tunnel', '-i', 'tunnel').begun();
    sender.stdin!.write('\n');
    await sleep(100);
    await recording.ended();
    await end(sender);
    expect(await framesIn(recording.file)).toEqual(packets.slice(0, 2));
    expect((await census(recording.file)).summary.linkTypes).toEqual(['RAW']);
  });
});

test('an interface that goes down: the packets before are in a valid file, exit code 1', async () => {
  const c = await Namespace.make();
  const d = await Namespace.make();
  join(c, d, CABLE, ['10.79.0.1', '10.79.0.2']);
  const recording = await new Recording(d, 'down').begun();
  c.run('python3', '-c', SENDER, 'raw', CABLE, ...hexOf(ROCE));
  await sleep(100);
  d.run('ip', 'link', 'set', CABLE, 'down');
  expect(await recording.failed()).toContain('ENETDOWN');
  expect(await framesIn(recording.file)).toEqual(hexOf(ROCE));
  await c[Symbol.asyncDispose]();
  await d[Symbol.asyncDispose]();
});
