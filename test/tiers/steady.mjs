// `npm run test:steady -- N [--load] [ARGUMENT…]`: runs the tests of `npm test` N times without second runs, and prints each test that failed even once, with its output. `--load`: as many programs that compute as processors
// run next to them. Vitest gets the other arguments, such as names of files.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readLine } from './step.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const [count, ...more] = process.argv.slice(2);
const runs = Number(count);
if (!Number.isInteger(runs) || runs < 1) {
  console.error('usage: npm run test:steady -- N [--load] [ARGUMENT…]');
  process.exit(2);
}
const rest = more.filter((argument) => argument !== '--load');

/** Computes until its parent ends. */
const BUSY = `
const parent = process.ppid;
while (process.ppid === parent) for (let i = 0; i < 1e7; i++);
`;
const load = more.includes('--load') ? availableParallelism() : 0;
const busy = Array.from({ length: load }, () =>
  spawn(process.execPath, ['--eval', BUSY], { stdio: 'ignore' }),
);
const folder = mkdtempSync(join(tmpdir(), 'roce-steady-'));
process.on('exit', () => {
  for (const child of busy) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** One run: counts of tests, and the failures (failures.ts). */
async function play(run) {
  const file = join(folder, `${run}.jsonl`);
  writeFileSync(file, '');
  const { CI: _secondRuns, ...env } = process.env;
  const reporters = ['default', join(ROOT, 'test/tiers/failures.ts')].map((name) => `--reporter=${name}`);
  const vitest = [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--tags-filter=!slow', '--retry=0'];
  const started = performance.now();
  const child = spawn(process.execPath, [...vitest, ...reporters, ...rest], {
    cwd: ROOT,
    env: { ...env, NO_COLOR: '1', ROCE_FAILURES: file },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  let output = '';
  for await (const text of child.stdout.setEncoding('utf8')) output += text;
  const [code] = await ended;
  const { passed = 0, failed = 0 } = Object.assign({}, ...output.split('\n').map(readLine));
  const failures = readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  if (code !== 0 && failures.length === 0)
    failures.push({ name: 'no test', reasons: [`vitest ended with ${code}`], output: output.slice(-10_000) });
  const seconds = Math.round((performance.now() - started) / 1000);
  console.log(`run ${run} of ${runs}: ${passed} passed, ${failed} failed, ${seconds} s`);
  return failures;
}

/** Name of a test → its failures. */
const failed = new Map();
for (let run = 1; run <= runs; run++)
  for (const failure of await play(run))
    failed.set(failure.name, [...(failed.get(failure.name) ?? []), failure]);

for (const [name, [{ reasons, output }, ...others]] of failed) {
  console.log(`\n== ${name}: failed in ${others.length + 1} of ${runs} runs`);
  for (const text of [...reasons, output]) if (text) console.log(text.trimEnd());
}
console.log(
  `\nsteady: ${failed.size} tests failed at least once in ${runs} runs${load > 0 ? `, next to ${load} programs that compute` : ''}`,
);
process.exit(failed.size === 0 ? 0 : 1);
