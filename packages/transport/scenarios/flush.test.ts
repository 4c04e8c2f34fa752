/** Flushes in SQE and ERR, next to a thread that posts: of what is posted meanwhile, nothing is left and nothing completes twice. */
import { afterEach, expect, test, vi } from 'vitest';
import { QpStateCode, type QpType, Ring, WrOpcode } from '../src/index.ts';
import { addressOf, Pair, QKEY, type Side } from '../testing/pair.ts';
import { frameOf, setUpRaw } from '../testing/raw-side.ts';

/** Entries that all rings together give back at most: a flush that has passed its end would go on for 2^32 of them. */
const RELEASES_MAX = 1000;

function boundReleases(): void {
  let releases = 0;
  const release = Ring.prototype.release;
  vi.spyOn(Ring.prototype, 'release').mockImplementation(function (this: Ring, index: number) {
    if (++releases > RELEASES_MAX) throw new Error('the flush does not end');
    release.call(this, index);
  });
}

afterEach(() => {
  vi.restoreAllMocks();
});

test.each<QpType>(['UD', 'UC'])(
  '%s: a request that another thread posts while a flush in SQE overruns the completion queue is flushed as well',
  (type) => {
    let onOverrun: (() => void) | undefined;
    const events: string[] = [];
    const onAsyncEvent = ({ type: event }: { type: string }) => {
      events.push(event);
      // The program's thread posts at the moment of the overrun.
      if (event === 'CQ_ERR') onOverrun?.();
    };
    const pair = new Pair({ left: { onAsyncEvent } });
    const { left } = pair;
    const { handle } = left.adapter.createCq(2);
    left.createQp({}, { type, cq: handle });
    pair.right.createQp({}, { type });
    pair.connect();
    const ah = left.adapter.createAh(left.pd, addressOf(2));
    const inline = new Uint8Array(8);
    const datagram = { ah, qpn: 5, qkey: QKEY };
    const send = () => left.post({ opcode: 'SEND', inline, ...(type === 'UD' ? { datagram } : {}) });
    onOverrun = send;
    // No service has this operation: LOC_QP_OP_ERR and SQE.
    left.post({ opcode: 'RDMA_READ', inline });
    for (let i = 0; i < 3; i++) send();
    boundReleases();
    pair.run(1000);
    expect(left.adapter.queryQp(left.qp.qpn).attr.qpState).toBe('ERR');
    expect([left.sq.producer, left.sq.consumer]).toEqual([5, 5]);
    expect(events).toEqual(['CQ_ERR', 'QP_FATAL']);
    // The next one rings the doorbell, and is flushed in its turn.
    send();
    pair.run(1000);
    expect(left.sq.consumer).toBe(6);
  },
);

test('RAW_PACKET: a request that another thread posts while a flush in SQE overruns the completion queue is flushed as well', () => {
  let onOverrun: (() => void) | undefined;
  const raw = setUpRaw({ maxSendWr: 8, cqe: 2, onEvent: (type) => type === 'CQ_ERR' && onOverrun?.() });
  raw.activate();
  onOverrun = () => raw.publish(99, [60]);
  raw.publish(0, [60], WrOpcode.RDMA_READ);
  for (let i = 1; i < 4; i++) raw.publish(i, [60]);
  boundReleases();
  raw.adapter.posted(raw.qpn);
  expect(raw.state).toBe('ERR');
  expect([raw.sq.producer, raw.sq.consumer]).toEqual([5, 5]);
});

/** Posts `work` as long as `isOn`, one request for each entry that the send queue gives back. */
function postOnRelease(side: Side, work: () => void, isOn: () => boolean): void {
  const release = Ring.prototype.release;
  const { capacity, stride } = side.sq;
  vi.spyOn(Ring.prototype, 'release').mockImplementation(function (this: Ring, index: number) {
    release.call(this, index);
    if (this.capacity === capacity && this.stride === stride && isOn()) work();
  });
}

test.each<QpType>(['UD', 'RC'])(
  '%s: a thread that goes on posting does not hold the engine in a flush',
  (type) => {
    const pair = new Pair({ type });
    const { left } = pair;
    const datagram = { ah: left.adapter.createAh(left.pd, addressOf(2)), qpn: 5, qkey: QKEY };
    const send = () => left.post({ opcode: 'SEND', inline: new Uint8Array(8), datagram });
    left.post({ opcode: 'LOCAL_INV' });
    for (let i = 0; i < 9; i++) send();
    let more = 100;
    postOnRelease(left, send, () => more-- > 0);
    const { adapter, tx } = left;
    tx.clear();
    adapter.transmit(tx);
    expect(left.sq.consumer).toBeLessThan(64);
    expect(adapter.wantsToSend).toBe(true);
    for (let turns = 0; turns < 100 && adapter.wantsToSend; turns++) adapter.transmit(tx);
    expect([left.sq.producer, left.sq.consumer]).toEqual([110, 110]);
    expect(left.poll()).toHaveLength(110);
    expect(adapter.wantsToSend).toBe(false);
  },
);

test('a thread that goes on posting local operations does not hold the engine in a turn', () => {
  const pair = new Pair();
  const { left } = pair;
  const { adapter, tx } = left;
  const window = adapter.allocMw(left.pd, 1);
  let key = window.rkey;
  const bind = () => {
    key = ((key & ~0xff) | ((key + 1) & 0xff)) >>> 0;
    left.post({
      opcode: 'BIND_MW',
      flags: 0,
      remote: { addr: 0n, rkey: key },
      bind: { window: window.handle, length: 0, lkey: 0, access: 0 },
    });
  };
  let more = 1000;
  postOnRelease(left, bind, () => more-- > 0);
  bind();
  tx.clear();
  adapter.transmit(tx);
  expect(left.sq.consumer).toBeLessThan(200);
  expect(adapter.wantsToSend).toBe(true);
  for (let turns = 0; turns < 100 && adapter.wantsToSend; turns++) adapter.transmit(tx);
  expect([left.sq.producer, left.sq.consumer]).toEqual([1001, 1001]);
  expect(left.poll()).toEqual([]);
});

test.each<QpType>(['UD', 'UC'])(
  '%s: what is posted in SQE is flushed, though RTS comes before its doorbell is answered',
  (type) => {
    const pair = new Pair({ type });
    const { left, right } = pair;
    const datagram = { ah: left.adapter.createAh(left.pd, addressOf(2)), qpn: right.qp.qpn, qkey: QKEY };
    right.postRecv(1, [{ mr: right.register(new ArrayBuffer(128)), length: 128 }]);
    const send = (wrId: number) => left.post({ wrId, opcode: 'SEND', inline: new Uint8Array(8), datagram });
    left.post({ wrId: 1, opcode: 'RDMA_READ' });
    pair.run(1000);
    expect(left.adapter.queryQp(left.qp.qpn).attr.qpState).toBe('SQE');
    send(2);
    left.adapter.modifyQp(left.qp.qpn, { qpState: 'RTS' });
    pair.run(1000);
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'LOC_QP_OP_ERR'],
      [2, 'WR_FLUSH_ERR'],
    ]);
    expect(right.poll()).toEqual([]);
    send(3);
    pair.run(1000);
    expect(left.poll()).toMatchObject([{ wrId: 3, status: 'SUCCESS' }]);
    expect(right.poll()).toHaveLength(1);
  },
);

test.each<QpType>(['UD', 'UC'])(
  '%s: a flush in SQE that overruns the completion queue: a move to RTS finds the queue pair in ERR and changes nothing',
  (type) => {
    const pair = new Pair();
    const { left } = pair;
    const { handle } = left.adapter.createCq(2);
    left.createQp({}, { type, cq: handle });
    pair.right.createQp({}, { type });
    pair.connect();
    const { qpn } = left.qp;
    left.post({ opcode: 'RDMA_READ' });
    pair.run(1000);
    expect(left.adapter.queryQp(qpn).attr.qpState).toBe('SQE');
    const ah = left.adapter.createAh(left.pd, addressOf(2));
    for (let i = 0; i < 3; i++)
      left.post({ opcode: 'SEND', inline: new Uint8Array(8), datagram: { ah, qpn: 5, qkey: QKEY } });
    const move = () => left.adapter.modifyQp(qpn, { qpState: 'RTS' });
    expect(move).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute: 'qpState' }));
    expect(move).toThrow('cannot change from ERR to RTS');
    expect(left.events.map((event) => event.type)).toEqual(['CQ_ERR', 'QP_FATAL']);
    expect([left.sq.state, left.adapter.queryQp(qpn).attr.qpState]).toEqual([QpStateCode.ERR, 'ERR']);
  },
);

test('RAW_PACKET: a flush in SQE that overruns the completion queue: a move to RTS finds the queue pair in ERR', () => {
  const raw = setUpRaw({ cqe: 2 });
  raw.activate();
  raw.send(1, [60], WrOpcode.RDMA_READ);
  for (let i = 2; i < 5; i++) raw.publish(i, [60]);
  expect(() => raw.modify({ qpState: 'RTS' })).toThrow('cannot change from ERR to RTS');
  expect(raw.state).toBe('ERR');
  expect(raw.port.sent).toEqual([]);
});

test('RAW_PACKET: what is posted in SQE is flushed, though RTS comes before its doorbell is answered', () => {
  const raw = setUpRaw();
  raw.activate();
  raw.send(1, [60], WrOpcode.RDMA_READ);
  expect(raw.state).toBe('SQE');
  raw.publish(2, [60]);
  raw.modify({ qpState: 'RTS' });
  expect(raw.poll().map(([wrId, status]) => [wrId, status])).toEqual([
    [1, 'LOC_QP_OP_ERR'],
    [2, 'WR_FLUSH_ERR'],
  ]);
  expect(raw.port.sent).toEqual([]);
});

test('RAW_PACKET: a change that is refused in SQE shows what it has flushed', () => {
  const raw = setUpRaw();
  raw.activate();
  raw.send(1, [60], WrOpcode.RDMA_READ);
  raw.poll();
  raw.publish(2, [60]);
  expect(() => raw.modify({ qpState: 'RTR' })).toThrow();
  // No other call of the adapter.
  expect([raw.sq.used, new Ring(raw.cq.ring).used]).toEqual([0, 1]);
});

test('RAW_PACKET: a frame that was delivered before the queue pair failed has its own bytes', () => {
  const raw = setUpRaw();
  raw.activate();
  raw.receive(1, 0, 100);
  raw.receive(2, 100, 100, 0xbad);
  // The second one fails its receive; the third is still in the port then, and is dropped.
  raw.port.arrived.push(frameOf(1), frameOf(2), frameOf(3));
  raw.run();
  expect(raw.poll().map(([wrId, status]) => [wrId, status])).toEqual([
    [1, 'SUCCESS'],
    [2, 'LOC_PROT_ERR'],
  ]);
  expect(raw.memory.subarray(0, 60)).toEqual(frameOf(1));
});
