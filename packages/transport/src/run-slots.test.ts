/**
 * Run slots: packets that differ in their PSNs alone have one slot. Unfolded, a batch has to be what it is without runs, word by word: for each kind of
 * packet, however runs are cut, and whatever happens to the batch before the link has looked at it.
 */
import { bthAckReq, bthOpcode, createRandom, Opcode } from '@node-roce/wire';
import { afterEach, expect, test, vi } from 'vitest';
import { ByHand } from '../testing/by-hand.ts';
import { type ElementInit, Pair, type WorkInit } from '../testing/pair.ts';
import { rewriteOnceRead } from '../testing/restless-ring.ts';
import {
  FRAGMENT_WORDS,
  Fragment,
  type MrCreated,
  type QpAttr,
  runOf,
  SendFlags,
  SendWqe,
  Sge,
  splitRun,
  TX_HEADER_STRIDE,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
  unfoldRuns,
} from './index.ts';

const { RC_RDMA_WRITE_MIDDLE, RC_RDMA_READ_REQUEST } = Opcode;
/** So that PSNs wrap. */
const P = 0xff_ffe0;
const EMSGSIZE = 90;

afterEach(() => vi.restoreAllMocks());

/** All that a link reads of a batch of packets with a slot each. */
function contents({ slots, headers, fragments, count, fragmentCount }: TxBatch) {
  const packets = Array.from({ length: count }, (_, i) => {
    const w = i * TX_SLOT_WORDS;
    expect(slots[w + Tx.RUN]).toBe(1);
    const at = slots[w + Tx.HEADER_OFFSET];
    const header = headers.subarray(at, at + slots[w + Tx.HEADER_LENGTH]);
    return `${slots.subarray(w, w + TX_SLOT_WORDS).join()} ${Buffer.from(header).toString('hex')}`;
  });
  return [packets, fragments.subarray(0, fragmentCount * FRAGMENT_WORDS).join()];
}

/** Counts the packets of runs by their opcode. */
function countRuns(batch: TxBatch, seen: Map<number, number>): void {
  for (let i = 0; i < batch.count; i += runOf(batch, i)) {
    const opcode = batch.headers[batch.slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET]];
    if (runOf(batch, i) > 1) seen.set(opcode, (seen.get(opcode) ?? 0) + runOf(batch, i));
  }
}

/** Work of a seed for a send queue, most of it several times the same. */
function workOf(
  between: (low: number, high: number) => number,
  mtu: number,
  regions: MrCreated[],
): WorkInit[] {
  const one = (): WorkInit => {
    const mr = regions[Math.max(0, between(-9, regions.length - 1))];
    const flags =
      (between(0, 3) === 0 ? SendFlags.SIGNALED : 0) |
      (between(0, 9) === 0 ? SendFlags.SOLICITED : 0) |
      (between(0, 29) === 0 ? SendFlags.FENCE : 0);
    const length =
      between(0, 4) === 0 ? between(0, 9 * mtu) : [64, 65, mtu, 12 * mtu, 20 * mtu][between(0, 4)];
    const sge = [{ mr, offset: between(0, 99), length }];
    if (between(0, 9) === 0) sge.push({ mr: regions[0], offset: 3, length: between(1, 5 * mtu) });
    const remote = { addr: 0n, rkey: 1 };
    switch (between(0, 20)) {
      case 0:
        return { opcode: 'SEND', inline: new Uint8Array(between(1, 128)), flags };
      case 1:
        return { opcode: 'SEND_WITH_IMM', sge, immediate: 7, flags };
      case 2:
        return { opcode: 'RDMA_READ', sge, remote, flags };
      case 3:
        return { opcode: 'RDMA_WRITE_WITH_IMM', sge, remote, flags };
      case 4:
        return { opcode: 'SEND', sge: [{ mr, offset: 64 * mtu, length: 64 }], flags };
      default:
        return { opcode: between(0, 2) > 0 ? 'SEND' : 'RDMA_WRITE', sge, remote, flags };
    }
  };
  const list: WorkInit[] = [];
  while (between(0, 4) > 0) {
    const same = one();
    for (let i = between(1, 40); i > 0; i--)
      list.push({ ...same, ...(between(0, 9) === 0 ? { flags: SendFlags.SIGNALED } : {}) });
  }
  return list;
}

/** Returns the packets that a side with work of a seed sends, with run slots or without, and their results. */
function sent(seed: number, runs: boolean, seen = new Map<number, number>()) {
  const { between } = createRandom(seed);
  const hand = new ByHand({}, { credits: between(0, 7) === 0 });
  const { side } = hand;
  const { adapter } = side;
  side.createQp({ maxSendWr: 256, maxSendSge: 3, maxInlineData: 128 });
  const mtu = [256, 512, 1024, 2048, 4096][between(0, 4)];
  hand.connect({ sqPsn: P, rqPsn: P, pathMtu: mtu });
  const mr = side.register(new ArrayBuffer(64 * mtu));
  const other = side.register(new SharedArrayBuffer(64 * mtu), 0xf, 128, 60 * mtu);
  const regions = [mr, other, { ...mr, ...adapter.allocNullMr(side.pd) }, { ...mr, lkey: mr.lkey ^ 1 }];
  const batch = new TxBatch(adapter.regions, between(0, 2) === 0 ? between(2, 40) : 128);
  batch.runs = runs;
  // Drawn by itself: with runs and without, batches have the same packets.
  const deeds = createRandom(seed ^ 0x5bd1);
  const log: unknown[] = [];
  let psn = P;
  let posted = 0;
  let isRegistered = true;
  for (let round = 0; round < 10; round++) {
    for (const work of workOf(between, mtu, regions))
      if (posted - side.sq.consumer < 200) side.post({ ...work, wrId: posted++ });
    if (between(0, 1) === 0) {
      const length = between(1, 60 * mtu);
      hand.put({ opcode: RC_RDMA_READ_REQUEST, psn, reth: { addr: mr.addr, rkey: mr.rkey, length } });
      psn += Math.ceil(length / mtu);
    }
    for (;;) {
      batch.clear();
      if (adapter.transmit(batch) === 0) break;
      countRuns(batch, seen);
      // Links that stop in the middle.
      for (let i = deeds.between(0, 3); i > 0; i--) splitRun(batch, deeds.between(0, batch.count - 1));
      const deed = deeds.between(0, 40);
      if (deed === 0) adapter.modifyQp(side.qp.qpn, { qpState: 'ERR' });
      if (deed === 1 && isRegistered) {
        isRegistered = false;
        adapter.deregisterMr(mr.handle);
      }
      const refused = deed === 2 ? deeds.between(0, batch.count - 1) : -1;
      for (let i = 0; i < batch.count; i++)
        batch.slots[i * TX_SLOT_WORDS + Tx.STATUS] = i === refused ? EMSGSIZE : 0;
      if (refused < 0) {
        unfoldRuns(batch);
        log.push(contents(batch));
      }
      adapter.sent(batch);
      adapter.checkInvariants();
    }
    const { sqPsn = P, qpState } = adapter.queryQp(side.qp.qpn).attr;
    if (qpState === 'RTS' && between(0, 1) === 0) {
      const aeth = { syndrome: 0x1f };
      hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: sqPsn - between(1, 30), ackReq: false, aeth });
    }
    log.push(side.poll());
  }
  const { qpn } = side.qp;
  log.push(side.events, adapter.qpCounters(qpn), adapter.counters(), adapter.queryQp(qpn).attr);
  return log;
}

test('batches of requests and READ responses: with run slots and without', { tags: ['slow', 'gate'] }, () => {
  const seen = new Map<number, number>();
  for (let seed = 1; seed <= 150; seed++)
    expect(sent(seed, true, seen), `seed ${seed}`).toEqual(sent(seed, false));
  // The kinds that are runs, and no others.
  const { RC_SEND_ONLY, RC_SEND_MIDDLE, RC_RDMA_WRITE_MIDDLE, RC_RDMA_READ_RESPONSE_MIDDLE } = Opcode;
  const kinds = [RC_SEND_ONLY, RC_SEND_MIDDLE, RC_RDMA_WRITE_MIDDLE, RC_RDMA_READ_RESPONSE_MIDDLE];
  expect([...seen.keys()].sort((a, b) => a - b)).toEqual(kinds.toSorted((a, b) => a - b));
  for (const kind of kinds) expect(seen.get(kind)).toBeGreaterThan(1000);
});

/** The packets and completions of two sides with losses by a seed. */
function exchanged(seed: number, type: 'RC' | 'UC', runSlots: boolean) {
  const { between, chance } = createRandom(seed);
  const mtu = [256, 1024, 4096][between(0, 2)];
  const pair = new Pair({ type, mtu, psn: [P, P] });
  pair.runSlots = runSlots;
  const lossy = between(0, 1) === 0;
  const losses = createRandom(seed ^ 0x1234);
  pair.fault = (packet) => (lossy && losses.chance(0.03) ? [] : [{ packet, delay: 0 }]);
  const sides = [pair.left, pair.right];
  const seen: unknown[] = [];
  const regions = sides.map((side) => side.register(new ArrayBuffer(70 * mtu)));
  for (let round = 0; round < 4; round++) {
    for (const [i, side] of sides.entries()) {
      const remote = { addr: regions[1 - i].addr, rkey: regions[1 - i].rkey };
      while (side.rq.used < 60) side.postRecv(0, [{ mr: regions[i], offset: 0, length: 30 * mtu }]);
      const list = workOf(between, mtu, [regions[i]]).filter(
        ({ opcode }) => type === 'RC' || opcode !== 'RDMA_READ',
      );
      for (const work of list.slice(0, 20)) side.post(work.remote ? { ...work, remote } : work);
    }
    pair.run();
    seen.push(sides.map((side) => side.poll()));
    if (chance(0.5)) pair.run(10_000_000);
  }
  return [seen, pair.sent.map(({ packet, at }) => `${at} ${Buffer.from(packet).toString('base64')}`)];
}

test.each(['RC', 'UC'] as const)('%s with losses: with run slots and without', (type) => {
  for (let seed = 1; seed <= 25; seed++)
    expect(exchanged(seed, type, true), `seed ${seed}`).toEqual(exchanged(seed, type, false));
});

/** A connected side, and a batch with runs for it. */
function oneSide(attr: QpAttr = {}) {
  const hand = new ByHand();
  const { side } = hand;
  side.createQp({ maxSendWr: 256 });
  hand.connect({ sqPsn: P, pathMtu: 256, ...attr });
  const batch = new TxBatch(side.adapter.regions, 128);
  batch.runs = true;
  const mr = side.register(new ArrayBuffer(1 << 16));
  // The peer's first ACK lifts the limit of credits.
  side.post({ opcode: 'SEND', sge: [{ mr, length: 8 }], flags: 0 });
  hand.out();
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: P, ackReq: false, aeth: { syndrome: 0x1f, msn: 1 } });
  return { hand, side, batch, mr };
}

test('the last packet of a turn asks for an ACK, and those of the run before it do not', () => {
  const { side, batch, mr } = oneSide();
  side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 100 * 256 }], remote: { addr: 0n, rkey: 1 } });
  side.adapter.transmit(batch);
  const runs = [];
  for (let i = 0; i < batch.count; i += runOf(batch, i)) {
    const at = i * TX_HEADER_STRIDE;
    runs.push([bthOpcode(batch.headers, at), runOf(batch, i), bthAckReq(batch.headers, at)]);
  }
  expect(runs.at(-1)).toEqual([RC_RDMA_WRITE_MIDDLE, 1, 1]);
  expect(runs.filter(([, , asks]) => asks === 0).length).toBeGreaterThan(1);
  expect(runs.every(([, packets, asks]) => asks === 0 || packets === 1)).toBe(true);
});

test('a refused packet of a run fails its own request alone', () => {
  const { hand, side, batch, mr } = oneSide();
  for (let i = 0; i < 10; i++) side.post({ opcode: 'SEND', wrId: i, sge: [{ mr, offset: i, length: 64 }] });
  side.adapter.transmit(batch);
  expect([batch.count, runOf(batch, 0)]).toEqual([10, 10]);
  for (let i = 0; i < 10; i++) batch.slots[i * TX_SLOT_WORDS + Tx.STATUS] = i === 4 ? EMSGSIZE : 0;
  side.adapter.sent(batch);
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: P + 4, ackReq: false, aeth: { syndrome: 0x1f } });
  const done = side.poll().map(({ wrId, status }) => [wrId, status]);
  const before = [0, 1, 2, 3].map((wrId) => [wrId, 'SUCCESS']);
  expect(done.slice(0, 5)).toEqual([...before, [4, 'LOC_LEN_ERR']]);
  expect(done.slice(5).every(([, status]) => status === 'WR_FLUSH_ERR')).toBe(true);
});

test('entries that their program rewrites while a run is made: each word is read once, and what is read is checked', () => {
  const { side, batch, mr } = oneSide();
  for (let i = 0; i < 30; i++)
    side.post({ opcode: 'SEND', wrId: i, sge: [{ mr, offset: i * 64, length: 64 }] });
  const reads = rewriteOnceRead(side.sq, side.sq.wordOf(2));
  expect(side.adapter.transmit(batch)).toBeGreaterThan(1);
  vi.restoreAllMocks();
  expect(runOf(batch, 0)).toBe(30);
  for (let i = 1; i < 30; i++) {
    const w = side.sq.wordOf(i + 1);
    for (const word of [SendWqe.OPCODE_FLAGS, SendWqe.LENGTH, SendWqe.SGE_COUNT, SendWqe.SGE + Sge.LKEY])
      expect(reads.get(w + word)).toBe(1);
    const f = i * FRAGMENT_WORDS;
    expect([batch.fragments[f + Fragment.OFFSET_LOW], batch.fragments[f + Fragment.LENGTH]]).toEqual([
      i * 64,
      64,
    ]);
  }
});

test.each<[string, { length?: number; offset?: number; lkey?: number }]>([
  ['another length', { length: 65 }],
  ['another offset', { offset: (1 << 16) - 63 }],
  ['a key of nothing', { lkey: 1 }],
])('a run ends before an entry with %s', (_, { length = 64, offset = 0, lkey = 0 }) => {
  const { side, batch, mr } = oneSide();
  const post = (element: ElementInit) => side.post({ opcode: 'SEND', sge: [element] });
  for (let i = 0; i < 5; i++) post({ mr, length: 64 });
  post({ mr: { ...mr, lkey: lkey || mr.lkey }, offset, length });
  side.adapter.transmit(batch);
  expect(runOf(batch, 0)).toBe(5);
});
