/**
 * Arguments of every kind into every method, in a process of its own: whatever is wrong is a TypeError,
 * a RangeError or a system error, and the process lives.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);

test.each([1, 2, 3])('no argument ends the process (seed %i)', { timeout: 60_000 }, async (seed) => {
  const script = new URL('./hostile-calls.mjs', import.meta.url).pathname;
  const { stdout } = await run(process.execPath, [script, String(seed)], { timeout: 55_000 });
  const { calls, threw, survived } = JSON.parse(stdout);
  expect(survived).toBe(true);
  expect(calls).toBeGreaterThan(2000);
  expect(threw).toBeGreaterThan(500); // they refuse arguments
  expect(threw).toBeLessThan(calls); // but not all
});
