/** No rule without a test: what docs/rules.md names is there. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const read = (path: string) => readFileSync(join(root, path), 'utf8');
const files = (folder: string) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => `${folder}/${name}`);

/** Rows of the tables: rule, section, the model's clauses, the engine's tests. */
const rows = read('docs/rules.md')
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| Rule'))
  .map((line) => line.slice(2, -2).split(' | '));

const tests = [
  ...files('test').filter((path) => /^test\/(?!interop)[^/]+\/[^/]+\.test\.ts$/.test(path)),
  ...['src', 'scenarios'].flatMap((folder) =>
    files(`packages/transport/${folder}`).filter((path) => path.endsWith('.test.ts')),
  ),
];
/** Titles of tests and groups, and names of whole files: test/sim/random.test.ts is random and sim-random. */
const named = new Set([
  ...tests.flatMap((path) => {
    const [, room, name] = /([^/]+)\/([^/]+)\.test\.ts$/.exec(path)!;
    return [name, `${room}-${name}`];
  }),
  ...tests.flatMap((path) =>
    [...read(path).matchAll(/\b(?:test|describe)(?:\.each\([\s\S]*?\])?\)?\(\s*(['`])(.+?)\1/g)].map(
      (match) => match[2].replace(/: .*/, ''),
    ),
  ),
]);
const model = files('packages/sim/src/model').map(read).join('\n');

test('the tables are read', () => {
  expect(rows.length).toBeGreaterThan(50);
  expect(rows.every((cells) => cells.length === 4)).toBe(true);
});

test.each(rows)('%s', (_rule, section, clauses, tests) => {
  // A section, or an annex.
  expect(section).toMatch(/^(§\d+(\.\d+)+|A\d+)/);
  for (const [, clause] of clauses.matchAll(/`(\w+)`/g)) {
    expect(model, clause).toMatch(
      new RegExp(`\\b(function|class|const) ${clause}\\b|^ +(get )?#?${clause}\\(`, 'm'),
    );
  }
  const names = tests.split(',').map((name) => name.replace(/\(.*\)/, '').trim());
  for (const name of names) {
    const file = name.replace(/^scenarios at .*/, 'sim-scenarios');
    expect([...named], name).toContain(file);
  }
});
