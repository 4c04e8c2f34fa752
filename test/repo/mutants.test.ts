/** The mutants that are made by hand stand in code that is there: test/mutation/by-hand.mjs would refuse to start (test/mutation/README.md). */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
// @ts-expect-error Plain JavaScript.
import { MUTANTS } from '../mutation/by-hand.data.mjs';

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
