/** Messages, duplicates and errors at the responders, as they are counted and answered (IBTA vol 1 §9.7.5.1, §9.7.7.1, §9.8.3). */
import { aethMsn, NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../testing/by-hand.ts';
import { QKEY } from '../testing/pair.ts';

const P = 1000;
const MTU = 256;

function responder(attr = {}) {
  const hand = new ByHand({ rqPsn: P, pathMtu: MTU, ...attr });
  const { side } = hand;
  const mr = side.register(Uint8Array.from({ length: 4096 }, (_, i) => i).buffer);
  const { addr, rkey } = mr;
  const read = (psn: number, length = 8, offset = 0): PacketInit => ({
    opcode: Opcode.RC_RDMA_READ_REQUEST,
    psn,
    reth: { addr: addr + BigInt(offset), rkey, length },
  });
  const atomic = (psn: number, opcode: number = Opcode.RC_FETCH_ADD): PacketInit => ({
    opcode,
    psn,
    atomic: { addr: addr + 4088n, rkey, swapAdd: 1n },
  });
  const send = (place: 'FIRST' | 'MIDDLE' | 'LAST' | 'ONLY', psn: number, length = MTU): PacketInit => ({
    opcode: Opcode[`RC_SEND_${place}`],
    psn,
    payload: new Uint8Array(length),
  });
  const answers = () => hand.out().map(inShort);
  const counters = () => side.adapter.qpCounters(side.qp.qpn);
  return { hand, side, mr, read, atomic, send, answers, counters };
}

test('a message of several packets is one in the MSN, and asks for one ACK', () => {
  const { hand, side, mr, send, counters } = responder();
  side.postRecv(1, [{ mr, length: 4096 }]);
  const packets = [send('FIRST', P), send('MIDDLE', P + 1), send('LAST', P + 2)];
  hand.put(...packets.map((packet) => ({ ...packet, ackReq: packet === packets[2] })));
  const [ack, ...others] = hand.out();
  expect(others).toEqual([]);
  expect([inShort(ack)[1], aethMsn(ack, 12)]).toEqual([P + 2, 1]);
  expect(counters()).toMatchObject({ receivedMessages: 1, completedReceives: 1 });
});

test('READs and atomics are one each, and count when they are executed, not when they are repeated', () => {
  const { hand, read, atomic, answers, counters } = responder();
  hand.put(read(P), atomic(P + 1), read(P + 2, 3 * MTU));
  expect(answers()).toHaveLength(5);
  hand.put(read(P), atomic(P + 1), read(P + 2, 3 * MTU));
  expect(answers()).toHaveLength(5);
  expect(counters()).toMatchObject({
    readRequests: 2,
    atomicRequests: 1,
    receivedMessages: 3,
    duplicateRequest: 3,
    outOfSeqRequest: 0,
  });
});

test('packets beyond a gap are counted each, and draw one NAK', () => {
  const { hand, send, answers, counters } = responder();
  hand.put(send('ONLY', P + 2), send('ONLY', P + 1), send('ONLY', P + 2));
  expect(answers()).toEqual([['ACKNOWLEDGE', P, NakCode.PSN_SEQUENCE_ERROR]]);
  expect(counters()).toMatchObject({ outOfSeqRequest: 3, duplicateRequest: 0 });
});

describe('a duplicate', () => {
  test('does not take the place of a new READ or atomic, of which max_dest_rd_atomic allows one', () => {
    for (const kind of ['read', 'atomic'] as const) {
      const set = responder({ maxDestRdAtomic: 1 });
      const { hand, answers } = set;
      hand.put(set[kind](P));
      expect(answers()).toHaveLength(1);
      hand.put(set[kind](P), set[kind](P + 1));
      expect(answers().map(([name, psn]) => [name === 'ACKNOWLEDGE', psn])).toEqual([
        [false, P],
        [false, P + 1],
      ]);
    }
  });

  test('of another operation than that which was executed is dropped', () => {
    const { hand, read, atomic, answers } = responder();
    hand.put(atomic(P), read(P + 1));
    answers();
    hand.put(atomic(P, Opcode.RC_COMPARE_SWAP), read(P), atomic(P + 1));
    expect(answers()).toEqual([]);
  });

  test('of a READ that asks for other memory, or for more, is dropped', () => {
    const { hand, read, answers } = responder();
    hand.put(read(P, 2 * MTU, 16));
    answers();
    hand.put(read(P, 2 * MTU, 24), read(P, 2 * MTU + 8, 16), read(P + 1, MTU, 16));
    expect(answers()).toEqual([]);
    hand.put(read(P + 1, MTU, 16 + MTU));
    expect(answers()).toHaveLength(1);
  });

  test('of a READ whose memory has gone ends the connection, the third time', () => {
    const { hand, side, mr, read, answers, counters } = responder();
    hand.put(read(P));
    answers();
    side.adapter.deregisterMr(mr.handle);
    for (let i = 0; i < 3; i++) hand.put(read(P));
    expect(answers()).toEqual([['ACKNOWLEDGE', P, NakCode.REMOTE_ACCESS_ERROR]]);
    expect(counters().sentAccessErr).toBe(1);
  });
});

test('a fault of the receive is the responder’s own: NAK 0x63, a count, and no event', () => {
  const { hand, side, mr, send, answers, counters } = responder();
  side.postRecv(1, [{ mr: { ...mr, lkey: (mr.lkey ^ 1) >>> 0 }, length: 8 }]);
  hand.put(send('ONLY', P, 8));
  expect(answers()).toEqual([['ACKNOWLEDGE', P, NakCode.REMOTE_OPERATIONAL_ERROR]]);
  expect(counters()).toMatchObject({ sentOperationalErr: 1, sentInvalidRequest: 0, sentAccessErr: 0 });
  expect(side.events).toEqual([]);
  expect(side.poll()).toMatchObject([{ wrId: 1, status: 'LOC_PROT_ERR' }]);
});

describe('a datagram', () => {
  /** A UD queue pair of a port with path MTU 1024. */
  function datagrams() {
    const hand = new ByHand({}, { activeMtu: 1024 });
    const { side } = hand;
    const { adapter } = side;
    side.createQp({}, { type: 'UD' });
    const { qpn } = side.qp;
    adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: QKEY });
    adapter.modifyQp(qpn, { qpState: 'RTR' });
    const mr = side.register(new ArrayBuffer(8192));
    const put = (length: number) => {
      const payload = new Uint8Array(8 + length);
      new DataView(payload.buffer).setUint32(0, QKEY);
      // The pad is that of the payload behind the DETH.
      hand.put({ opcode: Opcode.UD_SEND_ONLY, psn: 0, ackReq: false, payload, pad: -length & 3 });
    };
    const counters = () => adapter.qpCounters(qpn);
    const state = () => adapter.queryQp(qpn).attr.qpState;
    return { hand, side, mr, put, counters, state };
  }

  test('has a path MTU of payload at most', () => {
    const { side, mr, put, counters } = datagrams();
    for (let i = 0; i < 3; i++) side.postRecv(i, [{ mr, length: 2048 }]);
    put(1025);
    expect(side.poll()).toEqual([]);
    expect(counters()).toMatchObject({ droppedPackets: 1, receivedMessages: 0 });
    put(1024);
    put(0);
    expect(side.poll().map(({ byteLen }) => byteLen)).toEqual([1064, 40]);
    expect(counters()).toMatchObject({ droppedPackets: 1, receivedMessages: 2, completedReceives: 2 });
  });

  test('ends the queue pair where its receive names no memory: a completion, and no event', () => {
    const { side, mr, put, counters, state } = datagrams();
    side.postRecv(1, [{ mr: { ...mr, lkey: (mr.lkey ^ 1) >>> 0 }, length: 2048 }]);
    side.postRecv(2, [{ mr, length: 2048 }]);
    put(8);
    expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'LOC_PROT_ERR'],
      [2, 'WR_FLUSH_ERR'],
    ]);
    expect(state()).toBe('ERR');
    expect(side.events).toEqual([]);
    expect(counters()).toMatchObject({ receivedMessages: 0, failedReceives: 1 });
  });
});
