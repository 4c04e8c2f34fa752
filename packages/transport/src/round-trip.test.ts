/** The estimate of the round trip, as RFC 6298 has it for TCP, and the delay of the tail-loss probe that follows from it. */
import { psnAdd } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { RoundTrip } from './requester/round-trip.ts';

const FIRST = 0xff_ffff;
const NEXT = 0;
/** A probe never comes earlier, µs: about what a busy thread takes to answer. */
const LEAST = 8_000;

function setUp() {
  const clock = { now: 5_000 };
  const roundTrip = new RoundTrip(clock);
  /** One packet is sent, and acknowledged after so many µs. */
  const sample = (microseconds: number) => {
    roundTrip.begin(FIRST);
    clock.now += microseconds;
    roundTrip.acknowledged(NEXT);
  };
  return { clock, roundTrip, sample };
}

test('there is no probe before the first answer', () => {
  const { clock, roundTrip } = setUp();
  expect(roundTrip.probeDelay).toBe(-1);
  roundTrip.begin(FIRST);
  clock.now += 1000;
  expect(roundTrip.probeDelay).toBe(-1);
});

test('the first sample R gives R + 4 · R/2 (§2.2)', () => {
  const { roundTrip, sample } = setUp();
  sample(10_000);
  expect(roundTrip.probeDelay).toBe(30_000);
});

test('further samples are weighted by 1/8 and 1/4 (§2.3)', () => {
  const { roundTrip, sample } = setUp();
  sample(10_000);
  sample(18_000);
  // 11,000 + 4 · 5,750; then 10,625 + 4 · 5,062.5.
  expect(roundTrip.probeDelay).toBe(34_000);
  sample(8_000);
  expect(roundTrip.probeDelay).toBe(30_875);
});

test('an answer at once is a sample, too', () => {
  const { roundTrip, sample } = setUp();
  sample(0);
  expect(roundTrip.probeDelay).toBe(LEAST);
});

test.each([0, 0x10, 0xff_ffff])('one packet is timed at a time: the first one, at PSN %i', (psn) => {
  const { clock, roundTrip } = setUp();
  roundTrip.begin(psn);
  clock.now += 6_000;
  roundTrip.begin(psnAdd(psn, 1));
  clock.now += 4_000;
  roundTrip.acknowledged(psnAdd(psn, 2));
  expect(roundTrip.probeDelay).toBe(30_000);
  // Nothing is timed now: another acknowledgement changes nothing.
  clock.now += 90_000;
  roundTrip.acknowledged(psnAdd(psn, 3));
  expect(roundTrip.probeDelay).toBe(30_000);
});

test('what is acknowledged before the timed packet says nothing of it', () => {
  const { clock, roundTrip } = setUp();
  roundTrip.begin(0x10);
  clock.now += 4_000;
  roundTrip.acknowledged(0x10);
  expect(roundTrip.probeDelay).toBe(-1);
  clock.now += 6_000;
  roundTrip.acknowledged(0x11);
  expect(roundTrip.probeDelay).toBe(30_000);
});

test('a packet that may have been sent twice is no sample (§3, Karn)', () => {
  const { clock, roundTrip } = setUp();
  roundTrip.begin(0x10);
  roundTrip.cancel();
  clock.now += 6_000;
  roundTrip.acknowledged(0x11);
  expect(roundTrip.probeDelay).toBe(-1);
  // PSN 0 is a packet like others.
  roundTrip.begin(0);
  clock.now += 10_000;
  roundTrip.acknowledged(1);
  expect(roundTrip.probeDelay).toBe(30_000);
});

test('each probe without an answer doubles the delay (§5.5), until something is acknowledged', () => {
  const { roundTrip, sample } = setUp();
  sample(10_000);
  const delays = Array.from({ length: 4 }, () => {
    const { probeDelay } = roundTrip;
    roundTrip.backOff();
    return probeDelay;
  });
  expect(delays).toEqual([30_000, 60_000, 120_000, 240_000]);
  roundTrip.acknowledged(NEXT);
  expect(roundTrip.probeDelay).toBe(30_000);
});

test('the delay stays a whole number below 2^30 µs, however often it doubles', () => {
  const { roundTrip, sample } = setUp();
  sample(10_001);
  for (let i = 0; i < 2000; i++) {
    roundTrip.backOff();
    expect(roundTrip.probeDelay).toBeGreaterThan(30_000);
    expect(roundTrip.probeDelay).toBeLessThan(2 ** 30);
    expect(Number.isInteger(roundTrip.probeDelay)).toBe(true);
  }
});

test('RESET forgets all of it', () => {
  const { clock, roundTrip, sample } = setUp();
  sample(10_000);
  roundTrip.begin(0x10);
  roundTrip.backOff();
  roundTrip.reset();
  expect(roundTrip.probeDelay).toBe(-1);
  clock.now += 1_000;
  roundTrip.acknowledged(0x11);
  expect(roundTrip.probeDelay).toBe(-1);
  sample(10_000);
  expect(roundTrip.probeDelay).toBe(30_000);
});
