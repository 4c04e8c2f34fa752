/** The sample that CI takes of the large interop matrices. */
import { describe, expect, test } from 'vitest';
import { pairwise } from '../interop/harness/pairwise.ts';

const cases = [4, 6].flatMap((version) =>
  ['server', 'client'].flatMap((role) =>
    [1024, 4096].flatMap((mtu) =>
      [1, 4097, 20_001, 1 << 20].flatMap((size) =>
        [false, true].map((events) => ({ version, role, mtu, size, events })),
      ),
    ),
  ),
);
const pairs = (list: readonly object[]) => {
  const found = new Set<string>();
  for (const entries of list.map(Object.entries)) {
    for (const a of entries) for (const b of entries) found.add(`${a} ${b}`);
  }
  return found;
};
const SEEDS = Array.from({ length: 100 }, (_, i) => `commit ${i}`);

describe('a pairwise sample', () => {
  test('has every two values of two properties that the whole has, in a fraction of the cases', () => {
    for (const seed of SEEDS) {
      const sample = pairwise(cases, seed);
      expect(pairs(sample)).toEqual(pairs(cases));
      expect(sample.length).toBeLessThanOrEqual(14);
    }
  });

  test('asks for no pair that the whole does not have', () => {
    const constrained = cases.filter(({ mtu, size }) => mtu === 1024 || size > 1);
    expect(pairs(pairwise(constrained, 'a'))).toEqual(pairs(constrained));
  });

  test('is decided by its seed, and every case comes up under some seed', () => {
    expect(pairwise(cases, 'a')).toEqual(pairwise(cases, 'a'));
    expect(new Set(SEEDS.flatMap((seed) => pairwise(cases, seed))).size).toBe(cases.length);
  });

  test('keeps the order, and is empty only of nothing', () => {
    const sample = pairwise(cases, 'b');
    expect(sample).toEqual(cases.filter((case_) => sample.includes(case_)));
    expect(pairwise([], 'b')).toEqual([]);
    expect(pairwise([{ only: 1 }], 'b')).toEqual([{ only: 1 }]);
  });
});
