/** The rules, played against the reference model in virtual time. */
import { ModelEndpoint } from '@node-roce/sim';
import { expect, test } from 'vitest';
import { RULES, rules } from './rules/all.ts';
import { play, run } from './run.ts';
import { endpointBench, MODEL_OPTIONS, modelBench } from './virtual/bench.ts';

/** Verdicts other than pass, each with its reason. */
const OTHERS: Readonly<Record<string, string>> = {
  'KEY-09': 'not testable',
  'STA-06': 'not testable',
};

test.each(RULES)('$id $title', async (rule) => {
  const { verdict, why, ladder, used } = await play(rule, modelBench());
  expect(verdict, `${why.join('\n')}\n${ladder}`).toBe(OTHERS[rule.id] ?? 'pass');
  // A rule that names what it needs is refused before it is played, where a device has not all of it.
  if (verdict === 'pass') expect([...used].sort()).toEqual([...rule.needs].sort());
});

test('ids are in order of their areas and used once', () => {
  const ids = RULES.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) expect(id).toMatch(/^[A-Z]{2,3}-\d\d$/);
});

test('a rule gives the same packets each time', async () => {
  const [first, second] = await Promise.all([
    play(rules('PSN-05')[0], modelBench()),
    play(rules('PSN-05')[0], modelBench()),
  ]);
  expect(second.ladder).toBe(first.ladder);
});

test('an Endpoint has the rules of reliable connections, and is not blamed for the others', async () => {
  const bench = () =>
    endpointBench(({ gid, psn, arenaBytes, seed }) => {
      const options = { ...MODEL_OPTIONS, gid, psn, arenaBytes, qpn: 0x40 + (seed & 0xff) };
      return new ModelEndpoint(options);
    });
  const results = await run(
    RULES.filter(({ id }) => id !== 'FUZ-01'),
    bench,
  );
  const having = (wanted: string) =>
    results.filter(({ verdict }) => verdict === wanted).map(({ rule }) => rule.id);
  expect(having('deviation')).toEqual([]);
  expect(having('broken')).toEqual([]);
  expect(having('pass').length).toBeGreaterThan(120);
});
