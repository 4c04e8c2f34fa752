/** Duplicates of requests, and packets out of order, at the responder (IBTA vol 1 §9.7.5.1.2, §9.7.5.1.5, §9.7.5.2.8). */
import { NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { TxBatch } from '../src/index.ts';
import { ByHand, inShort, type PacketInit } from '../testing/by-hand.ts';
import { Pair } from '../testing/pair.ts';

const P = 1000;
const MTU = 1024;

function responder(maxDestRdAtomic = 16) {
  // Plain go-back-N: what is kept is in early-packets.test.ts.
  const attributes = { rqPsn: P, pathMtu: MTU, maxDestRdAtomic };
  const hand = new ByHand(attributes, { recovery: { keepEarly: 'off' } });
  const { addr, rkey } = hand.side.register(Uint8Array.from({ length: 1 << 16 }, (_, i) => i >> 10).buffer);
  const read = (psn: number, length: number, offset = 0): PacketInit => ({
    opcode: Opcode.RC_RDMA_READ_REQUEST,
    psn,
    reth: { addr: addr + BigInt(offset), rkey, length },
  });
  const add = (psn: number, swapAdd = 1n): PacketInit => ({
    opcode: Opcode.RC_FETCH_ADD,
    psn,
    atomic: { addr: addr + 65528n, rkey, swapAdd },
  });
  const write = (psn: number, ackReq = false): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    ackReq,
    reth: { addr, rkey, length: 4 },
    payload: new Uint8Array(4),
  });
  const answers = () => hand.out().map(inShort);
  return { hand, read, add, write, answers };
}

describe('duplicates of READs and atomics', () => {
  // H3 (§9.7.5.1.5: resources for max_dest_rd_atomic are there for duplicates too). Once: eight are answered, the others dropped.
  test.each([9, 16, 64, 128])('%i atomics are repeated at once, if that many were agreed on', (n) => {
    const { hand, add, answers } = responder(n);
    const all = Array.from({ length: n }, (_, i) => add(P + i));
    hand.put(...all);
    const first = answers();
    expect(first).toHaveLength(n);
    hand.put(...all);
    expect(answers()).toEqual(first);
  });

  // H3.
  test.each([9, 16, 128])('%i READs are repeated at once, if that many were agreed on', (n) => {
    const { hand, read, answers } = responder(n);
    const all = Array.from({ length: n }, (_, i) => read(P + i, 8));
    hand.put(...all);
    const first = answers();
    expect(first).toHaveLength(n);
    hand.put(...all);
    expect(answers()).toEqual(first);
  });

  test('eight are repeated at once, in order, however often they come meanwhile', () => {
    const { hand, add, read, answers } = responder(8);
    const all = [0, 1, 2, 3].flatMap((i) => [add(P + 2 * i), read(P + 2 * i + 1, 8)]);
    hand.put(...all);
    const first = answers();
    expect(first).toHaveLength(8);
    hand.put(...all, ...all, ...all);
    expect(answers()).toEqual(first);
  });

  // H3, from end to end.
  test.each([
    ['ATOMIC_FETCH_AND_ADD', 16],
    ['ATOMIC_FETCH_AND_ADD', 128],
    ['RDMA_READ', 128],
  ] as const)('all responses of %s lost once: %i are done after one retransmission', (opcode, n) => {
    const attr = { maxRdAtomic: n, maxDestRdAtomic: n };
    const pair = new Pair({ attr });
    const { left, right } = pair;
    left.createQp({ maxSendWr: 128 });
    right.createQp({ maxSendWr: 128 });
    pair.connect({ attr });
    const local = left.register(new ArrayBuffer(4096));
    const remote = right.register(new ArrayBuffer(4096));
    // So that the round trip is known and the window wide.
    for (let i = 0; i < 400; i++) {
      left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 2048 }], remote });
      pair.run(1000);
    }
    expect(left.poll()).toHaveLength(400);
    const before = pair.sent.length;
    const lost = new Set<number>();
    pair.fault = (packet) => {
      const [name, psn] = inShort(packet);
      const response = name === 'ATOMIC_ACKNOWLEDGE' || name === 'RDMA_READ_RESPONSE_ONLY';
      if (!response || lost.has(psn)) return [{ packet, delay: 0 }];
      lost.add(psn);
      return [];
    };
    for (let i = 0; i < n; i++) {
      left.post({ wrId: i, opcode, compareAdd: 1n, sge: [{ mr: local, length: 8 }], remote });
    }
    pair.run(20_000);
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
      Array.from({ length: n }, (_, i) => [i, 'SUCCESS']),
    );
    expect(lost.size).toBe(n);
    expect(pair.sent.slice(before).filter(({ from }) => from === left)).toHaveLength(
      2 * n + (opcode === 'RDMA_READ' ? 0 : 1),
    );
  });

  // M5. Once: SQD to SQD with max_dest_rd_atomic forgets them.
  test('an atomic is repeated although max_dest_rd_atomic was raised meanwhile', () => {
    const { hand, add, answers } = responder(2);
    hand.put(add(P, 5n));
    expect(answers()).toEqual([['ATOMIC_ACKNOWLEDGE', P, 0x3f3f_3f3f_3f3f_3f3fn]]);
    const { adapter, qp } = hand.side;
    adapter.modifyQp(qp.qpn, { qpState: 'SQD' });
    adapter.modifyQp(qp.qpn, { qpState: 'SQD', maxDestRdAtomic: 32 });
    adapter.modifyQp(qp.qpn, { qpState: 'RTS' });
    hand.put(add(P, 5n));
    expect(answers()).toEqual([['ATOMIC_ACKNOWLEDGE', P, 0x3f3f_3f3f_3f3f_3f3fn]]);
    hand.put(add(P + 1, 0n));
    expect(answers()).toEqual([['ATOMIC_ACKNOWLEDGE', P + 1, 0x3f3f_3f3f_3f3f_3f44n]]);
  });

  // M5.
  test('owed replies leave although max_dest_rd_atomic was changed meanwhile', () => {
    const { hand, add, read, write, answers } = responder(4);
    hand.put(add(P, 0n), read(P + 1, 3 * MTU), write(P + 4, true));
    const { adapter, qp } = hand.side;
    adapter.modifyQp(qp.qpn, { qpState: 'SQD' });
    adapter.modifyQp(qp.qpn, { qpState: 'SQD', maxDestRdAtomic: 8 });
    expect(answers()).toEqual([
      ['ATOMIC_ACKNOWLEDGE', P, 0x3f3f_3f3f_3f3f_3f3fn],
      ['RDMA_READ_RESPONSE_FIRST', P + 1],
      ['RDMA_READ_RESPONSE_MIDDLE', P + 2],
      ['RDMA_READ_RESPONSE_LAST', P + 3],
      ['ACKNOWLEDGE', P + 4, 0x1f],
    ]);
  });
});

describe('a duplicate READ while the READ is being answered', () => {
  /** A READ of so many packets, of which the link has taken two so far. */
  function halfAnswered(packets: number) {
    const set = responder();
    const { hand, read } = set;
    hand.put(read(P, packets * MTU));
    const { adapter } = hand.side;
    const tx = new TxBatch(adapter.regions, 2, 128);
    expect(adapter.transmit(tx)).toBe(2);
    adapter.sent(tx);
    return set;
  }

  // Suspicion: a new RETH begins a new response (§9.7.5.1.5, §9.4.4: its first packet is FIRST or ONLY). Once: MIDDLE, as rxe sends it.
  test('from its middle: the answer to the new request begins with FIRST', () => {
    const { hand, read, answers } = halfAnswered(5);
    hand.put(read(P + 1, 4 * MTU, MTU));
    expect(answers()).toEqual([
      ['RDMA_READ_RESPONSE_FIRST', P + 1],
      ['RDMA_READ_RESPONSE_MIDDLE', P + 2],
      ['RDMA_READ_RESPONSE_MIDDLE', P + 3],
      ['RDMA_READ_RESPONSE_LAST', P + 4],
    ]);
  });

  test('of what was not sent yet: it is answered once', () => {
    const { hand, read, answers } = halfAnswered(5);
    hand.put(read(P + 2, 3 * MTU, 2 * MTU));
    expect(answers().map(([, psn]) => psn)).toEqual([P + 2, P + 3, P + 4]);
  });

  test('of all of it: the response begins again', () => {
    const { hand, read, answers } = halfAnswered(3);
    hand.put(read(P, 3 * MTU));
    expect(answers()).toEqual([
      ['RDMA_READ_RESPONSE_FIRST', P],
      ['RDMA_READ_RESPONSE_MIDDLE', P + 1],
      ['RDMA_READ_RESPONSE_LAST', P + 2],
    ]);
  });

  // Suspicion: no requester of ours asks so, but each request has its answer.
  test('a longer one behind a shorter one that waits: both are answered to their end', () => {
    const { hand, read, answers } = responder();
    hand.put(read(P, 4 * MTU));
    expect(answers()).toHaveLength(4);
    hand.put(read(P, MTU), read(P, 4 * MTU));
    expect(new Set(answers().map(([, psn]) => psn))).toEqual(new Set([P, P + 1, P + 2, P + 3]));
  });
});

// Once: the queue pair ended, for a READ that was answered long ago.
test('a duplicate READ whose region goes before it is answered is dropped, and the ACK behind it leaves', () => {
  const { hand, read, answers } = responder();
  const { side } = hand;
  const { addr, rkey, handle } = side.register(new ArrayBuffer(MTU));
  const own: PacketInit = { ...read(P, MTU), reth: { addr, rkey, length: MTU } };
  hand.put(own);
  answers();
  side.postRecv(1, []);
  // The requester has the first answer: its next message allows the region to be closed.
  hand.put(own, { opcode: Opcode.RC_SEND_ONLY, psn: P + 1 });
  side.adapter.deregisterMr(handle);
  expect(answers()).toEqual([['ACKNOWLEDGE', P + 1, 0x1f]]);
  expect(side.events).toEqual([]);
});

// Once: the first copy ended the connection.
test('a duplicate READ whose region is closed is dropped twice, and refused when it is asked for a third time', () => {
  const { hand, read, answers } = responder();
  const { side } = hand;
  const { addr, rkey, handle } = side.register(new ArrayBuffer(2 * MTU));
  const own = (first: number): PacketInit => {
    const length = MTU * (2 - first);
    return { ...read(P + first, length), reth: { addr: addr + BigInt(MTU * first), rkey, length } };
  };
  hand.put(own(0), read(P + 2, 8));
  expect(answers()).toHaveLength(3);
  side.adapter.deregisterMr(handle);
  // The rest of it, all of it; a copy of another READ is answered, and changes nothing.
  hand.put(own(1), own(0), read(P + 2, 8));
  expect(answers()).toEqual([['RDMA_READ_RESPONSE_ONLY', P + 2]]);
  expect(side.events).toEqual([]);
  hand.put(own(0));
  expect(answers()).toEqual([['ACKNOWLEDGE', P, NakCode.REMOTE_ACCESS_ERROR]]);
  expect(side.events.map(({ type }) => type)).toEqual(['QP_ACCESS_ERR']);
});

test('the copies of each READ are counted by themselves, and anew for the next one in its place', () => {
  const { hand, read, answers } = responder(2);
  const { side } = hand;
  let psn = P;
  for (let i = 0; i < 4; i++) {
    const regions = [0, 1].map(() => side.register(new ArrayBuffer(MTU)));
    const reads = regions.map(({ addr, rkey }) => ({ ...read(psn++, 8), reth: { addr, rkey, length: 8 } }));
    hand.put(...reads);
    expect(answers()).toHaveLength(2);
    for (const { handle } of regions) side.adapter.deregisterMr(handle);
    hand.put(...reads, ...reads);
    expect(answers()).toEqual([]);
  }
  expect(side.events).toEqual([]);
});

test('a late copy of a READ that was answered, after its region was closed: the connection goes on', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const to = left.register(new ArrayBuffer(4096));
  const from = right.register(new ArrayBuffer(4096));
  right.postRecv(9, [{ mr: right.register(new ArrayBuffer(64)), length: 64 }]);
  right.postRecv(10, [{ mr: right.register(new ArrayBuffer(64)), length: 64 }]);
  let copies = 0;
  pair.fault = (packet) => {
    const isRead = inShort(packet)[0] === 'RDMA_READ_REQUEST';
    if (!isRead) return [{ packet, delay: 0 }];
    copies++;
    return [
      { packet, delay: 0 },
      { packet, delay: 3000 },
    ];
  };
  const statuses = () => left.poll().map(({ wrId, status }) => [wrId, status]);
  left.post({ wrId: 1, opcode: 'RDMA_READ', sge: [{ mr: to, length: 512 }], remote: from });
  pair.run(500);
  left.post({ wrId: 2, opcode: 'SEND', inline: Uint8Array.of(1) });
  pair.run(500);
  expect(statuses()).toEqual([
    [1, 'SUCCESS'],
    [2, 'SUCCESS'],
  ]);
  // The message reports that the READ is done.
  right.adapter.deregisterMr(from.handle);
  pair.run(10_000);
  expect([copies, right.adapter.qpCounters(right.qp.qpn).duplicateRequest]).toEqual([1, 1]);
  expect(right.events.map(({ type }) => type)).toEqual([]);
  left.post({ wrId: 3, opcode: 'SEND', inline: Uint8Array.of(1) });
  pair.run(10_000);
  expect(statuses()).toEqual([[3, 'SUCCESS']]);
});

test('a READ whose answer is lost, and whose region is closed then, fails with REM_ACCESS_ERR', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const from = right.register(new ArrayBuffer(4096));
  pair.fault = (packet, _now, _gid, side) => (side === right ? [] : [{ packet, delay: 0 }]);
  const sge = [{ mr: left.register(new ArrayBuffer(4096)), length: 512 }];
  left.post({ wrId: 1, opcode: 'RDMA_READ', sge, remote: from });
  pair.run(50);
  right.adapter.deregisterMr(from.handle);
  pair.fault = undefined;
  pair.run(3_000_000);
  expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([[1, 'REM_ACCESS_ERR']]);
});

test('a duplicate READ that is refused flushes the receive of the SEND under way: the fault is not that message’s (§11.6.2)', () => {
  const { hand, read } = responder();
  const { side } = hand;
  const region = side.register(new ArrayBuffer(4096));
  const reth = { addr: region.addr, rkey: region.rkey, length: 8 };
  side.postRecv(7, [{ mr: side.register(new ArrayBuffer(4096)), length: 4096 }]);
  hand.put(
    { ...read(P, 8), reth },
    { opcode: Opcode.RC_SEND_FIRST, psn: P + 1, payload: new Uint8Array(MTU) },
  );
  hand.out();
  side.adapter.deregisterMr(region.handle);
  for (let i = 0; i < 3; i++) hand.put({ ...read(P, 8), reth });
  // Once it was LOC_ACCESS_ERR, which means that the receive's own message violated a protection.
  expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([[7, 'WR_FLUSH_ERR']]);
  expect(side.events.map(({ type }) => type)).toEqual(['QP_ACCESS_ERR']);
  expect(hand.out().map(inShort)).toEqual([['ACKNOWLEDGE', P, NakCode.REMOTE_ACCESS_ERROR]]);
});

test('a duplicate WRITE draws an ACK of all that was executed before the next READ, whose response may be missing', () => {
  const { hand, read, write, answers } = responder();
  const ack = (psn: number) => [['ACKNOWLEDGE', psn, 0x1f]];
  hand.put(write(P), write(P + 1));
  expect(answers()).toEqual([]);
  hand.put(write(P));
  expect(answers()).toEqual(ack(P + 1));
  hand.put(read(P + 2, 8), write(P + 3));
  expect(answers()).toEqual([['RDMA_READ_RESPONSE_ONLY', P + 2]]);
  hand.put(write(P));
  expect(answers()).toEqual(ack(P + 1));
  hand.put(write(P + 3));
  expect(answers()).toEqual(ack(P + 3));
});

describe('packets that change places', () => {
  // M8 (§9.7.5.2.8). Once: two NAKs, of which the first asks for a packet that is there.
  test('within one batch: no NAK asks for the packet that came', () => {
    const { hand, write, answers } = responder();
    hand.put(write(P), write(P + 2), write(P + 1, true));
    expect(answers()).toEqual([['ACKNOWLEDGE', P + 1, 0x1f]]);
    // The one before its time was dropped, which the next packet shows.
    hand.put(write(P + 3));
    expect(answers()).toEqual([['ACKNOWLEDGE', P + 2, NakCode.PSN_SEQUENCE_ERROR]]);
  });

  // M8. The packets come in two batches, and nothing could be sent between them.
  test('before the NAK left: it does not leave', () => {
    const { hand, write, answers } = responder();
    hand.put(write(P + 1));
    hand.put(write(P, true), write(P + 1, true));
    expect(answers()).toEqual([['ACKNOWLEDGE', P + 1, 0x1f]]);
  });

  // M8.
  test('a gap, its packet, and another gap: one NAK, for the second', () => {
    const { hand, write, answers } = responder();
    hand.put(write(P + 1), write(P), write(P + 3), write(P + 4));
    expect(answers()).toEqual([['ACKNOWLEDGE', P + 1, NakCode.PSN_SEQUENCE_ERROR]]);
  });

  test('after the NAK left: the packet is taken, and the next gap draws a NAK of its own', () => {
    const { hand, write, answers } = responder();
    const nak = (psn: number) => [['ACKNOWLEDGE', psn, NakCode.PSN_SEQUENCE_ERROR]];
    hand.put(write(P + 1));
    expect(answers()).toEqual(nak(P));
    hand.put(write(P + 2), write(P + 3));
    expect(answers()).toEqual([]);
    hand.put(write(P), write(P + 2));
    expect(answers()).toEqual(nak(P + 1));
  });
});
