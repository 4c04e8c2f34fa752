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

const files = testFiles(ROOT, { scenarios: false });
/** The tests on the sources as they are. */
const sound = load(await bundle(ROOT, { files }));

/** The first test that fails on a mutant; undefined if none does. */
async function killerOf(index) {
  const changed = join(SOURCE, MUTANTS[index][0]);
  const change = (path) => (path === changed ? mutated(index) : undefined);
  const script = await bundle(ROOT, { files, change });
  let tests;
  try {
    tests = load(script);
  } catch (error) {
    return `loading: ${error}`;
  }
  const failure = await runner.firstFailure(tests);
  if (failure === undefined) return undefined;
  await checkSound(failure.test.id);
  return `${failure.test.id}${failure.hung ? ': it hangs' : ''}`;
}

/** A test that fails without a mutant judges no mutant. */
async function checkSound(id) {
  const { error } = await runner.run(sound.find((test) => test.id === id));
  if (error !== undefined) throw new Error(`without a mutant, a test fails: ${id}: ${error}`);
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
console.log(
  `result: ${count - lived} of ${count} mutants made by hand die by the tests of packages/transport`,
);
process.exit(lived === 0 ? 0 : 1);
