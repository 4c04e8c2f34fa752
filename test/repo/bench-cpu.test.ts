/** `npm run bench -- --cpu` and `--many`: their order of turns and figures by sessions that record them; the command with both of a quick row's programs. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { measureRow, rowLines, withOther } from '../../bench/cpu/cpu.mjs';
// @ts-expect-error: plain JavaScript
import { partsOf } from '../../bench/cpu/many.mjs';

const run = promisify(execFile);
const bench = join(import.meta.dirname, '../../bench/run.mjs');

test('slices have equal processor time, in turn; figures are the lowest, ratios of the last one', async () => {
  const turns: string[] = [];
  const contender = (name: string, ns: number, reason = '') => ({
    name,
    missing: () => reason,
    async open() {
      let slice = 0;
      return {
        async run(count: number) {
          turns.push(`${name} ${count}`);
          return ns * (1 + (slice++ % 3));
        },
        async close() {
          turns.push(`${name} closed`);
        },
      };
    },
  });
  const contenders = [contender('C', 100), contender('base', 1, 'it is not here'), contender('tree', 200)];
  const times = { slices: 2, slice: 1e-4, warmUp: 1e-7 };
  const result = await measureRow({ name: 'row' }, contenders, times);
  expect(turns).toEqual([
    'C 64',
    'tree 64',
    'C 1000',
    'tree 500',
    'tree 500',
    'C 1000',
    'C closed',
    'tree closed',
  ]);
  expect(result).toMatchObject({
    results: [
      { contender: 'C', ns: 200, ratio: 0.5 },
      { contender: 'tree', ns: 400 },
    ],
    missing: [{ contender: 'base', reason: 'it is not here' }],
  });
  expect(rowLines(result).join('\n')).toMatch(
    /^row\n {2}C +200 ns +0.50 ×\n {2}tree +400 ns\n {2}base +it is not here$/,
  );
});

test('each of three contenders begins as often as the others, and none has two slices in a row', async () => {
  const turns: string[] = [];
  const contenders = ['a', 'b', 'c'].map((name) => ({
    name,
    missing: () => '',
    open: async () => ({
      run: async () => {
        turns.push(name);
        return 100;
      },
      close: async () => {},
    }),
  }));
  await measureRow({ name: 'row' }, contenders, { slices: 3, slice: 1e-6, warmUp: 1e-7 });
  expect(turns.slice(-9).join('')).toBe('abcbcacab');
});

test('a row beside another has slices of both from each build, the working tree last', async () => {
  const opened: string[] = [];
  const contenders = ['C of 1', 'C', 'base', 'tree'].map((name) => ({
    name,
    missing: () => '',
    async open(row: { name: string }) {
      opened.push(`${name}: ${row.name}`);
      return { run: async () => 100, close: async () => {} };
    },
  }));
  const row = { name: 'READ', beside: { name: 'WRITE' } };
  expect(withOther({ name: 'WRITE' }, contenders)).toBe(contenders);
  const { results } = await measureRow(row, withOther(row, contenders), {
    slices: 1,
    slice: 1e-6,
    warmUp: 1e-7,
  });
  expect(opened).toEqual([
    'C of 1: READ',
    'C: READ',
    'base: WRITE',
    'tree: WRITE',
    'base: READ',
    'tree: READ',
  ]);
  const names = ['C of 1', 'C', 'base, WRITE', 'tree, WRITE', 'base', 'tree'];
  expect(results.map(({ contender }: { contender: string }) => contender)).toEqual(names);
});

test('a stream in C and in node-roce, the payload compared', { tags: ['slow'] }, async () => {
  const args = [bench, '--cpu', '--quick', '--only', 'SEND 64 B$|round trip of 64 B$', '--json', '-'];
  const { rows } = JSON.parse((await run(process.execPath, args)).stdout);
  expect(rows).toHaveLength(2);
  for (const { results, missing } of rows) {
    const names = [...results, ...missing].map(({ contender }: { contender: string }) => contender);
    expect(names.sort()).toEqual(['C', 'C of 17a937cf', 'node-roce']);
    for (const { ns } of results) expect(ns).toBeGreaterThan(0);
  }
});

test('the parts of a message with many queue pairs add up to its time', () => {
  const names = ['1 × 1', '64 × 1', '1,000 × 1', '1,000 × 1,000'];
  const results = [900, 1500, 2400, 2800].map((ns, i) => ({ contender: names[i], ns }));
  const parts = { count: 1000, one: 900, turns: 600, state: 900, payload: 400, all: 2800 };
  expect(partsOf(results, 1000)).toEqual(parts);
  expect(partsOf(results, 10_000)).toBeUndefined();
});

test('--many: each variant that --only matches, by one build', { tags: ['slow'] }, async () => {
  const args = [bench, '--many', '--quick', '--only', '^(1|64) ×', '--json', '-'];
  const { many } = JSON.parse((await run(process.execPath, args)).stdout);
  expect(many).toHaveLength(1);
  const [{ results, missing }] = many;
  expect(results.map(({ contender }: { contender: string }) => contender)).toEqual([
    '1 × 1',
    '1 × 1,000',
    '64 × 1',
  ]);
  for (const { ns } of results) expect(ns).toBeGreaterThan(0);
  expect(missing).toEqual([]);
});

test('an option that it does not take is named, exit code 2', async () => {
  const failure = await run(process.execPath, [bench, '--cpu', '--all']).catch((error) => error);
  expect(failure.code).toBe(2);
  expect(failure.stderr).toContain('--cpu takes no --all');
});
