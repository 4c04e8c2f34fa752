// Checks docstrings' first sentences, messages, titles of tests and the documents for the words of words.json, and names
// what to write instead; and that each exported class has a docstring. Reads every file that git knows. Exit code 1, and a
// line for each violation.
//
// words.json: { "words": regular expressions, "say": what to write instead, "in": kinds of texts, without it
// all but comments; "everywhere": comments, too }.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bareClassesOf, textsOfCode, textsOfMarkdown } from './texts.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Not prose of ours, or written from docstrings that are checked themselves. */
const SKIPPED = /^(docs\/api|test\/fixtures\/|scripts\/prose\/|test\/prose\.test\.ts$)/;

/** A file begins with its docstring and its imports, without a blank line between. */
const BLANK_AFTER_HEAD = /^\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n\n(?:import |export \*|export (type )?\{)/;

/** The rules, with their words compiled. */
export function readRules() {
  const list = JSON.parse(readFileSync(join(root, 'scripts/prose/words.json'), 'utf8'));
  return list.map(({ words, say, in: kinds, everywhere }) => ({
    pattern: new RegExp(words.join('|'), 'giu'),
    say,
    kinds: kinds ?? ['docstring', 'message', 'title', 'prose', ...(everywhere ? ['comment'] : [])],
  }));
}

/** What breaks the rules in one file, a line each. */
export function violations(path, content, rules) {
  const isCode = !path.endsWith('.md');
  const texts = isCode ? textsOfCode(path, content) : textsOfMarkdown(content);
  const bare = isCode ? bareClassesOf(path, content) : [];
  const undocumented = bare.map(({ name, line }) => `${path}:${line}: class ${name} has no docstring`);
  const words = texts.flatMap(({ kind, text, line }) =>
    rules
      .filter(({ kinds }) => kinds.includes(kind))
      .flatMap(({ pattern, say }) =>
        (text.match(pattern) ?? []).map((word) => `${path}:${line}: ${kind}: "${word}": ${say}`),
      ),
  );
  const apart =
    isCode && BLANK_AFTER_HEAD.test(content) ? [`${path}:1: blank line after the head comment`] : [];
  return [...words, ...undocumented, ...apart];
}

/** The files that are checked, by path from the root. */
export function files() {
  const all = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { cwd: root });
  return all
    .toString()
    .split('\n')
    .filter(
      (path) => /\.(ts|tsx|mjs|js|md)$/.test(path) && !SKIPPED.test(path) && existsSync(join(root, path)),
    );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const rules = readRules();
  const found = files().flatMap((path) => violations(path, readFileSync(join(root, path), 'utf8'), rules));
  for (const line of found) console.error(line);
  if (found.length > 0) process.exitCode = 1;
}
