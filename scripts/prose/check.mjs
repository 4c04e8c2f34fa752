// Checks the names of products in all texts that people read: comments, docstrings, messages, titles of tests, documents, in every
// language of the tree. Also finds paths of one machine, in code too, and exported classes without a docstring. Reads every file that git
// knows. Exit code 1, and a line for each violation. Style is for readers to judge (CONTRIBUTING.md).
//
// words.json is a list of rules. `words` are regular expressions of whole words; a space in one stands for any white space, so a
// phrase may go over lines. `say` is what to write instead. `exact` distinguishes capitals. Code (in a sentence: in backticks) and names
// of parameters are not read.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bareClassesOf, OTHERS, textsOfCode, textsOfMarkdown, textsOfOther } from './texts.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Recorded by programs, or written from texts that are checked themselves; the list of the words, and its test. */
const SKIPPED =
  /^(docs\/api|test\/fixtures\/.*(?<!\.md)$|test\/capture\/real\/captures\/|bench\/results\/|pnpm-lock|scripts\/prose\/words\.json|test\/repo\/prose\.test\.ts$)/;

const IS_CODE = /\.(ts|mts|tsx|mjs|js)$/;

/** A file begins with its docstring and its imports, without a blank line between. */
const BLANK_AFTER_HEAD = /^\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n\n(?:import |export \*|export (type )?\{)/;

/** Folders of the author, next to the clone or above it. */
const MACHINE_PATH = /(?<=^|[\s'"`(=:])(?:\/work\/|\/home\/\w+\/|(?:\.\.\/)+shared\/)/gm;

/** The rules, with their words compiled. */
export function readRules() {
  const list = JSON.parse(readFileSync(join(root, 'scripts/prose/words.json'), 'utf8'));
  return list.map(({ words, say, exact }) => ({
    pattern: new RegExp(`\\b(?:${words.join('|').replaceAll(' ', '\\s+')})\\b`, exact ? 'gsu' : 'gisu'),
    say,
  }));
}

function textsOf(path, content) {
  if (path.endsWith('.md')) return textsOfMarkdown(content);
  return IS_CODE.test(path) ? textsOfCode(path, content) : textsOfOther(path, content);
}

/** Returns the violations of one file, a line each. */
export function violations(path, content, rules) {
  const at = (position) => `${path}:${content.slice(0, position).split('\n').length}`;
  const bare = IS_CODE.test(path) ? bareClassesOf(path, content) : [];
  const undocumented = bare.map(({ name, position }) => `${at(position)}: class ${name} has no docstring`);
  const words = textsOf(path, content).flatMap(({ kind, text, position }) =>
    rules.flatMap(({ pattern, say }) =>
      [...text.matchAll(pattern)].map(({ 0: word, index }) => {
        const found = word.replace(/\s+/g, ' ');
        return `${at(position + index)}: ${kind}: "${found}": ${say}`;
      }),
    ),
  );
  const paths = [...content.matchAll(MACHINE_PATH)].map(
    ({ 0: place, index }) => `${at(index)}: "${place}": a path of one machine`,
  );
  const apart =
    IS_CODE.test(path) && BLANK_AFTER_HEAD.test(content)
      ? [`${path}:1: blank line after the head comment`]
      : [];
  return [...words, ...paths, ...undocumented, ...apart];
}

/** The files that are checked, by path from the root. */
export function files() {
  const all = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { cwd: root });
  return all
    .toString()
    .split('\n')
    .filter(
      (path) =>
        path.endsWith('.md') || [IS_CODE, ...OTHERS.map((other) => other.path)].some((p) => p.test(path)),
    )
    .filter((path) => !SKIPPED.test(path) && existsSync(join(root, path)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const rules = readRules();
  const found = files().flatMap((path) => violations(path, readFileSync(join(root, path), 'utf8'), rules));
  for (const line of found) console.error(line);
  if (found.length > 0) process.exitCode = 1;
}
