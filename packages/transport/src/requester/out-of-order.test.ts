/** A requester keeps READ responses that come before one that is missing, and asks again for the missing range only. */
import { BTH_BYTES, Opcode, rethLength, rethVaLow } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort } from '../../testing/by-hand.ts';
import { OutOfOrder } from './out-of-order.ts';

const FIRST = 0x500;
const MTU = 256;
const ADDRESS = 0x10_0000n;
const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_MIDDLE } = Opcode;
const { RC_RDMA_READ_RESPONSE_LAST, RC_RDMA_READ_RESPONSE_ONLY } = Opcode;

function setUp(attr = {}, options = {}) {
  const hand = new ByHand(
    { sqPsn: FIRST, pathMtu: MTU, timeout: 8, retryCnt: 7, ...attr },
    { recovery: { probes: false }, ...options },
  );
  const { side } = hand;
  const bytes = new Uint8Array(new ArrayBuffer(1 << 16));
  const mr = side.register(bytes.buffer);
  const remote = { addr: ADDRESS, rkey: 7 };
  const read = (packets: number, offset = 0) =>
    side.post({ opcode: 'RDMA_READ', sge: [{ mr, offset, length: packets * MTU }], remote });
  const write = () => side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote });
  /** Response at a PSN beyond the first; all of it has that number. */
  const respond = (n: number, opcode: number = RC_RDMA_READ_RESPONSE_MIDDLE) => {
    const hasAeth = opcode !== RC_RDMA_READ_RESPONSE_MIDDLE;
    hand.put({
      opcode,
      psn: FIRST + n,
      ...(hasAeth ? { aeth: { syndrome: 0x1f } } : {}),
      payload: new Uint8Array(MTU).fill(n + 1),
    });
  };
  /** Packets that are sent: PSN beyond the first; of a READ its offset and length in packets. */
  const sent = (packets = hand.out()) =>
    packets.map((packet) => {
      const [name, psn] = inShort(packet);
      if (name !== 'RDMA_READ_REQUEST') return [name, psn - FIRST];
      const offset = rethVaLow(packet, BTH_BYTES) - Number(ADDRESS);
      return [psn - FIRST, offset / MTU, rethLength(packet, BTH_BYTES) / MTU];
    });
  const statuses = () => side.poll().map(({ status }) => status);
  const at = (packet: number) => bytes[packet * MTU];
  return { hand, side, read, write, respond, sent, statuses, at, counters: () => side.adapter.counters() };
}

test('asks for the missing response alone, and takes the others when it has come', () => {
  const { read, respond, sent, statuses, at, counters } = setUp();
  read(4);
  expect(sent()).toEqual([[0, 0, 4]]);
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  respond(3, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([[1, 1, 1]]);
  expect(statuses()).toEqual([]);
  respond(1, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS']);
  expect([0, 1, 2, 3].map(at)).toEqual([1, 2, 3, 4]);
  expect(sent()).toEqual([]);
  expect(counters()).toMatchObject({ impliedNakSeqErr: 1, retries: 1, retransmittedPackets: 1 });
});

test('asks for one gap of a request after the other, and a retry is taken for each place', () => {
  const { read, respond, sent, statuses, counters } = setUp();
  read(24);
  sent();
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  expect(sent()).toEqual([[1, 1, 1]]);
  for (let n = 3; n <= 22; n++) if (n !== 5 && n !== 20) respond(n);
  respond(23, RC_RDMA_READ_RESPONSE_LAST);
  // A peer may forget what comes before a part that it is asked for again.
  expect(sent()).toEqual([]);
  respond(1, RC_RDMA_READ_RESPONSE_ONLY);
  expect(sent()).toEqual([[5, 5, 1]]);
  respond(5, RC_RDMA_READ_RESPONSE_ONLY);
  expect(sent()).toEqual([[20, 20, 1]]);
  expect(statuses()).toEqual([]);
  respond(20, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS']);
  expect(counters()).toMatchObject({ impliedNakSeqErr: 3, retries: 3 });
});

test('asks for gaps that are near each other in one request', () => {
  const { read, respond, sent, statuses } = setUp();
  read(24);
  sent();
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  expect(sent()).toEqual([[1, 1, 1]]);
  for (const n of [3, 5, 6, 8, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22]) respond(n);
  respond(23, RC_RDMA_READ_RESPONSE_LAST);
  // 4, 7 and 9; eight that are here lie between 9 and 18.
  respond(1, RC_RDMA_READ_RESPONSE_ONLY);
  expect(sent()).toEqual([[4, 4, 15]]);
  respond(4, RC_RDMA_READ_RESPONSE_FIRST);
  for (let n = 5; n <= 17; n++) respond(n);
  expect(sent()).toEqual([]);
  respond(18, RC_RDMA_READ_RESPONSE_LAST);
  expect(statuses()).toEqual(['SUCCESS']);
});

test('asks for gaps of different requests at once', () => {
  const { read, respond, sent, statuses } = setUp();
  read(4);
  read(4, 4 * MTU);
  sent();
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  respond(4, RC_RDMA_READ_RESPONSE_FIRST);
  respond(6);
  respond(7, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([
    [1, 1, 3],
    [5, 1, 1],
  ]);
  respond(1, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  respond(3, RC_RDMA_READ_RESPONSE_LAST);
  respond(5, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS', 'SUCCESS']);
});

test('asks once more for what was asked for before, when something that was asked for later comes', () => {
  const { read, respond, sent, statuses } = setUp();
  read(4);
  read(4, 4 * MTU);
  sent();
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  expect(sent()).toEqual([[1, 1, 1]]);
  respond(3, RC_RDMA_READ_RESPONSE_LAST);
  respond(4, RC_RDMA_READ_RESPONSE_FIRST);
  respond(6);
  expect(sent()).toEqual([[5, 1, 1]]);
  respond(7, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([]);
  // The answer to the second one: that to the first is lost.
  respond(5, RC_RDMA_READ_RESPONSE_ONLY);
  expect(sent()).toEqual([[1, 1, 1]]);
  respond(1, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS', 'SUCCESS']);
});

test('asks once more for the missing responses of a request when its answer is over', () => {
  const { read, respond, sent, statuses } = setUp();
  read(8);
  sent();
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(3);
  expect(sent()).toEqual([[1, 1, 2]]);
  for (const n of [4, 5, 6]) respond(n);
  respond(7, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([]);
  respond(2, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([[1, 1, 1]]);
  respond(1, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS']);
});

test('leaves out responses that have come when the timer retransmits', () => {
  const { hand, read, respond, sent, statuses } = setUp();
  read(8);
  read(4, 8 * MTU);
  sent();
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  respond(3);
  expect(sent()).toEqual([[1, 1, 1]]);
  respond(6);
  respond(7, RC_RDMA_READ_RESPONSE_LAST);
  respond(8, RC_RDMA_READ_RESPONSE_FIRST);
  respond(9);
  respond(11, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([[10, 2, 1]]);
  // Of each request, from the first that is missing to the last: in one, so that nothing of it is forgotten.
  expect(sent(hand.run(2200))).toEqual([
    [1, 1, 5],
    [10, 2, 1],
  ]);
  respond(1, RC_RDMA_READ_RESPONSE_FIRST);
  respond(4);
  respond(5, RC_RDMA_READ_RESPONSE_LAST);
  respond(10, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS', 'SUCCESS']);
});

test('requests that are left out count among those that the peer remembers: no more than max_rd_atomic in a row', () => {
  const { hand, read, respond, sent, statuses } = setUp({ maxRdAtomic: 2 });
  for (let i = 0; i < 3; i++) read(1, i * MTU);
  expect(sent()).toEqual([
    [0, 0, 1],
    [1, 0, 1],
  ]);
  respond(1, RC_RDMA_READ_RESPONSE_ONLY);
  expect(sent()).toEqual([[0, 0, 1]]);
  // The third one would make the peer forget the first.
  expect(sent(hand.run(2200))).toEqual([[0, 0, 1]]);
  respond(0, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS', 'SUCCESS']);
  expect(sent()).toEqual([[2, 0, 1]]);
});

test('an early response makes room for the next request', () => {
  // Room for the responses of two requests of four.
  const { read, respond, sent } = setUp({}, { receiveBuffer: 9200 });
  read(12);
  expect(sent()).toEqual([
    [0, 0, 4],
    [4, 4, 4],
  ]);
  respond(1);
  expect(sent()).toEqual([[0, 0, 1]]);
  respond(2);
  respond(3, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([]);
  respond(4, RC_RDMA_READ_RESPONSE_FIRST);
  expect(sent()).toEqual([[8, 8, 4]]);
});

test('a response acknowledges the WRITEs before its request, also when it was early', () => {
  const { read, write, respond, sent, statuses, at } = setUp();
  read(2);
  write();
  read(2, 8 * MTU);
  expect(sent()).toEqual([
    [0, 0, 2],
    ['RDMA_WRITE_ONLY', 2],
    [3, 0, 2],
  ]);
  respond(1, RC_RDMA_READ_RESPONSE_LAST);
  respond(3, RC_RDMA_READ_RESPONSE_FIRST);
  respond(4, RC_RDMA_READ_RESPONSE_LAST);
  expect(sent()).toEqual([[0, 0, 1]]);
  respond(0, RC_RDMA_READ_RESPONSE_ONLY);
  expect(statuses()).toEqual(['SUCCESS', 'SUCCESS', 'SUCCESS']);
  expect([0, 1, 8, 9].map(at)).toEqual([1, 2, 4, 5]);
});

describe('takes no response that', () => {
  const gap = () => {
    const set = setUp();
    set.read(4);
    set.sent();
    set.respond(0, RC_RDMA_READ_RESPONSE_FIRST);
    return set;
  };

  test('ends in the middle of a request: the READ asks for all that is missing', () => {
    const { respond, sent, at } = gap();
    respond(2, RC_RDMA_READ_RESPONSE_LAST);
    expect(sent()).toEqual([[1, 1, 3]]);
    expect(at(2)).toBe(0);
  });

  test('is of another length than its place', () => {
    const { hand, sent, at } = gap();
    hand.put({
      opcode: RC_RDMA_READ_RESPONSE_MIDDLE,
      psn: FIRST + 2,
      payload: new Uint8Array(MTU - 4).fill(9),
    });
    expect(sent()).toEqual([[1, 1, 3]]);
    expect(at(2)).toBe(0);
  });

  test('came before: a second copy changes nothing', () => {
    const { respond, sent, at, hand } = gap();
    respond(2);
    sent();
    hand.put({ opcode: RC_RDMA_READ_RESPONSE_MIDDLE, psn: FIRST + 2, payload: new Uint8Array(MTU).fill(9) });
    expect(sent()).toEqual([]);
    expect(at(2)).toBe(3);
  });
});

test('forgets all at RESET', () => {
  const { hand, side, read, respond, sent, statuses } = setUp();
  read(4);
  sent();
  respond(0, RC_RDMA_READ_RESPONSE_FIRST);
  respond(2);
  side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
  hand.connect({ sqPsn: FIRST, pathMtu: MTU, timeout: 8 });
  read(4);
  expect(sent()).toEqual([[0, 0, 4]]);
  for (const [n, opcode] of [
    [0, RC_RDMA_READ_RESPONSE_FIRST],
    [1, RC_RDMA_READ_RESPONSE_MIDDLE],
    [2, RC_RDMA_READ_RESPONSE_MIDDLE],
    [3, RC_RDMA_READ_RESPONSE_LAST],
  ])
    respond(n, opcode);
  expect(statuses()).toEqual(['SUCCESS']);
});

test.each([1, 0xff_ffff])('PSN %i is not taken for the ones that have the same bit', (psn) => {
  const early = new OutOfOrder();
  early.add(psn);
  const later = (psn + (1 << 14)) & 0xff_ffff;
  expect([early.has(psn), early.has(later)]).toEqual([true, false]);
  expect(early.answeredAt(later, 5, true)).toBe(0);
});
