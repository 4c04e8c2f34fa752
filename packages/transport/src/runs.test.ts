/**
 * Runs of packets that differ in their PSNs alone are taken at once. That has to do the same as packet by packet: completions, memory, replies,
 * counters and state; for runs of every length, cut anywhere, with packets in the middle that do not belong there.
 */
import { createRandom, Opcode } from '@node-roce/wire';
import { afterEach, expect, test, vi } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../testing/by-hand.ts';
import type { Packet } from '../testing/pair.ts';
import { rewriteOnceRead } from '../testing/restless-ring.ts';
import {
  Access,
  type MrCreated,
  markRuns,
  RecvWqe,
  Ring,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
  Sge,
  setReach,
} from './index.ts';
import { ReceiveQueue } from './qp/receive-queue.ts';
import { Completer } from './requester/completer.ts';
import { InboundMessage } from './responder/message.ts';

const P = 0xff_fff0;
const MTU = 256;
const SHORT = 24;
/** Packets of the longest run that is cut at each of them. */
const LONGEST = 6;
/** Bytes of a receive. */
const PLACE = 512;
const { RC_SEND_ONLY, RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_MIDDLE, RC_RDMA_WRITE_LAST } = Opcode;
const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_MIDDLE, RC_RDMA_READ_RESPONSE_LAST } = Opcode;

const bytesOf = (length: number, seed: number) => Uint8Array.from({ length }, (_, i) => seed + i * 7);

/** Memory to register, and its bytes: of an eighth of the seeds they are behind calls, the last of which fail. */
function place(length: number, between: (low: number, high: number) => number) {
  const bytes = new Uint8Array(length);
  if (between(0, 7) > 0) return { buffer: bytes.buffer, bytes };
  const buffer = new SharedArrayBuffer(length);
  const end = length - between(0, 1) * 100;
  setReach(buffer, {
    pull: (offset, count) => offset + count <= end,
    push(from, source, offset, count) {
      if (offset + count > end) return false;
      bytes.set(from.subarray(source, source + count), offset);
      return true;
    },
    forget() {},
  });
  return { buffer, bytes };
}

/** Splits a list into batches at places that `next` chooses. */
function batches<T>(list: T[], next: () => number): T[][] {
  const parts: T[][] = [];
  for (let at = 0; at < list.length; ) {
    const count = 1 + next();
    parts.push(list.slice(at, at + count));
    at += count;
  }
  return parts;
}

/** Spoils a list of packets as a hostile or a bad network would: copies, gaps, other places, packets with another bit. */
function spoil(list: PacketInit[], between: (low: number, high: number) => number): PacketInit[] {
  const out = list.slice();
  for (let i = between(0, 4); i > 0 && out.length > 0; i--) {
    const at = between(0, out.length - 1);
    const packet = out[at];
    switch (between(0, 7)) {
      case 0:
        out.splice(at, 1);
        break;
      case 1:
        out.splice(between(0, out.length), 0, packet);
        break;
      case 2:
        out[at] = { ...packet, psn: packet.psn + between(-3, 3) };
        break;
      case 3:
        out[at] = { ...packet, payload: bytesOf(between(0, MTU), at) };
        break;
      case 4:
        out[at] = { ...packet, ackReq: packet.ackReq === false };
        break;
      case 5:
        out[at] = { ...packet, pkey: 0x1234 };
        break;
      case 6:
        out[at] = { ...packet, opcode: between(0, 0x12) };
        break;
      default:
        out[at] = { ...packet, pad: between(0, 3) };
    }
  }
  return out;
}

/** All that can be seen of a side. */
function state(hand: ByHand, polled: Ring) {
  const { side } = hand;
  const { adapter, qp } = side;
  return [
    side.poll(polled),
    side.events,
    adapter.queryQp(qp.qpn).attr,
    adapter.qpCounters(qp.qpn),
    adapter.counters(),
  ];
}

/** SENDs of one packet and WRITEs, by a seed, taken as runs or one by one. */
function requests(seed: number, runs: boolean) {
  const { between } = createRandom(seed);
  const hand = new ByHand();
  hand.runs = runs;
  const { side } = hand;
  const cq = side.adapter.createCq(between(0, 3) === 0 ? 32 : 512);
  const polled = new Ring(cq.ring);
  const keepEarly = (['off', 'quiet', 'ahead'] as const)[between(0, 2)];
  side.createQp({ maxRecvSge: 2, maxRecvWr: 256 }, { cq: cq.handle, recovery: { keepEarly } });
  hand.connect({ rqPsn: P, pathMtu: MTU });
  const { buffer, bytes: memory } = place(64 * PLACE, between);
  const mr = side.register(buffer);
  const nothing = side.adapter.allocNullMr(side.pd);
  const { buffer: there, bytes: target } = place(128 * MTU, between);
  const open = side.register(there, between(0, 9) === 0 ? Access.LOCAL_WRITE : 0xf);
  let psn = P;
  let posted = 0;
  const seen: unknown[] = [];
  for (let round = 0; round < 12; round++) {
    for (let i = between(0, 40); i > 0; i--) {
      const kind = between(0, 120);
      const region = kind === 0 ? { ...mr, lkey: mr.lkey ^ 1 } : kind === 1 ? { ...mr, ...nothing } : mr;
      const length = kind === 2 ? SHORT - 4 : SHORT + between(0, 40);
      const offset = (posted % 64) * PLACE;
      const list = [{ mr: region, offset, length }];
      if (kind === 3) list.push({ mr, offset: offset + length, length: 8 });
      if ((posted - polled.producer) >>> 0 < 200) side.postRecv(posted++, list);
    }
    const packets: PacketInit[] = [];
    const ackReq = between(0, 1) === 0;
    if (between(0, 1) === 0) {
      for (let i = between(1, 30); i > 0; i--)
        packets.push({ opcode: RC_SEND_ONLY, psn: psn++, ackReq, payload: bytesOf(SHORT, psn) });
    } else {
      const middles = between(0, 30);
      const length = (middles + 2) * MTU - between(0, MTU - 1) + (between(0, 20) === 0 ? MTU : 0);
      const reth = { addr: open.addr + BigInt(between(0, 90) * MTU), rkey: open.rkey, length };
      packets.push({ opcode: RC_RDMA_WRITE_FIRST, psn: psn++, ackReq, reth, payload: bytesOf(MTU, psn) });
      for (let i = 0; i < middles; i++)
        packets.push({ opcode: RC_RDMA_WRITE_MIDDLE, psn: psn++, ackReq, payload: bytesOf(MTU, psn) });
      const rest = ((length - 1) % MTU) + 1;
      packets.push({ opcode: RC_RDMA_WRITE_LAST, psn: psn++, payload: bytesOf(rest, psn) });
    }
    const list = between(0, 2) === 0 ? spoil(packets, between) : packets;
    for (const part of batches(list, () => between(0, 40))) {
      hand.put(...part);
      if (between(0, 2) > 0) seen.push(hand.out().map(inShort));
      if (between(0, 3) > 0) seen.push(side.poll(polled));
    }
    // Lost packets come again.
    if (between(0, 1) === 0) {
      hand.put(...packets);
      seen.push(hand.out().map(inShort));
    }
  }
  seen.push(hand.out().map(inShort), state(hand, polled));
  return {
    seen,
    memory: Buffer.from(memory).toString('base64'),
    target: Buffer.from(target).toString('base64'),
  };
}

test('requests: as runs and one by one', () => {
  for (let seed = 1; seed <= 60; seed++)
    expect(requests(seed, true), `seed ${seed}`).toEqual(requests(seed, false));
});

/** The responses to a READ, cut and spoiled by a seed. */
function responses(seed: number, runs: boolean) {
  const { between } = createRandom(seed);
  const hand = new ByHand();
  hand.runs = runs;
  const { side } = hand;
  side.createQp({}, { recovery: { selective: between(0, 1) === 0 } });
  hand.connect({ sqPsn: P, pathMtu: MTU });
  const packets = between(1, 100);
  const length = packets * MTU - between(0, MTU - 1);
  const { buffer, bytes: memory } = place(packets * MTU, between);
  const mr = side.register(buffer);
  const split = between(1, length);
  const sge =
    between(0, 3) === 0 && split < length
      ? [
          { mr, offset: 0, length: split },
          { mr, offset: split, length: length - split },
        ]
      : [{ mr, offset: 0, length }];
  side.post({ opcode: 'RDMA_READ', sge, remote: { addr: 0n, rkey: 1 } });
  const asked = hand.out().map(inShort);
  // As the requests asked: each is answered by FIRST, MIDDLE, LAST.
  const starts = asked.map(([, psn]) => (psn - P) & 0xff_ffff);
  const list: PacketInit[] = Array.from({ length: packets }, (_, i) => {
    const isFirst = starts.includes(i);
    const isLast = i === packets - 1 || starts.includes(i + 1);
    const payload = bytesOf(i === packets - 1 ? length - i * MTU : MTU, i);
    const aeth = isFirst || isLast ? { aeth: { syndrome: 0x1f } } : {};
    const opcode = isFirst
      ? isLast
        ? Opcode.RC_RDMA_READ_RESPONSE_ONLY
        : RC_RDMA_READ_RESPONSE_FIRST
      : isLast
        ? RC_RDMA_READ_RESPONSE_LAST
        : RC_RDMA_READ_RESPONSE_MIDDLE;
    return { opcode, psn: P + i, ackReq: false, payload, ...aeth };
  });
  const seen: unknown[] = [asked];
  const sent = between(0, 1) === 0 ? spoil(list, between) : list;
  for (const part of batches(sent, () => between(0, 50))) {
    hand.put(...part);
    // The window may grow by another step where more is acknowledged at once: requests are compared, not when they leave.
    if (between(0, 3) > 0) seen.push(side.poll());
  }
  seen.push(hand.out().map(inShort));
  const { adapter, qp } = side;
  seen.push(side.poll(), side.events, adapter.qpCounters(qp.qpn), memory.slice(0, length).toString());
  return seen;
}

test('READ responses: as runs and one by one', () => {
  for (let seed = 1; seed <= 200; seed++)
    expect(responses(seed, true), `seed ${seed}`).toEqual(responses(seed, false));
});

/** Spoils packet `at` of a list in one way; those that follow keep their PSNs. */
const FORGERIES: [what: string, (list: PacketInit[], at: number) => PacketInit[]][] = [
  ['none', (list) => list],
  ['a copy', (list, at) => list.toSpliced(at, 0, list[at])],
  ['a gap', (list, at) => list.toSpliced(at, 1)],
  ['from the past', (list, at) => list.with(at, { ...list[at], psn: list[at].psn - 40 })],
  ['of another partition', (list, at) => list.with(at, { ...list[at], pkey: 0x1234 })],
  ['longer', (list, at) => list.with(at, { ...list[at], payload: bytesOf(SHORT + 4, at) })],
  ['without an ACK request', (list, at) => list.with(at, { ...list[at], ackReq: list[at].ackReq === false })],
  ['of another operation', (list, at) => list.with(at, { ...list[at], opcode: Opcode.RC_SEND_MIDDLE })],
  ['a reserved opcode', (list, at) => list.with(at, { ...list[at], opcode: 0x1e })],
];

interface Stage {
  hand: ByHand;
  seen(): unknown[];
}

/** Of one kind of run: the two sides that are compared, and the packets of a run of `length`, behind those of the runs before. */
interface Kind {
  stage(runs: boolean): Stage;
  packets(stage: Stage, length: number): PacketInit[];
}

const KINDS: Record<string, Kind> = {
  'SENDs of one packet': {
    stage(runs) {
      const hand = newHand(runs);
      const { side } = hand;
      const bytes = new Uint8Array(64 * PLACE);
      const mr = side.register(bytes.buffer);
      let posted = 0;
      const post = () => {
        while (side.rq.used < 48)
          side.postRecv(posted, [{ mr, offset: (posted++ % 64) * PLACE, length: PLACE }]);
      };
      post();
      return {
        hand,
        seen() {
          const all = [hand.out().map(inShort), side.poll(), side.events.length, hash(bytes)];
          post();
          return all;
        },
      };
    },
    packets: ({ hand }, length) => {
      const from = hand.side.adapter.queryQp(hand.side.qp.qpn).attr.rqPsn!;
      const send = (i: number) => ({ opcode: RC_SEND_ONLY, psn: from + i, payload: bytesOf(SHORT, i) });
      return Array.from({ length }, (_, i) => send(i));
    },
  },
  'the middle of a WRITE': {
    stage(runs) {
      const hand = newHand(runs);
      const bytes = new Uint8Array(64 * MTU);
      target = hand.side.register(bytes.buffer);
      return { hand, seen: () => [hand.out().map(inShort), hand.side.events.length, hash(bytes)] };
    },
    packets: ({ hand }, length) => {
      const from = hand.side.adapter.queryQp(hand.side.qp.qpn).attr.rqPsn!;
      const { addr, rkey } = target;
      const reth = { addr: addr + 256n, rkey, length: (length + 1) * MTU + SHORT };
      return [
        { opcode: RC_RDMA_WRITE_FIRST, psn: from, ackReq: false, reth, payload: bytesOf(MTU, 1) },
        ...Array.from({ length }, (_, i) => ({
          opcode: RC_RDMA_WRITE_MIDDLE,
          psn: from + 1 + i,
          ackReq: false,
          payload: bytesOf(MTU, i),
        })),
        { opcode: RC_RDMA_WRITE_LAST, psn: from + 1 + length, payload: bytesOf(SHORT, 2) },
      ];
    },
  },
  'responses from the middle of a READ': {
    stage(runs) {
      const hand = newHand(runs);
      const bytes = new Uint8Array(64 * MTU);
      target = hand.side.register(bytes.buffer);
      return { hand, seen: () => [hand.side.poll(), hand.out().map(inShort), hash(bytes)] };
    },
    packets: ({ hand }, length) => {
      const { side } = hand;
      const from = side.adapter.queryQp(side.qp.qpn).attr.sqPsn!;
      const sge = [{ mr: target, offset: 128, length: (length + 1) * MTU + SHORT }];
      side.post({ opcode: 'RDMA_READ', sge, remote: { addr: 0n, rkey: 1 } });
      hand.out();
      const aeth = { syndrome: 0x1f };
      return [
        { opcode: RC_RDMA_READ_RESPONSE_FIRST, psn: from, aeth, payload: bytesOf(MTU, 1) },
        ...Array.from({ length }, (_, i) => ({
          opcode: RC_RDMA_READ_RESPONSE_MIDDLE,
          psn: from + 1 + i,
          payload: bytesOf(MTU, i),
        })),
        { opcode: RC_RDMA_READ_RESPONSE_LAST, psn: from + 1 + length, aeth, payload: bytesOf(SHORT, 2) },
      ];
    },
  },
};

let target: MrCreated;

function newHand(runs: boolean): ByHand {
  const hand = new ByHand();
  hand.runs = runs;
  hand.side.createQp({}, { recovery: { probes: false } });
  hand.connect({ rqPsn: P, sqPsn: P, pathMtu: MTU });
  return hand;
}

const hash = (bytes: Uint8Array): number => {
  let sum = 0;
  for (const byte of bytes) sum = (Math.imul(sum, 31) + byte) | 0;
  return sum;
};

afterEach(() => {
  vi.restoreAllMocks();
});

/** Packets that the loops over runs took, a count for each loop. */
function countRuns() {
  const taken = { sends: 0, writes: 0, reads: 0 };
  const counted = (name: keyof typeof taken) =>
    function (this: unknown, ...args: unknown[]) {
      const count = originals[name].apply(this, args) as number;
      if (count > 1) taken[name] += count;
      return count;
    };
  const originals: Record<keyof typeof taken, (...args: unknown[]) => unknown> = {
    sends: ReceiveQueue.prototype.takeWholes as never,
    writes: InboundMessage.prototype.writeMiddles as never,
    reads: Completer.prototype.receiveRun as never,
  };
  vi.spyOn(ReceiveQueue.prototype, 'takeWholes').mockImplementation(counted('sends') as never);
  vi.spyOn(InboundMessage.prototype, 'writeMiddles').mockImplementation(counted('writes') as never);
  vi.spyOn(Completer.prototype, 'receiveRun').mockImplementation(counted('reads') as never);
  return taken;
}

test.each(Object.keys(KINDS))(
  '%s: runs of each length, cut at each packet, with a forged packet at each place, do as packets one by one',
  (name) => {
    const { stage, packets } = KINDS[name];
    const taken = countRuns();
    let sides: Stage[] = [];
    for (let length = 1; length <= LONGEST; length++) {
      for (const [what, forge] of FORGERIES) {
        for (let at = 0; at < (what === 'none' ? 1 : length); at++) {
          for (let cut = 0; cut <= length; cut += what === 'none' ? 1 : 3) {
            // One that recovers, or has ended, is done with.
            sides = sides.length > 0 && what === 'none' ? sides : [stage(true), stage(false)];
            const [own, alone] = sides.map((side) => {
              const list = forge(packets(side, length), at);
              const results: unknown[] = [];
              for (const part of [list.slice(0, cut), list.slice(cut)]) {
                side.hand.put(...part);
                results.push(side.seen());
              }
              const { adapter, qp } = side.hand.side;
              return [results, adapter.queryQp(qp.qpn).attr, adapter.qpCounters(qp.qpn), adapter.counters()];
            });
            expect(own, `${length} packets, ${what} at ${at}, cut at ${cut}`).toEqual(alone);
            if (what !== 'none') sides = [];
          }
        }
      }
    }
    const own =
      { 'SENDs of one packet': taken.sends, 'the middle of a WRITE': taken.writes }[name] ?? taken.reads;
    expect(own).toBeGreaterThan(500);
  },
);

test('the seeds above take runs by all three loops', () => {
  const taken = countRuns();
  for (let seed = 1; seed <= 10; seed++) {
    requests(seed, true);
    responses(seed, true);
  }
  expect(taken.sends).toBeGreaterThan(100);
  expect(taken.writes).toBeGreaterThan(100);
  expect(taken.reads).toBeGreaterThan(30);
  const before = { ...taken };
  requests(1, false);
  responses(1, false);
  expect(taken).toEqual(before);
});

/** A side with receives, and the batch of four SENDs to it, marked as a run, which it has not got. */
function fourSends() {
  const hand = new ByHand();
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(PLACE));
  for (let i = 0; i < 8; i++) side.postRecv(i, [{ mr, offset: i * SHORT, length: SHORT }]);
  const packets = [0, 1, 2, 3].map((i) =>
    hand.packet({ opcode: RC_SEND_ONLY, psn: 1000 + i, payload: bytesOf(SHORT, i) }),
  );
  // The batch is one for all sides: another one gets it first.
  new ByHand().put(...packets);
  const { rx, adapter } = side;
  expect(rx.slots[Rx.RUN]).toBe(4);
  return {
    rx,
    receive: () => adapter.receive(rx),
    completed: () => side.poll().length,
    out: () => hand.out().map(inShort),
  };
}

test('receives that their program rewrites while a run is taken: each word is read once, and what is read is checked', () => {
  const COUNT = 20;
  const hand = newHand(true);
  const { side } = hand;
  const bytes = new Uint8Array(COUNT * PLACE);
  const mr = side.register(bytes.buffer);
  for (let i = 0; i < COUNT; i++) side.postRecv(i, [{ mr, offset: i * PLACE, length: PLACE }]);
  const packets = KINDS['SENDs of one packet'].packets({ hand, seen: () => [] }, COUNT);
  const taken = countRuns();
  const reads = rewriteOnceRead(side.rq, side.rq.wordOf(1));
  hand.put(...packets);
  vi.restoreAllMocks();
  expect(taken.sends).toBe(COUNT);
  for (let i = 1; i < COUNT; i++) {
    const w = side.rq.wordOf(i);
    const element = w + RecvWqe.SGE;
    const once = [w + RecvWqe.SGE_COUNT, w + RecvWqe.WR_ID_LOW, element + Sge.LENGTH, element + Sge.LKEY];
    for (const word of [...once, element + Sge.ADDRESS_HIGH, element + Sge.ADDRESS_LOW])
      expect(reads.get(word), `word ${word - w} of receive ${i}`).toBe(1);
  }
  const done = side.poll().map(({ wrId, status, byteLen }) => [wrId, status, byteLen]);
  expect(done).toEqual(Array.from({ length: COUNT }, (_, i) => [i, 'SUCCESS', SHORT]));
  const expected = new Uint8Array(COUNT * PLACE);
  for (let i = 0; i < COUNT; i++) expected.set(bytesOf(SHORT, i), i * PLACE);
  expect(Buffer.compare(bytes, expected)).toBe(0);
});

test('a run is taken by its mark: what is checked once is not looked at again', () => {
  const { rx, receive, completed, out } = fourSends();
  for (let i = 1; i < 4; i++) rx.slab[rx.slots[i * RX_SLOT_WORDS + Rx.OFFSET]] = 0xff;
  receive();
  expect(completed()).toBe(4);
  expect(out()).toEqual([['ACKNOWLEDGE', 1003, 0x1f]]);
});

test.each([
  [
    'a slot was taken out',
    ({ slots }: RxBatch) => slots.copyWithin(2 * RX_SLOT_WORDS, 3 * RX_SLOT_WORDS),
    3,
    2,
  ],
  ['the batch ends before it', () => undefined, 2, 2],
  ['a slot has another length', ({ slots }: RxBatch) => slots[3 * RX_SLOT_WORDS + Rx.LENGTH]++, 4, 3],
])('a run that is not whole: %s', (_, change, count, delivered) => {
  const { rx, receive, completed } = fourSends();
  change(rx);
  rx.count = count;
  receive();
  expect(completed()).toBe(delivered);
});

test('a batch has runs of equal packets with rising PSNs, one behind the other', () => {
  const hand = new ByHand();
  const send = (psn: number, more: Partial<PacketInit> = {}): Packet =>
    hand.packet({ opcode: RC_SEND_ONLY, psn, payload: bytesOf(8, psn), ...more });
  hand.put(
    send(1),
    send(2),
    send(3),
    send(5),
    send(6, { ackReq: false }),
    send(7, { payload: bytesOf(12, 0) }),
    send(8, { opcode: Opcode.RC_SEND_LAST, payload: bytesOf(12, 0) }),
    send(0xff_ffff),
    send(0),
    send(1).subarray(0, 8),
  );
  const { rx } = hand.side;
  markRuns(rx);
  const runs = Array.from({ length: rx.count }, (_, i) => rx.slots[i * RX_SLOT_WORDS + Rx.RUN]);
  expect(runs).toEqual([3, 1, 1, 1, 1, 1, 1, 2, 1, 1]);
});
