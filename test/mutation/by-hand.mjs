// `node test/mutation/by-hand.mjs [FROM [TO]]`: makes each mutant of by-hand.data.mjs, or those with numbers FROM … TO, in a
// copy of the sources, and runs the tests of packages/transport on it. Exit code 1 if one lives.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MUTANTS } from './by-hand.data.mjs';
import { bundle, load, Runner, testFiles } from './suite.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
const SOURCE = join(ROOT, 'packages/transport/src');
const runner = new Runner();

/** The first test that fails on a mutant, or on the sources as they are (−1); undefined if none does. */
async function killerOf(index) {
  const changed = index < 0 ? undefined : join(SOURCE, MUTANTS[index][0]);
  const files = testFiles(ROOT, { scenarios: false });
  const change = (path) => (path === changed ? mutated(index) : undefined);
  const script = await bundle(ROOT, { files, change });
  try {
    const failure = await runner.firstFailure(load(script));
    return failure && `${failure.test.id}${failure.hung ? ': it hangs' : ''}`;
  } catch (error) {
    return `loading: ${error}`;
  }
}

/** A test that fails without a mutant judges no mutant. */
async function checkSources() {
  const broken = await killerOf(-1);
  if (broken !== undefined) throw new Error(`without a mutant, a test fails: ${broken}`);
}

function mutated(index) {
  const [file, search, replace] = MUTANTS[index];
  const text = readFileSync(join(SOURCE, file), 'utf8');
  const parts = text.split(search);
  if (parts.length !== 2) throw new Error(`${file}: found ${parts.length - 1} times: ${search}`);
  return parts.join(replace);
}

const [from = 0, to = process.argv.length > 2 ? from : MUTANTS.length - 1] = process.argv
  .slice(2)
  .map(Number);
for (const i of MUTANTS.keys()) mutated(i);
await checkSources();
let lived = 0;
let count = 0;
for (let i = from; i <= to; i++) {
  const [file, search] = MUTANTS[i];
  const killer = await killerOf(i);
  count++;
  if (killer === undefined) lived++;
  const what = `${i} ${file}: ${search.trim().split('\n')[0]}`;
  console.log(killer === undefined ? `LIVES  ${what}` : `killed ${what} (${killer})`);
}
await checkSources();
console.log(
  `result: ${count - lived} of ${count} mutants made by hand die by the tests of packages/transport`,
);
process.exit(lived === 0 ? 0 : 1);
