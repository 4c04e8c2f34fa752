/** Pages that are written from the rules and the known lists of the conformance tester (`npm run docs:conform`). */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { LISTS, PASSIVE_RULES, RULES, type Rule } from '@node-roce/conform';
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

test('docs/conform.md has the numbers of rules of each way to the device', () => {
  const isOfManager = ({ needs }: Rule) => needs.includes('listener');
  const ofAgent = RULES.filter((rule) => !isOfManager(rule));
  const usual = ofAgent.filter(({ hostile, slow }) => !hostile && !slow);
  const text = readFileSync(root('docs/conform.md'), 'utf8').replaceAll(/\s+/g, ' ');
  for (const sentence of [
    `It tests ${RULES.length} rules of the transport`,
    `and ${PASSIVE_RULES.length} rules about packets`,
    `This tests the ${usual.filter(({ first }) => first).length} basic rules`,
    `This tests ${usual.length} rules, `,
    `add ${ofAgent.length - usual.length} rules; \`--via cm\` tests the other ${RULES.filter(isOfManager).length}.`,
  ])
    expect(text).toContain(sentence);
});
