/**
 * Arguments of every kind into every method, in a process of its own: whatever is wrong is a TypeError,
 * a RangeError or a system error, and the process lives.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { DEADLINE_MS } from './support.ts';

const run = promisify(execFile);

async function callAll(seed: number): Promise<void> {
  const script = new URL('./hostile-calls.mjs', import.meta.url).pathname;
  const { stdout } = await run(process.execPath, [script, String(seed)], { timeout: DEADLINE_MS });
  const { calls, threw, survived } = JSON.parse(stdout);
  expect(survived).toBe(true);
  expect(calls).toBeGreaterThan(2000);
  expect(threw).toBeGreaterThan(500); // they refuse arguments
  expect(threw).toBeLessThan(calls); // but not all
}

test('no argument ends the process', () => callAll(1));
test.each([2, 3])('no argument ends the process (seed %i)', { tags: ['slow'] }, callAll);

test('methods and getters refuse an object of another class', async () => {
  const script = `
    import * as addon from ${JSON.stringify(new URL('../index.js', import.meta.url).href)};
    const others = [new addon.IdWindow(), new addon.LocalSocket('roce-hostile-' + process.pid), {}];
    let called = 0;
    for (const [name, Class] of Object.entries(addon))
      for (const [member, { value, get }] of Object.entries(Object.getOwnPropertyDescriptors(Class.prototype ?? {})))
        for (const other of others) {
          if (member === 'constructor' || other instanceof Class) continue;
          called++;
          try {
            (get ?? value).call(other);
            console.log(name, member);
          } catch (error) {
            if (!(error instanceof TypeError)) throw error;
          }
        }
    console.log(called > 100);
  `;
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], {
    timeout: DEADLINE_MS,
  });
  expect(stdout).toBe('true\n');
});
