/** Links in the repository's Markdown files: each relative one leads to a file, and each anchor to a heading. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** A Markdown text without its code. */
const withoutCode = (markdown: string) =>
  markdown.replace(/^( *)(```|~~~)[\s\S]*?^\1\2/gm, '').replace(/`[^`\n]*`/g, 'code');

/** Targets of `[text](target)`, and of a reference's definition. */
const targetsOf = (markdown: string) => [
  ...[...withoutCode(markdown).matchAll(/\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)/g)].map(
    (m) => m[1] as string,
  ),
  ...[...withoutCode(markdown).matchAll(/^\[[^\]]+\]: (\S+)/gm)].map((m) => m[1] as string),
];

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(markdown: string): Set<string> {
  const seen = new Map<string, number>();
  const anchors = new Set<string>();
  for (const [, title] of markdown.replace(/^( *)(```|~~~)[\s\S]*?^\1\2/gm, '').matchAll(/^#{1,6} (.*)$/gm)) {
    const slug = title!
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_\- ]/gu, '')
      .replaceAll(' ', '-');
    const count = seen.get(slug) ?? 0;
    seen.set(slug, count + 1);
    anchors.add(count === 0 ? slug : `${slug}-${count}`);
  }
  return anchors;
}

/** The broken links of a page, a line each. */
function brokenLinks(path: string, markdown: string, read: (path: string) => string | undefined): string[] {
  return targetsOf(markdown)
    .filter((target) => !/^[a-z]+:/.test(target))
    .flatMap((target) => {
      const [file = '', anchor] = target.split('#');
      const at = file === '' ? path : normalize(join(dirname(path), decodeURIComponent(file)));
      const text = at === path ? markdown : read(at);
      if (text === undefined) return [`${path}: ${target}: no such file`];
      if (anchor === undefined || !at.endsWith('.md')) return [];
      return anchorsOf(text).has(anchor) ? [] : [`${path}: ${target}: no such heading`];
    });
}

function readFromTree(path: string): string | undefined {
  const full = join(root, path);
  if (path.startsWith('..') || !existsSync(full)) return undefined;
  return statSync(full).isDirectory() ? '' : readFileSync(full, 'utf8');
}

test('npx fetches no package of strangers: each one is of this project, a tool of the checkout, or pnpm and node-gyp', () => {
  const { devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const known = new Set([...Object.keys(devDependencies), 'pnpm@12', 'node-gyp@12']);
  const args = ['grep', '-hoE', 'npx (--yes )?[@a-z][^ `]*', '--', '*.md'];
  const found = execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim().split('\n');
  expect(found.length).toBeGreaterThan(5);
  expect(found.filter((command) => !known.has(command.split(' ').at(-1)!))).toEqual([]);
});

test('every relative link and anchor of the Markdown files leads somewhere', () => {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'];
  const files = execFileSync('git', args, { cwd: root, encoding: 'utf8' }).split('\n').filter(Boolean);
  expect(files.length).toBeGreaterThan(50);
  const texts = files.filter((path) => existsSync(join(root, path)));
  expect(
    texts.flatMap((path) => brokenLinks(path, readFileSync(join(root, path), 'utf8'), readFromTree)),
  ).toEqual([]);
});

describe('the check finds', () => {
  const read = (path: string) => (path === 'docs/b.md' ? '# One\n\n## `two` of *b*\n\n# One\n' : undefined);
  test.each([
    ['a file that is not there', '[a](c.md)', ['docs/a.md: c.md: no such file']],
    ['a heading that is not there', '[a](b.md#three)', ['docs/a.md: b.md#three: no such heading']],
    ['a heading of its own page', '# Here\n[a](#there)', ['docs/a.md: #there: no such heading']],
  ])('%s', (_what, markdown, expected) => {
    expect(brokenLinks('docs/a.md', markdown, read)).toEqual(expected);
  });

  test('nothing in links that lead somewhere, in code, and to other sites', () => {
    const page =
      '[a](b.md#two-of-b) [b](b.md#one-1) [c](https://example.org/x#y) `[d](e.md)`\n```\n[f](g.md)\n```\n';
    expect(brokenLinks('docs/a.md', page, read)).toEqual([]);
  });
});
