/** When the ACK timer runs (IBTA vol 1 §9.7.6.1.3), and when that of the tail loss probe. */
import { expect, test } from 'vitest';
import { Deadlines } from '../deadlines.ts';
import type { Owner } from '../qp/owner.ts';
import { AckTimer, RETRY_TIMER_FACTOR } from './ack-timer.ts';
import { LossBursts } from './recovery/loss-bursts.ts';
import { Probe } from './recovery/probe.ts';
import { RoundTrip } from './round-trip.ts';
import { TIMERS, Timer, Timers } from './timers.ts';

const NEVER = Number.POSITIVE_INFINITY;
const RETRY_14 = RETRY_TIMER_FACTOR * 4.096 * 2 ** 14;

/** @param timeout the attribute; @param sample a round trip that was measured, µs */
function setUp(timeout = 14, sample?: number) {
  const clock = new Float64Array([1000]);
  const times = new Float64Array(TIMERS);
  const timers = new Timers(clock, new Deadlines(clock), { timersDue: () => {} }, { array: times, at: 0 });
  const losses = new LossBursts();
  const roundTrip = new RoundTrip(clock, losses);
  if (sample !== undefined) {
    roundTrip.begin(0);
    clock[0] += sample;
    roundTrip.acknowledged(1);
  }
  const probe = new Probe(roundTrip, losses);
  probe.enable(true);
  const probes = {
    idle: false,
    probes: true,
    get probeDelay() {
      return probe.delay;
    },
  };
  const ackTimer = new AckTimer({ attributes: { timeout } } as Owner, timers, roundTrip, probes);
  const remaining = (timer: number) => times[timer] - clock[0];
  const left = () => [remaining(Timer.RETRY), remaining(Timer.PROBE)];
  return { clock, timers, probe, ackTimer, remaining, left };
}

test.each([1, 8, 14, 19, 31])(
  'timeout %i: 4.096 µs · 2^timeout at least, and 4 times that at most',
  (timeout) => {
    const { ackTimer, left } = setUp(timeout);
    ackTimer.restart(true);
    expect(left()[0] / (4.096 * 2 ** timeout)).toBeCloseTo(RETRY_TIMER_FACTOR, 9);
    expect(RETRY_TIMER_FACTOR).toBeGreaterThanOrEqual(1);
    expect(RETRY_TIMER_FACTOR).toBeLessThanOrEqual(4);
  },
);

test.each([
  ['timeout 0', 0, true],
  ['nothing in flight', 14, false],
])('%s: no timer starts, and one that runs is stopped', (_, timeout, isInFlight) => {
  const { timers, ackTimer, left } = setUp(timeout, 100);
  timers.arm(Timer.RETRY, 5);
  timers.arm(Timer.PROBE, 5);
  ackTimer.restart(isInFlight);
  expect(left()).toEqual([NEVER, NEVER]);
});

test('a restart forgets the time that has passed, of both', () => {
  const { clock, ackTimer, left } = setUp(14, 10_000);
  ackTimer.restart(true);
  clock[0] += 15_000;
  ackTimer.restart(true);
  expect(left()).toEqual([RETRY_14, 20_000]);
});

test('a probe comes first where it is quicker than the ACK timer, else not', () => {
  const quick = setUp(14, 10_000);
  quick.ackTimer.restart(true);
  expect(quick.left()).toEqual([RETRY_14, 20_000]);
  const slow = setUp(11, 17_000);
  slow.timers.arm(Timer.PROBE, 5);
  slow.ackTimer.restart(true);
  expect(slow.left()[1]).toBe(NEVER);
  const unknown = setUp(14);
  unknown.ackTimer.restart(true);
  expect(unknown.left()).toEqual([RETRY_14, NEVER]);
});

test('the timer runs as long as the rule allows where the round trip is a large part of it', () => {
  for (const [sample, factor] of [
    [RETRY_14 / 4, 1],
    [RETRY_14 / 4 + 1, 2],
  ]) {
    const { ackTimer, left } = setUp(14, sample);
    ackTimer.restart(true);
    expect(left()[0]).toBe(factor * RETRY_14);
  }
});

test('no probe where none is allowed', () => {
  const { timers, probe, ackTimer, left } = setUp(14, 100);
  ackTimer.restart(true);
  expect(left()).toEqual([RETRY_14, 200]);
  probe.timedOut(1000);
  timers.arm(Timer.PROBE, 5);
  ackTimer.restart(true);
  expect(left()).toEqual([RETRY_14, NEVER]);
});

test('packets that the link took start the timers that do not run, and no others', () => {
  const { clock, timers, ackTimer, left } = setUp(14, 10_000);
  ackTimer.taken(false);
  expect(left()).toEqual([NEVER, NEVER]);
  ackTimer.taken(true);
  expect(left()).toEqual([RETRY_14, 20_000]);
  clock[0] += 1000;
  ackTimer.taken(true);
  expect(left()).toEqual([RETRY_14 - 1000, 19_000]);
  timers.stop(Timer.PROBE);
  ackTimer.taken(true);
  expect(left()).toEqual([RETRY_14 - 1000, 20_000]);
});

test('neither runs during an RNR wait', () => {
  const { timers, ackTimer, left } = setUp(14, 100);
  timers.arm(Timer.RNR, 5);
  ackTimer.taken(true);
  ackTimer.reconfigure(true);
  expect(left()).toEqual([NEVER, NEVER]);
});

test('another timeout counts from now for the packets in flight', () => {
  const { clock, ackTimer, left } = setUp(14);
  ackTimer.reconfigure(false);
  expect(left()[0]).toBe(NEVER);
  ackTimer.restart(true);
  clock[0] += 20_000;
  ackTimer.reconfigure(true);
  expect(left()[0]).toBe(RETRY_14);
});

test('both are stopped together', () => {
  const { timers, ackTimer, remaining, left } = setUp(14, 100);
  ackTimer.restart(true);
  timers.arm(Timer.PACE, 7);
  ackTimer.stop();
  expect(left()).toEqual([NEVER, NEVER]);
  expect(remaining(Timer.PACE)).toBe(7);
});
