/** docs/architecture.md agrees with the tree: its names of files and functions, its picture, its lines; and the size of files that it states. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { nativeParts } from '../../scripts/native-lines.mjs';

const root = join(import.meta.dirname, '../..');
const text = (path: string) => readFileSync(join(root, path), 'utf8');
const page = text('docs/architecture.md');
const { packages } = JSON.parse(text('scripts/imports/rules.json')) as { packages: Record<string, string[]> };

/** A file or a folder, in backticks or not; and the name of a function that follows in parentheses or after a comma. */
const NAMED =
  /(?<![\w./(#[-])(`?)((?:[\w-]+\/)*(?:[\w.-]+\.(?:tsx?|cc?|h|mjs|json)|(?<=\/))(?!\w))\1(?:,? \(?`(#?\w+)`)?/g;

/** Paragraphs, items of lists and rows of tables: in each, a name without a folder is in the folder of the one before it. */
const blocksOf = (markdown: string) =>
  markdown
    .replace(/```[\s\S]*?```/g, '')
    .replace(/\[[^\]]*\]\([^)]*\)/g, 'link')
    .replaceAll(/\n(?!\n|\||- |\d+\. )/g, ' ')
    .split('\n');

/** The names of a page that lead to nothing, and how many names there are. */
function wrongNames(markdown: string): { wrong: string[]; names: number } {
  const wrong: string[] = [];
  let names = 0;
  for (const block of blocksOf(markdown)) {
    let folder = '';
    for (const [, , name = '', within] of block.matchAll(NAMED)) {
      const [first = ''] = name.split('/');
      const isWhole = existsSync(join(root, first)) && name.includes('/');
      const given = first in packages ? `packages/${first}/src${name.slice(first.length)}` : name;
      const path = name.includes('/') && (isWhole || first in packages) ? given : folder + name;
      names++;
      folder = path.slice(0, path.lastIndexOf('/') + 1);
      if (!existsSync(join(root, path))) wrong.push(`${name}: there is no ${path}`);
      else if (within !== undefined && !text(path).includes(within)) wrong.push(`${path}: no ${within}`);
    }
  }
  return { wrong, names };
}

test('each file and function that the page names exists', () => {
  const { wrong, names } = wrongNames(page);
  expect(wrong).toEqual([]);
  expect(names).toBeGreaterThan(100);
});

test.each([
  ['`transport/requester/retries.ts`', 'transport/requester/retries.ts: there is no packages/transport/src/'],
  ['`cm/states.ts`, `state.ts`', 'state.ts: there is no packages/cm/src/state.ts'],
  ['native/ibverbs/rings.c has', 'native/ibverbs/rings.c: there is no native/ibverbs/rings.c'],
  ['in `capture/flow/paired/`', 'capture/flow/paired/: there is no packages/capture/src/flow/paired/'],
  ['`transport/responder/rc.ts` (`acceptAll`)', 'packages/transport/src/responder/rc.ts: no acceptAll'],
])('a wrong name is found: %s', (markdown, finding) => {
  expect(wrongNames(`Some text: ${markdown}\n`).wrong.join()).toContain(finding);
});

/** The packages that a package imports, directly or by others. */
function reached(name: string): Set<string> {
  return new Set((packages[name] ?? []).flatMap((next) => [next, ...reached(next)]));
}

test('the picture has each package, and the arrows of rules.json that do not follow from others', () => {
  const picture = text('docs/rooms.svg');
  const arrows = Object.entries(packages).flatMap(([from, all]) =>
    all.filter((to) => !all.some((other) => reached(other).has(to))).map((to) => `${from} → ${to}`),
  );
  const drawn = [...picture.matchAll(/data-from="([\w-]+)" data-to="([\w-]+)"/g)].map(
    ([, from, to]) => `${from} → ${to}`,
  );
  expect(drawn.sort()).toEqual(arrows.sort());
  const boxes = [...picture.matchAll(/<text x="\d+" y="\d+">([\w-]+)</g)].map(([, name]) => name);
  expect(boxes.sort()).toEqual([...Object.keys(packages), 'dgram-native'].sort());
});

test('the table of the native part is that of scripts/native-lines.mjs, its lines within a tenth', () => {
  const { parts, unknown } = nativeParts() as {
    parts: { name: string; lines: number; why: string }[];
    unknown: string[];
  };
  expect(unknown).toEqual([]);
  const all = parts.reduce((sum, { lines }) => sum + lines, 0);
  for (const { name, lines, why } of [...parts, { name: 'all', lines: all, why: '' }]) {
    const row = page
      .split('\n')
      .find((line) => line.startsWith(`| ${name} | `) && line.endsWith(`| ${why} |`.replace('|  |', '| |')));
    const stated = Number(row?.split(' | ')[1]?.replace(',', ''));
    expect(Math.abs(stated - lines), `${name}: ${lines} lines`).toBeLessThanOrEqual(lines / 10);
  }
});

test('no source file has more than 450 lines', () => {
  const files = execFileSync(
    'git',
    ['ls-files', ':(glob)packages/*/src/**', 'native/src', 'native/ibverbs'],
    {
      cwd: root,
      encoding: 'utf8',
    },
  );
  const sources = files
    .split('\n')
    .filter((path) => /\.(tsx?|cc?|h|mjs)$/.test(path) && !path.includes('.test.'))
    // Generated.
    .filter((path) => path !== 'native/ibverbs/messages.h');
  expect(sources.length).toBeGreaterThan(700);
  const long = sources.filter((path) => text(path).split('\n').length - 1 > 450);
  expect(long).toEqual([]);
});
