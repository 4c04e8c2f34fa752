/** The order of senders, and the time that counts while the link has no room. */
import { bthAckReq, bthDestQp, bthOpcode, bthPsn, Opcode, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { gatherSlot, TX_SLOT_WORDS, Tx, TxBatch } from '../src/index.ts';
import { ByHand, inShort, type PacketInit } from '../testing/by-hand.ts';
import { Crowd } from '../testing/crowd.ts';

const T = 4.096 * 2 ** 10;

describe('a batch that waits because the link has no room', () => {
  /** A requester whose first packet is in a batch that the link has not taken. */
  function waiting(retryCnt = 2) {
    const hand = new ByHand({ timeout: 10, retryCnt }, { recovery: { probes: false } });
    const { side } = hand;
    const mr = side.register(new ArrayBuffer(64));
    side.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote: { addr: 0n, rkey: 0 } });
    const { adapter } = side;
    const tx = new TxBatch(adapter.regions, 16, 128);
    expect(adapter.transmit(tx)).toBe(1);
    const pass = (microseconds: number) => {
      for (const end = hand.now + microseconds; hand.now < end; ) {
        hand.now = Math.min(end, Math.max(hand.now + 1, adapter.nextDeadline()));
        adapter.advance();
      }
    };
    return { hand, side, adapter, tx, pass };
  }

  // Suspicion. Once: all retries are burned, and the connection ends before its first packet has left.
  test('burns no retry', () => {
    const { side, adapter, pass } = waiting();
    pass(40 * T);
    expect(side.poll()).toEqual([]);
    expect(adapter.counters()).toMatchObject({ timeouts: 0, retries: 0 });
  });

  test('burns no retry for packets before it either: what is behind them could not leave', () => {
    const { hand, side, adapter, tx, pass } = waiting();
    adapter.sent(tx);
    pass(T / 2);
    const mr = side.register(new ArrayBuffer(64));
    side.post({ wrId: 2, opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote: { addr: 0n, rkey: 0 } });
    tx.clear();
    expect(adapter.transmit(tx)).toBe(1);
    pass(40 * T);
    expect(adapter.counters()).toMatchObject({ timeouts: 0, retries: 0 });
    adapter.sent(tx);
    pass(4 * T);
    expect(adapter.counters()).toMatchObject({ timeouts: 1, retries: 1 });
    expect(hand.out()).toHaveLength(2);
  });

  // The timer is that of a packet that was sent (IBTA vol 1 §9.7.6.1.3).
  test('the timer runs from when the link took the packet, and then as long as ever', () => {
    const { hand, adapter, tx, pass } = waiting();
    pass(1.5 * T);
    adapter.sent(tx);
    pass(T - 1);
    expect(adapter.counters().timeouts).toBe(0);
    pass(3 * T + 1);
    expect(adapter.counters().timeouts).toBe(1);
    expect(hand.out()).toHaveLength(1);
  });
});

describe('turns', () => {
  // C2: the end of a turn is answered, so that its packets are not overdue before the next turn.
  test('the last request of a turn asks for an ACK', () => {
    const crowd = new Crowd({ count: 3, timeout: 14 });
    const { local, remote } = crowd;
    for (let i = 0; i < 3; i++) {
      crowd.post(i, { opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1 << 18 }], remote });
    }
    let ends = 0;
    const silent: number[] = [];
    crowd.onBatch = ({ count, slots, headers }: TxBatch) => {
      const at = (i: number) => slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET];
      for (let i = 0; i < count; i++) {
        const end = i === count - 1 || bthDestQp(headers, at(i)) !== bthDestQp(headers, at(i + 1));
        if (!end) continue;
        ends++;
        if (bthAckReq(headers, at(i)) === 0) silent.push(bthPsn(headers, at(i)));
      }
    };
    while (crowd.left.poll().length < 3 && crowd.steps < 200) crowd.step();
    expect(ends).toBeGreaterThan(20);
    expect(silent).toEqual([]);
  });

  test('a turn is of 128 packets at most, however wide the window is', () => {
    const crowd = new Crowd({ count: 3, timeout: 14, memory: 1 << 22 });
    const { local, remote } = crowd;
    for (let i = 0; i < 3; i++) {
      crowd.post(i, { opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1 << 22 }], remote });
    }
    let most = 0;
    crowd.onBatch = ({ count, slots, headers }: TxBatch) => {
      const sent = new Map<number, number>();
      for (let i = 0; i < count; i++) {
        const qpn = bthDestQp(headers, slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET]);
        sent.set(qpn, (sent.get(qpn) ?? 0) + 1);
      }
      most = Math.max(most, ...sent.values());
    };
    for (let i = 0; i < 60; i++) crowd.step();
    expect(most).toBe(128);
  });

  test('each queue pair that has something to send has its turn before any has two', () => {
    const count = 40;
    const crowd = new Crowd({ count, timeout: 14, packetsPerMillisecond: 200 });
    const { local, remote } = crowd;
    for (let i = 0; i < count; i++) {
      crowd.post(i, { opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 1 << 18 }], remote });
    }
    const sent = new Map<number, number>();
    crowd.onBatch = ({ count: packets, slots, headers }: TxBatch) => {
      for (let i = 0; i < packets; i++) {
        const qpn = bthDestQp(headers, slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET]);
        sent.set(qpn, (sent.get(qpn) ?? 0) + 1);
      }
    };
    for (let i = 0; i < 400; i++) crowd.step();
    const counts = [...sent.values()];
    expect(counts).toHaveLength(count);
    expect(Math.max(...counts)).toBeLessThanOrEqual(2 * Math.min(...counts));
  });
});

describe('a queue pair with more requests than the batch has room for', () => {
  /** Each batch's requests are acknowledged before the next is made: the window is always open. */
  function streaming(capacity: number) {
    const hand = new ByHand({ sqPsn: 0, rqPsn: 1000, pathMtu: 256 });
    const { side } = hand;
    const { adapter } = side;
    const mr = side.register(new ArrayBuffer(1 << 22));
    const tx = new TxBatch(adapter.regions, capacity);
    let last = -1;
    /** Takes packets in, and makes a batch; its replies. */
    const step = (...packets: PacketInit[]) => {
      if (side.sq.used < 4) {
        const remote = { addr: 0n, rkey: 1 };
        side.post({ opcode: 'RDMA_WRITE', flags: 0, sge: [{ mr, length: 1 << 22 }], remote });
      }
      hand.now += 100;
      const aeth = { syndrome: 0x1f };
      const acks = last < 0 ? [] : [{ opcode: Opcode.RC_ACKNOWLEDGE, psn: last, aeth }];
      hand.put(...acks, ...packets);
      tx.clear();
      adapter.transmit(tx);
      const all = Array.from({ length: tx.count }, (_, i) => gatherSlot(tx, i));
      adapter.sent(tx);
      const requests = all.filter((packet) => opcodeInfo(bthOpcode(packet, 0))?.isRequest);
      if (requests.length > 0) last = bthPsn(requests.at(-1)!, 0);
      return all.filter((packet) => !requests.includes(packet)).map(inShort);
    };
    // Until the window is longer than the batch.
    for (let i = 0; i < 200; i++) expect(step()).toEqual([]);
    expect(tx.count).toBe(capacity);
    return { step, reth: { addr: mr.addr, rkey: mr.rkey } };
  }

  // Once: in a batch of 128 or fewer, never while there were requests.
  test.each([16, 128, 256])('sends its ACKs with the next batch, of %i packets', (capacity) => {
    const { step, reth } = streaming(capacity);
    const write = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 1000, payload: new Uint8Array(4) };
    expect(step({ ...write, reth: { ...reth, length: 4 } })).toEqual([['ACKNOWLEDGE', 1000, 0x1f]]);
  });

  test.each([16, 128, 256])('sends its READ responses with the next batches, of %i packets', (capacity) => {
    const { step, reth } = streaming(capacity);
    const length = 256 * capacity;
    const answers = step({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1000, reth: { ...reth, length } });
    expect(answers).toHaveLength(capacity / 2);
    expect([...answers, ...step(), ...step()]).toHaveLength(capacity);
  });
});

test.each([
  [8, 64],
  [64, 32],
  [1000, 4],
])('with %i READs to answer, a turn has %i responses', (count, responses) => {
  const crowd = new Crowd({ count, timeout: 14, rightBuffer: 1 << 25, packetsPerMillisecond: 512 });
  const { right, rights, local, remote } = crowd;
  for (const qp of rights) {
    right.use(qp);
    right.post({ opcode: 'RDMA_READ', sge: [{ mr: remote, length: 64 * 256 }], remote: local });
  }
  const turns = new Map<number, number>();
  crowd.onBatch = ({ slots, headers, count }) => {
    for (let i = 0; i < count; i++) {
      const qpn = bthDestQp(headers, slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET]);
      turns.set(qpn, (turns.get(qpn) ?? 0) + 1);
    }
  };
  for (let i = 0; i < 3 && turns.size === 0; i++) crowd.step();
  const [first] = turns.values();
  expect(first).toBe(responses);
});
