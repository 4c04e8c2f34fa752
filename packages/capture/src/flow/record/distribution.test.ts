import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DistributionBuilder } from './distribution.ts';

const of = (values: readonly number[]): DistributionBuilder => {
  const builder = new DistributionBuilder();
  for (const value of values) builder.add(value);
  return builder;
};

test('nothing, and a few: exact', () => {
  expect(of([]).result()).toBeUndefined();
  expect(of([5, 1, 9, 3]).result()).toEqual({
    count: 4,
    min: 1,
    max: 9,
    mean: 4.5,
    p50: 3,
    p90: 9,
    p99: 9,
    p999: 9,
  });
  expect(of([-5]).result()).toMatchObject({ min: 0, max: 0 });
});

test('many, also in two parts: extremes and mean exact, percentiles within a sixteenth', () => {
  const values = fc.array(fc.double({ min: 0, max: 1e12, noNaN: true }), { minLength: 1, maxLength: 900 });
  fc.assert(
    fc.property(values, values, (one, two) => {
      const all = [...one, ...two].sort((a, b) => a - b);
      const found = DistributionBuilder.merged(of(one), of(two)).result()!;
      expect(found.count).toBe(all.length);
      expect([found.min, found.max]).toEqual([all[0], all.at(-1)]);
      expect(found.mean).toBeCloseTo(all.reduce((a, b) => a + b, 0) / all.length, -6);
      for (const [share, value] of [
        [0.5, found.p50],
        [0.99, found.p99],
      ] as const) {
        const exact = all[Math.ceil(share * all.length) - 1];
        expect(Math.abs(value - exact)).toBeLessThanOrEqual(exact / 16 + 1);
      }
    }),
  );
});
