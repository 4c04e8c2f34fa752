import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Deadlines } from './deadlines.ts';

const STOPPED = Number.POSITIVE_INFINITY;

test('runs each waiter at its time, none early, none forgotten, whatever is set, moved and stopped', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(20), fc.integer({ min: 0, max: 1000 })), { maxLength: 200 }),
      (moves) => {
        const deadlines = new Deadlines();
        let now = 0;
        const waiters = Array.from({ length: 21 }, () => {
          const timers = new Float64Array(2).fill(STOPPED);
          const timersDue = () => {
            expect(Math.min(...timers)).toBeLessThanOrEqual(now);
            timers.fill(STOPPED);
          };
          return { timers, id: deadlines.enroll({ timersDue }, timers) };
        });
        for (const [i, step] of moves) {
          const { timers, id } = waiters[i];
          timers[step & 1] = step % 7 === 0 ? STOPPED : now + step;
          if (timers[step & 1] !== STOPPED) deadlines.armed(id, timers[step & 1]);
          now += step % 50;
          const earliest = Math.min(...waiters.map((w) => Math.min(...w.timers)));
          expect(deadlines.next).toBeLessThanOrEqual(earliest);
          expect(deadlines.check()).toBeUndefined();
          deadlines.run(now, 100);
          expect(waiters.filter((w) => Math.min(...w.timers) <= now)).toEqual([]);
          expect(deadlines.check()).toBeUndefined();
        }
      },
    ),
  );
});

test('runs no more waiters a call than allowed, and the rest in the next', () => {
  const deadlines = new Deadlines();
  let ran = 0;
  for (let i = 0; i < 100; i++) {
    const timers = new Float64Array(1).fill(STOPPED);
    const id = deadlines.enroll({ timersDue: () => ran++ && timers.fill(STOPPED) && undefined }, timers);
    timers[0] = i;
    deadlines.armed(id, i);
  }
  deadlines.run(1000, 60);
  expect(ran).toBeLessThanOrEqual(60);
  expect(deadlines.next).toBeLessThanOrEqual(1000);
  for (let i = 0; i < 10; i++) deadlines.run(1000, 60);
  expect(ran).toBeGreaterThanOrEqual(100);
});

test('gives the number of a waiter that left to another, without its timers', () => {
  const deadlines = new Deadlines();
  const old = new Float64Array(1).fill(5);
  const id = deadlines.enroll({ timersDue: () => expect.fail('it left') }, old);
  deadlines.armed(id, 5);
  deadlines.leave(id);
  expect(deadlines.next).toBe(STOPPED);
  expect(deadlines.enroll({ timersDue: () => {} }, new Float64Array(1).fill(STOPPED))).toBe(id);
  deadlines.run(10, 10);
  expect(deadlines.check()).toBeUndefined();
});
