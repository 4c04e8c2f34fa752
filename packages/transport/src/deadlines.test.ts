import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Deadlines } from './deadlines.ts';

const STOPPED = Number.POSITIVE_INFINITY;

test('runs each waiter at its time, none early, none forgotten, whatever is set, moved and stopped', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(20), fc.integer({ min: 0, max: 1000 })), { maxLength: 200 }),
      (moves) => {
        const clock = new Float64Array(1);
        const deadlines = new Deadlines(clock);
        const waiters = Array.from({ length: 21 }, () => {
          const timers = new Float64Array(2).fill(STOPPED);
          const timersDue = () => {
            expect(Math.min(...timers)).toBeLessThanOrEqual(clock[0]);
            timers.fill(STOPPED);
          };
          return { timers, id: deadlines.enroll({ timersDue }, timers) };
        });
        for (const [i, step] of moves) {
          const { timers, id } = waiters[i];
          timers[step & 1] = step % 7 === 0 ? STOPPED : clock[0] + step;
          if (timers[step & 1] !== STOPPED) deadlines.armed(id, step & 1);
          clock[0] += step % 50;
          const earliest = Math.min(...waiters.map((w) => Math.min(...w.timers)));
          expect(deadlines.next[0]).toBeLessThanOrEqual(earliest);
          expect(deadlines.check()).toBeUndefined();
          // A time that a timer was once set to, and has left, is none.
          expect(deadlines.findDue()).toBe(earliest <= clock[0]);
          expect(deadlines.check()).toBeUndefined();
          expect(deadlines.next[0]).toBeLessThanOrEqual(earliest);
          deadlines.run(100);
          expect(waiters.filter((w) => Math.min(...w.timers) <= clock[0])).toEqual([]);
          expect(deadlines.check()).toBeUndefined();
        }
      },
    ),
  );
});

test('runs no more waiters a call than allowed, and the rest in the next', () => {
  const deadlines = new Deadlines(new Float64Array([1000]));
  let ran = 0;
  for (let i = 0; i < 100; i++) {
    const timers = new Float64Array(1).fill(STOPPED);
    const id = deadlines.enroll({ timersDue: () => ran++ && timers.fill(STOPPED) && undefined }, timers);
    timers[0] = i;
    deadlines.armed(id, 0);
  }
  deadlines.run(60);
  expect(ran).toBeLessThanOrEqual(60);
  expect(deadlines.next[0]).toBeLessThanOrEqual(1000);
  for (let i = 0; i < 10; i++) deadlines.run(60);
  expect(ran).toBeGreaterThanOrEqual(100);
});

test('gives the number of a waiter that left to another, without its timers', () => {
  const deadlines = new Deadlines(new Float64Array([10]));
  const old = new Float64Array(1).fill(5);
  const id = deadlines.enroll({ timersDue: () => expect.fail('it left') }, old);
  deadlines.armed(id, 0);
  deadlines.leave(id);
  expect(deadlines.next[0]).toBe(STOPPED);
  expect(deadlines.enroll({ timersDue: () => {} }, new Float64Array(1).fill(STOPPED))).toBe(id);
  deadlines.run(10);
  expect(deadlines.check()).toBeUndefined();
});

test('a waiter may leave when its timer fires, and another take its number', () => {
  const clock = new Float64Array([5]);
  const deadlines = new Deadlines(clock);
  const ran: string[] = [];
  const timers = new Float64Array(1).fill(5);
  const id = deadlines.enroll(
    {
      timersDue: () => {
        ran.push('first');
        deadlines.leave(id);
      },
    },
    timers,
  );
  deadlines.armed(id, 0);
  deadlines.run(10);
  expect(deadlines.next[0]).toBe(STOPPED);
  const other = new Float64Array(1).fill(7);
  deadlines.enroll({ timersDue: () => ran.push('second') && other.fill(STOPPED) && undefined }, other);
  deadlines.armed(id, 0);
  clock[0] = 9;
  deadlines.run(10);
  expect(ran).toEqual(['first', 'second']);
  expect(deadlines.check()).toBeUndefined();
});

test('nothing is to be waited for once a timer was stopped, or all of a waiter', () => {
  const deadlines = new Deadlines(new Float64Array([10]));
  const all = [3, 4].map((at) => {
    const timers = new Float64Array(2).fill(STOPPED);
    timers[1] = at;
    const id = deadlines.enroll({ timersDue: () => expect.fail('it was stopped') }, timers);
    deadlines.armed(id, 1);
    return { id, timers };
  });
  all[0].timers.fill(STOPPED);
  all[1].timers.fill(STOPPED);
  deadlines.disarm(all[1].id);
  deadlines.disarm(all[1].id);
  deadlines.run(10);
  expect(deadlines.next[0]).toBe(STOPPED);
});

test('the check sees a timer that nothing waits for', () => {
  const deadlines = new Deadlines(new Float64Array(1));
  const timers = new Float64Array(1).fill(STOPPED);
  const id = deadlines.enroll({ timersDue: () => {} }, timers);
  expect(deadlines.check()).toBeUndefined();
  timers[0] = 5;
  expect(deadlines.check()).toBe('the timer of waiter 0 is lost');
  deadlines.armed(id, 0);
  expect(deadlines.check()).toBeUndefined();
  timers[0] = 4;
  expect(deadlines.check()).toBe('the timer of waiter 0 is lost');
  // One that moved later, and one that was stopped, are found when they come up.
  timers[0] = 6;
  expect(deadlines.check()).toBeUndefined();
  timers[0] = STOPPED;
  expect(deadlines.check()).toBeUndefined();
  deadlines.leave(id);
  timers[0] = 4;
  expect(deadlines.check()).toBeUndefined();
});
