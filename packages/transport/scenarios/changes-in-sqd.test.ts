/** Attributes and regions that change between two sendings of a request (ibv_modify_qp(3), ibv_rereg_mr(3)). */
import { NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { QpAttr } from '../src/index.ts';
import { ByHand, inShort } from '../testing/by-hand.ts';

const FIRST = 0x500;
const remote = { addr: 0n, rkey: 1 };

/** A requester with one request out, in SQD. */
function draining(attr: QpAttr, opcode: 'SEND' | 'RDMA_WRITE' = 'RDMA_WRITE') {
  // Go-back-N by the rule: each NAK counts that is not a copy of the one before, and nothing but the ACK timer sends again by itself.
  const recovery = { probes: false, selective: false };
  const hand = new ByHand({ sqPsn: FIRST, ...attr }, { recovery });
  const { side } = hand;
  const { adapter, qp } = side;
  const mr = side.register(new ArrayBuffer(64));
  side.post({ wrId: 1, opcode, sge: [{ mr, length: 8 }], remote });
  expect(hand.out()).toHaveLength(1);
  const modify = (change: QpAttr) => adapter.modifyQp(qp.qpn, { qpState: 'SQD', ...change });
  modify({});
  const nak = (syndrome: number) => {
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST, aeth: { syndrome } });
    return hand.run(2000).length;
  };
  const statuses = () => side.poll().map(({ status }) => status);
  return { hand, side, modify, nak, statuses };
}

describe.each([
  ['retry_cnt', 'retryCnt', NakCode.PSN_SEQUENCE_ERROR, 'RETRY_EXC_ERR'],
  ['rnr_retry', 'rnrRetry', 0x21, 'RNR_RETRY_EXC_ERR'],
] as const)('%s in SQD', (_name, attribute, syndrome, status) => {
  test('another count is granted from then on', () => {
    const { modify, nak, statuses } = draining({ [attribute]: 0 }, 'SEND');
    modify({ [attribute]: 2 });
    expect([nak(syndrome), nak(syndrome), nak(syndrome)]).toEqual([1, 1, 0]);
    expect(statuses()).toEqual([status]);
  });

  test('the same count, or another attribute, grants nothing anew', () => {
    for (const change of [{ [attribute]: 1 }, { minRnrTimer: 5 }]) {
      const { modify, nak, statuses } = draining({ [attribute]: 1 }, 'SEND');
      expect(nak(syndrome)).toBe(1);
      modify(change);
      expect(nak(syndrome)).toBe(0);
      expect(statuses()).toEqual([status]);
    }
  });
});

describe('timeout in SQD', () => {
  /** 4.096 µs · 2^10, twice: what the ACK timer waits for, and never more than four times. */
  const T = 4.096 * 2 ** 10;

  test('from 0: the timer starts for outstanding packets, and for nothing else', () => {
    const { hand, side, modify } = draining({ timeout: 0 });
    hand.run(100 * T);
    modify({ timeout: 10 });
    expect(hand.run(T - 1)).toHaveLength(0);
    expect(hand.run(4 * T).length).toBeGreaterThan(0);
    expect(side.adapter.counters().timeouts).toBeGreaterThan(0);
    const idle = draining({ timeout: 0 });
    idle.hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST, aeth: { syndrome: 0x1f } });
    idle.modify({ timeout: 10 });
    expect(idle.side.adapter.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('another attribute leaves the timer that runs', () => {
    const { hand, side, modify } = draining({ timeout: 10 });
    for (let i = 0; i < 5; i++) {
      hand.run(T);
      modify({ minRnrTimer: i });
    }
    expect(side.adapter.counters().timeouts).toBeGreaterThan(0);
  });
});

test('an entry of a region that is registered anew, shorter, fails when it is retransmitted: nothing beyond it is read', () => {
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: 256 });
  const { side } = hand;
  const { adapter, pd } = side;
  const buffer = new ArrayBuffer(4096);
  const init = { pd, backing: 7, buffer, offset: 0, length: 1024, access: 1 };
  const mr = adapter.registerMr(init);
  side.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr, length: 1024 }], remote });
  expect(hand.out()).toHaveLength(4);
  adapter.reregisterMr(mr.handle, { ...init, length: 1023 }, false);
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
  expect(hand.out().map(inShort)).toEqual([]);
  expect(side.poll()).toMatchObject([{ wrId: 1, status: 'LOC_PROT_ERR' }]);
});

test('a bind between two WRITEs that are retransmitted is not executed again, and takes no PSN', () => {
  const hand = new ByHand({ sqPsn: FIRST });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(64), 0x1f);
  const mw = side.adapter.allocMw(side.pd, 2);
  const write = (wrId: number) => side.post({ wrId, opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote });
  write(1);
  const bind = { window: mw.handle, length: 8, lkey: mr.lkey, access: 4 };
  side.post({ wrId: 2, opcode: 'BIND_MW', remote: { addr: mr.addr, rkey: (mw.rkey ^ 1) >>> 0 }, bind });
  write(3);
  const first = hand.out();
  expect(first.map(inShort)).toEqual([
    ['RDMA_WRITE_ONLY', FIRST],
    ['RDMA_WRITE_ONLY', FIRST + 1],
  ]);
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
  expect(hand.out()).toEqual(first);
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST + 1, aeth: { syndrome: 0x1f } });
  expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
    [1, 'SUCCESS'],
    [2, 'SUCCESS'],
    [3, 'SUCCESS'],
  ]);
});

test('a SEND that SQD takes back before it was sent gives its credit back', () => {
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: 256 });
  const { side } = hand;
  const { adapter, qp } = side;
  const mr = side.register(new ArrayBuffer(1 << 14));
  const post = (opcode: 'SEND' | 'RDMA_WRITE', length: number) =>
    side.post({ opcode, sge: [{ mr, length }], remote });
  const ack = (number: number, code: number, msn: number) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST + number, aeth: { syndrome: code, msn } });
  post('RDMA_WRITE', 8);
  hand.out();
  ack(0, 2, 1); // Two receives: messages up to the third, and one past that.
  post('RDMA_WRITE', 33 * 256); // Fills the window.
  for (let i = 0; i < 3; i++) post('SEND', 8);
  expect(hand.out()).toHaveLength(33);
  adapter.modifyQp(qp.qpn, { qpState: 'SQD' });
  adapter.modifyQp(qp.qpn, { qpState: 'RTS' });
  expect(hand.out()).toEqual([]);
  ack(10, 0, 1);
  expect(hand.out().map((packet) => inShort(packet)[0])).toEqual(['SEND_ONLY', 'SEND_ONLY']);
});
