/** The tester is tested: each way to break the model is seen by the rules that are there for it. */
import { CHECKS } from '@node-roce/sim';
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

/** Checks of the model's responder that no mutant leaves out, with the reason. */
const CHECKS_KEPT = {
  checkResources: 'without it the model throws; mutants answer in its place (RNR-01, RNR-03)',
  checkRemoteAccess: 'without it the model throws; mutants open the region in its place (KEY-01 to KEY-08)',
};

test('each check of the model is left out by a mutant, or has a reason to stay', () => {
  const left = new Set(Object.values(MUTANTS).map(({ without }) => without));
  expect(CHECKS.map(({ name }) => name).filter((name) => !left.has(name))).toEqual(Object.keys(CHECKS_KEPT));
});

test('test/evidence/conform-mutants.md is current (-u writes it)', async () => {
  const namesOf = (id: string) => ROWS.filter((row) => row.id === id).map(({ name }) => name);
  const rows = RULES.map(({ id, title }) => {
    const names = namesOf(id).join('; ') || `none: ${WITHOUT_MUTANT[id]}`;
    return `| ${id} | ${title} | ${names} |`.replaceAll(/([<>])/g, '\\$1');
  });
  const page = `# Mutants of roce conform

<!-- Written by packages/conform/src/mutants.test.ts: \`npx vitest run packages/conform/src/mutants.test.ts -u\`. -->

The suite breaks the reference model of [packages/sim](../../packages/sim), or its connection manager, in ${Object.keys(MUTANTS).length} ways, one at a time and in virtual
time. Each way has to be seen by the rules in whose row it stands; a rule without one has a reason. So the [tester](../../docs/conform.md) is tested.

| rule | requirement | ways to break it that the rule sees |
| --- | --- | --- |
${rows.join('\n')}
`;
  await expect(page).toMatchFileSnapshot('../../../test/evidence/conform-mutants.md');
});
