/** `npm run bench -- --compare`: its statistics and verdicts by numbers, its order of turns by sessions that record them. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { concluded } from '../../bench/compare/compare.mjs';
// @ts-expect-error: plain JavaScript
import { compareRow } from '../../bench/compare/interleave.mjs';
// @ts-expect-error: plain JavaScript
import { ROWS } from '../../bench/compare/rows.mjs';
// @ts-expect-error: plain JavaScript
import { conclusion, rowLine } from '../../bench/compare/table.mjs';
// @ts-expect-error: plain JavaScript
import { confirm, judge, speedRatio, spread } from '../../bench/compare/verdict.mjs';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const bench = join(root, 'bench/run.mjs');
const directory = mkdtempSync(join(tmpdir(), 'roce-bench-test-'));
afterAll(() => rmSync(directory, { recursive: true }));

describe('statistics', () => {
  test('a ratio above 1 is quicker, for rates and for times', () => {
    expect(speedRatio(10, 12, false)).toBe(1.2);
    expect(speedRatio(12, 10, true)).toBe(1.2);
  });

  test.each([
    [5, 0],
    [6, 0],
    [7, 1],
    [10, 2],
    [20, 6],
  ])('of %i rounds, %i on each side lie outside of the spread', (n, outside) => {
    const values = Array.from({ length: n }, (_, i) => ((i * 11) % n) + 1);
    expect(spread(values)).toEqual({ median: (n + 1) / 2, low: 1 + outside, high: n - outside });
  });

  test.each([
    ['same', [0.9, 0.95, 1.01, 0.97, 0.99]],
    ['slower', [0.9, 0.95, 0.999, 0.97, 0.99]],
    ['faster', [1.1, 1.05, 1.001, 1.2, 1.3]],
    ['same', [1, 1.05, 1.1, 1.2, 1.3]],
  ])('%s: %j', (verdict, ratios) => {
    expect(judge(ratios)).toMatchObject({ verdict });
  });

  test('a change counts only if the second measurement alone has the same verdict', () => {
    const low = [0.9, 0.91, 0.92, 0.93, 0.94];
    const high = [1.1, 1.11, 1.12, 1.13, 1.14];
    const mixed = [0.9, 1.1, 0.95, 1.02, 1];
    expect(confirm(low, low)).toMatchObject({ verdict: 'slower', ratio: 0.92 });
    expect(confirm(high, high)).toMatchObject({ verdict: 'faster' });
    expect(confirm(low, mixed)).toMatchObject({ verdict: 'same' });
    expect(confirm(low, high)).toMatchObject({ verdict: 'same' });
  });
});

/** Sessions of invented speed: `rate(build, call)` messages a second. Records whose turn it was. */
function sessions(rate: (build: string, call: number) => number) {
  const turns: string[] = [];
  const state = { open: 0, opened: 0 };
  const open = async (_row: unknown, build: string) => {
    state.open++;
    state.opened++;
    let call = 0;
    return {
      async run(count: number, sampled: boolean) {
        const perSecond = rate(build, call++);
        turns.push(sampled ? `${build}*` : build);
        const seconds = count / perSecond;
        return { messages: count, seconds, perSecond, allocated: sampled ? count * 2 : undefined };
      },
      async close() {
        state.open--;
      },
    };
  };
  return { open, turns, state };
}

const row = { name: 'row', unit: '/s', figure: 'perSecond', kind: 'stream', plan: {} };
const builds = { base: 'A', head: 'B' };
const options = { rounds: 5, quick: true };

describe('a row', () => {
  test('is measured in turns, who begins alternates, and each round has new processes', async () => {
    const { open, turns, state } = sessions(() => 1e6);
    const result = await compareRow(row, builds, options, open);
    expect(result).toMatchObject({
      verdict: 'same',
      ratio: 1,
      base: { figure: 1e6, bytesPerMessage: 2 },
      head: { figure: 1e6, bytesPerMessage: 2 },
    });
    expect(state).toEqual({ open: 0, opened: 10 });
    // A round: warm-up of both, the slices, the sampled slices.
    const text = turns.join('');
    expect(text).toMatch(/^(A+B+(ABBAABBA|BAABBAAB)A\*B\*){5}$/);
    expect(text.match(/B(ABBAABBA)A\*/g)).toHaveLength(3);
  });

  test('that became slower is measured twice and found slower', async () => {
    const { open, state } = sessions((build) => (build === 'A' ? 1e6 : 0.9e6));
    const result = await compareRow(row, builds, options, open);
    expect(result).toMatchObject({ verdict: 'slower', base: { figure: 1e6 }, head: { figure: 0.9e6 } });
    expect(result.ratio).toBeCloseTo(0.9);
    expect(result.ratios).toHaveLength(10);
    expect(state.opened).toBe(20);
  });

  test('that only swings is found the same', async () => {
    let opened = 0;
    const { open } = sessions((build) => (build === 'A' ? 1e6 : 1e6 * (opened % 2 === 0 ? 0.8 : 1.25)));
    const result = await compareRow(row, builds, options, (...of: [unknown, string]) => {
      opened += of[1] === 'B' ? 1 : 0;
      return open(...of);
    });
    expect(result).toMatchObject({ verdict: 'same' });
    expect(result.ratios).toHaveLength(5);
  });

  test.each([
    ['base', 'A', 'only in head. base fails: no such option'],
    ['head', 'B', 'only in base. head fails: no such option'],
  ])('that fails in %s is measured in the other, and the failure is reported', async (side, build, words) => {
    const { open, state } = sessions((asked) => {
      if (asked === build) throw new Error('no such option\n    at a stack');
      return 1e6;
    });
    const result = await compareRow(row, builds, options, open);
    expect(result.failed).toEqual({ [side]: 'no such option' });
    expect(result[side === 'base' ? 'head' : 'base']).toMatchObject({ figure: 1e6 });
    expect(result).not.toHaveProperty('verdict');
    expect(rowLine(result)).toContain(words);
    expect(state.open).toBe(0);
  });
});

test('the conclusion names slower, faster, broken and missing rows', () => {
  const rows = [
    { name: 'a', verdict: 'slower', failed: {} },
    { name: 'b', verdict: 'faster', failed: {} },
    { name: 'c', verdict: 'same', failed: {} },
    { name: 'd', failed: { head: 'why' } },
    { name: 'e', failed: { head: 'why', base: 'why' } },
  ];
  const summary = concluded(rows, [ROWS[0].name, 'gone']);
  expect(summary).toEqual({ slower: ['a'], faster: ['b'], broken: ['d'], onlyInBase: ['gone'] });
  expect(conclusion(summary).join('\n')).toMatch(
    /Slower.*\n {2}a\nFaster.*\n {2}b\n.*head:\n {2}d\n.*\n {2}gone$/,
  );
  expect(conclusion(concluded([]))).toEqual(['No row is slower beyond its spread.']);
});

describe('the command', () => {
  // A build compared with itself. No figure is judged: the exit code may be 0 or 1.
  test('measures a row with both builds and writes JSON', {
    tags: ['slow'],
  }, async () => {
    const file = join(directory, 'compare.json');
    const args = [bench, '--compare', root, '--quick', '--only', '^SEND 4 KiB', '--json', file];
    const { stderr } = await run(process.execPath, args).catch((failure) => failure);
    const report = JSON.parse(readFileSync(file, 'utf8'));
    expect(report).toMatchObject({ base: root, rounds: 5, quick: true, broken: [], onlyInBase: [] });
    expect(report.rows).toHaveLength(1);
    const [{ base, head, ratios, failed }] = report.rows;
    expect(failed).toEqual({});
    expect(Math.min(base.figure, head.figure, ...ratios)).toBeGreaterThan(0);
    expect(base.bytesPerMessage).toBeGreaterThanOrEqual(0);
    expect(stderr).toContain('SEND 4 KiB');
  });

  test.each([
    [['--compare', 'no-such-revision'], 'no-such-revision'],
    [['--compare', root, '--only', 'no such row'], 'no such row'],
    [['--compare', root, '--rounds', '4'], '--rounds'],
  ])('%j: prints the reason, exit code 2', async (args, words) => {
    const failure = await run(process.execPath, [bench, ...args]).catch((error) => error);
    expect(failure.code).toBe(2);
    expect(failure.stderr).toContain(words);
  });
});
