/** The runner of `.ci/run` and `npm run test:long`: counts, budgets, second runs, the table of results. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { patienceOf } from '../tiers/patience.mjs';
// @ts-expect-error: plain JavaScript
import { format, missing, parse } from '../tiers/results.mjs';
// @ts-expect-error: plain JavaScript
import { readLine, runStep } from '../tiers/step.mjs';
// @ts-expect-error: plain JavaScript
import { CI, CI_MINUTES, choose, LONG, minutesLeft } from '../tiers/steps.mjs';
// @ts-expect-error: plain JavaScript
import { sweep } from '../tiers/sweep.mjs';

interface Step {
  name: string;
  command: string;
  minutes: number;
  env?: object;
  set?: string;
}

test('fast-check draws the same cases in each run', () => {
  const [one, two] = [1, 2].map(() => fc.sample(fc.uint8Array({ minLength: 16 }), 10));
  expect(one).toEqual(two);
});

test('ROCE_PATIENCE is a factor: 1 without it, and no text that is none', () => {
  for (const [text, factor] of [
    ['', 1],
    ['3', 3],
    ['0.5', 0.5],
  ] as const)
    expect(patienceOf({ ROCE_PATIENCE: text })).toBe(factor);
  expect(patienceOf({})).toBe(1);
  for (const text of ['0', '-1', 'three', '3x', 'Infinity'])
    expect(() => patienceOf({ ROCE_PATIENCE: text })).toThrow(
      `ROCE_PATIENCE=${text}: expected a number above 0`,
    );
});

describe('a step', () => {
  const lines: string[] = [];
  const run = (command: string, minutes: number, env = {}) =>
    runStep(
      { command, minutes, env },
      { cwd: import.meta.dirname, write: (line: string) => lines.push(line) },
    );

  test('adds up the counts of vitest, colored or not, and keeps the last result', async () => {
    const output = [
      '      Tests  2 failed | 11 passed | 3 skipped (16)',
      '\\e[2m      Tests \\e[22m \\e[1m\\e[32m13 passed\\e[39m\\e[22m\\e[90m (13)\\e[39m',
      ' Test Files  1 passed (1)',
      'result: score 80',
      'result: score 85',
    ];
    const outcome = await run(output.map((line) => `printf '${line}\\n';`).join(' '), 1);
    expect(outcome).toMatchObject({ verdict: 'passed', passed: 24, failed: 2, result: 'score 85' });
    expect(lines).toContain(' Test Files  1 passed (1)');
    expect(lines.at(-1)).toMatch(/^== processors: \d+\.\d+ s user, \d+\.\d+ s system$/);
  });

  test.each([
    ['exit 3', 'FAILED: exit code 3'],
    ['kill -9 $$', 'FAILED: exit code none'],
  ])('fails when its command fails: %s', async (command, verdict) => {
    expect(await run(command, 1)).toMatchObject({ verdict });
  });

  test('fails when its budget is used up, and ends all that it started', async () => {
    const marker = `${process.pid}.${Date.now() % 100_000}`;
    const outcome = await run(`sleep 60${marker} & sleep 61${marker}`, 0.01);
    expect(outcome.verdict).toBe('FAILED: over its budget of 0.01 min');
    expect(outcome.seconds).toBeLessThan(20);
    await sleep(100);
    const found = await run(`grep -aqsE 'sleep.6[01]${marker}' /proc/[0-9]*/cmdline`, 1);
    expect(found.verdict).toMatch(/^FAILED: exit code [12]$/);
  });

  test('has environment variables of its own', async () => {
    expect((await run('echo "result: $SEED"', 1, { SEED: 7 })).result).toBe('7');
  });

  test('counts the time of its processors', async () => {
    const outcome = await run('i=0; while ((i < 200000)); do ((++i)); done', 1);
    expect(outcome.processorSeconds).toBeGreaterThan(0);
  });

  // The kernel ends such processes and reaps them: the shell's own figure lacks them.
  test('counts the time of processes that end with their namespace', async ({ skip }) => {
    // A file system of control groups, which this test's own mount namespace has no longer.
    const root = mkdtempSync(join(tmpdir(), 'roce-groups-'));
    mkdirSync(join(root, 'cpuacct'));
    const mounted = spawnSync('sh', [
      '-c',
      `mount -t cgroup -o cpuacct none ${root}/cpuacct || mount -t cgroup2 none ${root}`,
    ]);
    if (mounted.status !== 0) skip(`no control groups: ${mounted.stderr}`);
    const fifo = join(tmpdir(), 'roce-busy');
    const busy = `i=0; while ((i < 300000)); do ((++i)); done; echo done > ${fifo}; sleep 1000`;
    const command = `mkfifo ${fifo}; unshare --pid --fork --kill-child bash -c '${busy}' & read < ${fifo}; kill -9 $!; wait`;
    const printed: string[] = [];
    const outcome = await runStep(
      { command, minutes: 5 },
      { cwd: root, groups: root, write: (line: string) => printed.push(line) },
    );
    expect(outcome.processorSeconds).toBeGreaterThan(0.05);
    // The shell's figure, which would be too low, is not printed.
    expect(printed.join('\n')).not.toContain('== processors');
  });

  test('plays a test that failed once more in CI, and lists the one that passed then', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'roce-second-runs-'));
    try {
      const imported = JSON.stringify(join(import.meta.dirname, '../tiers/second-runs.ts'));
      writeFileSync(
        join(directory, 'vitest.config.ts'),
        `import { secondRuns } from ${imported}; export default { test: { globals: true, ...secondRuns } };`,
      );
      writeFileSync(
        join(directory, 'noise.test.mjs'),
        `let runs = 0;
         test('late once', () => { if (runs++ === 0) throw new Error('3 s late'); });
         let others = 0;
         test('other once', () => expect({ seen: others++ }).toEqual({ seen: 1 }));
         test('always wrong', () => { throw new Error('wrong'); });`,
      );
      const vitest = `'${process.execPath}' node_modules/vitest/vitest.mjs run --root '${directory}'`;
      const printed: string[] = [];
      const outcome = await runStep(
        { command: vitest, minutes: 5, env: { CI: 'true', NO_COLOR: '1' } },
        { cwd: join(import.meta.dirname, '../..'), write: (line: string) => printed.push(line) },
      );
      expect(outcome).toMatchObject({ verdict: 'FAILED: exit code 1', passed: 2, failed: 1 });
      expect(outcome.secondRuns).toEqual([
        'noise.test.mjs > late once: 3 s late',
        'noise.test.mjs > other once: expected { seen: +0 } to deeply equal { seen: 1 }',
      ]);
      // The difference that the first run saw.
      expect(printed).toContain('+   "seen": 0,');
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });

  test('a line that is no summary counts nothing', () => {
    for (const line of ['Tests are good', ' Test Files  2 passed (2)', 'interop: 13 passed, 0 failed']) {
      expect(readLine(line)).toEqual({});
    }
  });
});

describe('the table of results', () => {
  const row = { step: 'a', verdict: 'passed', tests: '1 passed, 0 failed', minutes: '1.0', result: '' };
  const where = { date: '2026-01-01', commit: 'abc', machine: 'm' };

  test('is read as it was written', () => {
    const rows = [
      { ...row, ...where },
      { ...row, step: 'b', verdict: 'FAILED: exit code 1', ...where },
    ];
    expect(parse(format(rows))).toEqual(rows);
    expect(parse(format([]))).toEqual([]);
  });

  test('lacks the steps that are absent or failed', () => {
    const steps = [{ name: 'a' }, { name: 'b' }, { name: 'c' }];
    const results = [row, { ...row, step: 'b', verdict: 'FAILED: exit code 1' }];
    expect(missing(steps, results).map(({ name }: Step) => name)).toEqual(['b', 'c']);
  });
});

test('steps are chosen by their names and by their sets', () => {
  const table = [{ name: 'a' }, { name: 'b', set: 's' }, { name: 'c', set: 's' }];
  const names = (...wanted: string[]) => choose(table, wanted).chosen.map(({ name }: Step) => name);
  expect(names()).toEqual(['a', 'b', 'c']);
  expect(names('s', 'a')).toEqual(['a', 'b', 'c']);
  expect(names('c')).toEqual(['c']);
  expect(choose(table, ['a', 'x']).unknown).toBe('x');
  const sets = new Set(LONG.map(({ set }: Step) => set));
  expect(LONG.filter(({ name }: Step) => sets.has(name))).toEqual([]); // a name means one thing
  expect(sets).not.toContain(undefined);
});

test.each([
  ['CI', CI],
  ['LONG', LONG],
])('%s: each step has a name of its own, a command and a budget', (_name, steps: Step[]) => {
  expect(new Set(steps.map(({ name }) => name)).size).toBe(steps.length);
  for (const { name, command, minutes } of steps) {
    expect([name, command].every((text) => text.length > 0 && !text.includes('|'))).toBe(true);
    expect(minutes).toBeGreaterThan(0);
  }
});

test('temporary folders of a run that was killed a day ago are removed, and no others', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-tiers-'));
  const hoursAgo = { 'roce-t-a': 25, 'roce-t-b': 23, other: 25 };
  for (const [name, hours] of Object.entries(hoursAgo)) {
    mkdirSync(join(folder, name, 'x'), { recursive: true });
    const then = Date.now() / 1000 - hours * 3600;
    utimesSync(join(folder, name), then, then);
  }
  sweep('roce-t-', folder);
  expect(readdirSync(folder)).toEqual(['other', 'roce-t-b']);
  rmSync(folder, { recursive: true });
});

test('the steps of CI together leave a reserve before CI itself ends a run, after 90 minutes', () => {
  expect(CI_MINUTES).toBeLessThanOrEqual(85);
  const longest = Math.max(...CI.map(({ minutes }: Step) => minutes));
  expect(longest).toBeLessThanOrEqual(CI_MINUTES / 2);
  expect(minutesLeft(30, CI_MINUTES, 0)).toBe(30);
  expect(minutesLeft(30, CI_MINUTES, 80 * 60_000)).toBe(CI_MINUTES - 80);
  expect(minutesLeft(30, CI_MINUTES, 90 * 60_000)).toBe(0);
  expect(minutesLeft(240, Number.POSITIVE_INFINITY, 1e9)).toBe(240);
});
