// The table of test/evidence/test-long.md: the last result of each step of `npm run test:long`.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, release } from 'node:os';
import { fileURLToPath } from 'node:url';
import { LONG } from './steps.mjs';

const FILE = fileURLToPath(new URL('../evidence/test-long.md', import.meta.url));
const HEAD = `# Last results of \`npm run test:long\`

Written by the runner, one row per step ([steps.mjs](../tiers/steps.mjs)); [testing.md](../../docs/testing.md) explains the steps.

`;
const COLUMNS = ['step', 'verdict', 'tests', 'minutes', 'result', 'date', 'commit', 'machine'];

export const machine = () =>
  `${availableParallelism()} cores (${cpus()[0]?.model.trim() ?? 'unknown'}), Linux ${release()}, Node ${process.versions.node}`;

const cells = (row) => `| ${COLUMNS.map((column) => row[column] ?? '').join(' | ')} |`;

/** The rows of a table as `format` writes it: column → text. */
export function parse(text) {
  return text
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .slice(1)
    .map((line) => line.slice(2, -2).split(' | '))
    .map((values) => Object.fromEntries(COLUMNS.map((column, i) => [column, values[i].trim()])));
}

export function format(rows) {
  const title = cells(Object.fromEntries(COLUMNS.map((column) => [column, column])));
  return `${HEAD}${title}\n|${COLUMNS.map(() => '---').join('|')}|\n${rows.map((row) => `${cells(row)}\n`).join('')}`;
}

/** Puts a step's outcome in place of its last one; rows stand in the order of the steps. */
export function record(step, { verdict, seconds, passed, failed, result = '' }, commit) {
  const row = {
    step: step.name,
    verdict,
    tests: passed + failed > 0 ? `${passed} passed, ${failed} failed` : '',
    minutes: (seconds / 60).toFixed(1),
    result: result.replaceAll('|', '/'),
    date: new Date().toISOString().slice(0, 10),
    commit,
    machine: machine(),
  };
  const others = rows().filter(
    (other) => other.step !== step.name && LONG.some(({ name }) => name === other.step),
  );
  const place = ({ step: name }) => LONG.findIndex((each) => each.name === name);
  writeFileSync(FILE, format([...others, row].sort((a, b) => place(a) - place(b))));
}

/** The rows of the table as it stands. */
export const rows = () => (existsSync(FILE) ? parse(readFileSync(FILE, 'utf8')) : []);

/** Those of `steps` that have no row that passed. */
export function missing(steps, results) {
  const passed = new Set(results.filter((row) => row.verdict === 'passed').map((row) => row.step));
  return steps.filter(({ name }) => !passed.has(name));
}
