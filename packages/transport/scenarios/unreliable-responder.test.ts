/**
 * Packets at the responder of an unreliable connection that no requester of ours sends: a message that is not whole is dropped, and
 * nothing but the message that follows it begins anew (IBTA vol 1 §9.8.2.2).
 */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { QpCounters } from '../src/index.ts';
import { ByHand, type PacketInit } from '../testing/by-hand.ts';
import { addressOf } from '../testing/pair.ts';

const P = 1000;
const MTU = 256;

/** The queue pair expects `P`; `receives` of four packets each are posted. */
function responder({ receives = 4, cqe = 0, access = 0xf, flags = 0xe } = {}) {
  const hand = new ByHand();
  const { side } = hand;
  const { adapter } = side;
  side.createQp({}, { type: 'UC', ...(cqe ? { cq: adapter.createCq(cqe).handle } : {}) });
  const { qpn } = side.qp;
  const connect = () => {
    adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: flags });
    const path = { ahAttr: addressOf(1), pathMtu: MTU, destQpNum: 77, rqPsn: P };
    adapter.modifyQp(qpn, { qpState: 'RTR', ...path });
    adapter.modifyQp(qpn, { qpState: 'RTS', sqPsn: 1 });
  };
  connect();
  const memory = new Uint8Array(8192);
  const mr = side.register(memory.buffer, access);
  const postRecv = (wrId: number) =>
    side.postRecv(wrId, [{ mr, offset: (wrId - 1) * 4 * MTU, length: 4 * MTU }]);
  for (let i = 1; i <= receives; i++) postRecv(i);
  const send = (
    place: 'FIRST' | 'MIDDLE' | 'LAST' | 'ONLY',
    psn: number,
    value = 1,
    length = MTU,
  ): PacketInit => ({
    opcode: Opcode[`UC_SEND_${place}`],
    psn,
    payload: new Uint8Array(length).fill(value),
  });
  const write = (place: 'FIRST' | 'ONLY', psn: number, announced: number, length = MTU): PacketInit => ({
    opcode: Opcode[`UC_RDMA_WRITE_${place}`],
    psn,
    reth: { addr: mr.addr + 4096n, rkey: mr.rkey, length: announced },
    payload: new Uint8Array(length).fill(9),
  });
  const more = (place: 'MIDDLE' | 'LAST', psn: number, length = MTU): PacketInit => ({
    opcode: Opcode[`UC_RDMA_WRITE_${place}`],
    psn,
    payload: new Uint8Array(length).fill(9),
  });
  /** Receives that completed: number, status, bytes. */
  const received = () => side.poll().map(({ wrId, status, byteLen }) => [wrId, status, byteLen]);
  const state = () => adapter.queryQp(qpn).attr.qpState;
  const expected = () => adapter.queryQp(qpn).attr.rqPsn;
  const counts = (counters: Partial<QpCounters>) => {
    const none = { receivedMessages: 0, droppedMessages: 0, droppedPackets: 0, outOfBuffer: 0 };
    expect(adapter.qpCounters(qpn)).toMatchObject({ ...none, ...counters });
    // Nothing is ever answered.
    expect(hand.out()).toEqual([]);
  };
  return {
    hand,
    side,
    adapter,
    qpn,
    connect,
    mr,
    memory,
    postRecv,
    send,
    write,
    more,
    received,
    state,
    expected,
    counts,
  };
}

describe('a SEND', () => {
  test('of several packets is delivered whole, once', () => {
    const { hand, send, received, counts, expected, memory } = responder();
    hand.put(send('FIRST', P, 1), send('MIDDLE', P + 1, 2));
    expect(received()).toEqual([]);
    hand.put(send('LAST', P + 2, 3, 8));
    expect(received()).toEqual([[1, 'SUCCESS', 2 * MTU + 8]]);
    expect([0, MTU, 2 * MTU, 2 * MTU + 8].map((i) => memory[i])).toEqual([1, 2, 3, 0]);
    counts({ receivedMessages: 1, completedReceives: 1 });
    expect(expected()).toBe(P + 3);
  });

  test.each([P - 5, P + 5, P + (1 << 23), 0xff_ffff])(
    'begins at any PSN, %i, and goes on from there',
    (psn) => {
      const { hand, send, received, counts, expected } = responder();
      hand.put(send('FIRST', psn), send('LAST', psn + 1));
      expect(received()).toEqual([[1, 'SUCCESS', 2 * MTU]]);
      expect(expected()).toBe((psn + 2) & 0xff_ffff);
      counts({ receivedMessages: 1 });
    },
  );

  test.each<[string, (r: ReturnType<typeof responder>) => PacketInit[], Partial<QpCounters>]>([
    [
      'a MIDDLE is missing',
      ({ send }) => [send('FIRST', P), send('LAST', P + 2)],
      { droppedMessages: 1, droppedPackets: 1 },
    ],
    [
      'a packet comes twice',
      ({ send }) => [send('FIRST', P), send('MIDDLE', P + 1), send('MIDDLE', P + 1), send('LAST', P + 2)],
      { droppedMessages: 1, droppedPackets: 2 },
    ],
    ['there was no FIRST', ({ send }) => [send('MIDDLE', P), send('LAST', P + 1)], { droppedPackets: 2 }],
    ['it ended before', ({ send }) => [send('LAST', P)], { droppedPackets: 1 }],
    [
      'it goes on as a WRITE',
      ({ send, more }) => [send('FIRST', P), more('LAST', P + 1)],
      { droppedMessages: 1, droppedPackets: 1 },
    ],
    [
      'another FIRST comes, and of that nothing more',
      ({ send }) => [send('FIRST', P), send('FIRST', P + 1), send('LAST', P + 3)],
      { droppedMessages: 2, droppedPackets: 1 },
    ],
    [
      'its FIRST is short',
      ({ send }) => [send('FIRST', P, 1, MTU - 4)],
      { droppedPackets: 1, droppedMessages: 1 },
    ],
    [
      'it is longer than its receive',
      ({ send }) => [0, 1, 2, 3, 4].map((i) => send(i === 0 ? 'FIRST' : i === 4 ? 'LAST' : 'MIDDLE', P + i)),
      { droppedPackets: 1, droppedMessages: 1 },
    ],
  ])('is dropped where %s; its receive is for the next', (_what, packets, counters) => {
    const set = responder();
    const { hand, send, received, counts, state } = set;
    hand.put(...packets(set));
    expect(received()).toEqual([]);
    counts(counters);
    hand.put(send('ONLY', P + 50, 1, 8));
    expect(received()).toEqual([[1, 'SUCCESS', 8]]);
    counts({ ...counters, receivedMessages: 1 });
    expect(state()).toBe('RTS');
  });

  test('that another FIRST replaces: the new one is delivered', () => {
    const { hand, send, received, counts } = responder();
    hand.put(send('FIRST', P), send('FIRST', P + 7), send('LAST', P + 8, 2, 4));
    expect(received()).toEqual([[1, 'SUCCESS', MTU + 4]]);
    counts({ receivedMessages: 1, droppedMessages: 1 });
  });

  test('without a receive is dropped whole, however much of it comes after one is posted', () => {
    const { hand, send, postRecv, received, counts } = responder({ receives: 0 });
    hand.put(send('FIRST', P));
    counts({ outOfBuffer: 1 });
    postRecv(1);
    hand.put(send('MIDDLE', P + 1), send('LAST', P + 2));
    expect(received()).toEqual([]);
    counts({ outOfBuffer: 1, droppedPackets: 2 });
  });

  test('whose receive names memory that has gone ends the queue pair', () => {
    const { hand, adapter, mr, send, received, state, counts } = responder({ receives: 2 });
    hand.put(send('FIRST', P));
    adapter.deregisterMr(mr.handle);
    hand.put(send('LAST', P + 1));
    expect(received().map(([wrId, status]) => [wrId, status])).toEqual([
      [1, 'LOC_PROT_ERR'],
      [2, 'WR_FLUSH_ERR'],
    ]);
    expect(state()).toBe('ERR');
    counts({});
  });

  test('whose completion has no place is not delivered, and ends the queue pair', () => {
    const { hand, side, send, state, counts } = responder({ cqe: 1 });
    hand.put(send('ONLY', P), send('ONLY', P + 1), send('ONLY', P + 2));
    expect(state()).toBe('ERR');
    expect(side.events.map(({ type }) => type)).toEqual(['CQ_ERR', 'QP_FATAL']);
    counts({ receivedMessages: 1 });
  });
});

describe('a WRITE', () => {
  test('of several packets goes to its place', () => {
    const { hand, write, more, memory, received, counts } = responder();
    hand.put(write('FIRST', P, 2 * MTU + 4), more('MIDDLE', P + 1), more('LAST', P + 2, 4));
    expect([4095, 4096, 4096 + 2 * MTU + 3, 4096 + 2 * MTU + 4].map((i) => memory[i])).toEqual([0, 9, 9, 0]);
    expect(received()).toEqual([]);
    counts({ receivedMessages: 1, writeRequests: 1 });
  });

  test.each<[string, (r: ReturnType<typeof responder>) => PacketInit[], Partial<QpCounters>]>([
    [
      'more than it announced',
      ({ write, more }) => [write('FIRST', P, MTU + 4), more('LAST', P + 1, 8)],
      { droppedMessages: 1 },
    ],
    [
      'less than it announced',
      ({ write, more }) => [write('FIRST', P, MTU + 8), more('LAST', P + 1, 4)],
      { droppedMessages: 1 },
    ],
    [
      'a MIDDLE with which all is there',
      ({ write, more }) => [write('FIRST', P, 2 * MTU), more('MIDDLE', P + 1)],
      { droppedMessages: 1 },
    ],
    ['less than an ONLY announced', ({ write }) => [write('ONLY', P, 8, 4)], {}],
    ['more than 2^31 bytes', ({ write }) => [write('FIRST', P, 2 ** 31 + 1)], {}],
    ['a place outside of its region', ({ write }) => [write('FIRST', P, 4097)], {}],
    [
      'another key',
      ({ write, mr }) => [
        { ...write('ONLY', P, 4, 4), reth: { addr: mr.addr, rkey: (mr.rkey ^ 1) >>> 0, length: 4 } },
      ],
      {},
    ],
  ])('with %s is dropped', (_what, packets, counters) => {
    const set = responder();
    const { hand, write, memory, counts, state } = set;
    const all = packets(set);
    hand.put(...all);
    counts({ droppedPackets: 1, ...counters });
    const written = (all.length - 1) * MTU;
    expect(memory.subarray(4096 + written).every((byte) => byte === 0)).toBe(true);
    // The next one is taken.
    hand.put(write('ONLY', P + 50, 4, 4));
    expect(memory[4096]).toBe(9);
    counts({ droppedPackets: 1, ...counters, receivedMessages: 1 });
    expect(state()).toBe('RTS');
  });

  test.each([
    ['the queue pair', { flags: 0xc }],
    ['the region', { access: 0xd }],
  ])('that %s does not allow is dropped', (_what, options) => {
    const { hand, write, memory, counts, state } = responder(options);
    hand.put(write('ONLY', P, 4, 4));
    counts({ droppedPackets: 1 });
    expect(memory[4096]).toBe(0);
    expect(state()).toBe('RTS');
  });

  test('whose region goes between its packets is dropped', () => {
    const { hand, adapter, mr, write, more, memory, counts } = responder({ receives: 0 });
    hand.put(write('FIRST', P, MTU + 4));
    adapter.deregisterMr(mr.handle);
    hand.put(more('LAST', P + 1, 4));
    expect(memory[4096 + MTU]).toBe(0);
    counts({ droppedPackets: 1, droppedMessages: 1 });
  });
});

test.each([Opcode.RC_RDMA_READ_REQUEST & 0x1f, Opcode.RC_FETCH_ADD & 0x1f])(
  'READs and atomics are no operations of UC: %i',
  (operation) => {
    const { hand, mr, counts } = responder();
    hand.put({ opcode: 0x20 | operation, psn: P, reth: { addr: mr.addr, rkey: mr.rkey, length: 8 } });
    counts({});
  },
);

describe.each([
  [
    'SEND',
    (r: ReturnType<typeof responder>) => r.send('FIRST', P),
    (r: ReturnType<typeof responder>) => r.send('LAST', P),
  ],
  [
    'WRITE',
    (r: ReturnType<typeof responder>) => r.write('FIRST', P, 2 * MTU),
    (r: ReturnType<typeof responder>) => r.more('LAST', P),
  ],
] as const)('a %s that is under way', (_what, first, last) => {
  test.each(['RESET', 'ERR'] as const)(
    'is forgotten with %s: another connection does not go on with it',
    (to) => {
      const set = responder();
      const { hand, adapter, qpn, connect, received, counts } = set;
      hand.put(first(set));
      adapter.modifyQp(qpn, { qpState: to });
      adapter.checkInvariants();
      if (to === 'ERR') adapter.modifyQp(qpn, { qpState: 'RESET' });
      received();
      connect();
      hand.put(last(set));
      expect(received()).toEqual([]);
      counts({ droppedPackets: 1 });
    },
  );
});
