/** Asynchronous events (ibv_get_async_event(3)): each is raised by its cause, and once. */
import { AethKind, aethKind, aethSyndrome, bthOpcode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Access, Ring } from '../src/index.ts';
import { addressOf, Pair, QKEY, type Side, type WorkInit } from '../testing/pair.ts';

const FULL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

function setUp(options: ConstructorParameters<typeof Pair>[0] = {}) {
  const pair = new Pair(options);
  const local = pair.left.register(new ArrayBuffer(8192), FULL);
  const remote = pair.right.register(new ArrayBuffer(8192), FULL);
  return { pair, local, remote };
}

const events = (side: Side) => side.events.splice(0);
const types = (side: Side) => events(side).map(({ type }) => type);
const stateOf = ({ adapter, qp }: Side) => adapter.queryQp(qp.qpn).attr.qpState;

describe('COMM_EST', () => {
  test.each(['RC', 'UC'] as const)('%s: the first packet, if it comes before RTS', (type) => {
    const { pair, local, remote } = setUp();
    const { left, right } = pair;
    for (const side of [left, right]) side.createQp({}, { type });
    pair.connect({ rightTo: 'RTR' });
    for (let i = 0; i < 2; i++) {
      left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 3000 }], remote });
      pair.run();
    }
    expect(events(right)).toEqual([{ type: 'COMM_EST', qpn: right.qp.qpn }]);
    expect(events(left)).toEqual([]);
  });

  test.each(['RC', 'UC', 'UD'] as const)('%s: not in RTS', (type) => {
    const { pair, local } = setUp({ type });
    const { left, right } = pair;
    const ah = left.adapter.createAh(left.pd, addressOf(2));
    const datagram = { ah, qpn: right.qp.qpn, qkey: QKEY };
    left.post({ opcode: 'SEND', sge: [{ mr: local, length: 8 }], datagram });
    pair.run(5000);
    expect(events(right)).toEqual([]);
  });

  test('another life of the queue pair has its own', () => {
    const { pair, local, remote } = setUp();
    const { left, right } = pair;
    for (let life = 0; life < 2; life++) {
      for (const { adapter, qp } of [left, right]) adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
      pair.connect({ rightTo: 'RTR' });
      left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 8 }], remote });
      pair.run();
      expect(left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
      expect(types(right)).toEqual(['COMM_EST']);
    }
  });
});

describe('SQ_DRAINED', () => {
  const drain = (pair: Pair, enSqdAsyncNotify?: boolean) =>
    pair.left.adapter.modifyQp(pair.left.qp.qpn, {
      qpState: 'SQD',
      ...(enSqdAsyncNotify === undefined ? {} : { enSqdAsyncNotify }),
    });
  const resume = ({ left }: Pair) => left.adapter.modifyQp(left.qp.qpn, { qpState: 'RTS' });

  test('when the started requests are acknowledged, while the others wait', () => {
    const { pair, local, remote } = setUp();
    const { left } = pair;
    const write = (wrId: number) =>
      left.post({ wrId, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 3000 }], remote });
    write(1);
    pair.run(5);
    drain(pair, true);
    expect(events(left)).toEqual([]);
    expect(left.adapter.queryQp(left.qp.qpn).attr.sqDraining).toBe(true);
    write(2);
    pair.run();
    expect(events(left)).toEqual([{ type: 'SQ_DRAINED', qpn: left.qp.qpn }]);
    expect(left.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
    expect(left.adapter.queryQp(left.qp.qpn).attr.sqDraining).toBe(false);
    left.adapter.modifyQp(left.qp.qpn, { qpState: 'SQD', timeout: 12 });
    pair.run();
    expect(events(left)).toEqual([]);
    resume(pair);
    pair.run();
    expect(left.poll()).toMatchObject([{ wrId: 2, status: 'SUCCESS' }]);
  });

  test('SQ_DRAINED is raised only where its step asks for it', () => {
    const { pair } = setUp();
    const { left } = pair;
    for (const [notify, raised] of [
      [true, 1],
      [undefined, 0],
      [false, 0],
      [true, 1],
    ] as const) {
      drain(pair, notify);
      expect(events(left)).toHaveLength(raised);
      resume(pair);
    }
  });

  test.each(['UC', 'UD'] as const)('%s: when the link has taken the started requests', (type) => {
    const { pair, local } = setUp({ type });
    const { left, right } = pair;
    const ah = left.adapter.createAh(left.pd, addressOf(2));
    const datagram = { ah, qpn: right.qp.qpn, qkey: QKEY };
    left.post({ wrId: 1, opcode: 'SEND', sge: [{ mr: local, length: 8 }], datagram });
    left.tx.clear();
    expect(left.adapter.transmit(left.tx)).toBe(1);
    drain(pair, true);
    expect(events(left)).toEqual([]);
    left.adapter.sent(left.tx);
    expect(types(left)).toEqual(['SQ_DRAINED']);
    expect(left.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
  });
});

describe('a peer that does what it may not', () => {
  type Bad = [string, (set: ReturnType<typeof setUp>) => WorkInit];
  const sge = ({ local }: ReturnType<typeof setUp>, length = 8) => [{ mr: local, length }];
  const access: Bad[] = [
    ['WRITE', (s) => ({ opcode: 'RDMA_WRITE', sge: sge(s), remote: { ...s.remote, rkey: 0x1234_5600 } })],
    [
      'READ',
      (s) => ({ opcode: 'RDMA_READ', sge: sge(s), remote: { ...s.remote, addr: s.remote.addr - 1n } }),
    ],
    [
      'atomic',
      (s) => ({
        opcode: 'ATOMIC_FETCH_AND_ADD',
        sge: sge(s),
        remote: { ...s.remote, addr: s.remote.addr + 8192n },
      }),
    ],
  ];
  test.each(access)('QP_ACCESS_ERR: %s with a key or a range that it has not', (_name, work) => {
    const set = setUp();
    const { left, right } = set.pair;
    left.post(work(set));
    set.pair.run();
    expect(left.poll()).toMatchObject([{ status: 'REM_ACCESS_ERR' }]);
    expect(events(right)).toEqual([{ type: 'QP_ACCESS_ERR', qpn: right.qp.qpn }]);
    expect(events(left)).toEqual([]);
  });

  test('QP_ACCESS_ERR: a region that goes while a READ is answered', () => {
    const { pair, local, remote } = setUp({ mtu: 256 });
    const { left, right } = pair;
    left.post({ opcode: 'RDMA_READ', sge: [{ mr: local, length: 8000 }], remote });
    // On the turn that took the request in, before its responses are made.
    const receive = right.adapter.receive.bind(right.adapter);
    right.adapter.receive = (batch) => {
      receive(batch);
      right.adapter.deregisterMr(remote.handle);
    };
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'REM_ACCESS_ERR' }]);
    expect(types(right)).toEqual(['QP_ACCESS_ERR']);
  });

  const request: Bad[] = [
    [
      'misaligned atomic',
      (s) => ({
        opcode: 'ATOMIC_FETCH_AND_ADD',
        sge: sge(s),
        remote: { ...s.remote, addr: s.remote.addr + 4n },
      }),
    ],
    ['message longer than the receive', (s) => ({ opcode: 'SEND', sge: sge(s, 65) })],
  ];
  test.each(request)('QP_REQ_ERR: %s', (_name, work) => {
    const set = setUp();
    const { left, right } = set.pair;
    right.postRecv(1, [{ mr: set.remote, length: 64 }]);
    left.post(work(set));
    set.pair.run();
    expect(left.poll()).toMatchObject([{ status: 'REM_INV_REQ_ERR' }]);
    expect(events(right)).toEqual([{ type: 'QP_REQ_ERR', qpn: right.qp.qpn }]);
    expect(events(left)).toEqual([]);
  });

  test('QP_REQ_ERR: an operation that the queue pair does not allow, however often it is sent', () => {
    const { pair, local, remote } = setUp({ attr: { qpAccessFlags: Access.REMOTE_READ } });
    const { left, right } = pair;
    pair.fault = (packet) => [0, 0, 400].map((delay) => ({ packet: packet.slice(), delay }));
    left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 3000 }], remote });
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'REM_INV_REQ_ERR' }]);
    expect(types(right)).toEqual(['QP_REQ_ERR']);
  });

  test('of a UC queue pair: raises no event', () => {
    const set = setUp({ type: 'UC' });
    const { left, right } = set.pair;
    left.post(access[0][1](set));
    set.pair.run();
    expect(events(right)).toEqual([]);
    expect(stateOf(right)).toBe('RTS');
  });
});

describe('QP_LAST_WQE_REACHED', () => {
  function setUpShared() {
    const set = setUp();
    const { left, right } = set.pair;
    const { handle } = right.adapter.createSrq({ pd: right.pd, maxWr: 4, maxSge: 1, limit: 0 });
    left.createQp();
    right.createQp({}, { srq: handle });
    set.pair.connect({ attr: { retryCnt: 1, timeout: 8 } });
    return set;
  }

  test('a request of the peer that is refused', () => {
    const { pair, local, remote } = setUpShared();
    const { left, right } = pair;
    left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 8 }], remote: { ...remote, rkey: 0x5600 } });
    pair.run();
    expect(types(right)).toEqual(['QP_LAST_WQE_REACHED', 'QP_ACCESS_ERR']);
    right.adapter.modifyQp(right.qp.qpn, { qpState: 'ERR' });
    expect(types(right)).toEqual([]);
  });

  test('its own request failed', () => {
    const { pair, local, remote } = setUpShared();
    const { right } = pair;
    pair.fault = () => [];
    right.post({ opcode: 'RDMA_WRITE', sge: [{ mr: remote, length: 8 }], remote: local });
    pair.run();
    expect(right.poll()).toMatchObject([{ status: 'RETRY_EXC_ERR' }]);
    expect(types(right)).toEqual(['QP_LAST_WQE_REACHED']);
  });

  test('not of a queue pair with a receive queue of its own', () => {
    const { pair } = setUp();
    pair.left.adapter.modifyQp(pair.left.qp.qpn, { qpState: 'ERR' });
    expect(events(pair.left)).toEqual([]);
  });
});

describe('CQ_ERR', () => {
  /** Left has a queue pair that completes on a queue of `cqe` entries. */
  function setUpSmall(type: 'RC' | 'UC', cqe: number) {
    const set = setUp();
    const { left, right } = set.pair;
    const cq = left.adapter.createCq(cqe);
    const add = () => {
      left.createQp({}, { type, cq: cq.handle });
      right.createQp({}, { type });
      set.pair.connect();
      return left.qp.qpn;
    };
    const write = (change: Partial<WorkInit> = {}) =>
      left.post({
        opcode: 'RDMA_WRITE',
        sge: [{ mr: set.local, length: 8 }],
        remote: set.remote,
        ...change,
      });
    return { ...set, cq: cq.handle, ring: new Ring(cq.ring), qpn: add(), add, write };
  }

  test.each(['RC', 'UC'] as const)('%s: one completion more than there is room for', (type) => {
    const { pair, cq, ring, qpn, write } = setUpSmall(type, 2);
    for (let i = 0; i < 4; i++) write();
    pair.run();
    expect(events(pair.left)).toEqual([
      { type: 'CQ_ERR', cq },
      { type: 'QP_FATAL', qpn },
    ]);
    expect(stateOf(pair.left)).toBe('ERR');
    expect([ring.state, ring.used]).toEqual([1, 2]);
  });

  test('ends every queue pair whose completion is lost, with an event each', () => {
    const { pair, cq, qpn, add, write } = setUpSmall('RC', 1);
    write();
    write();
    pair.run();
    expect(events(pair.left)).toEqual([
      { type: 'CQ_ERR', cq },
      { type: 'QP_FATAL', qpn },
    ]);
    const other = add();
    write();
    pair.run();
    expect(events(pair.left)).toEqual([{ type: 'QP_FATAL', qpn: other }]);
    expect(stateOf(pair.left)).toBe('ERR');
  });

  test('by what a NAK acknowledges: its own request is flushed by then', () => {
    const { pair, cq, qpn, write, remote } = setUpSmall('RC', 1);
    write();
    write();
    write({ remote: { ...remote, rkey: 0x1234_5600 } });
    // The ACK is lost, so the NAK acknowledges the WRITE, too.
    pair.fault = (packet) => {
      const ack = bthOpcode(packet, 0) === Opcode.RC_ACKNOWLEDGE;
      return ack && aethKind(aethSyndrome(packet, 12)) === AethKind.ACK ? [] : [{ packet, delay: 0 }];
    };
    pair.run();
    expect(events(pair.left)).toEqual([
      { type: 'CQ_ERR', cq },
      { type: 'QP_FATAL', qpn },
    ]);
    expect(stateOf(pair.left)).toBe('ERR');
    expect(pair.left.sq.used).toBe(0);
    expect(pair.left.adapter.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('UC: by the failure of a send: ERR, not SQE', () => {
    const { pair, cq, qpn, write, local } = setUpSmall('UC', 1);
    write();
    write({ sge: [{ mr: { ...local, lkey: local.lkey ^ 1 }, length: 8 }] });
    write();
    pair.run();
    expect(events(pair.left)).toEqual([
      { type: 'CQ_ERR', cq },
      { type: 'QP_FATAL', qpn },
    ]);
    expect(stateOf(pair.left)).toBe('ERR');
    expect(pair.left.sq.used).toBe(0);
  });

  test('a receive that finds no room in the queue: CQ_ERR and QP_FATAL', () => {
    const { pair, cq, qpn, local, remote } = setUpSmall('RC', 1);
    const { left, right } = pair;
    for (const wrId of [1, 2, 3]) left.postRecv(wrId, [{ mr: local, length: 64 }]);
    for (let i = 0; i < 2; i++) right.post({ opcode: 'SEND', sge: [{ mr: remote, length: 8 }] });
    pair.run(5000);
    expect(events(left)).toEqual([
      { type: 'CQ_ERR', cq },
      { type: 'QP_FATAL', qpn },
    ]);
    expect(left.rq.used).toBe(0);
  });
});
