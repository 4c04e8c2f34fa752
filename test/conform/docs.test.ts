/** Pages that are written from the rules and the known lists of the conformance tester (`npm run docs:conform`). */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { isServedBy, LISTS, lacksOf, PASSIVE_RULES, RULES } from '@node-roce/conform';
import { expect, test } from 'vitest';

const root = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));

test('conform-results.md and the table of docs/quirks.md are current', async () => {
  const check = [root('scripts/conform-docs.mjs'), '--check'];
  const { stderr } = await promisify(execFile)(process.execPath, check);
  expect(stderr).toBe('');
});

const NAMED = Object.values(LISTS).flatMap(({ device, deviations }) =>
  Object.entries(deviations).map(([id, { because }]) => ({ device, id, because })),
);

test.each(NAMED.filter(({ because }) => because.startsWith('docs/')))(
  '$device, $id: the page has what the reason names',
  ({ because }) => {
    const [, page, names] = /^(docs\/[\w-]+\.md)(?:, ([\w ]+))?/.exec(because)!;
    const text = readFileSync(root(page), 'utf8');
    for (const name of names?.split(' and ') ?? []) expect(text).toContain(`**${name}**`);
  },
);

const NUMBERS: Readonly<Record<number, string>> = { 4: 'four', 10: 'ten', 11: 'eleven', 12: 'twelve' };

test('docs/conform.md has the numbers of rules of each way to the device', () => {
  const ofAgent = RULES.filter((rule) => isServedBy(rule, 'agent'));
  const ofManager = RULES.filter((rule) => isServedBy(rule, 'cm'));
  const usual = ofAgent.filter(({ hostile, slow }) => !hostile && !slow);
  const ofPerftest = RULES.filter((rule) => isServedBy(rule, 'perftest'));
  const text = readFileSync(root('docs/conform.md'), 'utf8').replaceAll(/\s+/g, ' ');
  for (const sentence of [
    `This is enough for ${ofPerftest.length} of the rules (${NUMBERS[ofPerftest.filter(({ hostile }) => hostile).length]} of them with`,
    `It tests ${RULES.length} rules of the transport`,
    `and ${PASSIVE_RULES.length} rules about packets`,
    `This tests the ${usual.filter(({ first }) => first).length} basic rules`,
    `This tests ${usual.length} rules, `,
    `The remaining ${RULES.length - ofAgent.length - ofManager.length} rules`,
    `add ${ofAgent.length - usual.length} rules; \`--via cm\` tests another ${ofManager.length}.`,
  ])
    expect(text).toContain(sentence);
});

test('without an agent there are 60 rules, and without a privilege nine of ten', () => {
  const withoutAgent = RULES.filter((rule) => isServedBy(rule, 'perftest') || isServedBy(rule, 'cm'));
  expect(withoutAgent.length).toBeGreaterThanOrEqual(60);
  const ways = ['agent', 'cm'] as const;
  const having = (link: 'packet' | 'udp') =>
    RULES.filter((rule) => ways.some((via) => lacksOf(rule, via, link).length === 0)).length;
  expect(having('udp') / RULES.length).toBeGreaterThanOrEqual(0.9);
  const text = readFileSync(root('docs/conform.md'), 'utf8').replaceAll(/\s+/g, ' ');
  expect(text).toContain(`tests all rules except ${NUMBERS[having('packet') - having('udp')]}`);
});

test('conform-list.md names each rule once, and none that there is as one that is not', () => {
  const text = readFileSync(root('test/evidence/conform-list.md'), 'utf8');
  const parts = new Map(
    text
      .split('\n## ')
      .slice(1)
      .map((part) => {
        const [title, ...lines] = part.split('\n');
        // Of a table, the first cell.
        return [
          title,
          lines.flatMap(
            (line) => line.replace(/^(\| [A-Z]+-\d+ ).*/, '$1').match(/\b[A-Z]{2,3}-\d\d\b/g) ?? [],
          ),
        ];
      }),
  );
  const kept = parts.get('In the tester, with the id of the list') ?? [];
  const added = parts.get('Not in the list') ?? [];
  expect([...kept, ...added].sort()).toEqual([...RULES, ...PASSIVE_RULES].map(({ id }) => id).sort());
  const all = [...parts.values()].flat();
  expect(new Set(all).size).toBe(all.length);
  expect(text).toContain(`a list of ${all.length - added.length} rules`);
  expect(text).toContain(`has ${kept.length} of them, and ${added.length} rules`);
});
