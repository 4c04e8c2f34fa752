/**
 * Many busy queue pairs share one link, and nothing is lost: no queue pair takes the waiting of its own packets for a loss
 * (IBTA vol 1 §9.7.6.1.3: the timer is that of a request that was sent), and no reply waits for the requests of others.
 */
import { bthDestQp, bthOpcode, bthPsn, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { TX_SLOT_WORDS, Tx, TxBatch } from '../src/index.ts';
import { Crowd } from '../testing/crowd.ts';
import type { Side } from '../testing/pair.ts';

const PACKETS_PER_MILLISECOND = 256;

/** Each queue pair of the left writes one message of so many bytes; returns when all have completed. */
function writeAll(count: number, timeout: number, length: number) {
  const crowd = new Crowd({ count, timeout, packetsPerMillisecond: PACKETS_PER_MILLISECOND });
  for (let i = 0; i < count; i++) {
    const { local, remote } = crowd;
    crowd.post(i, { wrId: i, opcode: 'RDMA_WRITE', sge: [{ mr: local, length }], remote });
  }
  const failed: [wrId: number, status: string][] = [];
  let done = 0;
  const enough = 4 * ((count * length) / 256 / PACKETS_PER_MILLISECOND) + 1000;
  while (done < count && failed.length === 0 && crowd.steps < enough) {
    crowd.step();
    for (const { wrId, status } of crowd.left.poll()) {
      done++;
      if (status !== 'SUCCESS') failed.push([wrId, status]);
    }
  }
  return { crowd, done, failed, counters: crowd.left.adapter.counters() };
}

describe('busy queue pairs on a link of 256 packets a millisecond', () => {
  // C2. Once: 1,000 queue pairs end in RETRY_EXC_ERR without a lost packet.
  test.each([
    [1000, 12],
    [2600, 14],
  ])('%i with timeout %i finish without a timeout', { tags: ['slow'] }, (count, timeout) => {
    // As long as it takes until the window is longer than a turn.
    const { failed, done, counters } = writeAll(count, timeout, 128 * 1024);
    expect(failed).toEqual([]);
    expect(done).toBe(count);
    expect(counters).toMatchObject({ timeouts: 0, retries: 0 });
  });

  test('20 with timeout 12 finish without a timeout', () => {
    const { failed, done, counters } = writeAll(20, 12, 128 * 1024);
    expect(failed).toEqual([]);
    expect(done).toBe(20);
    expect(counters).toMatchObject({ timeouts: 0, retries: 0 });
  });
});

describe('busy READs of a peer whose link takes 256 packets a millisecond', () => {
  /** Each queue pair of the right reads so many bytes of the left. */
  function readAll(count: number, timeout: number, length: number) {
    const crowd = new Crowd({ count, timeout: 14, rightTimeout: timeout, rightBuffer: 1 << 25 });
    const { right, rights, local, remote } = crowd;
    for (const qp of rights) {
      right.use(qp);
      right.post({ opcode: 'RDMA_READ', sge: [{ mr: remote, length }], remote: local });
    }
    const failed: string[] = [];
    let done = 0;
    const enough = 4 * ((count * length) / 256 / PACKETS_PER_MILLISECOND) + 1000;
    while (done < count && crowd.steps < enough) {
      crowd.step();
      for (const { status } of right.poll()) {
        done++;
        if (status !== 'SUCCESS') failed.push(status);
      }
    }
    return { done, failed, counters: right.adapter.counters() };
  }

  function finish(count: number, timeout: number): void {
    const { failed, done, counters } = readAll(count, timeout, 32 * 1024);
    expect(failed).toEqual([]);
    expect(done).toBe(count);
    expect(counters).toMatchObject({ timeouts: 0, retries: 0 });
  }

  // Once: turns of 64 responses, so that of 200 READs the last waited for 50 ms. 200 timeouts; of 1,000 READs, 5,167.
  test.each([
    [200, 12],
    [1000, 12],
  ])('%i with timeout %i finish without a timeout', finish);
  test('2600 with timeout 14 finish without a timeout', { tags: ['slow'] }, () => finish(2600, 14));
});

describe('a reply of an otherwise idle queue pair, while others send', () => {
  /** Steps until the ACK of a SEND to the last queue pair is in a batch, and the place that it has there. */
  function waitOfAnAck(busy: number) {
    const crowd = new Crowd({ count: busy + 1, timeout: 14, packetsPerMillisecond: PACKETS_PER_MILLISECOND });
    const { left, right, local, remote } = crowd;
    for (let i = 0; i < busy; i++) {
      crowd.post(i, { opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1 << 18 }], remote });
    }
    left.use(crowd.lefts[busy]);
    left.postRecv(1, [{ mr: local, length: 64 }]);
    for (let i = 0; i < 100; i++) crowd.step();

    const { qpn } = crowd.rights[busy];
    let place = -1;
    crowd.onBatch = ({ slots, headers, count }: TxBatch) => {
      for (let i = 0; i < count && place < 0; i++) {
        const at = slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET];
        if (bthDestQp(headers, at) !== qpn) continue;
        expect([bthOpcode(headers, at), bthPsn(headers, at)]).toEqual([Opcode.RC_ACKNOWLEDGE, 0]);
        place = i;
      }
    };
    right.use(crowd.rights[busy]);
    right.post({ wrId: 4242, opcode: 'SEND', sge: [{ mr: remote, length: 64 }] });
    const before = crowd.steps;
    // One step until the SEND is there.
    crowd.step();
    while (place < 0 && crowd.steps < before + 1000) crowd.step();
    return { batches: crowd.steps - before - 1 };
  }

  // C3. Once: after 27 ms with 50 others, 252 ms with 500.
  test.each([50, 1000])('leaves within one batch: %i others', (busy) => {
    expect(waitOfAnAck(busy).batches).toBe(1);
  });

  test('leaves within one batch: 1 other', () => {
    expect(waitOfAnAck(1).batches).toBe(1);
  });
});

describe('the cost of a turn', () => {
  /** Nanoseconds of the processor that a turn of one packet takes, when so many queue pairs have something to send. */
  function costOfATurn(side: Side, qps: number): number {
    const tx = new TxBatch(side.adapter.regions, 1, 64);
    const turn = () => {
      tx.clear();
      expect(side.adapter.transmit(tx)).toBe(1);
      side.adapter.sent(tx);
    };
    for (let i = 0; i < qps; i++) turn();
    let best = Number.POSITIVE_INFINITY;
    for (let round = 0; round < 10; round++) {
      const before = process.cpuUsage();
      for (let i = 0; i < 1000; i++) turn();
      const { user, system } = process.cpuUsage(before);
      best = Math.min(best, user + system);
    }
    return best;
  }

  function sendersOf(count: number): Side {
    const crowd = new Crowd({ count, timeout: 0 });
    const { local, remote, left } = crowd;
    for (let i = 0; i < count; i++) {
      crowd.post(i, { opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1 << 18 }], remote });
    }
    return left;
  }

  // M9. Once: the list of those with something to send is shifted, and its rest moved, each turn.
  test('does not grow with the queue pairs that wait for theirs', { tags: ['slow', 'gate'] }, () => {
    const few = costOfATurn(sendersOf(1_000), 1_000);
    const many = costOfATurn(sendersOf(16_000), 16_000);
    expect(many / few).toBeLessThan(4);
  });
});
