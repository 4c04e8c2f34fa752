/**
 * A program that rewrites the entries of its queues while the engine reads them, and while they are under way, by accident or to do harm. It may fail
 * its own requests. It reaches no memory but that of its regions, breaks no promise of the engine, and no queue pair of others waits for it.
 *
 *   ROCE_REWRITE_SEEDS=3000 npx vitest run packages/transport/scenarios/rewritten-entries
 */
import { createRandom, NakCode, Opcode, opcodeInfo, TmhOpcode, TWO_32 } from '@node-roce/wire';
import { beforeEach, describe, expect, test } from 'vitest';
import {
  Access,
  CONTROL_WORDS,
  COPY_WORDS,
  Copy,
  copyBatch,
  FRAGMENT_WORDS,
  Fragment,
  type MrCreated,
  QpStateCode,
  RecvWqe,
  Ring,
  type RingShape,
  RingState,
  RoceError,
  SendFlags,
  SendWqe,
  SGE_WORDS,
  Sge,
  type SrqCreated,
  type SrqModified,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
  WcFlags,
  WcOpcode,
  WrOpcode,
  type WrOpcodeName,
} from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';
import { addressOf, type ElementInit, Pair, QKEY, type Side, type WorkInit } from '../testing/pair.ts';
import { Restless, watchedRing } from '../testing/restless-ring.ts';

const SEEDS = Number(process.env.ROCE_REWRITE_SEEDS ?? 20);
const FIRST = Number(process.env.ROCE_REWRITE_FIRST ?? 1);
const MTU = 256;
/** A region: in the middle of a buffer. */
const START = 4096;
const LENGTH = 64 * 1024;
const BUFFER = START + LENGTH + 4096;
const SECOND = 1_000_000;
const POSTED: WrOpcodeName[] = [
  'SEND',
  'SEND_WITH_IMM',
  'RDMA_WRITE',
  'RDMA_READ',
  'ATOMIC_CMP_AND_SWP',
  'ATOMIC_FETCH_AND_ADD',
  'FLUSH',
  'ATOMIC_WRITE',
  'LOCAL_INV',
];

/** A side whose rings are restless, with one region. */
function restless(side: Side, random: ReturnType<typeof createRandom>) {
  const mr = side.register(new ArrayBuffer(BUFFER), 0xf, START, LENGTH);
  const foreign = side.adapter.registerMr({
    pd: side.adapter.allocPd(),
    backing: 1000,
    buffer: new ArrayBuffer(BUFFER),
    offset: 0,
    length: BUFFER,
    access: 0xf,
  });
  const lengths = [0, 1, 8, MTU, MTU + 1, 3 * MTU, 40 * MTU, LENGTH, LENGTH + 1, 2 ** 31, TWO_32 - 1];
  const lkeys = [mr.lkey, mr.lkey, mr.lkey ^ 1, foreign.lkey, 0];
  const element = (place: number): number => {
    if (place === Sge.LENGTH) return random.pick(lengths);
    if (place === Sge.LKEY) return random.pick(lkeys);
    const address = mr.addr + BigInt(random.pick([0, LENGTH - MTU, LENGTH - 1, LENGTH, -1, TWO_32]));
    return Number(place === Sge.ADDRESS_HIGH ? address >> 32n : address & 0xffff_ffffn);
  };
  const send = (place: number): number => {
    if (place >= SendWqe.SGE) return element((place - SendWqe.SGE) % SGE_WORDS);
    const flags = random.between(0, 3) === 0 ? random.between(0, 31) : SendFlags.SIGNALED;
    if (place === SendWqe.OPCODE_FLAGS) return random.pick([...Object.values(WrOpcode), 99]) | (flags << 8);
    if (place === SendWqe.LENGTH) return random.pick(lengths);
    if (place === SendWqe.SGE_COUNT) return random.pick([0, 1, 2, 4, 5, TWO_32 - 1]);
    return random.next();
  };
  const receive = (place: number): number => {
    if (place >= RecvWqe.SGE) return element((place - RecvWqe.SGE) % SGE_WORDS);
    return place === RecvWqe.SGE_COUNT ? random.pick([0, 1, 2, 4, 5, TWO_32 - 1]) : random.next();
  };
  return { mr, sends: new Restless(random, send), receives: new Restless(random, receive) };
}

/** Looks at the memory of each packet: a stretch of a region, or inline data within an entry. */
function inspect({ slots, fragments, regions, count }: TxBatch, { capacity, stride }: RingShape): void {
  for (let i = 0; i < count; i++) {
    const w = i * TX_SLOT_WORDS;
    let bytes = 0;
    for (let j = 0; j < slots[w + Tx.FRAGMENT_COUNT]; j++) {
      const f = (slots[w + Tx.FRAGMENT_FIRST] + j) * FRAGMENT_WORDS;
      const at = fragments[f + Fragment.OFFSET_HIGH] * TWO_32 + fragments[f + Fragment.OFFSET_LOW];
      const length = fragments[f + Fragment.LENGTH];
      const size = regions.views[fragments[f + Fragment.REGION]]?.byteLength;
      bytes += length;
      if (size === BUFFER) expectInside(at, length);
      else {
        expect(size, 'the memory of a packet').toBe((CONTROL_WORDS + capacity * stride) * 4);
        const inEntry = (at / 4 - CONTROL_WORDS) % stride;
        if (at / 4 < CONTROL_WORDS || inEntry * 4 + length > stride * 4)
          expect.fail(`${length} bytes of inline data at ${at}`);
      }
    }
    expect([bytes, bytes <= MTU]).toEqual([slots[w + Tx.PAYLOAD_LENGTH], true]);
  }
}

function expectInside(at: number, length: number): void {
  if (at < START || at + length > START + LENGTH) expect.fail(`${length} bytes at ${at}`);
}

/** Words that were rewritten; and of tagged buffers, those that a message filled, and those that data was read into for one. */
const seen = { rewritten: 0, matched: 0, read: 0 };
beforeEach(() => {
  Object.assign(seen, { rewritten: 0, matched: 0, read: 0 });
});

/** Two sides by a seed; the left one's program is hostile, and in some seeds the right one's as well. */
function run(
  seed: number,
  posts: readonly WrOpcodeName[],
  type: 'RC' | 'UC' = 'RC',
  shared: 'no' | 'srq' | 'tags' = 'no',
): number {
  const random = createRandom(seed);
  const { between } = random;
  const copy: typeof copyBatch = (slab, regions, list, count) => {
    for (let i = 0; i < count; i++) {
      const w = i * COPY_WORDS;
      const at = list[w + Copy.OFFSET_HIGH] * TWO_32 + list[w + Copy.OFFSET_LOW];
      expectInside(at, list[w + Copy.LENGTH]);
    }
    copyBatch(slab, regions, list, count);
  };
  const recovery = {
    selective: between(0, 2) > 0,
    probes: between(0, 1) === 0,
    keepEarly: random.pick(['off', 'quiet', 'ahead'] as const),
  };
  const pair = new Pair({ seed, left: { copy }, right: { copy } });
  const { left, right } = pair;
  const own = restless(left, random);
  const other = restless(right, random);
  let srq: SrqCreated | undefined;
  const cap = { maxSendWr: random.pick([4, 16, 64]), maxRecvWr: 64, maxInlineData: 64 };
  for (const [side, { sends, receives }] of [
    [left, own],
    [right, other],
  ] as const) {
    let made = 0;
    const newRing = (entries: number, stride: number) =>
      (made++ === 0 ? sends : receives).newRing(entries, stride);
    const isShared = shared !== 'no' && side === right;
    if (isShared) {
      const { pd, adapter, cqHandle } = right;
      const tags = shared === 'tags' ? { tags: { max: 16, cq: cqHandle } } : {};
      srq = adapter.createSrq({ pd, maxWr: 64, maxSge: 4, limit: 0, newRing: receives.newRing, ...tags });
    }
    const options = type === 'RC' ? { recovery } : {};
    // With no sends of its own, the queue pair carries out rendezvous; the program may write into its queue as well.
    const sizes = isShared && shared === 'tags' ? { ...cap, maxSendWr: 0 } : cap;
    side.createQp(sizes, { ...options, type, newRing, ...(srq ? { srq: srq.handle } : {}) });
  }
  let receives = srq ? new Ring(srq.ring) : right.rq;
  const psn: [number, number] = [0xff_fff0, 0xff_fe00];
  const timeout = between(0, 5) === 0 ? 0 : 8;
  const connect = () => pair.connect({ mtu: MTU, psn, attr: { timeout, retryCnt: 7, rnrRetry: 7 } });
  connect();
  const lossy = random.pick([0, 0, 3, 10]);
  pair.fault = (packet) =>
    between(1, 100) <= lossy ? [] : [{ packet, delay: between(0, 99) < lossy ? 40 : 0 }];
  pair.inspect = (batch, side) => inspect(batch, side.qp.sendQueue);
  const elements = (mr: MrCreated, length: number): ElementInit[] => {
    const count = between(1, length > 8 ? 3 : 1);
    return Array.from({ length: count }, (_, i) => {
      const from = Math.floor((i * length) / count);
      return { mr, offset: from, length: Math.floor(((i + 1) * length) / count) - from };
    });
  };
  const restart = () => {
    for (const { adapter, qp } of [left, right]) adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    connect();
  };
  // Of some seeds the count of what is posted is wrong, too.
  const miscounts = between(0, 3) === 0;
  let ends = 0;
  const receiveAll = () => {
    // Few in a shared one: after a resize, those before it are used up first.
    const most = srq ? 6 : 60;
    while (receives.used < most) right.postRecv(0, elements(other.mr, 16 * MTU), receives);
  };
  /** A resize, which the program follows at once, later, or never; it may do so twice, and post to both rings. */
  const resize = () => {
    if (srq === undefined) return;
    let next: SrqModified;
    try {
      next = right.adapter.modifySrq(srq.handle, { maxWr: random.pick([32, 64, 128, 256]) });
    } catch (error) {
      if (!(error instanceof RoceError)) throw error;
      return;
    }
    if (!next.ring) return;
    const before = receives;
    receives = new Ring(next.ring);
    if (miscounts && between(0, 2) === 0) {
      before.state = between(0, 9);
      right.postRecv(0, elements(other.mr, MTU), before);
      before.publish((before.producer + random.pick([0, 1, before.capacity, 2 ** 31])) | 0);
    }
    before.state = RingState.LEFT;
  };
  let unexpected = 0;
  const addTag = () => {
    if (srq === undefined || shared !== 'tags') return;
    const list = elements(other.mr, between(1, 8 * MTU)).map(({ mr, offset = 0, length }) => {
      return { addr: mr.addr + BigInt(offset), length, lkey: random.pick([mr.lkey, mr.lkey, mr.lkey ^ 1]) };
    });
    const handled = { handled: between(0, 9) === 0 ? between(0, 9) : unexpected };
    try {
      right.adapter.postSrqOp(srq.handle, {
        ...{ opcode: 'TAG_ADD', wrId: 1n, signaled: false, recvWrId: 2n, list, ...handled },
        ...{ tag: BigInt(between(0, 3)), mask: 3n },
      });
    } catch (error) {
      if (!(error instanceof RoceError)) throw error;
    }
  };
  /** A message with the header of one that has a tag, or that asks for its data to be read. */
  const sendTagged = () => {
    const asks = between(0, 1) === 0;
    const inline = new Uint8Array(asks ? 32 : 24);
    const view = new DataView(inline.buffer);
    view.setUint8(0, asks ? TmhOpcode.RENDEZVOUS : TmhOpcode.EAGER);
    view.setBigUint64(8, BigInt(between(0, 3)));
    if (asks) {
      view.setBigUint64(16, own.mr.addr);
      view.setUint32(24, own.mr.rkey);
      view.setUint32(28, random.pick([0, 1, MTU, 3 * MTU + 1, 16 * MTU]));
    }
    left.post({ opcode: 'SEND', inline });
  };
  for (let round = 0; round < 30; round++) {
    own.sends.oneIn = random.pick(srq ? [0, 0, 0, 300] : [0, 30, 300]);
    other.receives.oneIn = random.pick(srq ? [0, 30, 300] : [0, 0, 300]);
    other.sends.oneIn = shared === 'tags' ? random.pick([0, 30, 300]) : 0;
    if (between(0, 3) === 0) resize();
    for (let i = between(0, 6); i > 0; i--) addTag();
    for (let i = between(0, srq ? 16 : 6); i > 0 && left.sq.used < left.sq.capacity; i--) {
      if (shared === 'tags' && between(0, 1) === 0) {
        sendTagged();
        continue;
      }
      const opcode = random.pick(posts);
      const isWord = opcode.startsWith('ATOMIC');
      const length = isWord ? 8 : opcode === 'FLUSH' || opcode === 'LOCAL_INV' ? 0 : between(0, 12 * MTU);
      const inline = length > 0 && length < 64 && opcode !== 'RDMA_READ' && !opcode.startsWith('ATOMIC_');
      left.post({
        opcode,
        remote: { addr: other.mr.addr + BigInt(between(0, 512) * 8), rkey: other.mr.rkey },
        flags: between(0, 1) === 0 ? SendFlags.SIGNALED : between(0, 31) & ~SendFlags.INLINE,
        ...(inline
          ? { inline: new Uint8Array(length) }
          : { sge: length > 0 ? elements(own.mr, length) : [] }),
        ...(opcode === 'FLUSH' ? { flush: { length: 8 } } : {}),
      });
    }
    receiveAll();
    // Entries under way.
    const { stride } = left.sq;
    if (between(0, srq ? 7 : 1) === 0)
      own.sends.change(left.sq.words, left.sq.wordOf(left.sq.consumer + between(0, 3)), stride);
    if (miscounts && between(0, 5) === 0) {
      // All is under way.
      pair.run(2);
      left.sq.publish((left.sq.producer + random.pick([1, 3, left.sq.capacity, 2 ** 31])) | 0);
    }
    pair.run(between(0, 400));
    left.poll();
    for (const { status, opcode, flags } of right.poll()) {
      if (status !== 'SUCCESS' || opcode !== WcOpcode.TM_RECV) continue;
      const isMatch = (flags & WcFlags.TM_MATCH) !== 0;
      if (flags === 0) unexpected++;
      else if (isMatch) seen.matched++;
      else seen.read++;
    }
    if (left.sq.state === QpStateCode.SQE) left.adapter.modifyQp(left.qp.qpn, { qpState: 'RTS' });
    if ([left, right].every(({ sq }) => sq.state !== QpStateCode.ERR)) continue;
    ends++;
    restart();
  }
  if (miscounts || shared === 'tags') restart();
  own.sends.oneIn = other.receives.oneIn = other.sends.oneIn = 0;
  receiveAll();
  if (miscounts) left.post({ opcode: 'SEND', inline: new Uint8Array(8) });
  pair.run(60 * SECOND);
  if (timeout > 0 || lossy === 0) expect(left.sq.used, 'requests that never end').toBe(0);
  seen.rewritten += own.sends.rewritten + other.receives.rewritten;
  return ends;
}

test('requests of every kind', () => {
  const wrong: string[] = [];
  let ends = 0;
  for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
    try {
      ends += run(seed, seed % 2 === 0 ? POSTED : [POSTED[(seed >> 1) % POSTED.length], 'SEND', 'RDMA_READ']);
    } catch (error) {
      wrong.push(`seed ${seed}: ${(error as Error).message}`);
    }
  }
  expect(wrong).toEqual([]);
  expect(ends).toBeGreaterThan(0);
  expect(seen.rewritten).toBeGreaterThan(100);
});

test.each([
  ['RC', 'srq'],
  ['UC', 'no'],
  ['UC', 'srq'],
  ['RC', 'tags'],
] as const)('messages of %s, to a shared receive queue that is resized: %s', (type, shared) => {
  const wrong: string[] = [];
  for (let seed = FIRST; seed < FIRST + Math.ceil(SEEDS / 3); seed++) {
    try {
      run(seed, ['SEND', 'SEND_WITH_IMM', 'RDMA_WRITE', 'LOCAL_INV'], type, shared);
    } catch (error) {
      wrong.push(`seed ${seed}: ${(error as Error).message}`);
    }
  }
  expect(wrong).toEqual([]);
  expect(seen.rewritten).toBeGreaterThan(10);
  if (shared === 'tags') expect(Math.min(seen.matched, seen.read)).toBeGreaterThan(3);
});

/** A requester whose program gives another value of one word of its first entry from the `reads`-th look on. */
function flipping(place: number, reads: number, value: number) {
  const hand = new ByHand();
  const { side } = hand;
  let looks = 0;
  let isSends = true;
  const newRing = (entries: number, stride: number) => {
    if (!isSends) return watchedRing(entries, stride, (words, index) => words[index]);
    isSends = false;
    return watchedRing(entries, stride, (words, index) => {
      if (index === CONTROL_WORDS + place && ++looks === reads) words[index] = value;
      return words[index];
    });
  };
  side.createQp({ maxSendWr: 4, maxInlineData: 64 }, { newRing });
  hand.connect({ sqPsn: 0xff_fffe, pathMtu: MTU, timeout: 8 });
  const mr = side.register(new ArrayBuffer(BUFFER), 0xf, START, LENGTH);
  const { adapter, tx } = side;
  /** Everything that leaves, looked at. */
  const leave = () => {
    for (;;) {
      tx.clear();
      if (adapter.transmit(tx) === 0) return;
      inspect(tx, side.qp.sendQueue);
      adapter.sent(tx);
      adapter.checkInvariants();
    }
  };
  return { hand, side, mr, leave };
}

describe('one word of an entry changes between two looks at it', () => {
  const part = (mr: MrCreated, length: number) => [{ mr, offset: LENGTH - length, length }];
  const ENTRIES: [what: string, init: (mr: MrCreated) => Partial<WorkInit> & { opcode: WrOpcodeName }][] = [
    ['a SEND of one packet', (mr) => ({ opcode: 'SEND', sge: part(mr, 100) })],
    ['a WRITE of three', (mr) => ({ opcode: 'RDMA_WRITE', sge: [...part(mr, MTU), ...part(mr, 500)] })],
    ['inline data', () => ({ opcode: 'SEND', inline: new Uint8Array(50) })],
    ['a READ', (mr) => ({ opcode: 'RDMA_READ', sge: part(mr, 3 * MTU) })],
    ['an atomic', (mr) => ({ opcode: 'ATOMIC_FETCH_AND_ADD', sge: part(mr, 8) })],
    ['an ATOMIC_WRITE', () => ({ opcode: 'ATOMIC_WRITE', inline: new Uint8Array(8) })],
  ];
  const lengths = [0, 8, 200, MTU + 1, 4 * MTU, LENGTH, TWO_32 - 1];
  const flags = [0, SendFlags.INLINE, SendFlags.FENCE].map((flag) => flag << 8);
  const opcodes = Object.values(WrOpcode).flatMap((opcode) => flags.map((flag) => opcode | flag));
  const PLACES: [place: number, values: number[]][] = [
    [SendWqe.OPCODE_FLAGS, opcodes],
    [SendWqe.LENGTH, lengths],
    [SendWqe.SGE_COUNT, [0, 1, 5, TWO_32 - 1]],
    [SendWqe.SGE + Sge.LENGTH, lengths],
    [SendWqe.SGE + Sge.ADDRESS_LOW, [0, TWO_32 - 1]],
    [SendWqe.SGE + Sge.LKEY, [0]],
  ];

  test.each(ENTRIES)('%s: no packet has memory that was not checked, nor more than a path MTU', (_, init) => {
    for (const [place, values] of PLACES) {
      for (const value of values) {
        for (let reads = 1; reads <= 6; reads++) {
          const { hand, side, mr, leave } = flipping(place, reads, value);
          side.post({ remote: { addr: 0n, rkey: 1 }, ...init(mr) });
          leave();
          hand.put({
            opcode: Opcode.RC_ACKNOWLEDGE,
            psn: 0xff_fffe,
            aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR },
          });
          leave();
          hand.now += 5000;
          side.adapter.advance();
          leave();
        }
      }
    }
  });
});

test('a READ that became an atomic: the answer of one packet is not that to a READ of three', () => {
  const { hand, side, mr, leave } = flipping(0, 0, 0);
  side.post({ opcode: 'RDMA_READ', sge: [{ mr, length: 3 * MTU }], remote: { addr: 0n, rkey: 1 } });
  leave();
  side.sq.words[side.sq.wordOf(0)] = WrOpcode.ATOMIC_FETCH_AND_ADD | (SendFlags.SIGNALED << 8);
  const payload = new Uint8Array(8);
  hand.put({ opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, psn: 0xff_fffe, aeth: { syndrome: 0 }, payload });
  expect(side.poll()).toMatchObject([{ status: 'BAD_RESP_ERR' }]);
});

describe('the length of a message of three packets changes before it is retransmitted', () => {
  const { RC_ACKNOWLEDGE, RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_MIDDLE } = Opcode;
  const syndrome = NakCode.PSN_SEQUENCE_ERROR;
  const lengths = [0, 8, MTU, 2 * MTU, 3 * MTU + 1, 2 ** 31, TWO_32 - 1];

  test.each(['SEND', 'RDMA_WRITE', 'RDMA_READ'] as const)('%s: nothing of it leaves', (opcode) => {
    for (const length of lengths) {
      for (const answered of [0, 1, 2]) {
        const { hand, side, mr, leave } = flipping(0, 0, 0);
        const psn = 0xff_fffe;
        side.post({ opcode, sge: [{ mr, length: 3 * MTU - 5 }], remote: { addr: 0n, rkey: 1 } });
        leave();
        if (opcode === 'RDMA_READ') {
          const payload = new Uint8Array(MTU);
          const aeth = { syndrome: 0x1f };
          if (answered > 0) hand.put({ opcode: RC_RDMA_READ_RESPONSE_FIRST, psn, payload, aeth });
          if (answered > 1) hand.put({ opcode: RC_RDMA_READ_RESPONSE_MIDDLE, psn: psn + 1, payload });
        } else if (answered > 0) {
          hand.put({ opcode: RC_ACKNOWLEDGE, psn: psn + answered - 1, aeth: { syndrome: 0x1f } });
        }
        side.sq.words[side.sq.wordOf(0) + SendWqe.LENGTH] = length;
        if (opcode !== 'RDMA_READ')
          hand.put({ opcode: RC_ACKNOWLEDGE, psn: psn + answered, aeth: { syndrome } });
        const packets = hand.run(1_000_000).length;
        const statuses = side.poll().map(({ status }) => status);
        expect([length, answered, packets, statuses]).toEqual([length, answered, 0, ['LOC_LEN_ERR']]);
      }
    }
  });
});

describe('the operation of a SEND becomes one that its service does not have', () => {
  const { SEND, SEND_WITH_INV } = WrOpcode;

  test.each(['UC', 'UD'] as const)('%s: no packet has a reserved opcode', (type) => {
    for (const length of type === 'UC' ? [8, 3 * MTU] : [8]) {
      for (let reads = 1; reads <= 8; reads++) {
        const pair = new Pair({ type });
        const { left } = pair;
        let looks = 0;
        const newRing = (entries: number, stride: number) =>
          watchedRing(entries, stride, (words, index) => {
            const isIt = index === CONTROL_WORDS && (words[index] & 0xff) === SEND;
            if (isIt && ++looks === reads) words[index] = (words[index] & ~0xff) | SEND_WITH_INV;
            return words[index];
          });
        left.createQp({}, { type, newRing });
        pair.connect({ mtu: MTU });
        const mr = left.register(new ArrayBuffer(LENGTH));
        const datagram = {
          ah: left.adapter.createAh(left.pd, addressOf(2)),
          qpn: pair.right.qp.qpn,
          qkey: QKEY,
        };
        // Of no message of one packet: those have a path of their own.
        const sge = [
          { mr, length: length - 1 },
          { mr, length: 1 },
        ];
        left.post({ opcode: 'SEND', sge, ...(type === 'UD' ? { datagram } : {}) });
        pair.run(1000);
        for (const { packet } of pair.sent) expect(opcodeInfo(packet[0]), `look ${reads}`).toBeDefined();
        expect(['SUCCESS', 'LOC_QP_OP_ERR']).toContain(left.poll()[0].status);
      }
    }
  });
});

test('one word of a BIND_MW changes between two looks at it: peers reach what one of the two values names, inside of the region', () => {
  const from = BigInt(START);
  const PLACES: [place: number, values: number[]][] = [
    [SendWqe.OPCODE_FLAGS, Object.values(WrOpcode).map((opcode) => opcode | (SendFlags.SIGNALED << 8))],
    [SendWqe.BIND_WINDOW, [0, 1, 99, TWO_32 - 1]],
    [SendWqe.RKEY, [0, TWO_32 - 1]],
    [SendWqe.BIND_LENGTH_HIGH, [1, TWO_32 - 1]],
    [SendWqe.BIND_LENGTH_LOW, [0, 64, LENGTH, LENGTH + 1, TWO_32 - 1]],
    [SendWqe.REMOTE_ADDRESS_HIGH, [1, TWO_32 - 1]],
    [SendWqe.REMOTE_ADDRESS_LOW, [0, START, START + LENGTH, TWO_32 - 1]],
    [SendWqe.BIND_LKEY, [0, TWO_32 - 1]],
    [SendWqe.BIND_ACCESS, [0, 1, 8, 16, TWO_32 - 1]],
  ];
  let bound = 0;
  let written = 0;
  for (const type of [1, 2] as const) {
    for (const [place, values] of PLACES) {
      for (const value of values) {
        for (let reads = 1; reads <= 4; reads++) {
          const hand = new ByHand(
            {},
            {
              copy: (slab, regions, list, count) => {
                for (let w = 0; w < count * COPY_WORDS; w += COPY_WORDS)
                  expectInside(
                    list[w + Copy.OFFSET_HIGH] * TWO_32 + list[w + Copy.OFFSET_LOW],
                    list[w + Copy.LENGTH],
                  );
                written += count;
                copyBatch(slab, regions, list, count);
              },
            },
          );
          const { side } = hand;
          let looks = 0;
          let made = 0;
          const newRing = (entries: number, stride: number) => {
            const isSends = made++ === 0;
            return watchedRing(entries, stride, (words, index) => {
              if (isSends && index === CONTROL_WORDS + place && ++looks === reads) words[index] = value;
              return words[index];
            });
          };
          side.createQp({ maxSendWr: 4 }, { newRing });
          hand.connect({ rqPsn: 1000, pathMtu: MTU });
          const { lkey } = side.adapter.registerMr({
            pd: side.pd,
            backing: 99,
            buffer: new ArrayBuffer(BUFFER),
            offset: START,
            length: LENGTH,
            access: Access.LOCAL_WRITE | Access.MW_BIND,
            iova: from,
          });
          const window = side.adapter.allocMw(side.pd, type);
          const rkey = ((window.rkey & ~0xff) | ((window.rkey + 1) & 0xff)) >>> 0;
          const access = Access.REMOTE_WRITE;
          side.post({
            opcode: 'BIND_MW',
            remote: { addr: from + 1024n, rkey },
            bind: { window: window.handle, length: 128, lkey, access },
          });
          hand.out();
          const [done] = side.poll();
          if (done?.status === 'SUCCESS') bound++;
          let psn = 1000;
          for (const at of [
            0n,
            1023n,
            1024n,
            1024n + 127n,
            1024n + 128n,
            BigInt(LENGTH) - 1n,
            BigInt(LENGTH),
          ]) {
            const reth = { addr: from + at, rkey, length: 1 };
            hand.put({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn, reth, payload: new Uint8Array(1) });
            // One that is refused ends the connection.
            if (side.sq.state === QpStateCode.ERR) {
              side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
              hand.connect({ rqPsn: 1000, pathMtu: MTU });
              psn = 1000;
            } else psn++;
          }
        }
      }
    }
  }
  expect(bound).toBeGreaterThan(50);
  expect(written).toBeGreaterThan(50);
});

test('a program that posts more than its queue holds: what is under way keeps its place', () => {
  const { hand, side, mr, leave } = flipping(0, 0, 0);
  for (let wrId = 0; wrId < 4; wrId++)
    side.post({ wrId, opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote: { addr: 0n, rkey: 1 } });
  leave();
  side.sq.publish(side.sq.producer + 4);
  side.adapter.posted(side.qp.qpn);
  leave();
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 1, aeth: { syndrome: 0x1f } });
  leave();
  expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
    [0, 1, 2, 3].map((id) => [id, 'SUCCESS']),
  );
});

test('a datagram whose address handle becomes that of another protection domain does not leave', () => {
  for (let reads = 1; reads <= 4; reads++) {
    const pair = new Pair({ type: 'UD' });
    const { left } = pair;
    const address = addressOf(2);
    const ah = left.adapter.createAh(left.pd, address);
    const foreign = left.adapter.createAh(left.adapter.allocPd(), address);
    let looks = 0;
    const newRing = (entries: number, stride: number) =>
      watchedRing(entries, stride, (words, index) => {
        const isHandle = words[index] === ah && index === CONTROL_WORDS + SendWqe.ADDRESS_HANDLE;
        if (isHandle && ++looks === reads) words[index] = foreign;
        return words[index];
      });
    left.createQp({}, { type: 'UD', newRing });
    pair.connect();
    const datagram = { ah, qpn: pair.right.qp.qpn, qkey: QKEY };
    left.post({ opcode: 'SEND', inline: new Uint8Array(8), datagram });
    pair.run(1000);
    const [{ status }] = left.poll();
    // Nothing that is looked at after the packet was made decides.
    expect([status, pair.sent.length]).toEqual(reads <= 2 ? ['LOC_QP_OP_ERR', 0] : ['SUCCESS', 1]);
  }
});

describe('one word of an entry changes while a run of packets is taken', () => {
  const lengths = [0, 8, MTU, LENGTH, LENGTH + 1, TWO_32 - 1];
  const lows = [0, TWO_32 - 1];

  /** A side whose queues give the words that `read` returns; copies lie in its region. */
  function watched(read: (words: Uint32Array, index: number, isSends: boolean, stride: number) => number) {
    let copies = 0;
    const copy: typeof copyBatch = (slab, regions, list, count) => {
      copies += count;
      for (let w = 0; w < count * COPY_WORDS; w += COPY_WORDS)
        expectInside(list[w + Copy.OFFSET_HIGH] * TWO_32 + list[w + Copy.OFFSET_LOW], list[w + Copy.LENGTH]);
      copyBatch(slab, regions, list, count);
    };
    const hand = new ByHand({}, { copy });
    const { side } = hand;
    let made = 0;
    const newRing = (entries: number, stride: number) => {
      const isSends = made++ === 0;
      return watchedRing(entries, stride, (words, index) => read(words, index, isSends, stride));
    };
    side.createQp({ maxSendWr: 4, maxRecvWr: 8 }, { newRing });
    hand.connect({ rqPsn: 1000, sqPsn: 0xff_fffe, pathMtu: MTU });
    const mr = side.register(new ArrayBuffer(BUFFER), 0xf, START, LENGTH);
    return { hand, side, mr, copies: () => copies };
  }

  const RECEIVE: [place: number, values: number[]][] = [
    [RecvWqe.SGE_COUNT, [0, 2, 5, TWO_32 - 1]],
    [RecvWqe.SGE + Sge.LENGTH, lengths],
    [RecvWqe.SGE + Sge.ADDRESS_HIGH, lows],
    [RecvWqe.SGE + Sge.ADDRESS_LOW, lows],
    [RecvWqe.SGE + Sge.LKEY, [0, 1]],
  ];

  test('a receive: every packet goes to memory that was checked, or to none', () => {
    let all = 0;
    for (const [place, values] of RECEIVE) {
      for (const value of values) {
        for (let entry = 0; entry < 4; entry++) {
          for (let reads = 1; reads <= 5; reads++) {
            let looks = 0;
            const { hand, side, mr, copies } = watched((words, index, isSends, stride) => {
              const isIt = !isSends && index === CONTROL_WORDS + entry * stride + place;
              if (isIt && ++looks === reads) words[index] = value;
              return words[index];
            });
            for (let i = 0; i < 8; i++) side.postRecv(i, [{ mr, offset: LENGTH - 200, length: 200 }]);
            const send = { opcode: Opcode.RC_SEND_ONLY, payload: new Uint8Array(100) };
            hand.put(...[0, 1, 2, 3].map((i) => ({ ...send, psn: 1000 + i })));
            const done = side.poll();
            const good = done.filter(({ status }) => status === 'SUCCESS').length;
            // Each message that is reported is there, in one piece or in pieces.
            expect(copies()).toBeGreaterThanOrEqual(good > 0 && value !== 5 ? 1 : 0);
            expect(done.length).toBeLessThanOrEqual(8);
            all += good;
          }
        }
      }
    }
    expect(all).toBeGreaterThan(500);
  });

  const signaled = (opcode: number) => opcode | (SendFlags.SIGNALED << 8);
  const READ: [place: number, values: number[]][] = [
    [SendWqe.OPCODE_FLAGS, [WrOpcode.SEND, WrOpcode.ATOMIC_FETCH_AND_ADD, 99].map(signaled)],
    [SendWqe.SGE_COUNT, [0, 2, TWO_32 - 1]],
    [SendWqe.LENGTH, lengths],
    [SendWqe.SGE + Sge.LENGTH, lengths],
    [SendWqe.SGE + Sge.ADDRESS_HIGH, lows],
    [SendWqe.SGE + Sge.ADDRESS_LOW, lows],
    [SendWqe.SGE + Sge.LKEY, [0, 1]],
  ];

  test('a READ: every response goes to memory that was checked, or to none', () => {
    let all = 0;
    for (const [place, values] of READ) {
      for (const value of values) {
        for (let reads = 1; reads <= 12; reads++) {
          let looks = 0;
          let isArmed = false;
          const { hand, side, mr } = watched((words, index, isSends) => {
            const isIt = isArmed && isSends && index === CONTROL_WORDS + place;
            if (isIt && ++looks === reads) words[index] = value;
            return words[index];
          });
          const length = 8 * MTU;
          const sge = [{ mr, offset: LENGTH - length, length }];
          side.post({ opcode: 'RDMA_READ', sge, remote: { addr: 0n, rkey: 1 } });
          hand.out();
          isArmed = true;
          const response = (i: number) => ({
            opcode:
              i === 0
                ? Opcode.RC_RDMA_READ_RESPONSE_FIRST
                : i === 7
                  ? Opcode.RC_RDMA_READ_RESPONSE_LAST
                  : Opcode.RC_RDMA_READ_RESPONSE_MIDDLE,
            psn: 0xff_fffe + i,
            payload: new Uint8Array(MTU),
            ...(i === 0 || i === 7 ? { aeth: { syndrome: 0x1f } } : {}),
          });
          const packets = Array.from({ length: 8 }, (_, i) => response(i));
          hand.put(...packets.slice(0, 5));
          hand.put(...packets.slice(5));
          const [done] = side.poll();
          if (done.status === 'SUCCESS') all++;
          else expect(['BAD_RESP_ERR', 'LOC_PROT_ERR']).toContain(done.status);
        }
      }
    }
    expect(all).toBeGreaterThan(50);
  });
});
