/** Pages that are written from the rules and the known lists of the conformance tester (`npm run docs:conform`). */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { LISTS } from '@node-roce/conform';
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
