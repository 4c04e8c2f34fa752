/** The check of the prose (scripts/prose) finds a wrong name of its list in every kind of text. */
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

describe('a wrong name', () => {
  test.each([
    ['an error', 'a.ts', "throw new RoceError('X', 'Infiniband is on Github', {});", 2],
    ['a template', 'a.ts', 'const text = `' + '$' + '{name} is not an address of Infiniband`;', 1],
    ['a word of a template', 'a.mjs', 'const text = `' + '$' + '{call} Javascript ' + '$' + '{code}`;', 1],
    ['a docstring', 'a.ts', '/**\n * Wakes Javascript.\n */\nexport const a = 1;\n', 1],
    ['a later sentence of one', 'a.ts', '/** Wakes. Then it is\n * Github. */\nexport const a = 1;\n', 1],
    ['a comment', 'a.tsx', 'const a = 1; // as Infiniband has it\n', 1],
    ['a phrase over two lines', 'a.ts', '// A kernel of User\n// Mode Linux.\n', 1],
    ['a title', 'a.test.ts', "test.each([1])('the peer is on Github', () => {});", 1],
    ['a title of a row', 'a.test.ts', "test.each([['a peer on Github']])('%s', () => {});", 1],
    ['a page', 'docs/a.md', 'The table\nof Infiniband.\n', 1],
    ['a phrase of a page', 'docs/a.md', 'A user\nmode Linux.\n', 1],
    ['a comment of a page', 'docs/a.md', '```sh\nnpm test # of Typescript\n```\n', 1],
    ['a comment of C', 'a.cc', '/// Bytes of\n/// Infiniband.\nint Github = 1;\n', 1],
    ['a string of C', 'a.c', 'die("no Infiniband");\n', 1],
    ['a script', '.ci/run', 'x=1 # as Github has it\nGithub "$x"\n', 1],
    ['a manifest', 'package.json', '{ "description": "Speaks to Infiniband" }', 1],
    ['a drawing', 'a.svg', '<text class="Github">frames of Infiniband</text>', 1],
  ])('in %s is found', (_where, path, content, count) => {
    expect(found(path, content).length).toBe(count);
  });

  test('is named with its line and what to write instead', () => {
    const code =
      "const a = 1;\n\n// A long comment,\n// which Github has;\nthrow new Error('no Github here');";
    const instead = '"Github": GitHub';
    expect(found('a.ts', code)).toEqual([`a.ts:4: comment: ${instead}`, `a.ts:5: message: ${instead}`]);
  });
});

test('a path of one machine is found, in code too', () => {
  const [work, shared] = [['', 'work', 'clone'].join('/'), ['..', '..', 'shared', 'a'].join('/')];
  expect(found('a.ts', `const a = '${work}';\nread('${shared}');`)).toHaveLength(2);
  expect(found('docs/a.md', `See \`${shared}\` and ${work}.`)).toHaveLength(2);
  expect(found('a.ts', "import { a } from '../shared-memory/a.ts';\nconst b = 'homework/';")).toEqual([]);
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
    found('a.ts', "/** Wakes `Github`. @param Github the messages */\nimport a from './Github.ts';"),
  ).toEqual([]);
  expect(found('a.ts', "const Github = 'Github';\nGithub.tell(`" + '$' + '{Github}/Github`);')).toEqual([]);
  expect(found('a.c', '#include "Github.h"\nsay(Github);\n')).toEqual([]);
  expect(found('docs/a.md', '```\nGithub\n```\nA `Github` and [a link](Github.md).\n')).toEqual([]);
});
