/** `scripts/inline-constants.mjs`: numbers in the place of names of constants, in what was built. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { inlineConstants } from '../../scripts/inline-constants.mjs';

const ROOT = join(import.meta.dirname, '../..');

let packages: string;
beforeAll(() => {
  packages = mkdtempSync(join(tmpdir(), 'inline-constants-'));
});
afterAll(() => rmSync(packages, { recursive: true }));

/** Writes built files, by their paths below the packages. */
function built(files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(packages, path)), { recursive: true });
    writeFileSync(join(packages, path), text);
  }
}

/** A module with these lines, in which numbers were written, next to the constants of two packages. */
function inlined(...lines: string[]): string {
  built({
    'wire/dist/index.d.ts': "export { TWO, type T } from './two.ts';\nexport * from './masks.ts';\n",
    'wire/dist/two.d.ts': 'export type T = 1;\nexport declare const TWO = 2;\n',
    'wire/dist/masks.d.ts': 'export declare const MASK = 4294967295;\nexport declare const NEGATIVE = -1;\n',
    'own/dist/words.d.ts': [
      'export declare const Word: { readonly FIRST: 0; readonly SECOND: 16; readonly text: "x" };',
      'export declare const Loose: { FIRST: number; SECOND: 7 };',
      'export declare let changed: 5;',
    ].join('\n'),
    'own/dist/parts/part.js': [
      "import { MASK, NEGATIVE, TWO as Pair } from '@node-roce/wire';",
      "import { changed, Loose, Word } from '../words.js';",
      ...lines,
    ].join('\n'),
  });
  inlineConstants(join(packages, 'own/dist'));
  return readFileSync(join(packages, 'own/dist/parts/part.js'), 'utf8').split('\n').slice(2).join('\n');
}

describe('a number is written for', () => {
  test.each([
    ['a member of a constant', 'f(Word.SECOND);', 'f(16         );'],
    ['a constant of another package, by its name here', 'f(Pair + 1);', 'f(2    + 1);'],
    ['one behind `export *`, though it is longer', 'f(x & MASK);', 'f(x & 4294967295);'],
    ['a constant of the module itself', 'const SIZE = 64;\nf(SIZE);', 'const SIZE = 64;\nf(64  );'],
    ['a negative one', 'f(2 - NEGATIVE ** 2);', 'f(2 - (-1)     ** 2);'],
    ['one whose member is read', 'f(Word.FIRST.toFixed(2));', 'f((0)       .toFixed(2));'],
    ['a member that is computed', 'f(list[Pair], list.Pair);', 'f(list[2   ], list.Pair);'],
    ['a shorthand', 'f({ Pair });', 'f({ Pair: 2    });'],
  ])('%s', (_, before, after) => {
    expect(inlined(before)).toBe(after);
  });
});

describe('nothing is written for', () => {
  test.each([
    ['a member that is no number', 'f(Word.text);'],
    ['a member that may change', 'f(Loose.FIRST, Loose.SECOND);'],
    ['a variable', 'f(changed);'],
    ['what every object has', 'f(Word.toString, Word.constructor);'],
    ['a parameter of that name', 'function g(Pair) { return Pair; }'],
    ['a variable of a function of that name', 'function g() { const { a: [Pair = 1] } = x; return Pair; }'],
    ['a caught error of that name', 'try { g(); } catch (Word) { f(Word.SECOND); }'],
    ['a method, a field or a key of that name', 'class C { Pair = 1; MASK() {} }\nf({ Pair: 1 });'],
    ['an export', 'export { Pair };'],
    ['a text', "f('Word.SECOND', `Pair`);"],
  ])('%s', (_, text) => {
    expect(inlined(text)).toBe(text);
  });
});

test('what is behind a shorter number keeps its place in its line', () => {
  const line = 'f(Word.SECOND, Word.FIRST, behind);';
  expect(inlined(line).indexOf('behind')).toBe(line.indexOf('behind'));
});

test('a second time, nothing changes', () => {
  const once = inlined('f(Word.SECOND, NEGATIVE);');
  inlineConstants(join(packages, 'own/dist'));
  expect(readFileSync(join(packages, 'own/dist/parts/part.js'), 'utf8').endsWith(once)).toBe(true);
});

test('the loops that take messages have no names of words left', () => {
  for (const file of ['transport/dist/qp/receive-queue.js', 'verbs-api/dist/posting/by-numbers.js'])
    expect(readFileSync(join(ROOT, 'packages', file), 'utf8')).not.toMatch(
      /\b(SendWqe|RecvWqe|Sge|Cqe)\.[A-Z]/,
    );
});
