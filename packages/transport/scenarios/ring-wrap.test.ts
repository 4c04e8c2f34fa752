/**
 * Indices of rings are free-running 32-bit counts: they pass 2^31 and 2^32 within hours of small messages. A queue that is reset goes on
 * with the producer's index, which the program owns; so these begin shortly before both.
 */
import { describe, expect, test } from 'vitest';
import { SendFlags } from '../src/index.ts';
import { Pair } from '../testing/pair.ts';

const MTU = 1024;

/** Both queues of both sides go on at this index. */
function startingAt(index: number) {
  const pair = new Pair({ attr: {} });
  for (const { adapter, qp, sq, rq } of [pair.left, pair.right]) {
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    sq.publish(index);
    rq.publish(index);
    // RESET takes the indices from the rings.
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
  }
  pair.connect();
  const local = pair.left.register(new ArrayBuffer(1 << 16));
  const remote = pair.right.register(new ArrayBuffer(1 << 16));
  return { pair, left: pair.left, right: pair.right, local, remote };
}

describe.each([
  ['2^31', 2 ** 31],
  ['2^32', 2 ** 32],
])('ring indices pass %s', (_name, edge) => {
  test('SENDs, WRITEs, READs and atomics of every length complete in order, over losses', () => {
    const { pair, left, right, local, remote } = startingAt((edge - 20) | 0);
    let n = 0;
    pair.fault = (packet) => (++n % 29 === 0 ? [] : [{ packet, delay: 0 }]);
    const opcodes = ['SEND', 'RDMA_WRITE', 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD'] as const;
    let sends = 0;
    for (let i = 0; i < 60; i++) {
      const opcode = opcodes[i % 4];
      const length = opcode === 'ATOMIC_FETCH_AND_ADD' ? 8 : (i * 997) % (5 * MTU);
      if (opcode === 'SEND') right.postRecv(sends++, [{ mr: remote, length: 5 * MTU }]);
      left.post({ wrId: i, opcode, sge: [{ mr: local, length }], remote });
    }
    pair.run(10_000_000);
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
      Array.from({ length: 60 }, (_, i) => [i, 'SUCCESS']),
    );
    expect(right.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
      Array.from({ length: sends }, (_, i) => [i, 'SUCCESS']),
    );
  });

  test('a fenced request waits for the READ before it, and for nothing else', () => {
    for (let before = 0; before < 6; before++) {
      const { pair, left, local, remote } = startingAt((edge - 1 - before) | 0);
      const sge = [{ mr: local, length: 8 }];
      for (let i = 0; i < before; i++) left.post({ wrId: i, opcode: 'RDMA_WRITE', sge, remote });
      left.post({ wrId: 10, opcode: 'RDMA_READ', sge, remote });
      left.post({ wrId: 11, opcode: 'RDMA_WRITE', sge, remote, flags: SendFlags.SIGNALED | SendFlags.FENCE });
      left.post({ wrId: 12, opcode: 'RDMA_WRITE', sge, remote, flags: SendFlags.SIGNALED | SendFlags.FENCE });
      pair.run(5);
      expect(pair.sent.filter(({ from }) => from === left)).toHaveLength(before + 1);
      pair.run();
      expect(left.poll().map(({ wrId }) => wrId)).toEqual([
        ...Array.from({ length: before }, (_, i) => i),
        10,
        11,
        12,
      ]);
    }
  });

  test('requests that are posted and not started are flushed in order', () => {
    const { pair, left, right, local, remote } = startingAt((edge - 5) | 0);
    for (let i = 0; i < 10; i++) {
      left.post({
        wrId: i,
        opcode: 'RDMA_WRITE',
        sge: [{ mr: local, length: 8 }],
        remote: { addr: 0n, rkey: 0 },
      });
      right.postRecv(i, [{ mr: remote, length: 8 }]);
    }
    pair.run();
    const flushed = (first: string) =>
      Array.from({ length: 10 }, (_, i) => [i, i === 0 ? first : 'WR_FLUSH_ERR']);
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual(flushed('REM_ACCESS_ERR'));
    expect(right.poll().map(({ wrId, status }) => [wrId, status])).toEqual(flushed('WR_FLUSH_ERR'));
  });

  test('the ring is full when it is full, and free again', () => {
    const { pair, left, local, remote } = startingAt((edge - 30) | 0);
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < 64; i++) {
        left.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 8 }], remote });
      }
      expect(left.sq.used).toBe(64);
      pair.run();
      expect(left.sq.used).toBe(0);
      expect(left.poll()).toHaveLength(64);
    }
  });
});

test('a queue that goes on at any index has nothing in it', () => {
  for (const index of [-1, -64, -65, 1, 64, 2 ** 31 - 1, -(2 ** 31)]) {
    const { pair, left } = startingAt(index | 0);
    pair.run(1_000);
    expect(pair.sent).toEqual([]);
    expect(left.poll()).toEqual([]);
  }
});
