/**
 * Attributes that change while the queue pair works, or drains (IBTA vol 1 §10.3.1.5, ibv_modify_qp(3)): what is changed counts from
 * then on, or the change is refused; no request is left behind.
 */
import { bthOpcode, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { QpAttr } from '../src/index.ts';
import { Pair } from '../testing/pair.ts';

function setUp(attr: Partial<QpAttr> = {}) {
  const pair = new Pair({ attr });
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(1 << 20));
  const remote = right.register(new ArrayBuffer(1 << 20));
  const { adapter, qp } = left;
  const modify = (change: QpAttr) => adapter.modifyQp(qp.qpn, change);
  /** As `modify` in SQD; an adapter may refuse while it drains (EINVAL), and then nothing has changed. */
  const modifyOrRefuse = (change: QpAttr) => {
    try {
      modify({ qpState: 'SQD', ...change });
    } catch (error) {
      expect(error).toMatchObject({ name: 'RoceError' });
      return false;
    }
    return true;
  };
  const drained = () => left.events.filter(({ type }) => type === 'SQ_DRAINED').length;
  const statuses = () => left.poll().map(({ wrId, status }) => [wrId, status]);
  return { pair, left, right, local, remote, modify, modifyOrRefuse, drained, statuses };
}

describe('while the send queue drains', () => {
  // M6. Once: it drains for ever.
  test('max_rd_atomic 0: the READ that is out is finished', () => {
    const { pair, left, local, remote, modify, modifyOrRefuse, drained, statuses } = setUp();
    left.post({ wrId: 1, opcode: 'RDMA_READ', sge: [{ mr: local, length: 1 << 20 }], remote });
    pair.run(30);
    modify({ qpState: 'SQD', enSqdAsyncNotify: true });
    const accepted = modifyOrRefuse({ maxRdAtomic: 0 });
    pair.run(10_000_000);
    expect(statuses()).toEqual([[1, 'SUCCESS']]);
    expect(drained()).toBe(1);
    expect(left.adapter.queryQp(left.qp.qpn).attr).toMatchObject({
      sqDraining: false,
      maxRdAtomic: accepted ? 0 : 16,
    });
  });

  // M6. Once: no timer is armed, and it drains for ever.
  test('timeout 0 to 14, with a packet lost: if it is taken, the packet is retransmitted', () => {
    const { pair, left, local, remote, modify, modifyOrRefuse, drained, statuses } = setUp({ timeout: 0 });
    let lost = 0;
    pair.fault = (packet) => (lost++ === 0 ? [] : [{ packet, delay: 0 }]);
    left.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1024 }], remote });
    pair.run(1000);
    modify({ qpState: 'SQD', enSqdAsyncNotify: true });
    if (!modifyOrRefuse({ timeout: 14 })) {
      expect(left.adapter.queryQp(left.qp.qpn).attr.timeout).toBe(0);
      return;
    }
    pair.run(10_000_000);
    expect(statuses()).toEqual([[1, 'SUCCESS']]);
    expect(drained()).toBe(1);
  });

  test('timeout 14 to 0: the timer that ran for it runs no more, or the change is refused', () => {
    const { pair, left, local, remote, modify, modifyOrRefuse } = setUp({ timeout: 14, retryCnt: 0 });
    pair.fault = () => [];
    left.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1024 }], remote });
    pair.run(1000);
    modify({ qpState: 'SQD' });
    if (!modifyOrRefuse({ timeout: 0 })) return;
    modify({ qpState: 'RTS' });
    pair.run(10_000_000);
    // One may be under way; no second one is armed.
    expect(left.adapter.counters().timeouts).toBeLessThanOrEqual(1);
  });

  test('max_rd_atomic raised: more READs may be out afterwards', () => {
    const { pair, left, local, remote, modify } = setUp({ maxRdAtomic: 1 });
    modify({ qpState: 'SQD' });
    pair.run(100);
    modify({ qpState: 'SQD', maxRdAtomic: 4 });
    modify({ qpState: 'RTS' });
    for (let i = 0; i < 8; i++) {
      left.post({ wrId: i, opcode: 'RDMA_READ', sge: [{ mr: local, length: 8 }], remote });
    }
    pair.run(5);
    expect(pair.sent.filter(({ from }) => from === left)).toHaveLength(4);
    pair.run();
    expect(left.poll()).toHaveLength(8);
  });
});

describe('rate_limit, while the next packet waits for its time', () => {
  /** Four packets at 1 kbit/s, the first of which has left: the second would leave 8.6 s later. */
  function paced() {
    const set = setUp();
    const { pair, left, local, remote, modify } = set;
    modify({ rateLimit: 1 });
    for (let i = 0; i < 4; i++) {
      left.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1024 }], remote });
    }
    pair.run(1000);
    expect(left.poll()).toHaveLength(1);
    return set;
  }

  // M7. Once: at the time that the old limit gave.
  test('lifted: all leave at once', () => {
    const { pair, left, modify } = paced();
    modify({ rateLimit: 0 });
    pair.run(1000);
    expect(left.poll()).toHaveLength(3);
  });

  // M7.
  test('raised: all leave at the new rate', () => {
    const { pair, left, modify } = paced();
    modify({ rateLimit: 1000 });
    // 1024 bytes and their headers take 8.7 ms each.
    pair.run(30_000);
    expect(left.poll()).toHaveLength(3);
    const times = pair.sent
      .filter(({ from, packet }) => from === left && opcodeInfo(bthOpcode(packet, 0))!.isRequest)
      .map(({ at }) => at);
    expect(times[3] - times[2]).toBeGreaterThan(8000);
  });

  test('lowered: later packets leave at the new rate', () => {
    const { pair, left, local, remote, modify } = setUp();
    modify({ rateLimit: 1_000_000 });
    const post = () => left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1024 }], remote });
    post();
    pair.run(1000);
    modify({ rateLimit: 100 });
    post();
    post();
    pair.run(1000);
    expect(left.poll()).toHaveLength(2);
    pair.run(100_000);
    expect(left.poll()).toHaveLength(1);
  });
});
