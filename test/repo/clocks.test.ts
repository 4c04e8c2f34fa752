/** Every test file that reads a wall clock stands in clocks.json, and every deadline is minutes (scripts/clocks.mjs). */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { clocks, rowOf } from '../../scripts/clocks.mjs';

interface Place {
  what: 'reads' | 'sleeps' | 'deadlines';
  line: number;
  text: string;
  ms?: number;
}

const MIN_DEADLINE_MS = 120_000;
const rows: Record<string, [kind: string, reason: string]> = JSON.parse(
  readFileSync(new URL('../clocks.json', import.meta.url), 'utf8'),
);
const found: Map<string, Place[]> = clocks();
const readers = [...found].filter(([, places]) => places.some(({ what }) => what !== 'deadlines'));

test('the files that read a clock or sleep are those of the list', () => {
  expect(readers.length).toBeGreaterThan(50);
  const notListed = readers.flatMap(([file]) => (rowOf(rows, file) ? [] : [file]));
  expect(notListed).toEqual([]);
  const needed = new Set([...found.keys()].map((file) => rowOf(rows, file)?.key));
  expect(Object.keys(rows).filter((key) => !needed.has(key))).toEqual([]);
});

test('each has a kind and a reason', () => {
  for (const [file, [kind, reason]] of Object.entries(rows)) {
    expect(['virtual', 'event', 'bench', 'tight'], file).toContain(kind);
    expect(reason.length, file).toBeGreaterThan(5);
  }
});

test('no deadline is shorter than two minutes', () => {
  const short = [...found].flatMap(([file, places]) =>
    places
      .filter(({ ms }) => ms !== undefined && ms < MIN_DEADLINE_MS && rowOf(rows, file)?.kind !== 'tight')
      .map(({ line, text }) => `${file}:${line}: ${text}`),
  );
  expect(short).toEqual([]);
});
