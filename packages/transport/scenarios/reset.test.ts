/**
 * RESET is a new state (IBTA vol 1 §10.3.1.2): whatever a connection was doing, the next one of the same queue pair sends and answers
 * as one of a queue pair that never did anything.
 */
import { bthOpcode, Opcode, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { SendFlags } from '../src/index.ts';
import { Pair } from '../testing/pair.ts';

const KIB = 1024;
const ATTR = { timeout: 10, retryCnt: 7, rnrRetry: 7 };

interface Bench {
  pair: Pair;
  local: ReturnType<Pair['left']['register']>;
  remote: ReturnType<Pair['left']['register']>;
}

function fresh(): Bench {
  const pair = new Pair({ attr: ATTR, right: { credits: true }, left: { credits: true } });
  const local = pair.left.register(new ArrayBuffer(1 << 20));
  const remote = pair.right.register(new ArrayBuffer(1 << 20));
  return { pair, local, remote };
}

/** Ways to make a state dirty; each leaves something under way, or remembered. */
const DIRT: Record<string, (bench: Bench) => void> = {
  nothing: () => {},
  'a gap: a sequence NAK is out': ({ pair, local, remote }) => {
    let n = 0;
    pair.fault = (packet, now) => (++n === 3 || now > 200 ? [] : [{ packet, delay: 0 }]);
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 64 * KIB }], remote });
    pair.run(150);
  },
  'a SEND is half there': ({ pair, local, remote }) => {
    pair.right.postRecv(1, [{ mr: remote, length: 64 * KIB }]);
    pair.left.post({ opcode: 'SEND', sge: [{ mr: local, length: 64 * KIB }] });
    let n = 0;
    pair.fault = (packet) => (++n > 5 ? [] : [{ packet, delay: 0 }]);
    pair.run(100);
  },
  'a WRITE is half there': ({ pair, local, remote }) => {
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 64 * KIB }], remote });
    let n = 0;
    pair.fault = (packet) => (++n > 5 ? [] : [{ packet, delay: 0 }]);
    pair.run(100);
  },
  'messages were counted, credits given, the window opened': ({ pair, local, remote }) => {
    for (let i = 0; i < 40; i++) {
      pair.right.postRecv(i, [{ mr: remote, length: KIB }]);
      pair.left.post({ opcode: 'SEND', sge: [{ mr: local, length: 8 }], flags: 0 });
      pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 32 * KIB }], flags: 0, remote });
      pair.run(5000);
    }
  },
  'losses closed the window, and probes were sent': ({ pair, local, remote }) => {
    for (let i = 0; i < 8; i++) {
      pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 32 * KIB }], remote });
      pair.run(5000);
    }
    let n = 0;
    pair.fault = (packet) => (++n % 3 === 0 ? [] : [{ packet, delay: 0 }]);
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 64 * KIB }], remote });
    pair.run(30_000);
    pair.fault = () => [];
    pair.run(9_000);
  },
  'a retry was taken, another is due': ({ pair, local, remote }) => {
    pair.fault = () => [];
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 64 }], remote });
    pair.run(10_000);
  },
  'an RNR wait': ({ pair, local }) => {
    pair.left.post({ opcode: 'SEND', sge: [{ mr: local, length: 64 }] });
    pair.run(100);
  },
  'READs and atomics are out, their answers lost': ({ pair, local, remote }) => {
    pair.fault = (packet) => (opcodeInfo(bthOpcode(packet, 0))?.isRequest ? [{ packet, delay: 0 }] : []);
    for (let i = 0; i < 4; i++) {
      pair.left.post({ opcode: 'RDMA_READ', sge: [{ mr: local, length: 20 * KIB }], remote });
      pair.left.post({
        opcode: 'ATOMIC_FETCH_AND_ADD',
        compareAdd: 1n,
        sge: [{ mr: local, length: 8 }],
        remote,
      });
    }
    pair.run(500);
  },
  'a rate limit, and a packet that waits for its time': ({ pair, local, remote }) => {
    pair.left.adapter.modifyQp(pair.left.qp.qpn, { rateLimit: 1 });
    for (let i = 0; i < 4; i++) {
      pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: KIB }], remote });
    }
    pair.run(1000);
  },
  'drained, and SQ_DRAINED was asked for': ({ pair }) => {
    pair.left.adapter.modifyQp(pair.left.qp.qpn, { qpState: 'SQD', enSqdAsyncNotify: true });
    pair.run(100);
  },
  'an entry that waits to fail': ({ pair, local, remote }) => {
    pair.fault = () => [];
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 64 }], remote });
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: { ...local, lkey: 1 }, length: 64 }], remote });
    pair.run(100);
  },
  'the error state, by a NAK': ({ pair, local }) => {
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 64 }], remote: { addr: 0n, rkey: 1 } });
    pair.run(1000);
  },
};

/** Every kind of message, over losses and an RNR NAK, in both directions. */
function workload({ pair, local, remote }: Bench): unknown[] {
  const { left, right } = pair;
  left.poll();
  right.poll();
  for (const side of [left, right]) side.events.length = 0;
  const start = pair.sent.length;
  const at = pair.now;
  let n = 0;
  pair.fault = (packet) => (++n % 23 === 0 ? [] : [{ packet, delay: 0 }]);
  for (let i = 0; i < 6; i++) {
    const sge = [{ mr: local, length: 3000 + i }];
    left.post({ wrId: i, opcode: 'SEND', sge });
    left.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 40 * KIB }], remote });
    left.post({ wrId: i, opcode: 'RDMA_READ', sge, remote });
    left.post({
      wrId: i,
      opcode: 'ATOMIC_FETCH_AND_ADD',
      compareAdd: 1n,
      sge: [{ mr: local, length: 8 }],
      remote,
    });
    left.post({ wrId: i, opcode: 'RDMA_WRITE', sge, remote, flags: SendFlags.SIGNALED | SendFlags.FENCE });
    right.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [{ mr: remote, length: 5000 }], remote: local });
    if (i > 0) right.postRecv(i, [{ mr: remote, length: 4 * KIB }]);
  }
  pair.run(2000);
  right.postRecv(9, [{ mr: remote, length: 4 * KIB }]);
  pair.run(1_000_000);
  left.adapter.checkInvariants();
  right.adapter.checkInvariants();
  expect(left.poll().filter(({ status }) => status === 'SUCCESS')).toHaveLength(30);
  return pair.sent.slice(start).map(({ from, packet, at: when }) => {
    // An atomic's result is of the memory, which RESET leaves as it is.
    const isResult = bthOpcode(packet, 0) === Opcode.RC_ATOMIC_ACKNOWLEDGE;
    const bytes = Buffer.from(isResult ? packet.subarray(0, 16) : packet.subarray(0, 28)).toString('hex');
    return `${when - at} ${from === left ? 'left' : 'right'} ${bytes}`;
  });
}

function afterReset(dirt: (bench: Bench) => void): unknown[] {
  const bench = fresh();
  const { pair } = bench;
  dirt(bench);
  pair.fault = () => []; // The packets in flight are lost.
  for (const { adapter, qp } of [pair.left, pair.right]) adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
  pair.run(1000);
  pair.fault = undefined;
  for (const { adapter } of [pair.left, pair.right])
    expect(adapter.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  pair.connect({ attr: ATTR });
  return workload(bench);
}

describe('after RESET, a queue pair whose last connection had', () => {
  const expected = afterReset(() => {});
  test.each(Object.keys(DIRT))('%s: sends and answers as a new one', (name) => {
    expect(expected.length).toBeGreaterThan(300);
    expect(afterReset(DIRT[name])).toEqual(expected);
  });
});
