/** The timers of a requester: armed, moved, stopped and taken when due. */
import { expect, test } from 'vitest';
import { Deadlines } from '../deadlines.ts';
import { Timer, Timers } from './timers.ts';

const NEVER = Number.POSITIVE_INFINITY;

function setUp() {
  const clock = new Float64Array([1000]);
  const deadlines = new Deadlines(clock);
  const fired: number[] = [];
  const timers: Timers = new Timers(clock, deadlines, {
    timersDue: () => {
      for (const timer of Object.values(Timer)) if (timers.takeDue(timer)) fired.push(timer);
    },
  });
  const goTo = (now: number) => {
    clock[0] = now;
    deadlines.run(10);
    return fired.splice(0);
  };
  return { clock, deadlines, timers, goTo };
}

test('no timer runs at first', () => {
  const { deadlines, timers, goTo } = setUp();
  for (const timer of Object.values(Timer)) {
    expect(timers.isRunning(timer)).toBe(false);
    expect(timers.isLaterThan(timer, 1e9)).toBe(true);
  }
  expect(deadlines.next[0]).toBe(NEVER);
  expect(goTo(1e9)).toEqual([]);
});

test('a timer fires at its time and not before, once', () => {
  const { deadlines, timers, goTo } = setUp();
  timers.arm(Timer.RETRY, 50);
  expect(timers.isRunning(Timer.RETRY)).toBe(true);
  expect(timers.isLaterThan(Timer.RETRY, 49)).toBe(true);
  expect(timers.isLaterThan(Timer.RETRY, 50)).toBe(false);
  expect(deadlines.next[0]).toBe(1050);
  expect(goTo(1049)).toEqual([]);
  expect(timers.isLaterThan(Timer.RETRY, 1)).toBe(false);
  expect(goTo(1050)).toEqual([Timer.RETRY]);
  expect(timers.isRunning(Timer.RETRY)).toBe(false);
  expect(goTo(9999)).toEqual([]);
});

test.each([20, 80])('a timer that is armed again, %i µs from then, forgets its time before', (delay) => {
  const { clock, timers, goTo } = setUp();
  timers.arm(Timer.PROBE, 50);
  clock[0] += 10;
  timers.arm(Timer.PROBE, delay);
  expect(goTo(1009 + delay)).toEqual([]);
  expect(goTo(1010 + delay)).toEqual([Timer.PROBE]);
});

test('a timer that runs keeps its time where it is armed unless it runs', () => {
  const { timers, goTo } = setUp();
  timers.armUnlessRunning(Timer.READ_BUDGET, 50);
  timers.armUnlessRunning(Timer.READ_BUDGET, 20);
  expect(goTo(1049)).toEqual([]);
  expect(goTo(1050)).toEqual([Timer.READ_BUDGET]);
});

test('a stopped timer does not fire, and the others do', () => {
  const { timers, goTo } = setUp();
  timers.arm(Timer.RETRY, 10);
  timers.arm(Timer.PACE, 10);
  timers.stop(Timer.RETRY);
  expect(timers.isRunning(Timer.RETRY)).toBe(false);
  expect(goTo(2000)).toEqual([Timer.PACE]);
});

test('once all are stopped, nothing is to be waited for', () => {
  const { deadlines, timers, goTo } = setUp();
  for (const timer of Object.values(Timer)) timers.arm(timer, 10 + timer);
  timers.stopAll();
  expect(deadlines.next[0]).toBe(NEVER);
  expect(goTo(2000)).toEqual([]);
});

test('a queue pair that is gone has no timer, and its number goes to another', () => {
  const { deadlines, timers, goTo } = setUp();
  timers.arm(Timer.RETRY, 10);
  timers.close();
  expect(deadlines.next[0]).toBe(NEVER);
  expect(goTo(2000)).toEqual([]);
  expect(deadlines.enroll({ timersDue: () => {} }, new Float64Array(1).fill(NEVER))).toBe(0);
});

test.each([Timer.RETRY, Timer.PROBE])(
  'timer %i during an RNR wait is a broken promise (§9.7.5.2.8)',
  (timer) => {
    const { timers } = setUp();
    timers.arm(timer, 10);
    expect(timers.check()).toBeUndefined();
    timers.arm(Timer.RNR, 10);
    expect(timers.check()).toBe('the ACK timer runs during an RNR wait');
    timers.stop(timer);
    expect(timers.check()).toBeUndefined();
  },
);
