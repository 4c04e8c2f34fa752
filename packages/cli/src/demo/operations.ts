/** The operations of the demo: SEND, RDMA WRITE and RDMA READ, each timed, counted and compared. */
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { completionError } from '@node-roce/verbs-api';
import { type Pair, type Side, series, success } from './pair.ts';

/** One operation, all its messages together. */
export interface Row {
  what: string;
  messages: number;
  bytes: number;
  /** Both sides'. */
  packets: number;
  /** Packets that the faulty link lost, of both directions; 0 without one. */
  lost: number;
  retransmitted: number;
  seconds: number;
  sha256: string;
  equal: boolean;
}

/** Microseconds. */
export interface RoundTrip {
  p50: number;
  p99: number;
  /** By a loop that polls; else by awaiting each completion. */
  polled: boolean;
}

const MESSAGE = 1 << 20;
/** Bytes filled or hashed without a turn of the event loop. */
const PART = 4 << 20;
const ROUND_TRIPS = 2000;
/** Receives posted at once. */
const RECEIVES = 64;

/** Passes over memory in parts, with a turn of the event loop between them: Ctrl-C interrupts it. */
async function inParts(
  { bytes, signal }: Pick<Side, 'bytes' | 'signal'>,
  visit: (part: Uint8Array, offset: number) => void,
): Promise<void> {
  for (let offset = 0; offset < bytes.length; offset += PART) {
    visit(bytes.subarray(offset, offset + PART), offset);
    await nextTurn();
    signal.throwIfAborted();
  }
}

async function sha256(side: Pick<Side, 'bytes' | 'signal'>): Promise<string> {
  const hash = createHash('sha256');
  await inParts(side, (part) => hash.update(part));
  return hash.digest('hex');
}

async function fillPattern(side: Side, salt: number): Promise<void> {
  await inParts(side, (part, offset) => {
    for (let i = 0; i < part.length; i++) {
      const at = offset + i;
      part[i] = (at * 7 + (at >> 8) * 13 + (at >> 16) + salt) & 0xff;
    }
  });
}

/** Moves `size` bytes by each operation, in messages of 1 MiB. */
export async function moveAll({ a, b }: Pair, size: number): Promise<Row[]> {
  const count = Math.ceil(size / MESSAGE);
  const part = (i: number) => ({ offset: i * MESSAGE, length: Math.min(MESSAGE, size - i * MESSAGE) });
  const rows: Row[] = [];
  const timed = async (what: string, source: Side, target: Side, move: () => Promise<void>) => {
    await fillPattern(source, rows.length + 1);
    target.bytes.fill(0);
    const before = await countsOf(a, b);
    const start = performance.now();
    await move();
    const seconds = (performance.now() - start) / 1000;
    const after = await countsOf(a, b);
    const digest = await sha256(target);
    rows.push({
      what,
      messages: count,
      bytes: size,
      packets: after.packets - before.packets,
      lost: after.lost - before.lost,
      retransmitted: after.retransmitted - before.retransmitted,
      seconds,
      sha256: digest,
      equal: digest === (await sha256(source)),
    });
  };

  await timed('SEND', a, b, async () => {
    const receive = (i: number) => b.qp.postRecv({ sgList: [{ mr: b.mr, ...part(i) }] });
    for (let i = 0; i < Math.min(count, RECEIVES); i++) receive(i);
    const received = (async () => {
      for (let i = 0; i < count; i++) {
        await success(b);
        if (i + RECEIVES < count) receive(i + RECEIVES);
      }
    })();
    await series(a, count, (i) => ({ opcode: 'SEND', signaled: true, sgList: [{ mr: a.mr, ...part(i) }] }));
    await received;
  });
  const remotely = (opcode: 'RDMA_WRITE' | 'RDMA_READ') => () =>
    series(a, count, (i) => ({
      opcode,
      signaled: true,
      sgList: [{ mr: a.mr, ...part(i) }],
      remote: b.mr.remote(i * MESSAGE),
    }));
  await timed('RDMA WRITE', a, b, remotely('RDMA_WRITE'));
  await timed('RDMA READ', b, a, remotely('RDMA_READ'));
  return rows;
}

async function countsOf(a: Side, b: Side) {
  const [ofA, ofB] = [await a.qp.counters(), await b.qp.counters()];
  const { link } = await a.device.counters();
  return {
    packets: ofA.sentPackets + ofB.sentPackets,
    retransmitted: ofA.retransmittedPackets + ofB.retransmittedPackets,
    lost: (link['inbound.lost'] ?? 0) + (link['outbound.lost'] ?? 0),
  };
}

/** Round trips of messages of `length` bytes. */
export async function pingPong({ a, b }: Pair, length: number): Promise<RoundTrip> {
  const polled = !a.device.query().needsEventLoop;
  const times: number[] = [];
  for (let i = 0; i < ROUND_TRIPS; i++) {
    a.qp.postRecv({ sgList: [{ mr: a.mr, length }] });
    b.qp.postRecv({ sgList: [{ mr: b.mr, length }] });
    const start = performance.now();
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const) {
      from.qp.postSend({ opcode: 'SEND', sgList: [{ mr: from.mr, length }] });
      if (polled) poll(to, from);
      else await success(to);
    }
    times.push((performance.now() - start) * 1000);
  }
  times.sort((x, y) => x - y);
  return { p50: times[times.length >> 1], p99: times[Math.floor(times.length * 0.99)], polled };
}

/** Polls for one completion of `side`; polling also runs the other side's engine. */
function poll(side: Side, other: Side): void {
  for (;;) {
    const [wc] = side.cq.poll(1);
    other.cq.poll(0);
    if (wc === undefined) continue;
    if (!wc.ok) throw completionError(wc);
    return;
  }
}

/** Moves one message by each operation. Returns whether all arrived unchanged. */
export async function moveOne({ a, b }: Pair, length: number): Promise<boolean> {
  await fillPattern(a, 4);
  const digestOf = ({ bytes, signal }: Side) => sha256({ bytes: bytes.subarray(0, length), signal });
  const want = await digestOf(a);
  const sgList = [{ mr: a.mr, length }];
  b.qp.postRecv({ sgList: [{ mr: b.mr, length }] });
  await series(a, 1, () => ({ opcode: 'SEND', signaled: true, sgList }));
  await success(b);
  const sent = (await digestOf(b)) === want;
  b.bytes.fill(0);
  await series(a, 1, () => ({ opcode: 'RDMA_WRITE', signaled: true, sgList, remote: b.mr.remote() }));
  const written = (await digestOf(b)) === want;
  a.bytes.fill(0);
  await series(a, 1, () => ({ opcode: 'RDMA_READ', signaled: true, sgList, remote: b.mr.remote() }));
  return sent && written && (await digestOf(a)) === want;
}
