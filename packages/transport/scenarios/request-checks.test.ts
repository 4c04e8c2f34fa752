/**
 * The checks of a request before a reliable responder executes it, one by one (IBTA vol 1 §9.6.1, §9.7.4.1), with packets that no
 * requester of ours sends. A request that fails a check is not executed, and the connection ends or lives as the rule requires.
 */
import { NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Access, type Recovery } from '../src/index.ts';
import { ByHand, inShort, type PacketInit } from '../testing/by-hand.ts';

const P = 1000;
const MTU = 256;
const ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

function responder(attr = {}, access = ALL, recovery: Partial<Recovery> = {}) {
  const hand = new ByHand({ rqPsn: P, pathMtu: MTU, ...attr }, { recovery });
  const memory = new Uint8Array(4096);
  const mr = hand.side.register(memory.buffer, access);
  const { addr, rkey } = mr;
  const reth = (length: number, offset = 0) => ({ addr: addr + BigInt(offset), rkey, length });
  const write = (psn: number, more: Partial<PacketInit> = {}): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: reth(4),
    payload: Uint8Array.of(1, 2, 3, 4),
    ...more,
  });
  const answers = () => hand.out().map(inShort);
  const state = () => hand.side.adapter.queryQp(hand.side.qp.qpn).attr.qpState;
  const counters = () => hand.side.adapter.counters();
  return { hand, mr, memory, reth, write, answers, state, counters };
}

const ack = (psn: number) => [['ACKNOWLEDGE', psn, 0x1f]];

describe('a packet that is dropped without an answer', () => {
  type Set = ReturnType<typeof responder>;
  test.each<[string, (set: Set) => void, string]>([
    ['of another partition', ({ hand, write }) => hand.put(write(P, { pkey: 0x8001 })), 'badPkey'],
    [
      'of another partition, of which it would be a limited member',
      ({ hand, write }) => hand.put(write(P, { pkey: 0x1234 })),
      'badPkey',
    ],
    ['from another host', ({ hand, write }) => hand.putFrom({ source: 3 }, write(P)), 'wrongSource'],
    [
      'that came to another local address',
      ({ hand, write }) => hand.putFrom({ local: 1 }, write(P)),
      'wrongSource',
    ],
    [
      'of another service',
      ({ hand, write }) => hand.put(write(P, { opcode: Opcode.UC_RDMA_WRITE_ONLY })),
      'unknownQp',
    ],
    [
      'whose length is no multiple of four',
      ({ hand, write }) => hand.put(hand.packet(write(P)).subarray(0, 31)),
      'malformed',
    ],
    [
      'whose pad is longer than its payload',
      ({ hand, write }) => hand.put(write(P, { payload: new Uint8Array(0), pad: 3 })),
      'malformed',
    ],
  ])('%s', (_what, put, counter) => {
    const set = responder();
    const { hand, write, memory, answers, state, counters } = set;
    put(set);
    expect(answers()).toEqual([]);
    expect(counters()).toMatchObject({ [counter]: 1, acceptedPackets: 0, receivedPackets: 1 });
    expect(memory.every((byte) => byte === 0)).toBe(true);
    expect(state()).toBe('RTS');
    // The one that is right is taken afterwards.
    hand.put(write(P));
    expect(answers()).toEqual(ack(P));
    expect([...memory.subarray(0, 4)]).toEqual([1, 2, 3, 4]);
  });

  test('the default partition, full and limited member: taken', () => {
    const { hand, write, answers } = responder();
    hand.put(write(P, { pkey: 0xffff }), write(P + 1, { pkey: 0x7fff }));
    expect(answers()).toEqual(ack(P + 1));
  });

  test.each(['RESET', 'INIT', 'ERR'] as const)('in %s', (to) => {
    const { hand, write, answers, counters } = responder();
    const { adapter, qp } = hand.side;
    adapter.modifyQp(qp.qpn, { qpState: to === 'INIT' ? 'RESET' : to });
    if (to === 'INIT') {
      adapter.modifyQp(qp.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0xe });
    }
    hand.put(write(P));
    expect(answers()).toEqual([]);
    expect(counters().wrongState).toBe(1);
  });

  test('Congestion Experienced is counted with a packet that is taken', () => {
    const { hand, write, counters } = responder();
    hand.putFrom({ trafficClass: 3 }, write(P));
    hand.putFrom({ trafficClass: 2 }, write(P + 1));
    hand.putFrom({ trafficClass: 1 }, write(P + 2));
    expect(counters()).toMatchObject({ ecnMarked: 1, acceptedPackets: 3 });
  });
});

describe('a request that ends the connection', () => {
  /** Gives the request, and checks the NAK, the memory, and the event with the reason. */
  function refused(
    code: number,
    make: (set: ReturnType<typeof responder>) => PacketInit[],
    attr = {},
    access = ALL,
  ) {
    const set = responder(attr, access);
    const { hand, memory, answers, state, counters } = set;
    const before = memory.slice();
    const requests = make(set);
    for (const request of requests) hand.put(request);
    const naks = answers().filter(([name, , value]) => name === 'ACKNOWLEDGE' && value !== 0x1f);
    expect(naks).toEqual([['ACKNOWLEDGE', requests.at(-1)!.psn, code]]);
    expect(state()).toBe('ERR');
    const type = code === NakCode.REMOTE_ACCESS_ERROR ? 'QP_ACCESS_ERR' : 'QP_REQ_ERR';
    expect(hand.side.events.filter((event) => event.type !== 'COMM_EST')).toEqual([
      { type, qpn: hand.side.qp.qpn },
    ]);
    const counter = code === NakCode.REMOTE_ACCESS_ERROR ? 'sentAccessErr' : 'sentInvalidRequest';
    expect(counters()[counter]).toBe(1);
    return { set, before };
  }
  const read =
    (length: number, offset = 0) =>
    ({ reth }: ReturnType<typeof responder>) => [
      { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: P, reth: reth(length, offset) },
    ];
  const atomic =
    (offset: number) =>
    ({ mr }: ReturnType<typeof responder>) => [
      {
        opcode: Opcode.RC_FETCH_ADD,
        psn: P,
        atomic: { addr: mr.addr + BigInt(offset), rkey: mr.rkey, swapAdd: 1n },
      },
    ];
  const INVALID = NakCode.INVALID_REQUEST;
  const ACCESS = NakCode.REMOTE_ACCESS_ERROR;

  test.each<[string, number, (set: ReturnType<typeof responder>) => PacketInit[]]>([
    ['a READ of more than 2^31 bytes', INVALID, read(2 ** 31 + 1)],
    ['a READ of 2^31 bytes that the region does not have', ACCESS, read(2 ** 31)],
    ['a READ past the end of its region', ACCESS, read(8, 4089)],
    ['a READ before the start of its region', ACCESS, read(8, -1)],
    ['a READ with payload', INVALID, (s) => [{ ...read(8)(s)[0], payload: new Uint8Array(4) }]],
    ['an atomic that is misaligned by 4', INVALID, atomic(4)],
    ['an atomic that is misaligned by 1', INVALID, atomic(1)],
    ['an atomic past the end of its region', ACCESS, atomic(4096)],
    [
      'a WRITE of more than 2^31 bytes',
      INVALID,
      (s) => [
        {
          opcode: Opcode.RC_RDMA_WRITE_FIRST,
          psn: P,
          reth: s.reth(2 ** 31 + 1),
          payload: new Uint8Array(MTU),
        },
      ],
    ],
    [
      'a WRITE with another key',
      ACCESS,
      (s) => [s.write(P, { reth: { ...s.reth(4), rkey: (s.mr.rkey ^ 1) >>> 0 } })],
    ],
    ['a WRITE ONLY that announces more than it brings', INVALID, (s) => [s.write(P, { reth: s.reth(8) })]],
    ['a WRITE ONLY that announces less than it brings', INVALID, (s) => [s.write(P, { reth: s.reth(3) })]],
    [
      'a WRITE FIRST of less than the path MTU',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(1000), payload: new Uint8Array(MTU - 4) },
      ],
    ],
    [
      'a WRITE FIRST that is all of its message',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(MTU), payload: new Uint8Array(MTU) },
      ],
    ],
    [
      'a WRITE MIDDLE that goes past the announced length',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(MTU + 8), payload: new Uint8Array(MTU) },
        { opcode: Opcode.RC_RDMA_WRITE_MIDDLE, psn: P + 1, payload: new Uint8Array(MTU) },
      ],
    ],
    [
      'a WRITE MIDDLE with which all is there',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(2 * MTU), payload: new Uint8Array(MTU) },
        { opcode: Opcode.RC_RDMA_WRITE_MIDDLE, psn: P + 1, payload: new Uint8Array(MTU) },
      ],
    ],
    [
      'a WRITE LAST of nothing',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(MTU + 4), payload: new Uint8Array(MTU) },
        { opcode: Opcode.RC_RDMA_WRITE_LAST, psn: P + 1 },
      ],
    ],
    [
      'a WRITE LAST that brings less than is missing',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(MTU + 8), payload: new Uint8Array(MTU) },
        { opcode: Opcode.RC_RDMA_WRITE_LAST, psn: P + 1, payload: new Uint8Array(4) },
      ],
    ],
    [
      'a SEND MIDDLE without a FIRST',
      INVALID,
      () => [{ opcode: Opcode.RC_SEND_MIDDLE, psn: P, payload: new Uint8Array(MTU) }],
    ],
    [
      'a WRITE ONLY between FIRST and LAST of another',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(MTU + 8), payload: new Uint8Array(MTU) },
        s.write(P + 1),
      ],
    ],
    [
      'a SEND LAST after a WRITE FIRST',
      INVALID,
      (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(MTU + 8), payload: new Uint8Array(MTU) },
        { opcode: Opcode.RC_SEND_LAST, psn: P + 1, payload: new Uint8Array(8) },
      ],
    ],
  ])('%s', (_what, code, make) => {
    refused(code, make);
  });

  // Once: dropped, and the requester asked until its retries were used up.
  describe.each([0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f])('the reserved opcode %i', (opcode) => {
    test.each([0, 16, MTU])('with %i bytes behind the BTH', (bytes) => {
      const request = { opcode, psn: P, payload: new Uint8Array(bytes) };
      const { set } = refused(INVALID, ({ hand, mr }) => {
        hand.side.postRecv(7, [{ mr, length: MTU }]);
        return [request];
      });
      expect(set.hand.side.poll()).toMatchObject([{ wrId: 7, status: 'WR_FLUSH_ERR' }]);
    });

    test('in the middle of a message', () => {
      refused(INVALID, (s) => [
        { opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: P, reth: s.reth(MTU + 8), payload: new Uint8Array(MTU) },
        { opcode, psn: P + 1 },
      ]);
    });

    test.each(['off', 'auto'] as const)(
      'that comes early, with keepEarly %s: refused in its turn',
      (keepEarly) => {
        const { hand, write, answers, state } = responder({}, ALL, { keepEarly });
        const reserved = { opcode, psn: P + 1, payload: new Uint8Array(8) };
        hand.put(reserved);
        expect(answers()).toEqual([['ACKNOWLEDGE', P, NakCode.PSN_SEQUENCE_ERROR]]);
        hand.put(write(P));
        if (keepEarly === 'off') expect([answers(), state()]).toEqual([ack(P), 'RTS']);
        hand.put(reserved);
        expect(answers().at(-1)).toEqual(['ACKNOWLEDGE', P + 1, INVALID]);
        expect(state()).toBe('ERR');
      },
    );

    test('of a packet that was executed, or that is out in the other direction: nothing happens', () => {
      const { hand, write, answers, state } = responder();
      hand.put(write(P));
      answers();
      hand.side.post({ opcode: 'RDMA_WRITE', sge: [] });
      expect(answers()).toHaveLength(1);
      hand.put({ opcode, psn: P }, { opcode, psn: P - 1 });
      expect([answers(), state(), hand.side.poll()]).toEqual([[], 'RTS', []]);
    });

    test('from a stranger: dropped', () => {
      const { hand, answers, state, counters } = responder();
      hand.putFrom({ source: 9 }, { opcode, psn: P });
      expect([answers(), state(), counters().wrongSource]).toEqual([[], 'RTS', 1]);
    });
  });

  test.each<[string, number, (set: ReturnType<typeof responder>) => PacketInit[]]>([
    ['READ', Access.REMOTE_WRITE | Access.REMOTE_ATOMIC, read(8)],
    ['WRITE', Access.REMOTE_READ | Access.REMOTE_ATOMIC, (s) => [s.write(P)]],
    ['atomic', Access.REMOTE_READ | Access.REMOTE_WRITE, atomic(0)],
  ])(
    'a %s that the queue pair does not allow is an invalid request, one that its region does not allow an access error',
    (_what, access, make) => {
      const { set, before } = refused(INVALID, make, { qpAccessFlags: access });
      expect(set.memory).toEqual(before);
      const other = refused(ACCESS, make, {}, access | Access.LOCAL_WRITE);
      expect(other.set.memory).toEqual(other.before);
    },
  );

  test('more READs and atomics than max_dest_rd_atomic before one is answered', () => {
    const { hand, reth, mr, answers, state } = responder({ maxDestRdAtomic: 2 });
    const one = (psn: number) => ({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn, reth: reth(8) });
    const other = (psn: number) => ({
      opcode: Opcode.RC_FETCH_ADD,
      psn,
      atomic: { addr: mr.addr, rkey: mr.rkey, swapAdd: 1n },
    });
    hand.put(one(P), other(P + 1));
    expect(answers()).toHaveLength(2);
    hand.put(one(P + 2), other(P + 3));
    expect(answers()).toHaveLength(2);
    expect(state()).toBe('RTS');
    hand.put(one(P + 4), other(P + 5), one(P + 6));
    expect(answers().at(-1)).toEqual(['ACKNOWLEDGE', P + 6, INVALID]);
    expect(state()).toBe('ERR');
  });

  // Once: NAK 0x61 for the fourth of three. The drivers of rxe, mlx4, mlx5, mthca and hns round their depth up.
  describe.each(
    Array.from({ length: 17 }, (_, i) => [i + 1, [1, 2, 4, 8, 16, 32].find((room) => room > i)!]),
  )(
    'with a max_dest_rd_atomic of %i, %i at once are taken and answered twice, and one more is refused:',
    (depth, room) => {
      test.each(['READs', 'atomics', 'both'])('%s', (what) => {
        const { hand, reth, mr, answers, state } = responder({ maxDestRdAtomic: depth });
        const one = (i: number): PacketInit =>
          what === 'READs' || (what === 'both' && i % 2 === 0)
            ? { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: P + i, reth: reth(8) }
            : {
                opcode: Opcode.RC_FETCH_ADD,
                psn: P + i,
                atomic: { addr: mr.addr, rkey: mr.rkey, swapAdd: 1n },
              };
        const all = Array.from({ length: room }, (_, i) => one(i));
        hand.put(...all);
        const first = answers();
        expect(first).toHaveLength(room);
        hand.put(...all);
        expect(answers()).toEqual(first);
        const { attr } = hand.side.adapter.queryQp(hand.side.qp.qpn);
        expect(attr.maxDestRdAtomic).toBe(depth);
        hand.put(...Array.from({ length: room + 1 }, (_, i) => one(room + i)));
        expect(answers().at(-1)).toEqual(['ACKNOWLEDGE', P + 2 * room, INVALID]);
        expect(state()).toBe('ERR');
      });
    },
  );

  test('a max_dest_rd_atomic of 0 leaves room for none', () => {
    const { hand, reth, answers } = responder({ maxDestRdAtomic: 0 });
    hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: P, reth: reth(8) });
    expect(answers()).toEqual([['ACKNOWLEDGE', P, INVALID]]);
  });

  test('a SEND LAST of nothing', () => {
    const { hand, mr, answers, state } = responder();
    hand.side.postRecv(1, [{ mr, length: 4 * MTU }]);
    hand.put({ opcode: Opcode.RC_SEND_FIRST, psn: P, payload: new Uint8Array(MTU) });
    hand.put({ opcode: Opcode.RC_SEND_LAST, psn: P + 1 });
    expect(answers().at(-1)).toEqual(['ACKNOWLEDGE', P + 1, INVALID]);
    expect(state()).toBe('ERR');
    expect(hand.side.poll()).toMatchObject([{ wrId: 1, status: 'LOC_QP_OP_ERR' }]);
  });

  test('a WRITE whose region goes between its packets', () => {
    const { hand, mr, memory, reth, answers } = responder();
    hand.put({
      opcode: Opcode.RC_RDMA_WRITE_FIRST,
      psn: P,
      reth: reth(MTU + 4),
      payload: new Uint8Array(MTU).fill(7),
    });
    hand.side.adapter.deregisterMr(mr.handle);
    hand.put({ opcode: Opcode.RC_RDMA_WRITE_LAST, psn: P + 1, payload: new Uint8Array(4).fill(7) });
    expect(answers().at(-1)).toEqual(['ACKNOWLEDGE', P + 1, ACCESS]);
    expect(memory[MTU]).toBe(0);
  });
});

describe('the PSN that acknowledges a duplicate', () => {
  const readAt = (s: ReturnType<typeof responder>, psn: number) => ({
    opcode: Opcode.RC_RDMA_READ_REQUEST,
    psn,
    reth: s.reth(8),
  });

  test('a WRITE: the last PSN that was executed', () => {
    const { hand, write, answers } = responder();
    hand.put(write(P), write(P + 1), write(P + 2));
    answers();
    hand.put(write(P));
    expect(answers()).toEqual(ack(P + 2));
  });

  test('a WRITE before a READ whose response may be lost: no further than to the READ', () => {
    const set = responder();
    const { hand, write, answers } = set;
    hand.put(write(P), write(P + 1), readAt(set, P + 2), write(P + 3), readAt(set, P + 4), write(P + 5));
    answers();
    hand.put(write(P));
    expect(answers()).toEqual(ack(P + 1));
    hand.put(write(P + 3));
    expect(answers()).toEqual(ack(P + 3));
    hand.put(write(P + 5));
    expect(answers()).toEqual(ack(P + 5));
  });

  test('ACKs that wait are one, and never go back', () => {
    const { hand, write, answers } = responder();
    hand.put(write(P), write(P + 1), write(P + 2), write(P));
    expect(answers()).toEqual(ack(P + 2));
    hand.put(write(P + 3), write(P + 1));
    expect(answers()).toEqual(ack(P + 3));
  });

  test('an ACK that waits does not go back for a duplicate that may be acknowledged no further than to a READ', () => {
    const set = responder();
    const { hand, write, answers } = set;
    hand.put(write(P), readAt(set, P + 1));
    expect(answers()).toHaveLength(2);
    hand.put(write(P + 2), write(P));
    expect(answers()).toEqual(ack(P + 2));
  });

  test('nothing is executed a second time', () => {
    const { hand, write, memory, counters } = responder();
    hand.put(write(P));
    memory.fill(0);
    hand.put(write(P));
    expect(memory[0]).toBe(0);
    expect(counters()).toMatchObject({ duplicateRequest: 1, writeRequests: 1, receivedMessages: 1 });
  });
});
