// `node test/tiers/run.mjs ci|long [STEP…]`: runs the steps of a tier (steps.mjs), all or those named, one after the other.
//
// Prints the time of each step and, last, the counts of all tests: "N passed, N failed". A step fails when its command
// fails or its budget is used up; the steps after it run all the same. `long` puts each result into docs/test-long.md.
// ROCE_PATIENCE=3 makes each budget three times as long, for a machine that has other work.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { machine, record } from './results.mjs';
import { runStep } from './step.mjs';
import { CI, CI_MINUTES, LONG, minutesLeft } from './steps.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const TIERS = { ci: CI, long: LONG };
const MINUTES = { ci: CI_MINUTES, long: Infinity };

function fail(message) {
  console.error(`test/tiers/run.mjs: ${message}`);
  process.exit(2);
}

function git(...args) {
  const { status, stdout } = spawnSync('git', args, { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : '';
}

/** Tracked files that differ from the commit, but for the table of results. */
const changedFiles = () => git('diff', '--name-only', 'HEAD', '--', '.', ':!docs/test-long.md');

const [tier, ...names] = process.argv.slice(2);
const table = TIERS[tier];
if (!table) fail('usage: run.mjs ci|long [STEP…]');
const unknown = names.find((name) => !table.some((step) => step.name === name));
if (unknown !== undefined)
  fail(`no step ${unknown} of ${tier}: ${table.map((step) => step.name).join(', ')}`);

const commit = git('rev-parse', '--short=10', 'HEAD');
const before = changedFiles();
if (tier === 'long' && before) fail(`the result belongs to a commit; commit first: ${before}`);
const chosen = names.length > 0 ? table.filter((step) => names.includes(step.name)) : table;
console.log(`== ${tier}: ${chosen.length} steps of ${commit || 'no commit'} on ${machine()}`);

const outcomes = [];
const patience = Number(process.env.ROCE_PATIENCE ?? 1);
const started = performance.now();
for (const { minutes, ...rest } of chosen) {
  const step = {
    ...rest,
    minutes: minutesLeft(minutes, MINUTES[tier], performance.now() - started) * patience,
  };
  console.log(`== ${step.name}: ${step.command} (at most ${step.minutes} min)`);
  const outcome = await runStep(step, { cwd: root, commit });
  outcomes.push({ step, outcome });
  console.log(`== ${step.name}: ${outcome.verdict} in ${Math.round(outcome.seconds)} s`);
  if (tier === 'long') record(step, outcome, commit);
}
const after = changedFiles();
if (after !== before) console.log(`== tracked files changed: ${after.split('\n').join(' ')}`);

console.log('== all steps:');
for (const { step, outcome } of outcomes) {
  const [spent, budget] = [(outcome.seconds / 60).toFixed(1), step.minutes];
  console.log(`   ${step.name.padEnd(20)} ${spent.padStart(6)} of ${budget} min  ${outcome.verdict}`);
}
const again = outcomes.flatMap(({ outcome }) => outcome.secondRuns);
if (again.length > 0) console.log(`== passed by a second run only: ${again.length}`);
for (const test of again) console.log(`   ${test}`);
const sum = (of) => outcomes.reduce((total, { outcome }) => total + of(outcome), 0);
const minutes = (sum((o) => o.seconds) / 60).toFixed(1);
// A step that failed without a test that failed counts as one.
const failed = sum((o) => (o.verdict === 'passed' ? 0 : Math.max(1, o.failed))) + (after === before ? 0 : 1);
const passed = sum((o) => o.passed);
console.log(`      Tests  ${failed > 0 ? `${failed} failed | ` : ''}${passed} passed (${passed + failed})`);
console.log(`${tier}: ${passed} passed, ${failed} failed, ${minutes} min`);
process.exit(failed === 0 ? 0 : 1);
