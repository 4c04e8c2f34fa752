/** `npm run test:steady`, over tests that fail now and then. */
// @module-tag slow
import { execFile } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const steady = join(import.meta.dirname, '../tiers/steady.mjs');

/** Runs the meter over a folder with these tests. */
function measure(tests: string, ...args: string[]): Promise<{ code: number; out: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'roce-steady-'));
  const tags = "[{ name: 'slow' }]";
  writeFileSync(
    join(folder, 'vitest.config.mjs'),
    `export default { test: { globals: true, tags: ${tags} } };`,
  );
  const prelude = `import { existsSync, writeFileSync } from 'node:fs'; const past = '${folder}/past';`;
  writeFileSync(join(folder, 'a.test.mjs'), `${prelude}\n${tests}`);
  return new Promise((resolve) => {
    execFile(process.execPath, [steady, ...args, '--root', folder], (error, out) =>
      resolve({ code: Number(error?.code ?? 0), out }),
    );
  });
}

test('lists a test that failed once, with its output, and fails', async () => {
  const tests = `
    test('good', () => console.log('of no interest'));
    test('slow', { tags: ['slow'] }, () => { throw new Error('not run'); });
    test('first run only', () => {
      console.log('about to look');
      if (existsSync(past)) return;
      writeFileSync(past, '');
      throw new Error('3 s late');
    });`;
  const { code, out } = await measure(tests, '2', '--load');
  expect(code).toBe(1);
  expect(out).toMatch(/^run 1 of 2: 1 passed, 1 failed, \d+ s\nrun 2 of 2: 2 passed, 0 failed, \d+ s\n/);
  expect(out).toContain('== a.test.mjs > first run only: failed in 1 of 2 runs\nError: 3 s late\n');
  expect(out).toContain('about to look');
  expect(out).not.toContain('of no interest');
  expect(out).toMatch(
    /\nsteady: 1 tests failed at least once in 2 runs, next to \d+ programs that compute\n$/,
  );
});

test('counts a file that does not load', async () => {
  const { code, out } = await measure(`import 'node:nothing';`, '1');
  expect(code).toBe(1);
  expect(out).toContain('== a.test.mjs: failed in 1 of 1 runs\n');
});

test('passes when no test failed', async () => {
  const { code, out } = await measure(`test('good', () => {});`, '1');
  expect([code, out]).toEqual([
    0,
    expect.stringMatching(/\nsteady: 0 tests failed at least once in 1 runs\n$/),
  ]);
});
