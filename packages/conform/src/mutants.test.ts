/** The tester is tested: each way to break the model is seen by the rules that are there for it. */
import { expect, test } from 'vitest';
import { BrokenDevice, withoutCheck } from '../testing/broken-device.ts';
import { MUTANTS, WITHOUT_MUTANT } from '../testing/mutants/all.ts';
import { RULES, rules } from './rules/all.ts';
import { play } from './run.ts';
import { adapterBench, MODEL_OPTIONS } from './virtual/bench.ts';
import { acceptFrame } from './virtual/line.ts';
import { SERVICE_ID } from './virtual/listening-model.ts';

const ROWS = Object.entries(MUTANTS).flatMap(([name, mutant]) =>
  mutant.seenBy.map((id) => ({ name, mutant, id })),
);

test.each(ROWS)('$id sees: $name', async ({ mutant, id }) => {
  const [rule] = rules(id);
  const bench = adapterBench((options) => new BrokenDevice({ ...options, ...MODEL_OPTIONS }, mutant), {
    accept: mutant.accept ?? acceptFrame,
    serviceId: SERVICE_ID,
  });
  const { verdict, why, ladder } = await withoutCheck(mutant.without, () => play(rule, bench));
  expect(verdict, `${why.join('\n')}\n${ladder}`).toBe('deviation');
});

test('every rule has a mutant, or a reason to have none', () => {
  const seen = new Set(ROWS.map(({ id }) => id));
  const without = RULES.map(({ id }) => id).filter((id) => !seen.has(id));
  expect(without).toEqual(Object.keys(WITHOUT_MUTANT));
});
