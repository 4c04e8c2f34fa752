/** `rate_limit` (ibv_modify_qp(3)): kilobits a second, over whole IP packets. */
import { expect, test } from 'vitest';
import { RateLimit } from './rate-limit.ts';

/** With an IPv4 header, UDP's and the ICRC, 1000 bytes: a millisecond at 8 Mbit/s. */
const BYTES = 1000 - 20 - 8 - 4;
const MILLISECOND = 1000;

function setUp(rate = 8_000) {
  const pacer = new RateLimit();
  pacer.setRate(rate);
  /** Packets that may leave now. */
  const burst = (now: number) => {
    let count = 0;
    for (; pacer.wait(now) === 0; count++) pacer.charge(BYTES, 20);
    return count;
  };
  return { pacer, burst };
}

test('0 is no limit', () => {
  expect(new RateLimit().limited).toBe(false);
  const { pacer } = setUp();
  expect(pacer.limited).toBe(true);
  pacer.setRate(0);
  expect(pacer.limited).toBe(false);
});

test('a packet leaves when those before it have taken their time', () => {
  const { pacer, burst } = setUp();
  expect(burst(0)).toBe(1);
  expect(pacer.wait(0)).toBe(MILLISECOND);
  expect(pacer.wait(400)).toBe(600);
  expect(burst(999)).toBe(0);
  expect(burst(1000)).toBe(1);
  expect(pacer.wait(1000)).toBe(MILLISECOND);
});

test('the IP header counts: an IPv6 packet of the same content takes longer', () => {
  const { pacer } = setUp();
  pacer.charge(BYTES, 40);
  expect(pacer.wait(0)).toBe(1020);
});

test('after a pause two milliseconds are caught up, no more', () => {
  const { burst } = setUp();
  expect(burst(1_000_000)).toBe(3);
  expect(burst(1_001_500)).toBe(1);
});

test('another rate ends the wait under the old one; the same rate does not', () => {
  const { pacer, burst } = setUp();
  burst(0);
  pacer.setRate(8_000);
  expect(pacer.wait(0)).toBe(MILLISECOND);
  pacer.setRate(16_000);
  expect(pacer.wait(0)).toBe(0);
  pacer.charge(BYTES, 20);
  expect(pacer.wait(0)).toBe(MILLISECOND / 2);
});

test('AckReqs are about a millisecond apart, at least each packet and at most so many', () => {
  const { pacer } = setUp(80_000);
  expect(pacer.ackInterval(1000, 100)).toBe(10);
  expect(pacer.ackInterval(1024, 100)).toBe(9);
  expect(pacer.ackInterval(1000, 8)).toBe(8);
  pacer.setRate(1_000);
  expect(pacer.ackInterval(4096, 100)).toBe(1);
});
