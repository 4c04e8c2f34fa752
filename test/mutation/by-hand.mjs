// `node test/mutation/by-hand.mjs [FROM [TO]]`: makes each mutant of by-hand.data.mjs, or those with numbers FROM … TO, in a
// copy of the sources, and runs the tests of packages/transport on it. Exit code 1 if one lives.
import { fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MUTANTS } from './by-hand.data.mjs';
import { bundle, load, runAll, testFiles } from './suite.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
const SOURCE = join(ROOT, 'packages/transport/src');
/** ms after which a mutant hangs. */
const PATIENCE = 300_000;

if (process.send) {
  process.once('message', async ({ index, spent }) =>
    process.send(await judge(index, spent), () => process.exit(0)),
  );
} else await judgeAll(process.argv.slice(2).map(Number));

/**
 * Runs the tests on a mutant, or on the sources as they are (−1), those first that took the least time before.
 * @returns the first that fails, and the times
 */
async function judge(index, spent) {
  const { outfile, remove } = await bundle(ROOT, {
    files: testFiles(ROOT, { scenarios: false }),
    change:
      index < 0
        ? undefined
        : (path) => (path === join(SOURCE, MUTANTS[index][0]) ? mutated(index) : undefined),
  });
  let killer;
  const times = {};
  try {
    const tests = await load(outfile);
    tests.sort((a, b) => (spent[a.id] ?? 0) - (spent[b.id] ?? 0));
    await runAll(tests, (test, ms, error) => {
      times[test.id] = ms;
      if (error) killer = test.id;
      return error === undefined;
    });
  } catch {
    killer = 'loading';
  }
  remove();
  return { killer, times };
}

function mutated(index) {
  const [file, search, replace] = MUTANTS[index];
  const text = readFileSync(join(SOURCE, file), 'utf8');
  const parts = text.split(search);
  if (parts.length !== 2) throw new Error(`${file}: found ${parts.length - 1} times: ${search}`);
  return parts.join(replace);
}

function inProcess(index, spent = {}) {
  return new Promise((resolve) => {
    const child = fork(fileURLToPath(import.meta.url));
    const patience = setTimeout(() => child.kill('SIGKILL'), PATIENCE);
    let result = { killer: 'it hangs, or ends the process' };
    child.once('message', (message) => {
      result = message;
    });
    child.once('exit', () => {
      clearTimeout(patience);
      resolve(result);
    });
    child.send({ index, spent });
  });
}

async function judgeAll([from = 0, to = from === 0 ? MUTANTS.length - 1 : from]) {
  const chosen = [...MUTANTS.keys()].filter((i) => i >= from && i <= to);
  for (const i of MUTANTS.keys()) mutated(i);
  const { killer, times } = await inProcess(-1);
  if (killer !== undefined) throw new Error(`without a mutant, a test fails: ${killer}`);
  let lived = 0;
  let count = 0;
  for (const i of chosen) {
    const [file, search] = MUTANTS[i];
    const result = await inProcess(i, times);
    count++;
    if (result.killer === undefined) lived++;
    const verdict = result.killer === undefined ? 'LIVES ' : 'killed';
    console.log(
      `${verdict} ${i} ${file}: ${search.trim().split('\n')[0]}${result.killer ? ` (${result.killer})` : ''}`,
    );
  }
  console.log(
    `result: ${count - lived} of ${count} mutants made by hand die by the tests of packages/transport`,
  );
  process.exit(lived === 0 ? 0 : 1);
}
