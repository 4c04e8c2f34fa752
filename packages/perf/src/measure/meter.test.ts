import { afterEach, expect, test, vi } from 'vitest';
import { planOf } from '../plan.ts';
import { Meter } from './meter.ts';

let now = 0;
vi.spyOn(performance, 'now').mockImplementation(() => now);
afterEach(() => {
  now = 0;
});

test('average and peak of a run', () => {
  const meter = new Meter(planOf({ verb: 'write', measure: 'bw', iters: 5, size: 1024, cqMod: 1 }), true);
  now = 1000;
  meter.begin();
  // One after the other, 2 ms each but for the last, 1 ms.
  for (const [i, took] of [2, 2, 2, 2, 1].entries()) {
    meter.posting(i);
    now += took;
    meter.done(i + 1, 1);
  }
  meter.finish();
  const { average, peak, messageRate, iterations } = meter.figures(1024, false);
  expect(iterations).toBe(5);
  expect(average).toBeCloseTo((5 * 1024) / 0.009 / 2 ** 20);
  expect(peak).toBeCloseTo(1024 / 0.001 / 2 ** 20);
  expect(messageRate).toBeCloseTo(5 / 0.009 / 1e6);
  expect(meter.figures(1024, true).average).toBeCloseTo((5 * 1024 * 8) / 0.009 / 1e9);
});

test('the average of a side that receives as well ends with its own last message', () => {
  const meter = new Meter(planOf({ verb: 'send', measure: 'bw', iters: 5, size: 1000, cqMod: 5 }), true);
  meter.begin();
  for (let i = 0; i < 5; i++) meter.posting(i);
  now = 10;
  meter.done(5, 5);
  now = 50;
  meter.finish();
  expect(meter.figures(1000, false).messageRate * 1e6).toBeCloseTo(500);
});

test('a duration counts what is done between its margins', () => {
  const meter = new Meter(planOf({ verb: 'write', measure: 'bw', duration: 4, margin: 1, size: 1024 }), true);
  now = 500;
  meter.begin();
  for (; now < 4500; now += 10) meter.done(0, 2);
  expect(meter.over).toBe(true);
  const { iterations, messageRate, peak } = meter.figures(1024, false);
  expect(iterations).toBe(400);
  expect(messageRate * 1e6).toBeCloseTo(200);
  expect(peak).toBe(0);
});

test('the peak is that of the best pair of any two messages', () => {
  const plan = planOf({ verb: 'write', measure: 'bw', iters: 200, size: 1000, cqMod: 1 });
  const meter = new Meter(plan, true);
  const posted: number[] = [];
  const completed: number[] = [];
  let seed = 7;
  const random = () => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    return seed / 2 ** 31;
  };
  for (let i = 0; i < 200; i++) {
    posted[i] = (posted[i - 1] ?? 0) + random();
    completed[i] = Math.max(completed[i - 1] ?? 0, posted[i]) + random() ** 2;
  }
  for (let i = 0; i < 200; i++) {
    now = posted[i];
    meter.posting(i);
    now = completed[i];
    // Every third message has no completion of its own.
    if (i % 3 !== 0) meter.done(i + 1, 1);
  }
  let least = Number.POSITIVE_INFINITY;
  for (let j = 0; j < 200; j++) {
    if (j % 3 === 0) continue;
    for (let i = 0; i <= j; i++) least = Math.min(least, (completed[j] - posted[i]) / (j - i + 1));
  }
  expect(meter.figures(1000, false).peak).toBeCloseTo(1000 / (least / 1000) / 2 ** 20);
});
