/**
 * The tail loss probe: when an answer is overdue by the usual round trip, the oldest packet is sent once more. Overdue is the smoothed
 * round trip and four times its deviation (RFC 6298), 8 ms at least, and twice as long for each probe that drew nothing.
 */
import { Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ByHand, inShort } from '../testing/by-hand.ts';

const FIRST = 0x500;

function setUp() {
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: 256, timeout: 18 });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(1 << 16));
  let psn = FIRST;
  const ack = (at: number) => hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: at, aeth: { syndrome: 0x1f } });
  const post = () =>
    side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote: { addr: 0n, rkey: 0 } });
  /** A WRITE whose answer takes so long, µs. */
  const exchange = (roundTrip: number) => {
    post();
    expect(hand.out().map(inShort)).toEqual([['RDMA_WRITE_ONLY', psn]]);
    hand.now += roundTrip;
    ack(psn++);
  };
  /** When probes are sent for a WRITE that is not answered, µs after it. */
  const probes = (count: number) => {
    post();
    hand.out();
    const began = hand.now;
    const at: number[] = [];
    while (at.length < count) {
      hand.now = Math.max(hand.now, side.adapter.nextDeadline());
      side.adapter.advance(hand.now);
      for (const packet of hand.out()) {
        expect(inShort(packet)).toEqual(['RDMA_WRITE_ONLY', psn]);
        at.push(hand.now - began);
      }
    }
    return at;
  };
  return { hand, side, exchange, probes, post, ack, next: () => psn++ };
}

test('comes after 8 ms where the round trip is short, and then twice as late each time', () => {
  const { exchange, probes } = setUp();
  for (let i = 0; i < 20; i++) exchange(20);
  const at = probes(4);
  expect(at[0]).toBeCloseTo(8_000, 0);
  expect(at.slice(1).map((time, i) => Math.round((time - at[i]) / 1000))).toEqual([16, 32, 64]);
});

test('comes after the first round trip and its half, four times', () => {
  const { exchange, probes } = setUp();
  exchange(30_000);
  expect(probes(1)[0]).toBeCloseTo(90_000, 0);
});

test('waits for the usual round trip alone where it is always the same', () => {
  const { exchange, probes } = setUp();
  for (let i = 0; i < 60; i++) exchange(30_000);
  const [at] = probes(1);
  expect(at).toBeGreaterThanOrEqual(30_000);
  expect(at).toBeLessThan(31_000);
});

test('follows round trips that change: the mean by an eighth, the deviation by a quarter', () => {
  const { exchange, probes } = setUp();
  exchange(16_000);
  exchange(24_000);
  // Mean 16 + (24 − 16) / 8 = 17 ms; deviation 8 + (8 − 8) / 4 = 8 ms.
  expect(probes(1)[0]).toBeCloseTo(17_000 + 4 * 8_000, 0);
});

test('does not take the time of a packet that was sent again for a round trip (Karn)', () => {
  const { hand, exchange, probes, post, ack, next } = setUp();
  for (let i = 0; i < 20; i++) exchange(20);
  post();
  hand.out();
  const psn = next();
  hand.run(100_000); // Probes go out meanwhile.
  ack(psn);
  expect(probes(1)[0]).toBeCloseTo(8_000, 0);
});

test('begins anew with 8 ms after an answer', () => {
  const { exchange, probes, ack, next } = setUp();
  for (let i = 0; i < 20; i++) exchange(20);
  expect(probes(3)).toHaveLength(3);
  ack(next());
  expect(probes(1)[0]).toBeCloseTo(8_000, 0);
});

test('takes no retry, and the ACK timer runs on', () => {
  const { hand, side, exchange, post } = setUp();
  exchange(20);
  post();
  hand.out();
  hand.run(2_147_000); // 2 · 4.096 µs · 2^18 is 2147 ms.
  const { timeouts, retries, probes } = side.adapter.counters();
  expect({ timeouts, retries }).toEqual({ timeouts: 0, retries: 0 });
  expect(probes).toBeGreaterThan(5);
  hand.run(1_000);
  expect(side.adapter.counters().timeouts).toBe(1);
});

// §9.7.6.1.3: a timer of at most four times 4.096 µs · 2^timeout. Once: each probe started it anew, and it fired after 6,235 ms.
test.each(['RDMA_READ', 'ATOMIC_FETCH_AND_ADD'] as const)(
  'of a %s sends the request again, and the ACK timer runs on',
  (opcode) => {
    const { hand, side, exchange } = setUp();
    exchange(20);
    const mr = side.register(new ArrayBuffer(8));
    side.post({ opcode, sge: [{ mr, length: 8 }], remote: { addr: 0n, rkey: 0 } });
    expect(hand.run(2_147_000).length).toBeGreaterThan(6);
    expect(side.adapter.counters().timeouts).toBe(0);
    hand.run(1_000);
    expect(side.adapter.counters()).toMatchObject({ timeouts: 1, retries: 1 });
  },
);

test('none without a round trip to go by, and none where nothing is in flight', () => {
  const { hand, side, post } = setUp();
  post();
  hand.out();
  hand.run(1_000_000);
  expect(side.adapter.counters().probes).toBe(0);
  const other = setUp();
  other.exchange(20);
  expect(other.hand.run(1_000_000)).toEqual([]);
});

test('answered with its own packet alone, it shows that all behind was lost: that is sent again at once', () => {
  const { hand, side, exchange, post, ack, next } = setUp();
  exchange(20);
  for (let i = 0; i < 4; i++) post();
  expect(hand.out()).toHaveLength(4);
  const first = next();
  expect(hand.run(8_100).map((packet) => inShort(packet)[1])).toEqual([first]);
  ack(first);
  expect(hand.out().map((packet) => inShort(packet)[1])).toEqual([first + 1, first + 2, first + 3]);
  expect(side.adapter.counters()).toMatchObject({ probes: 1, retries: 0, timeouts: 0 });
});

test('answered with more than its own packet, it shows nothing: nothing is sent again', () => {
  const { hand, exchange, post, ack, next } = setUp();
  exchange(20);
  for (let i = 0; i < 4; i++) post();
  hand.out();
  const first = next();
  expect(hand.run(8_100)).toHaveLength(1);
  ack(first + 2);
  expect(hand.out()).toEqual([]);
});
