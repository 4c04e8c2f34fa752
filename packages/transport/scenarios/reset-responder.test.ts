/** RESET, as a peer sees it that writes its own packets: the next connection knows nothing of the last (IBTA vol 1 §10.3.1.2). */
import { NakCode, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../testing/by-hand.ts';

const P = 1000;
const MTU = 1024;

function setUp() {
  const hand = new ByHand({ rqPsn: P });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(1 << 16));
  const reth = (length: number) => ({ addr: mr.addr, rkey: mr.rkey, length });
  const write = (psn: number): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: reth(4),
    payload: new Uint8Array(4),
  });
  const reset = () => {
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.out();
    hand.connect({ rqPsn: P });
  };
  const answers = () => hand.out().map(inShort);
  const msn = () => hand.out().map((packet) => new DataView(packet.buffer).getUint32(12) & 0xff_ffff);
  return { hand, side, mr, reth, write, reset, answers, msn };
}

test('a gap draws a NAK, although one was out in the last connection', () => {
  const { hand, write, reset, answers } = setUp();
  const nak = [['ACKNOWLEDGE', P, NakCode.PSN_SEQUENCE_ERROR]];
  hand.put(write(P + 1));
  expect(answers()).toEqual(nak);
  reset();
  hand.put(write(P + 1));
  expect(answers()).toEqual(nak);
});

test('an RNR NAK is given, although one was out in the last connection', () => {
  const { hand, reset, answers } = setUp();
  const send = { opcode: Opcode.RC_SEND_ONLY, psn: P, payload: new Uint8Array(4) };
  hand.put(send);
  expect(answers()).toEqual([['ACKNOWLEDGE', P, 0x2c]]);
  reset();
  hand.put({ ...send, psn: P + 1 });
  expect(answers()).toEqual([['ACKNOWLEDGE', P, NakCode.PSN_SEQUENCE_ERROR]]);
});

test('messages are counted from 0', () => {
  const { hand, write, reset, msn } = setUp();
  for (let i = 0; i < 5; i++) hand.put(write(P + i));
  expect(msn()).toEqual([5]);
  reset();
  hand.put(write(P));
  expect(msn()).toEqual([1]);
});

test.each([
  ['SEND', Opcode.RC_SEND_FIRST, Opcode.RC_SEND_MIDDLE],
  ['WRITE', Opcode.RC_RDMA_WRITE_FIRST, Opcode.RC_RDMA_WRITE_MIDDLE],
])('a %s that was under way does not go on', (_what, first, middle) => {
  const { hand, side, mr, reth, write, reset, answers } = setUp();
  const payload = new Uint8Array(MTU);
  side.postRecv(1, [{ mr, length: 4 * MTU }]);
  hand.put({
    opcode: first,
    psn: P,
    reth: first === Opcode.RC_SEND_FIRST ? undefined : reth(4 * MTU),
    payload,
  });
  expect(answers()).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
  reset();
  hand.put(write(P));
  expect(answers()).toEqual([['ACKNOWLEDGE', P, 0x1f]]);
  hand.put({ opcode: middle, psn: P + 1, payload });
  expect(answers()).toEqual([['ACKNOWLEDGE', P + 1, NakCode.INVALID_REQUEST]]);
});

test('READs and atomics of the last connection are not repeated', () => {
  const { hand, mr, reth, write, reset, answers } = setUp();
  const read = { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: P, reth: reth(8) };
  const add = (psn: number) => ({
    opcode: Opcode.RC_FETCH_ADD,
    psn,
    atomic: { addr: mr.addr, rkey: mr.rkey, swapAdd: 1n },
  });
  hand.put(read, add(P + 1));
  expect(answers()).toHaveLength(2);
  reset();
  hand.put(write(P), write(P + 1));
  expect(answers()).toEqual([['ACKNOWLEDGE', P + 1, 0x1f]]);
  hand.put(read, add(P + 1));
  expect(answers()).toEqual([]);
});

test('replies that were owed are dropped: the next connection owes nothing', () => {
  const { hand, reth, reset, answers } = setUp();
  hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: P, reth: reth(8 * MTU) });
  reset();
  expect(answers()).toEqual([]);
});

test('COMM_EST is raised anew', () => {
  const { hand, side, write } = setUp();
  const { adapter, qp } = side;
  const established = () => side.events.filter(({ type }) => type === 'COMM_EST').length;
  hand.put(write(P));
  expect(established()).toBe(0); // In RTS it is known.
  for (let i = 1; i <= 2; i++) {
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    hand.connect({ rqPsn: P }, 'RTR');
    hand.put(write(P));
    hand.put(write(P + 1));
    expect(established()).toBe(i);
  }
});
