/** Packets that leave at once, and those of them that ask for an ACK (IBTA vol 1 §9.7.3.1, §9.7.7.1; the window is this engine's own). */
import { bthAckReq, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type QpAttr, TX_SLOT_WORDS, Tx, TxBatch } from '../src/index.ts';
import { ByHand, inShort } from '../testing/by-hand.ts';

const FIRST = 0xff_fff0;
const MTU = 256;
/** The window at the start. */
const WINDOW = 32;
const remote = { addr: 0n, rkey: 0 };

function requester(attr: QpAttr = {}) {
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: MTU, timeout: 0, ...attr });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(1 << 18));
  const post = (opcode: 'SEND' | 'RDMA_WRITE' | 'RDMA_READ', packets: number) =>
    side.post({ opcode, sge: [{ mr, length: packets * MTU }], remote });
  const at = (psn: number) => (psn - FIRST) & 0xff_ffff;
  /** Numbers of the packets that leave, and of those that ask for an ACK. */
  const sent = () => {
    const packets = hand.out();
    const numbers = packets.map((packet) => at(inShort(packet)[1]));
    return { numbers, asking: numbers.filter((_, i) => bthAckReq(packets[i], 0) === 1) };
  };
  const ack = (number: number, syndrome = 0x1f) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: (FIRST + number) & 0xff_ffff, aeth: { syndrome } });
  return { hand, side, post, sent, ack };
}

const from = (first: number, count: number) => Array.from({ length: count }, (_, i) => first + i);

describe('the window', () => {
  test.each([
    [1, 100],
    [10, 10],
    [50, 1],
  ])('lets 32 packets out at first: %i messages of %i', (messages, packets) => {
    const { post, sent } = requester();
    for (let i = 0; i < messages; i++) post('RDMA_WRITE', packets);
    expect(sent().numbers).toEqual(from(0, WINDOW));
    expect(sent().numbers).toEqual([]);
  });

  test('opens by what is acknowledged, and by one for each of it', () => {
    const { post, sent, ack } = requester();
    post('RDMA_WRITE', 200);
    sent();
    ack(7);
    expect(sent().numbers).toEqual(from(WINDOW, 16));
  });

  test('does not count the responses that a READ waits for', () => {
    const { post, sent } = requester();
    post('RDMA_READ', 20);
    post('RDMA_WRITE', 100);
    expect(sent().numbers).toEqual([0, ...from(20, WINDOW)]);
  });
});

describe('an ACK is asked for', () => {
  test('with each quarter of the window, and with the last packet that it lets out', () => {
    const { post, sent, ack } = requester();
    post('RDMA_WRITE', 1000);
    sent();
    ack(31);
    sent();
    ack(95);
    // The window is 128 now: a quarter is 32.
    expect(sent().asking).toEqual([127, 159, 191, 223]);
  });

  test('with each message', () => {
    const { post, sent } = requester();
    for (const packets of [1, 3, 2]) post('RDMA_WRITE', packets);
    expect(sent().asking).toEqual([0, 3, 5]);
  });

  test('with each fourth packet where the window is small', () => {
    const { post, sent, ack } = requester();
    post('RDMA_WRITE', 200);
    expect(sent().asking).toEqual([3, 7, 11, 15, 19, 23, 27, 31]);
    ack(7);
    // The window is 40 now.
    expect(sent().asking).toEqual([35, 39, 43, 47]);
  });

  test('by a READ or an atomic with itself, so that what follows begins to count anew', () => {
    const { side, post, sent } = requester();
    const mr = side.register(new ArrayBuffer(8));
    post('RDMA_WRITE', 5);
    side.post({ opcode: 'ATOMIC_FETCH_AND_ADD', sge: [{ mr, length: 8 }], remote });
    post('RDMA_WRITE', 10);
    expect(sent().asking).toEqual([3, 4, 5, 9, 13, 15]);
  });

  test('with the last packet that there is room for in the batch', () => {
    const { side, post } = requester();
    post('RDMA_WRITE', 20);
    const tx = new TxBatch(side.adapter.regions, 3, 300);
    const asking = () => {
      tx.clear();
      side.adapter.transmit(tx);
      side.adapter.sent(tx);
      return from(0, tx.count).map((i) =>
        bthAckReq(tx.headers, tx.slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET]),
      );
    };
    expect([asking(), asking()]).toEqual([
      [0, 0, 1],
      [0, 0, 1],
    ]);
  });
});

test('a retransmission is not timed: its answer may be that of the first (Karn)', () => {
  for (const opcode of ['RDMA_WRITE', 'RDMA_READ'] as const) {
    const { hand, side, post, sent, ack } = requester({ timeout: 20 });
    post('RDMA_WRITE', 1);
    sent();
    hand.now += 100;
    ack(0);
    post(opcode, 1);
    post('RDMA_WRITE', 1);
    sent();
    ack(1, 0x60);
    sent();
    hand.now += 4_000_000;
    if (opcode === 'RDMA_WRITE') ack(1);
    else {
      const psn = (FIRST + 1) & 0xff_ffff;
      const payload = new Uint8Array(MTU);
      hand.put({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn, aeth: { syndrome: 0x1f }, payload });
    }
    // By the one sample of 100 µs a probe comes after 200 µs.
    hand.run(300);
    expect(side.adapter.counters().probes).toBe(1);
  }
});

describe('a probe, when an answer is overdue', () => {
  const answer = (name: 'READ' | 'WRITE', number: number) => {
    const psn = (FIRST + number) & 0xff_ffff;
    const aeth = { syndrome: 0x1f };
    if (name === 'WRITE') return { opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth };
    return { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn, aeth, payload: new Uint8Array(MTU) };
  };

  /** A requester that has timed one answer of 100 µs. */
  function timed(first: 'READ' | 'WRITE') {
    const set = requester({ timeout: 20 });
    const { hand, post, sent } = set;
    post(`RDMA_${first}`, 1);
    sent();
    hand.now += 100;
    hand.put(answer(first, 0));
    /** Within more than two round trips, and less than four. */
    const probed = () => hand.run(300).map((packet) => (inShort(packet)[1] - FIRST) & 0xff_ffff);
    return { ...set, probed };
  }

  test.each(['READ', 'WRITE'] as const)('goes by the time of a %s', (first) => {
    const { post, sent, probed } = timed(first);
    post('RDMA_WRITE', 1);
    post('RDMA_WRITE', 1);
    expect(sent().numbers).toEqual([1, 2]);
    // Of a flight one, the last packet.
    expect(probed()).toEqual([2]);
    expect(probed()).toEqual([]);
  });

  test('behind a READ shows what is missing of it', () => {
    const { side, post, sent, probed } = timed('WRITE');
    post('RDMA_READ', 1);
    post('RDMA_WRITE', 1);
    expect(sent().numbers).toEqual([1, 2]);
    expect(probed()).toEqual([2]);
    expect(side.adapter.counters()).toMatchObject({ probes: 1, retries: 0, timeouts: 0 });
  });

  test('is sent alone, though more waits for the window', () => {
    const { post, sent, probed } = timed('WRITE');
    post('RDMA_WRITE', 100);
    expect(sent().numbers).toHaveLength(WINDOW + 1);
    expect(probed()).toEqual([WINDOW + 1]);
  });
});
