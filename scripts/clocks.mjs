/**
 * Test files that read a wall clock, sleep or set a deadline: `node scripts/clocks.mjs` prints a table of them, with the counts of
 * the three; `--lines` prints every place. test/clocks.json lists, for each file that reads a clock or sleeps, how its verdicts depend on time,
 * and test/repo/clocks.test.ts holds that list and the files together:
 *
 * virtual  The time is an argument of what is tested, or the file only names a clock.
 * event    A verdict waits for an event, with a deadline of minutes. Pauses let something happen: a shorter one tests less.
 * bench    Times are printed or compared with each other, and no verdict is closer than 20 times to the figure of a quiet machine.
 * tight    As found: a verdict or a deadline that is too close. To be mended.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Numbers of four digits or more, of a sum or product, too: ms. Exponents of ACK timeouts have two digits. */
const MS = String.raw`[\w. ()*+]*?\d[\d_]*\d{3}\b[\w. ()*+]*`;
const CLOCKS = {
  reads:
    /\b(?:Date\.now\(|new Date\(\)|performance\.now\(|process\.hrtime|time\.(?:time|monotonic)\(|clock_gettime\()/g,
  sleeps:
    /(?<!\w\.)\b(?:time\.sleep\(|setTimeout\(|setInterval\(|sleep\(|sleep \d[\d.]*)|AbortSignal\.timeout\(/g,
  deadlines: new RegExp(
    String.raw`\btimeout: (${MS})|\bvi\s*\.wait(?:For|Until)\(|^ *[}\])]+, (${MS})\);$|^ {2,4}(${MS}),\n\);$`,
    'gm',
  ),
};
/** Of vi.waitFor() and vi.waitUntil() without one. expect.poll() has that of vitest.config.ts. */
const DEFAULT_MS = 1000;

const FILES = [
  'test/**',
  'native/test/**',
  'packages/*/src/**.test.ts',
  'packages/*/scenarios/**',
  'packages/*/testing/**',
  ...['test/fixtures/**', 'test/**/captures/**', 'test/tiers/**', '*.md', '*.txt', '*.json'].map(
    (path) => `:!${path}`,
  ),
];

/** The largest number of an expression. */
function longest(expression) {
  const numbers = expression?.match(/\d[\d_]*/g) ?? [`${DEFAULT_MS}`];
  return Math.max(...numbers.map((number) => Number(number.replaceAll('_', ''))));
}

/**
 * The places of each file, by what they do.
 * @returns {Map<string, { what: string, line: number, text: string, ms?: number }[]>}
 */
export function clocks() {
  const list = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '--', ...FILES], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const found = new Map();
  for (const file of list.trim().split('\n')) {
    const source = readFileSync(join(ROOT, file), 'utf8');
    const places = Object.entries(CLOCKS).flatMap(([what, pattern]) =>
      [...source.matchAll(pattern)].map(({ 0: text, index, ...groups }) => ({
        ...{ what, text: text.trim(), line: source.slice(0, index).split('\n').length },
        ...(what === 'deadlines' ? { ms: longest(groups[1] ?? groups[2] ?? groups[3]) } : {}),
      })),
    );
    if (places.length > 0) found.set(file, places);
  }
  return found;
}

/** The row of a file in test/clocks.json, or that of its folder. */
export function rowOf(rows, file) {
  const key = Object.keys(rows).find(
    (name) => name === file || (name.endsWith('/') && file.startsWith(name)),
  );
  return key === undefined ? undefined : { key, kind: rows[key][0], reason: rows[key][1] };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const rows = JSON.parse(readFileSync(join(ROOT, 'test/clocks.json'), 'utf8'));
  for (const [file, places] of clocks()) {
    const clock = places.some(({ what }) => what !== 'deadlines');
    const { kind = clock ? 'NOT LISTED' : 'event', reason = 'deadlines only' } = rowOf(rows, file) ?? {};
    const counts = Object.keys(CLOCKS)
      .map((what) => `${places.filter((place) => place.what === what).length || '·'}`.padStart(3))
      .join('');
    console.log(`${counts}  ${kind.padEnd(8)} ${file.padEnd(52)} ${reason}`);
    if (process.argv.includes('--lines'))
      for (const { line, text } of places) console.log(`${' '.repeat(24)}${line}: ${text}`);
  }
}
