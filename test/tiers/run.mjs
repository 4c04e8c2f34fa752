// `node test/tiers/run.mjs ci|long [STEP|SET…]`: runs the steps of a tier (steps.mjs), all or those named, one after the other.
//
// Prints the time of each step and of its processors and, last, the counts of all tests: "N passed, N failed". A step fails when its
// command fails or its budget is used up; the steps after it run all the same. A run fails, too, when more than one test passed by its
// second run only. `long` puts each result into test/evidence/test-long.md and names the steps that have no result that passed.
// ROCE_PATIENCE=3 makes each budget three times as long, for a machine that has other work.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { PATIENCE } from './patience.mjs';
import { machine, missing, record, rows } from './results.mjs';
import { runStep } from './step.mjs';
import { CI, CI_MINUTES, choose, LONG, minutesLeft } from './steps.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const TIERS = { ci: CI, long: LONG };
const MINUTES = { ci: CI_MINUTES, long: Infinity };
/** Tests of a run that may need a second run. Each of them is a defect to mend; more of them are no chance. */
const SECOND_RUNS = 1;
/** Minutes of a preparation: of a kernel about four quiet ones, at low priority next to two busy processors. */
const PREPARATION = 45;

function fail(message) {
  console.error(`test/tiers/run.mjs: ${message}`);
  process.exit(2);
}

function git(...args) {
  const { status, stdout } = spawnSync('git', args, { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : '';
}

/** Tracked files that differ from the commit, except the table of results. */
const changedFiles = () => git('diff', '--name-only', 'HEAD', '--', '.', ':!test/evidence/test-long.md');

/** Starts the preparations of `steps`, one after the other. By name of the step: its outcome and its output, once it has ended. */
function prepareAll(steps) {
  const prepared = new Map();
  let before = Promise.resolve();
  for (const { name, prepare, env } of steps.filter((step) => step.prepare)) {
    const lines = [];
    before = before.then(async () => {
      const step = { command: `nice -n 5 ${prepare}`, minutes: PREPARATION, env };
      const outcome = await runStep(step, { cwd: root, write: (line) => lines.push(line) });
      return { outcome, lines };
    });
    prepared.set(name, before);
  }
  return prepared;
}

const [tier, ...names] = process.argv.slice(2);
const table = TIERS[tier];
if (!table) fail('usage: run.mjs ci|long [STEP|SET…]');
const { chosen, unknown } = choose(table, names);
if (unknown !== undefined)
  fail(`no step or set ${unknown} of ${tier}: ${table.map((step) => step.name).join(', ')}`);

const commit = git('rev-parse', '--short=10', 'HEAD');
const before = changedFiles();
if (tier === 'long' && before) fail(`the result belongs to a commit; commit first: ${before}`);
console.log(`== ${tier}: ${chosen.length} steps of ${commit || 'no commit'} on ${machine()}`);

const outcomes = [];
const started = performance.now();
const prepared = prepareAll(chosen);
for (const { minutes, ...rest } of chosen) {
  const preparation = await prepared.get(rest.name);
  if (preparation) {
    const { lines, outcome } = preparation;
    for (const line of lines) console.log(line);
    console.log(`== preparing ${rest.name}: ${outcome.verdict} in ${Math.round(outcome.seconds)} s`);
  }
  const step = {
    ...rest,
    minutes: minutesLeft(minutes, MINUTES[tier], performance.now() - started) * PATIENCE,
  };
  console.log(`== ${step.name}: ${step.command} (at most ${step.minutes} min)`);
  const outcome = await runStep(step, { cwd: root });
  outcomes.push({ step, outcome });
  const [took, processors] = [outcome.seconds, outcome.processorSeconds].map(Math.round);
  console.log(`== ${step.name}: ${outcome.verdict} in ${took} s, ${processors} s of the processors`);
  if (tier === 'long') record(step, outcome, commit);
}
const after = changedFiles();
if (after !== before) console.log(`== tracked files changed: ${after.split('\n').join(' ')}`);

console.log('== all steps, minutes, and minutes of their processors:');
for (const { step, outcome } of outcomes) {
  const [spent, processors] = [outcome.seconds, outcome.processorSeconds].map((s) => (s / 60).toFixed(1));
  console.log(
    `   ${step.name.padEnd(20)} ${spent.padStart(6)} ${processors.padStart(6)}  of ${step.minutes}  ${outcome.verdict}`,
  );
}
const again = outcomes.flatMap(({ outcome }) => outcome.secondRuns);
if (again.length > 0) console.log(`== passed by a second run only: ${again.length}`);
for (const test of again) console.log(`   ${test}`);
if (tier === 'long')
  for (const { name } of missing(LONG, rows())) console.log(`== no result that passed: ${name}`);
const sum = (of) => outcomes.reduce((total, { outcome }) => total + of(outcome), 0);
const minutes = (sum((o) => o.seconds) / 60).toFixed(1);
// A step that failed without a test that failed counts as one.
const failed =
  sum((o) => (o.verdict === 'passed' ? 0 : Math.max(1, o.failed))) +
  (after === before ? 0 : 1) +
  (again.length > SECOND_RUNS ? 1 : 0);
const passed = sum((o) => o.passed);
console.log(`      Tests  ${failed > 0 ? `${failed} failed | ` : ''}${passed} passed (${passed + failed})`);
console.log(`${tier}: ${passed} passed, ${failed} failed, ${minutes} min`);
process.exit(failed === 0 ? 0 : 1);
