/** What the demo does with its pair: SEND, RDMA WRITE and RDMA READ, each timed, counted and compared. */
import { createHash } from 'node:crypto';
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
const ROUND_TRIPS = 2000;
/** Receives posted at once. */
const RECEIVES = 64;

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

function fillPattern(bytes: Uint8Array, salt: number): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 7 + (i >> 8) * 13 + (i >> 16) + salt) & 0xff;
}

/** Moves `size` bytes by each operation, in messages of 1 MiB. */
export async function moveAll({ a, b }: Pair, size: number): Promise<Row[]> {
  const count = Math.ceil(size / MESSAGE);
  const part = (i: number) => ({ offset: i * MESSAGE, length: Math.min(MESSAGE, size - i * MESSAGE) });
  const rows: Row[] = [];
  const timed = async (what: string, source: Side, target: Side, move: () => Promise<void>) => {
    fillPattern(source.bytes, rows.length + 1);
    target.bytes.fill(0);
    const before = await countsOf(a, b);
    const start = performance.now();
    await move();
    const seconds = (performance.now() - start) / 1000;
    const after = await countsOf(a, b);
    const digest = sha256(target.bytes);
    rows.push({
      what,
      messages: count,
      bytes: size,
      packets: after.packets - before.packets,
      lost: after.lost - before.lost,
      retransmitted: after.retransmitted - before.retransmitted,
      seconds,
      sha256: digest,
      equal: digest === sha256(source.bytes),
    });
  };

  await timed('SEND', a, b, async () => {
    const receive = (i: number) => b.qp.postRecv({ sgList: [{ mr: b.mr, ...part(i) }] });
    for (let i = 0; i < Math.min(count, RECEIVES); i++) receive(i);
    const received = (async () => {
      for (let i = 0; i < count; i++) {
        await success(b.cq);
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
      else await success(to.cq);
    }
    times.push((performance.now() - start) * 1000);
  }
  times.sort((x, y) => x - y);
  return { p50: times[times.length >> 1], p99: times[Math.floor(times.length * 0.99)], polled };
}

/** Waits for one completion of `side` in a loop, which also makes the other side run. */
function poll(side: Side, other: Side): void {
  for (;;) {
    const [wc] = side.cq.poll(1);
    other.cq.poll(0);
    if (wc === undefined) continue;
    if (!wc.ok) throw completionError(wc);
    return;
  }
}

/** One message of each kind. False if one arrived otherwise than it was sent. */
export async function moveOne({ a, b }: Pair, length: number): Promise<boolean> {
  fillPattern(a.bytes, 4);
  const want = sha256(a.bytes.subarray(0, length));
  const sgList = [{ mr: a.mr, length }];
  b.qp.postRecv({ sgList: [{ mr: b.mr, length }] });
  await series(a, 1, () => ({ opcode: 'SEND', signaled: true, sgList }));
  await success(b.cq);
  const sent = sha256(b.bytes.subarray(0, length)) === want;
  b.bytes.fill(0);
  await series(a, 1, () => ({ opcode: 'RDMA_WRITE', signaled: true, sgList, remote: b.mr.remote() }));
  const written = sha256(b.bytes.subarray(0, length)) === want;
  a.bytes.fill(0);
  await series(a, 1, () => ({ opcode: 'RDMA_READ', signaled: true, sgList, remote: b.mr.remote() }));
  return sent && written && sha256(a.bytes.subarray(0, length)) === want;
}
