// `node test/mutation/judge.mjs [PATH…]`: makes the mutants of packages/transport/src, or of what is below these paths there, and runs
// the tests on each until one fails: every eighth mutant first, so that a part of a run is a fair sample. Results are kept by
// file (results.mjs): a run goes on where the last one stopped. A mutant that died is not judged again until its file
// changes; one that lives is, when tests or sources have changed.
//   MUTATION_SECONDS=50   stops after so much processor time; exit code 3 if more is to do
//   MUTATION_TESTS=cursor,reads  judges by the test files of these names only: seconds, while a test is written
//   MUTATION_PASSES=1     judges every eighth mutant only
//   MUTATION_PATIENCE=4000  processor time for the tests of one mutant, ms: one that no test found until then counts as alive
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Instrumenter } from '@stryker-mutator/instrumenter';
import { keepCoverage, knownCoverage, Results } from './results.mjs';
import { bundle, load, Runner, testFiles } from './suite.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
const SOURCE = join(ROOT, 'packages/transport/src');
const SECONDS = Number(process.env.MUTATION_SECONDS ?? Number.POSITIVE_INFINITY);
const TESTS = process.env.MUTATION_TESTS?.split(',').map((name) => `/${name}.test.ts`);
const PATIENCE = Number(process.env.MUTATION_PATIENCE ?? 4000);

/** Left out, because each mutant in their way would take long: what they find, others find. */
const TOO_SLOW = [
  /mutated, forged and random packets/,
  /kbps over a second of virtual time, within 5 percent \[[12]\]/,
  /SEND, WRITE and READ of \d+ bytes at path MTU (512|1024|2048|4096)/,
  /the same seed gives the same run/,
];
/** A mutant that hangs is ended after so many times the executions that the right code had, and some more. */
const HIT_FACTOR = 5;
const HITS_MORE = 100_000;

const log = { isDebugEnabled: () => false, debug() {}, info() {}, warn() {} };

/** Which of eight mutants that follow one another are judged first. */
const PASSES = [0, 4, 2, 6, 1, 5, 3, 7];
const WANTED = PASSES.slice(0, Number(process.env.MUTATION_PASSES ?? PASSES.length));

/** State that the instrumented sources share with this file. */
const shared = {};
globalThis.__stryker__ = shared;

const spent = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

/** Judges the mutants of the files. @returns whether all were judged */
async function judge(names) {
  const sources = new Map(
    names.map((name) => [join(SOURCE, name), readFileSync(join(SOURCE, name), 'utf8')]),
  );
  const made = await new Instrumenter(log).instrument(
    [...sources].map(([path, content]) => ({ name: path, mutate: true, content })),
    { excludedMutations: ['StringLiteral'], ignorers: [], plugins: null },
  );
  const all = names.map((name) => {
    const path = join(SOURCE, name);
    return new Results(
      name,
      sources.get(path),
      made.mutants.filter(({ fileName, status }) => fileName === path && status !== 'Ignored'),
    );
  });
  const instrumented = new Map(made.files.map(({ name, content }) => [name, content]));
  const files = testFiles(ROOT).filter(({ path }) => !TESTS || TESTS.some((name) => path.endsWith(name)));
  const script = await bundle(ROOT, { files, change: (path) => instrumented.get(path) });
  const runner = new Runner();
  const { coverage, covered } = await cover(script, runner);
  let tests = loadTests(script);
  for (const [pass, results] of WANTED.flatMap((pass) => all.map((results) => [pass, results]))) {
    for (const mutant of results.open(pass, PASSES.length, script.hash)) {
      if (spent() > SECONDS) {
        results.save();
        keepCoverage(script.hash, { coverage, memory: runner.memory() });
        return false;
      }
      const { isStatic, hits, ids } = covered(mutant.id);
      if (!isStatic && hits === 0) {
        results.set(mutant, 'not covered');
        continue;
      }
      results.begin(mutant);
      shared.hitCount = 0;
      shared.hitLimit = HIT_FACTOR * hits + HITS_MORE;
      shared.activeMutant = mutant.id;
      let failure;
      try {
        if (isStatic) tests = loadTests(script);
        const chosen = isStatic ? tests : tests.filter(({ id }) => ids.has(id));
        failure = await runner.firstFailure(chosen, PATIENCE);
      } catch (error) {
        failure = { test: { id: 'loading' }, error };
      }
      shared.activeMutant = undefined;
      if (failure === undefined) results.set(mutant, 'alive');
      else results.set(mutant, 'dead', failure.test.id);
      // Discards state that the mutant changed when it was loaded, or left behind when it was ended.
      if (isStatic || failure?.hung || failure?.test.id === 'loading') tests = loadTests(script);
    }
    results.save();
  }
  return true;
}

function loadTests(script) {
  return load(script).filter(({ id }) => !TOO_SLOW.some((slow) => slow.test(id)));
}

/** Runs all tests on the right code, or did so before. @returns which tests execute a mutant, and how often */
async function cover(script, runner) {
  const known = knownCoverage(script.hash);
  if (known) {
    runner.restore(known.memory);
    return { coverage: known.coverage, covered: lookUp(known.coverage) };
  }
  shared.mutantCoverage = { static: {}, perTest: {} };
  const coverage = shared.mutantCoverage;
  for (const test of loadTests(script)) {
    shared.currentTestId = test.id;
    const { error } = await runner.run(test);
    if (error) throw new Error(`without a mutant, a test fails: ${test.id}`, { cause: error });
  }
  shared.currentTestId = undefined;
  shared.mutantCoverage = undefined;
  keepCoverage(script.hash, { coverage, memory: runner.memory() });
  return { coverage, covered: lookUp(coverage) };
}

function lookUp(coverage) {
  const byMutant = new Map();
  for (const [id, counts] of Object.entries(coverage.perTest)) {
    for (const [mutant, count] of Object.entries(counts)) {
      if (!byMutant.has(mutant)) byMutant.set(mutant, { hits: 0, ids: new Set() });
      const of = byMutant.get(mutant);
      of.hits += count;
      of.ids.add(id);
    }
  }
  return (mutant) => {
    const { hits, ids } = byMutant.get(mutant) ?? { hits: 0, ids: new Set() };
    return { isStatic: coverage.static[mutant] !== undefined, hits, ids };
  };
}

const asked = process.argv.slice(2);
const names = readdirSync(SOURCE, { recursive: true })
  .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts') && name !== 'index.ts')
  .filter((name) => asked.length === 0 || asked.some((path) => name.startsWith(path)))
  .sort();
const print = console.log;
console.log = () => {}; // Tests print their counts.
const done = await judge(names);
for (const name of names) print(`${name}: ${Results.line(name)}`);
process.exit(done ? 0 : 3);
