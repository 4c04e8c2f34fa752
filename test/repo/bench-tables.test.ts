/** The tables of README.md and docs/performance.md that the bench writes (`npm run bench -- --write`). */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { rows } from '../../bench/rows.mjs';
// @ts-expect-error: plain JavaScript
import { PAGES, TABLES, tableRows, withTables, writeTables } from '../../bench/tables.mjs';

const root = join(import.meta.dirname, '../..');
const page = (path: string) => readFileSync(join(root, path), 'utf8');
const tablesOf = (text: string) =>
  [...text.matchAll(/<!-- table ([\w-]+)(?: of (\S+))? -->/g)].map(([, name, file]) => ({ name, file }));

test.each<[string, string]>(PAGES)(
  'the tables of %s are those of the results that they name',
  (path, toRoot) => {
    expect(tablesOf(page(path)).length).toBeGreaterThan(0);
    expect(withTables(page(path), toRoot)).toBe(page(path));
  },
);

test('each table is on a page, and README.md has the results of the page that it links', () => {
  const all = PAGES.flatMap(([path]: [string]) => tablesOf(page(path)));
  expect(all.map(({ name }: { name: string }) => name).sort()).toEqual(Object.keys(TABLES).sort());
  const fileOf = (name: string) => all.find((one: { name: string }) => one.name === name).file;
  expect(fileOf('readme')).toBe(fileOf('rates'));
  expect(fileOf('goals')).toBe(fileOf('rates'));
});

test('each row that a table needs is one of the bench', () => {
  const measured: string[] = rows({ only: tableRows() }).map(({ name }: { name: string }) => name);
  for (const { rows: needed } of Object.values<{ rows: string[] }>(TABLES))
    for (const name of needed) {
      expect(measured).toContain(name);
    }
  expect(measured.length).toBe(new Set(measured).size);
});

test('other results change the tables of which they have rows, and only those', () => {
  const other = 'bench/results/2026-11-27.json';
  const before = page('docs/performance.md');
  const after: string = withTables(before, '../', other);
  const changed = tablesOf(after).filter(({ file }) => file === other);
  expect(changed.map(({ name }) => name)).toEqual(['rates', 'round-trips', 'queue-pairs']);
  expect(after).toContain('| WRITE 1 MiB, path MTU 4096, Gb/s | 13.2 | 18.0 | 0.78 (0.57 … 0.95) |');
  expect(after).toContain('Measured on 27 November 2026 at 337de54 with changes: AMD EPYC, 2 processors');
  const tableOf = (text: string, name: string) =>
    new RegExp(`<!-- table ${name} [\\s\\S]*?<!-- end -->`).exec(text)![0];
  expect(tableOf(after, 'veth')).toBe(tableOf(before, 'veth'));
  // What stands outside of the tables stays.
  const outside = (text: string) => text.replaceAll(/<!-- table [\s\S]*?<!-- end -->/g, '');
  expect(outside(after)).toBe(outside(before));
});

test('--start names a folder in which the package is not installed, exit code 2', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-bench-start-'));
  const bench = join(root, 'bench/run.mjs');
  const failed = promisify(execFile)(process.execPath, [bench, '--start', folder]);
  await expect(failed).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining(`node-roce is not installed in ${folder}`),
  });
  rmSync(folder, { recursive: true });
});

test('results of a quick run are refused', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-bench-tables-'));
  try {
    const file = join(folder, 'quick.json');
    writeFileSync(file, '{ "quick": true, "rows": [] }');
    expect(() => writeTables(file)).toThrow(/--quick: not for figures/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
