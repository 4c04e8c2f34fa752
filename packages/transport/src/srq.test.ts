/** Shared receive queues: one queue of receives for many queue pairs (ibv_create_srq(3)). */
import { beforeEach, describe, expect, test } from 'vitest';
import { addressOf, Pair, QKEY, type Side } from '../testing/pair.ts';
import { type MrCreated, Ring, RingState, type SrqCreated } from './index.ts';

let pair: Pair;
let srq: SrqCreated;
let ring: Ring;
let from: MrCreated;
let to: MrCreated;
const target = new Uint8Array(65_536);

/** Right has an SRQ and `count` queue pairs on it, each connected to one of left's. */
function setUp(type: 'RC' | 'UC', count: number, maxWr = 8) {
  pair = new Pair();
  const { left, right } = pair;
  srq = right.adapter.createSrq({ pd: right.pd, maxWr, maxSge: 2, limit: 0 });
  ring = new Ring(srq.ring);
  from = left.register(new Uint8Array(65_536).fill(7).buffer);
  to = right.register(target.fill(0).buffer);
  return Array.from({ length: count }, () => {
    left.createQp({}, { type });
    right.createQp({}, { type, srq: srq.handle });
    pair.connect({ attr: { rnrRetry: 1, minRnrTimer: 1 } });
    return { local: left.qp, sq: left.sq, remote: right.qp };
  });
}

const post = (wrId: number, length = 4096, side: Side = pair.right) =>
  side.postRecv(wrId, [{ mr: to, offset: 4096 * (wrId & 7), length }], ring);
const received = () => pair.right.poll().map(({ wrId, status, qpn }) => ({ wrId, status, qpn }));
const events = () => pair.right.events.splice(0).map((e) => e.type);

describe.each(['RC', 'UC'] as const)('%s', (type) => {
  test('queue pairs take entries in the order of their messages', () => {
    const [a, b] = setUp(type, 2);
    for (const wrId of [1, 2, 3]) post(wrId);
    const { left } = pair;
    left.post({ opcode: 'SEND', sge: [{ mr: from, length: 3000 }] }); // On the queue pair made last: b.
    pair.run();
    expect(received()).toEqual([{ wrId: 1, status: 'SUCCESS', qpn: b!.remote.qpn }]);
    expect(a!.remote.cap).toMatchObject({ maxRecvWr: 0, maxRecvSge: 0 });
    left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
    left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
    pair.run();
    expect(received().map(({ wrId }) => wrId)).toEqual([2, 3]);
  });

  test('reports the limit once, and again when it is set again', () => {
    setUp(type, 1);
    const { adapter } = pair.right;
    adapter.modifySrq(srq.handle, { limit: 2 });
    for (const wrId of [1, 2, 3, 4]) post(wrId);
    const send = () => {
      pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
      pair.run();
    };
    send();
    send();
    expect(events()).not.toContain('SRQ_LIMIT_REACHED');
    send();
    expect(events()).toEqual(['SRQ_LIMIT_REACHED']);
    expect(adapter.querySrq(srq.handle)).toEqual({ limit: 0, maxWr: 8, maxSge: 2 });
    adapter.modifySrq(srq.handle, { limit: 1 });
    send();
    expect(events()).toEqual(['SRQ_LIMIT_REACHED']);
  });

  test('a queue pair in error takes no more and raises an event; the entries stay', () => {
    const [qp] = setUp(type, 1);
    for (const wrId of [1, 2]) post(wrId);
    const { adapter } = pair.right;
    adapter.modifyQp(qp!.remote.qpn, { qpState: 'ERR' });
    expect(events()).toEqual(['QP_LAST_WQE_REACHED']);
    expect(received()).toEqual([]);
    expect(ring.used).toBe(2);
  });

  test('an entry with more elements than the queue has: SRQ_ERR', () => {
    setUp(type, 1);
    post(1);
    ring.words[ring.wordOf(0) + 2] = 9;
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
    pair.run();
    expect(received()).toMatchObject([{ wrId: 1, status: 'LOC_QP_OP_ERR' }]);
    expect(events().filter((e) => e === 'SRQ_ERR')).toHaveLength(1);
  });

  test('resize: earlier receives come first, on whichever ring', () => {
    setUp(type, 1, 2);
    const { adapter } = pair.right;
    for (const wrId of [1, 2]) post(wrId);
    const { maxWr, ring: shape } = adapter.modifySrq(srq.handle, { maxWr: 16 });
    expect(maxWr).toBe(16);
    expect(() => adapter.modifySrq(srq.handle, { maxWr: 32 })).toThrow(
      expect.objectContaining({ errno: 'EBUSY' }),
    );
    const send = (n: number) => {
      for (let i = 0; i < n; i++) pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
      pair.run();
    };
    send(1);
    post(3); // The program has not heard of the new ring.
    ring.state = RingState.LEFT;
    ring = new Ring(shape!);
    for (const wrId of [4, 5, 6]) post(wrId);
    send(5);
    expect(received().map(({ wrId }) => wrId)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(() => adapter.modifySrq(srq.handle, { limit: 17 })).toThrow(
      expect.objectContaining({ attribute: 'limit' }),
    );
  });
});

test('resize: not below the limit that is armed, unless the same call lowers it', () => {
  setUp('RC', 1, 8);
  const { adapter } = pair.right;
  adapter.modifySrq(srq.handle, { limit: 5 });
  // Once: the next message raised SRQ_LIMIT_REACHED, however many receives were posted.
  expect(() => adapter.modifySrq(srq.handle, { maxWr: 4 })).toThrow(
    expect.objectContaining({ attribute: 'maxWr' }),
  );
  expect(adapter.querySrq(srq.handle)).toMatchObject({ limit: 5, maxWr: 8 });
  expect(adapter.modifySrq(srq.handle, { maxWr: 4, limit: 4 }).maxWr).toBe(4);
  expect(adapter.querySrq(srq.handle)).toMatchObject({ limit: 4, maxWr: 4 });
});

test('resize: not below what is posted', () => {
  setUp('RC', 1, 8);
  const { adapter } = pair.right;
  for (let wrId = 1; wrId <= 5; wrId++) post(wrId);
  const error = expect.objectContaining({ attribute: 'maxWr', errno: 'EINVAL' });
  expect(() => adapter.modifySrq(srq.handle, { maxWr: 4 })).toThrow(error);
  for (let i = 0; i < 5; i++) pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
  pair.run();
  expect(received().map(({ wrId }) => wrId)).toEqual([1, 2, 3, 4, 5]);
  expect(adapter.modifySrq(srq.handle, { maxWr: 4 }).maxWr).toBe(4);
});

test('resize: again, as soon as the program has changed rings and the old one is empty', () => {
  setUp('RC', 1, 2);
  const { adapter } = pair.right;
  for (const maxWr of [4, 8, 16]) {
    const modified = adapter.modifySrq(srq.handle, { maxWr });
    expect(modified.maxWr).toBe(maxWr);
    ring.state = RingState.LEFT;
    ring = new Ring(modified.ring!);
  }
  post(1);
  pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
  pair.run();
  expect(received()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
});

test('RC: an empty queue is RNR, until an entry is posted', () => {
  setUp('RC', 1);
  pair.left.post({ wrId: 5, opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
  pair.run(5);
  post(1);
  pair.run();
  expect(received()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
  expect(pair.left.poll()).toMatchObject([{ wrId: 5, status: 'SUCCESS' }]);
});

test('UC: a message that loses its end completes its entry in error', () => {
  setUp('UC', 1);
  for (const wrId of [1, 2]) post(wrId);
  let n = 0;
  pair.fault = (packet) => (n++ === 1 ? [] : [{ packet, delay: 0 }]);
  pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 2000 }] });
  pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] });
  pair.run();
  expect(received()).toMatchObject([
    { wrId: 1, status: 'REM_INV_REQ_ERR' },
    { wrId: 2, status: 'SUCCESS' },
  ]);
});

// Once: the queue pair took the SRQ's receive at the look at whether there is one, and kept it for a message to come.
describe('a message that is dropped at its first packet leaves the receive to the other queue pairs', () => {
  test('UC: a WRITE with immediate under a wrong key', () => {
    const [a] = setUp('UC', 2);
    const { left, right } = pair;
    post(1);
    const other = { qp: left.qp, sq: left.sq };
    left.sq = a!.sq;
    left.qp = a!.local;
    const remote = { addr: to.addr, rkey: to.rkey ^ 0x100 };
    left.post({ opcode: 'RDMA_WRITE_WITH_IMM', sge: [{ mr: from, length: 8 }], remote });
    pair.run();
    expect(right.adapter.qpCounters(a!.remote.qpn).droppedPackets).toBe(1);
    expect(ring.used).toBe(1);
    Object.assign(left, other);
    left.post({ opcode: 'SEND', sge: [{ mr: from, length: 8 }] });
    pair.run();
    expect(received()).toEqual([{ wrId: 1, status: 'SUCCESS', qpn: right.qp.qpn }]);
  });

  test('UC: a SEND longer than the receive', () => {
    setUp('UC', 1);
    post(1, 8);
    pair.left.post({ opcode: 'SEND', sge: [{ mr: from, length: 9 }] });
    pair.run();
    expect(ring.used).toBe(1);
    expect(received()).toEqual([]);
  });

  test('UD: a datagram longer than the receive', () => {
    setUp('UC', 1);
    const { left, right } = pair;
    for (const side of [left, right])
      side.createQp({}, { type: 'UD', srq: side === right ? srq.handle : undefined });
    pair.connect();
    post(1, 48);
    const ah = left.adapter.createAh(left.pd, addressOf(2));
    const send = (length: number) => {
      left.post({
        opcode: 'SEND',
        sge: [{ mr: from, length }],
        datagram: { ah, qpn: right.qp.qpn, qkey: QKEY },
      });
      pair.run();
    };
    send(9);
    expect(ring.used).toBe(1);
    expect(received()).toEqual([]);
    send(8);
    expect(received()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
  });
});

test('UC: a queue pair that ends because the receive it gave up finds no room to complete takes no more packets', () => {
  setUp('UC', 1);
  const { left, right } = pair;
  const { handle } = right.adapter.createCq(1);
  left.createQp({}, { type: 'UC' });
  right.createQp({}, { type: 'UC', srq: srq.handle, cq: handle });
  pair.connect();
  for (const wrId of [1, 2, 3]) post(wrId);
  let n = 0;
  pair.fault = (packet) => (n++ === 2 ? [] : [{ packet, delay: 0 }]);
  left.post({ opcode: 'SEND', sge: [{ mr: from, length: 10 }] }); // Fills the completion queue.
  left.post({ opcode: 'SEND', sge: [{ mr: from, length: 2000 }] }); // Loses its LAST.
  left.post({ opcode: 'SEND', sge: [{ mr: from, length: 2000 }] });
  // Once: the FIRST went on into the third receive, in the error state.
  pair.run();
  expect(right.adapter.queryQp(right.qp.qpn).attr.qpState).toBe('ERR');
  expect(events()).toEqual(['CQ_ERR', 'QP_FATAL', 'QP_LAST_WQE_REACHED']);
  expect(ring.used).toBe(1);
  expect(target[4096 * 3]).toBe(0);
});

describe('the calls', () => {
  beforeEach(() => void setUp('RC', 1));

  test('busy while a queue pair uses it, and holds its PD', () => {
    const { adapter, qp } = pair.right;
    expect(() => adapter.destroySrq(srq.handle)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.destroyQp(qp.qpn);
    adapter.destroySrq(srq.handle);
    expect(() => adapter.querySrq(srq.handle)).toThrow(expect.objectContaining({ attribute: 'srq' }));
    const pd = adapter.allocPd();
    const other = adapter.createSrq({ pd, maxWr: 1, maxSge: 1, limit: 0 });
    expect(() => adapter.deallocPd(pd)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.destroySrq(other.handle);
    adapter.deallocPd(pd);
  });

  test.each([
    ['maxWr', { maxWr: 0 }],
    ['maxWr', { maxWr: 1e6 }],
    ['maxSge', { maxSge: 33 }],
    ['limit', { limit: 9 }],
  ])('%s out of range', (attribute, change) => {
    const { adapter, pd } = pair.right;
    expect(() => adapter.createSrq({ pd, maxWr: 8, maxSge: 1, limit: 0, ...change })).toThrow(
      expect.objectContaining({ attribute, errno: 'EINVAL' }),
    );
  });
});
