import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Deadlines } from './deadlines.ts';
import type { QueuePair } from './qp.ts';

type Waiter = Pick<QueuePair, 'deadline' | 'heapIndex' | 'heapDeadline'> & { deadline: number };

test('any mix of setting, moving and firing gives each waiter at its time, none early, none forgotten', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(20), fc.integer({ min: 0, max: 1000 })), { maxLength: 200 }),
      (moves) => {
        const deadlines = new Deadlines();
        const waiters: Waiter[] = Array.from({ length: 21 }, () => ({
          deadline: Number.POSITIVE_INFINITY,
          heapIndex: -1,
          heapDeadline: Number.POSITIVE_INFINITY,
        }));
        let now = 0;
        for (const [i, step] of moves) {
          const waiter = waiters[i];
          waiter.deadline = step % 7 === 0 ? Number.POSITIVE_INFINITY : now + step;
          deadlines.update(waiter as unknown as QueuePair);
          now += step % 50;
          const earliest = Math.min(...waiters.map((w) => w.deadline));
          expect(deadlines.next).toBeLessThanOrEqual(earliest);
          for (let due = deadlines.due(now); due; due = deadlines.due(now)) {
            const w = due as unknown as Waiter;
            expect(w.deadline).toBeLessThanOrEqual(now);
            w.deadline = Number.POSITIVE_INFINITY;
          }
          expect(waiters.filter((w) => w.deadline <= now)).toEqual([]);
        }
      },
    ),
  );
});
