/** The limits and the resets of the responder, each at its edge (IBTA vol 1 §9.7.4.1). */
import { NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../../testing/by-hand.ts';
import { type QpAttr, Ring } from '../index.ts';

const P = 1000;
const MTU = 1024;
const NAK = NakCode.INVALID_REQUEST;

function responder(attr: QpAttr = {}) {
  const hand = new ByHand({ rqPsn: P, pathMtu: MTU, ...attr });
  const region = hand.side.register(new ArrayBuffer(1 << 16));
  const { addr, rkey } = region;
  const read = (psn: number, length: number): PacketInit => ({
    opcode: Opcode.RC_RDMA_READ_REQUEST,
    psn,
    reth: { addr, rkey, length },
  });
  const write = (psn: number, opcode: number, length: number, payload: number): PacketInit => ({
    opcode,
    psn,
    ...(opcode === Opcode.RC_RDMA_WRITE_FIRST || opcode === Opcode.RC_RDMA_WRITE_ONLY
      ? { reth: { addr, rkey, length } }
      : {}),
    payload: new Uint8Array(payload),
  });
  const send = (psn: number, opcode: number, payload: number): PacketInit => ({
    opcode,
    psn,
    payload: new Uint8Array(payload),
  });
  const add = (psn: number, offset = 0): PacketInit => ({
    opcode: Opcode.RC_FETCH_ADD,
    psn,
    atomic: { addr: addr + BigInt(offset), rkey, swapAdd: 1n },
  });
  const answers = () => hand.out().map(inShort);
  return { hand, region, read, write, send, add, answers };
}

describe('answers with NAK 0x61', () => {
  const { RC_RDMA_WRITE_FIRST: FIRST, RC_RDMA_WRITE_MIDDLE: MIDDLE, RC_RDMA_WRITE_LAST: LAST } = Opcode;
  const ONLY = Opcode.RC_RDMA_WRITE_ONLY;
  type Set = ReturnType<typeof responder>;
  test.each<[string, number, (set: Set) => PacketInit[]]>([
    ['a READ of more than 2^31 bytes', P, ({ read }) => [read(P, 2 ** 31 + 1)]],
    ['a READ with payload', P, ({ read }) => [{ ...read(P, 8), payload: new Uint8Array(4) }]],
    ['an atomic with payload', P, ({ add }) => [{ ...add(P), payload: new Uint8Array(4) }]],
    ['an atomic at an address that is not aligned', P, ({ add }) => [add(P, 4)]],
    [
      'a READ in the middle of a WRITE',
      P + 1,
      ({ write, read }) => [write(P, FIRST, 3000, MTU), read(P + 1, 8)],
    ],
    ['a MIDDLE between messages', P, ({ write }) => [write(P, MIDDLE, 0, MTU)]],
    [
      'a SEND that goes on with a WRITE',
      P + 1,
      ({ write, send }) => [write(P, FIRST, 3000, MTU), send(P + 1, Opcode.RC_SEND_MIDDLE, MTU)],
    ],
    ['a FIRST of less than the path MTU', P, ({ write }) => [write(P, FIRST, 3000, MTU - 4)]],
    ['an ONLY of more than the path MTU', P, ({ write }) => [write(P, ONLY, MTU + 4, MTU + 4)]],
    ['an empty LAST', P + 1, ({ write }) => [write(P, FIRST, 3000, MTU), write(P + 1, LAST, 0, 0)]],
    [
      'a LAST that comes too early for its length',
      P + 1,
      ({ write }) => [write(P, FIRST, 3000, MTU), write(P + 1, LAST, 0, MTU)],
    ],
    [
      'a MIDDLE that fills the message',
      P + 1,
      ({ write }) => [write(P, FIRST, 2 * MTU, MTU), write(P + 1, MIDDLE, 0, MTU)],
    ],
    ['an ONLY whose RETH has another length', P, ({ write }) => [write(P, ONLY, 8, 4)]],
    [
      'FLUSH, without the right',
      P,
      () => [
        {
          opcode: Opcode.RC_FLUSH,
          psn: P,
          feth: { placement: 1, selectivity: 0 },
          reth: { addr: 0n, rkey: 0, length: 8 },
        },
      ],
    ],
  ])('%s', (_what, at, packets) => {
    const set = responder();
    set.hand.put(...packets(set));
    expect(set.answers().at(-1)).toEqual(['ACKNOWLEDGE', at, NAK]);
    const { adapter, qp } = set.hand.side;
    expect(adapter.queryQp(qp.qpn).attr.qpState).toBe('ERR');
    expect(adapter.qpCounters(qp.qpn).sentInvalidRequest).toBe(1);
  });

  test('one READ or atomic more than max_dest_rd_atomic, with none of them answered', () => {
    const { hand, read, add, answers } = responder({ maxDestRdAtomic: 2 });
    hand.put(read(P, 8), add(P + 1));
    expect(answers()).toHaveLength(2);
    hand.put(read(P + 2, 8), add(P + 3), read(P + 4, 8));
    expect(answers().at(-1)).toEqual(['ACKNOWLEDGE', P + 4, NAK]);
  });

  test('a READ, with max_dest_rd_atomic 0', () => {
    const { hand, read, answers } = responder({ maxDestRdAtomic: 0 });
    hand.put(read(P, 8));
    expect(answers()).toEqual([['ACKNOWLEDGE', P, NAK]]);
  });
});

describe('takes', () => {
  test('a READ of 2^31 bytes as far as length goes: what is wrong is the range', () => {
    const { hand, read, answers } = responder();
    hand.put(read(P, 2 ** 31));
    expect(answers()).toEqual([['ACKNOWLEDGE', P, NakCode.REMOTE_ACCESS_ERROR]]);
  });

  test('as many READs and atomics as max_dest_rd_atomic, again and again', () => {
    const { hand, read, answers } = responder({ maxDestRdAtomic: 2 });
    for (let i = 0; i < 10; i += 2) {
      hand.put(read(P + i, 8), read(P + i + 1, 8));
      expect(answers().map(([, psn]) => psn)).toEqual([P + i, P + i + 1]);
    }
  });

  test('a WRITE whose LAST fills its length exactly, and an empty ONLY', () => {
    const { hand, write, answers } = responder();
    hand.put(
      write(P, Opcode.RC_RDMA_WRITE_FIRST, MTU + 4, MTU),
      write(P + 1, Opcode.RC_RDMA_WRITE_LAST, 0, 4),
      write(P + 2, Opcode.RC_RDMA_WRITE_ONLY, 0, 0),
    );
    expect(answers()).toEqual([['ACKNOWLEDGE', P + 2, 0x1f]]);
  });
});

describe('the receive of a SEND that fails', () => {
  test.each([
    ['fits not', 8, 'LOC_LEN_ERR', NAK],
    ['has a wrong key', 0, 'LOC_PROT_ERR', NakCode.REMOTE_OPERATIONAL_ERROR],
  ])('that %s completes with its status, those behind it are flushed', (_what, length, status, nak) => {
    const { hand, region, send, answers } = responder();
    const { side } = hand;
    const bad =
      length === 0 ? { mr: { ...region, lkey: region.lkey ^ 0x100 }, length: 64 } : { mr: region, length };
    side.postRecv(1, [bad]);
    side.postRecv(2, [{ mr: region, length: 64 }]);
    hand.put(send(P, Opcode.RC_SEND_ONLY, 12));
    expect(answers()).toEqual([['ACKNOWLEDGE', P, nak]]);
    expect(side.poll().map((wc) => [wc.wrId, wc.status])).toEqual([
      [1, status],
      [2, 'WR_FLUSH_ERR'],
    ]);
  });

  test('a fault of a WRITE completes no receive in error: all are flushed', () => {
    const { hand, region, write } = responder();
    hand.side.postRecv(1, [{ mr: region, length: 64 }]);
    hand.put({ ...write(P, Opcode.RC_RDMA_WRITE_ONLY, 8, 8), reth: { addr: 0n, rkey: 1, length: 8 } });
    expect(hand.side.poll().map((wc) => [wc.wrId, wc.status])).toEqual([[1, 'WR_FLUSH_ERR']]);
  });
});

describe('a connection of a queue pair that was used before', () => {
  function again(set: ReturnType<typeof responder>, attr: QpAttr = {}) {
    const { adapter, qp } = set.hand.side;
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    set.hand.out();
    adapter.checkInvariants();
    set.hand.connect({ rqPsn: P, ...attr });
  }
  /** The MSN of the last packet sent. */
  const msn = (packets: Uint8Array[]) => {
    const packet = packets.at(-1)!;
    return (packet[13] << 16) | (packet[14] << 8) | packet[15];
  };
  const ONLY = Opcode.RC_RDMA_WRITE_ONLY;

  test('counts messages from 0', () => {
    const set = responder();
    set.hand.put(set.write(P, ONLY, 4, 4), set.write(P + 1, ONLY, 4, 4));
    expect(msn(set.hand.out())).toBe(2);
    again(set);
    set.hand.put(set.write(P, ONLY, 4, 4));
    expect(msn(set.hand.out())).toBe(1);
  });

  test('sends a NAK for its first gap although the old one had a NAK out', () => {
    const set = responder();
    const nak = [['ACKNOWLEDGE', P, NakCode.PSN_SEQUENCE_ERROR]];
    set.hand.put(set.write(P + 1, ONLY, 4, 4));
    expect(set.answers()).toEqual(nak);
    again(set);
    set.hand.put(set.write(P + 1, ONLY, 4, 4));
    expect(set.answers()).toEqual(nak);
  });

  test.each([Opcode.RC_SEND_FIRST, Opcode.RC_RDMA_WRITE_FIRST])(
    'begins with a message although one was half there: %i',
    (first) => {
      const set = responder();
      const { hand, region } = set;
      hand.side.postRecv(1, [{ mr: region, length: 4096 }]);
      hand.put(first === Opcode.RC_SEND_FIRST ? set.send(P, first, MTU) : set.write(P, first, 3000, MTU));
      again(set);
      expect(hand.side.poll()).toEqual([]);
      // The receive of the old connection is gone with it.
      hand.put(set.send(P, Opcode.RC_SEND_ONLY, 4));
      expect(set.answers().at(-1)?.[2]).toBe(0x20 | 12);
      hand.side.postRecv(2, [{ mr: region, length: 4096 }]);
      hand.put(set.send(P, Opcode.RC_SEND_ONLY, 4));
      expect(hand.side.poll()).toMatchObject([{ wrId: 2, status: 'SUCCESS', byteLen: 4 }]);
    },
  );

  test('does not answer a duplicate of the old connection’s READs and atomics', () => {
    const set = responder();
    set.hand.put(set.add(P), set.read(P + 1, 8));
    expect(set.answers()).toHaveLength(2);
    again(set, { rqPsn: P + 2 });
    set.hand.put(set.add(P), set.read(P + 1, 8));
    expect(set.answers()).toEqual([]);
  });

  test('executes nothing that a thread published just after RESET', () => {
    const set = responder();
    const { hand, region } = set;
    const { adapter, qp } = hand.side;
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    hand.side.post({ opcode: 'SEND', sge: [{ mr: region, length: 4 }] });
    hand.side.postRecv(1, [{ mr: region, length: 64 }]);
    hand.connect({ rqPsn: P });
    expect(hand.run(10_000)).toEqual([]);
    hand.put(set.send(P, Opcode.RC_SEND_ONLY, 4));
    expect(set.answers()).toEqual([['ACKNOWLEDGE', P, 0x20 | 12]]);
    hand.side.post({ opcode: 'SEND', sge: [{ mr: region, length: 4 }] });
    expect(hand.out().map(inShort)).toEqual([['SEND_ONLY', 0x500]]);
    adapter.checkInvariants();
  });

  test('hears COMM_EST again', () => {
    const set = responder();
    const { side } = set.hand;
    again(set);
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    side.events.length = 0;
    for (let i = 0; i < 2; i++) {
      set.hand.connect({ rqPsn: P }, 'RTR');
      set.hand.put(set.write(P, ONLY, 4, 4));
      side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    }
    expect(side.events.filter(({ type }) => type === 'COMM_EST')).toHaveLength(2);
  });
});

test('an SRQ limit above what is posted raises its event with the next receive taken (rxe_srq.c, ibv_modify_srq(3): “drops below”)', () => {
  const hand = new ByHand({ rqPsn: P });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(64));
  const srq = side.adapter.createSrq({ pd: side.pd, maxWr: 8, maxSge: 1, limit: 0 });
  side.createQp({}, { srq: srq.handle });
  hand.connect({ rqPsn: P });
  const ring = new Ring(srq.ring);
  for (let i = 0; i < 3; i++) side.postRecv(i, [{ mr, length: 64 }], ring);
  side.adapter.modifySrq(srq.handle, { limit: 4 });
  expect(side.events).toEqual([]);
  for (let i = 0; i < 2; i++) {
    hand.put({ opcode: Opcode.RC_SEND_ONLY, psn: P + i });
    expect(side.events.filter(({ type }) => type === 'SRQ_LIMIT_REACHED')).toHaveLength(1);
    expect(side.adapter.querySrq(srq.handle).limit).toBe(0);
  }
});
