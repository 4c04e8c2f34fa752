/** The check of the prose (scripts/prose) finds a word of its list in every kind of text. */
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { files, readRules, violations } from '../../scripts/prose/check.mjs';

const rules = readRules();
const found = (path: string, content: string): string[] => violations(path, content, rules);

test('every source file and page is read', () => {
  const list: string[] = files();
  expect(list.length).toBeGreaterThan(700);
  for (const path of ['README.md', 'docs/capture.md', 'packages/wire/src/index.ts', 'native/index.js'])
    expect(list).toContain(path);
  expect(list.filter((path) => path.includes('node_modules'))).toEqual([]);
});

describe('a planted word', () => {
  test.each([
    ['an error', 'a.ts', "throw new RoceError('X', 'whoever posts is told', {});", 2],
    ['a template', 'a.ts', 'const text = `' + '$' + '{name} is not an address in figures`;', 1],
    ['a word of a template', 'a.mjs', 'const text = `' + '$' + '{call} says ' + '$' + '{code}`;', 1],
    ['a docstring', 'a.ts', '/**\n * Wakes whoever waits.\n */\nexport const a = 1;\n', 1],
    ['a later sentence of one', 'a.ts', '/** Wakes. Then it is\n * told. */\nexport const a = 1;\n', 1],
    ['the begin of a docstring', 'a.ts', '/** What the send queue holds. */\nexport const a = 1;', 1],
    ['the begin of a sentence', 'a.ts', '// Some are kept. What is left is dropped.\n', 1],
    ['a comment', 'a.tsx', 'const a = 1; // as the kernel says\n', 1],
    ['a phrase over two lines', 'a.ts', '// A packet that goes\n// again is counted.\n', 1],
    ['a title', 'a.test.ts', "test.each([1])('the peer is told', () => {});", 1],
    ['a title of a row', 'a.test.ts', "test.each([['a peer that tells it']])('%s', () => {});", 1],
    ['the begin of a title', 'a.test.ts', "test('what is left is dropped', () => {});", 1],
    ['a page', 'docs/a.md', 'The table\nfor people.\n', 1],
    ['a phrase of a page', 'docs/a.md', 'Packets in\nhand.\n', 1],
    ['a comment of a page', 'docs/a.md', '```sh\nnpm test # says so\n```\n', 1],
    ['a comment of C', 'a.cc', '/// Bytes beside\n/// the slab.\nint says = 1;\n', 1],
    ['a string of C', 'a.c', 'die("whoever asks");\n', 1],
    ['a script', '.ci/run', 'x=1 # as the kernel says\nsays "$x"\n', 1],
    ['a manifest', 'package.json', '{ "description": "Speaks to whoever asks" }', 1],
    ['a drawing', 'a.svg', '<text class="says">frames beside it</text>', 1],
  ])('in %s is found', (_where, path, content, count) => {
    expect(found(path, content).length).toBe(count);
  });

  test('is named with its line and what to write instead', () => {
    const code =
      "const a = 1;\n\n// A long comment,\n// which whoever reads;\nthrow new Error('whoever posts waits');";
    const instead = '"whoever": name the subject: the caller, a subscriber, programs that …';
    expect(found('a.ts', code)).toEqual([`a.ts:4: comment: ${instead}`, `a.ts:5: message: ${instead}`]);
  });
});

test('an exported class without a docstring is found', () => {
  const code =
    '/** The head. */\nconst a = 1;\nexport class A {}\n/** One. */\nexport class B {}\nclass C {}';
  expect(found('a.ts', code)).toEqual(['a.ts:3: class A has no docstring']);
});

test('a blank line between the head comment and the imports is found', () => {
  const head = '/**\n * The head.\n */\n';
  expect(found('a.ts', `${head}\nimport a from 'a';`)).toEqual(['a.ts:1: blank line after the head comment']);
  expect(found('a.ts', `${head}import a from 'a';`)).toEqual([]);
});

test('code and names are not prose', () => {
  expect(
    found('a.ts', "/** Wakes `whoever`. @param told the messages */\nimport a from './whoever.ts';"),
  ).toEqual([]);
  expect(found('a.ts', "const whoever = 'whoever';\nwhoever.tell(`" + '$' + '{told}/said`);')).toEqual([]);
  expect(found('a.c', '#include "whoever.h"\nsay(told);\n')).toEqual([]);
  expect(found('docs/a.md', '```\nwhoever\n```\nA `whoever` and [a link](whoever.md).\n')).toEqual([]);
  expect(found('docs/a.md', '## What it needs\n\nMemory. What does it need?\n')).toEqual([]);
});
