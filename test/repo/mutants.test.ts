/**
 * The mutants that are made by hand stand in code that is there: test/mutation/by-hand.mjs would refuse to start (test/mutation/README.md). And
 * the runner of the tests judges them on a busy machine as on an idle one.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
// @ts-expect-error Plain JavaScript.
import { MUTANTS } from '../mutation/by-hand.data.mjs';
// @ts-expect-error Plain JavaScript.
import { Runner } from '../mutation/suite.mjs';

const SOURCE = join(import.meta.dirname, '../../packages/transport/src');

test('each text that a mutant replaces is found exactly once in its file, and its replacement differs', () => {
  const mutants = MUTANTS as [file: string, search: string, replacement: string][];
  expect(mutants.length).toBeGreaterThan(80);
  const wrong = mutants.flatMap(([file, search, replacement], i) => {
    const found = readFileSync(join(SOURCE, file), 'utf8').split(search).length - 1;
    return found === 1 && replacement !== search ? [] : [`${i} ${file}: found ${found} times: ${search}`];
  });
  expect(wrong).toEqual([]);
});

test('no two mutants are the same', () => {
  const texts = (MUTANTS as string[][]).map((mutant) => mutant.join('\n'));
  expect(new Set(texts).size).toBe(texts.length);
});

test('a test that was ended because the machine had other work finds nothing of its first call', async () => {
  const runner = new Runner();
  runner.restore({ spent: [['sleeper', 0]], kills: [] });
  let isReplaced = false;
  let calls = 0;
  const sleeper = {
    id: 'sleeper',
    run() {
      if (isReplaced) throw new Error('what the first call replaced is still there');
      isReplaced = true;
      // No processor time: the deadline of the call is the machine's fault.
      if (++calls === 1) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
      isReplaced = false;
    },
    restore() {
      isReplaced = false;
    },
  };
  expect(await runner.run(sleeper)).toMatchObject({ error: undefined, hung: false });
  expect(calls).toBe(2);
});
