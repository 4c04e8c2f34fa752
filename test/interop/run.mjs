// `npm run test:interop`: everything against the real rdma_rxe, in a guest under User-Mode Linux or QEMU.
//
//   --guest debian12|debian13   The guest's release; ROCE_GUEST=… does the same (debian12)
//   --sample SEED               Of the large matrices, cases that cover all pairs of values, chosen by SEED; ROCE_SAMPLE=… (all cases)
//   --sample gate               Always the same of these cases, and no verdict that depends on how busy the machine is
//   --sample control            The same for one case of each kind (control.mjs)
//   --shell                     Give a prompt for the guests before the tests
//   --only-shell                The same, and play no test: two guests with a real rxe to try programs on
//   --prepare                   Install and build what a run needs, and play no test
//   --lanes N                   Deal the test files out to N runs of vitest side by side, each with guests of its own (1)
//
// Installs the Debian packages that are missing (root) or names them, builds the guest and its kernel if there are none of these sources in the
// user's cache folder, and runs the suite inside namespaces of its own. ROCE_GUEST_ACCEL=um|tcg|kvm decides how guests run (docs/interop.md). Other arguments go to vitest:
// `npm run test:interop -- pingpong -t IPv6`. Fails if a test failed or was skipped.
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { daysSince } from './cache.mjs';
import { controlCases, controlFilters } from './control.mjs';
import { buildGuest, installPackages, SUITES } from './image.mjs';
import { spawnInNamespaces } from './namespaces.mjs';
import { fail } from './packages.mjs';
import { buildUmKernel, hasUmKernel } from './um/kernel.mjs';

/** Samples that are always the same. They wait longer for whatever they wait for: a busy machine makes them slow, and not fail. */
const FIXED = ['gate', 'control'];
const FIXED_PATIENCE = '5';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '../..');
const { guest, sample, shell, prepare, lanes, filters } = options();
const logs = join(here, 'logs');
/** Our own options, and `filters`: what is left, for vitest. */
function options() {
  const { ROCE_GUEST, ROCE_SAMPLE } = process.env;
  const found = {
    guest: ROCE_GUEST || 'debian12',
    sample: ROCE_SAMPLE || '',
    shell: '',
    prepare: false,
    lanes: 1,
    filters: [],
  };
  const args = process.argv.slice(2);
  for (let argument = args.shift(); argument !== undefined; argument = args.shift()) {
    if (argument === '--shell') found.shell = '1';
    else if (argument === '--only-shell') found.shell = 'only';
    else if (argument === '--prepare') found.prepare = true;
    else if (argument === '--guest') found.guest = args.shift() ?? '';
    else if (argument === '--lanes') found.lanes = Number(args.shift());
    else if (argument === '--sample') found.sample = args.shift() ?? '';
    else found.filters.push(argument);
  }
  const guests = Object.keys(SUITES);
  if (!guests.includes(found.guest)) fail(`--guest: expected ${guests.join(' or ')}, not "${found.guest}"`);
  if (!Number.isInteger(found.lanes) || found.lanes < 1) fail('--lanes: expected a positive number');
  if (found.shell) found.lanes = 1;
  return found;
}

/**
 * Removes the temporary directories of runs that were killed outright: they leave nothing else (namespaces.mjs). Another run may be of another PID
 * namespace, so that only the age of its directory shows that it is over.
 */
function sweep() {
  for (const name of readdirSync(tmpdir())) {
    const path = join(tmpdir(), name);
    if (/^roce-interop-\d+-/.test(name) && daysSince(path) > 1)
      rmSync(path, { recursive: true, force: true });
  }
  rmSync(logs, { recursive: true, force: true });
}

/** The guest's kernel for User-Mode Linux, or '' where QEMU is to run it. */
function umKernel() {
  const { ROCE_GUEST_ACCEL: wanted = '', ROCE_GUEST_UM: given } = process.env;
  if (wanted !== '' && wanted !== 'um') return '';
  if (given) return given;
  if (!hasUmKernel(guest)) {
    if (wanted === 'um')
      fail(`ROCE_GUEST_ACCEL=um: ${guest} has no kernel for User-Mode Linux on ${process.arch}`);
    return '';
  }
  try {
    return buildUmKernel(guest);
  } catch (error) {
    if (wanted === 'um') fail(error.message);
    console.error(
      `test:interop: no kernel for User-Mode Linux, so the guests are emulated: ${error.message}`,
    );
    return '';
  }
}

/**
 * Runs one lane of the suite in namespaces of its own; resolves to vitest's exit code, not 0 if a signal ended it. The first lane
 * writes to our output, each other one to `output` in its directory.
 */
function runLane(lane, image, um, { directory, report, output }) {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const args = [
    [vitest, 'run', '--config', join(here, 'vitest.config.ts')],
    ['--reporter=verbose', '--reporter=json', `--outputFile.json=${report}`],
    `--reporter=${join(root, 'test/tiers/second-runs.ts')}`,
    lanes > 1 ? [`--shard=${lane}/${lanes}`] : [],
    sample === 'control' && filters.length === 0 ? controlFilters(guest) : filters,
  ].flat();
  const log = lane > 1 && openSync(output, 'w');
  const { pid, done } = spawnInNamespaces(process.execPath, args, {
    cwd: root,
    stdio: lane > 1 ? ['ignore', log, log] : 'inherit',
    env: {
      ...process.env,
      TMPDIR: directory,
      ROCE_GUEST: guest,
      ROCE_GUEST_IMAGE: image,
      ROCE_GUEST_UM: um,
      ROCE_GUEST_STARTS: join(directory, 'starts'),
      ROCE_SAMPLE: sample,
      ROCE_GUEST_SHELL: shell,
      ROCE_INTEROP_LOGS: lanes > 1 ? join(logs, `lane-${lane}`) : logs,
      ROCE_PATIENCE: process.env.ROCE_PATIENCE ?? (FIXED.includes(sample) ? FIXED_PATIENCE : ''),
    },
  });
  if (shell)
    console.error(`a program in the network of the guests: nsenter --net=/proc/${pid}/ns/net PROGRAM`);
  return done;
}

/** Runs all lanes side by side. The lines of one are not mixed with another's. */
async function runSuite(image, um, scratch) {
  const all = Array.from({ length: lanes }, (_, i) => {
    const directory = join(scratch, `lane-${i + 1}`);
    mkdirSync(directory, { mode: 0o755 });
    const lane = { directory, report: join(directory, 'report.json'), output: join(directory, 'output') };
    return { ...lane, done: runLane(i + 1, image, um, lane) };
  });
  const codes = [];
  for (const [i, { done, output }] of all.entries()) {
    codes.push(await done);
    if (i > 0) process.stdout.write(readFileSync(output));
  }
  return {
    code: Math.max(...codes),
    counts: sumOf(all.map(({ report }) => countsOf(report))),
    how: accelerators(all),
  };
}

/** Cases of the sample `control` that the report does not have: a test was renamed, or not played. */
function missingCases({ testResults }) {
  const played = new Set(
    testResults.flatMap(({ name, assertionResults }) =>
      assertionResults
        .filter(({ status }) => status === 'passed' || status === 'failed')
        .map(({ fullName }) => `${basename(name)}: ${fullName}`),
    ),
  );
  return controlCases(guest).filter(({ file, name }) => !played.has(`${file}: ${name}`));
}

/** How the guests ran, in the words of ROCE_GUEST_ACCEL. */
function accelerators(lanes) {
  const files = lanes.map(({ directory }) => join(directory, 'starts')).filter(existsSync);
  const names = files.flatMap((file) => readFileSync(file, 'utf8').trim().split('\n'));
  return [...new Set(names)].join(' and ') || 'no guest';
}

/** vitest's counts; none at all when it wrote no report. */
function countsOf(report) {
  const none = { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] };
  return existsSync(report) ? { ...none, ...JSON.parse(readFileSync(report, 'utf8')) } : none;
}

/** The counts of all lanes as those of one. */
function sumOf(lanes) {
  const sum = (key) => lanes.reduce((total, counts) => total + counts[key], 0);
  return {
    passed: sum('numPassedTests'),
    failed: sum('numFailedTests'),
    skipped: sum('numPendingTests') + sum('numTodoTests'),
    everyLaneRan: lanes.every(({ numPassedTests }) => numPassedTests > 0),
    testResults: lanes.flatMap(({ testResults }) => testResults),
  };
}

installPackages();
let image;
try {
  image = buildGuest(guest);
} catch (error) {
  fail(error.message);
}
const um = umKernel();
if (prepare) process.exit();
sweep();
// rxe and we answer each other within tens of ms: other work of this machine may wait that long.
setPriority(constants.priority.PRIORITY_HIGH);
// For what the tests put into the temporary directory, an ordinary user's among it: gone with the run.
const scratch = mkdtempSync(join(tmpdir(), `roce-interop-${process.pid}-`));
chmodSync(scratch, 0o755);
const { code, counts, how } = await runSuite(image, um, scratch);
rmSync(scratch, { recursive: true, force: true });
if (shell === 'only') process.exit(code);
const { passed, failed, skipped } = counts;
const missing = sample === 'control' && passed > 0 ? missingCases(counts) : [];
for (const { file, name } of missing)
  console.error(`test:interop: control.mjs has no such case: ${file}: ${name}`);
// A filter skips by intent; the whole suite may not.
const complete = filters.length > 0 || (sample === 'control' ? missing.length === 0 : skipped === 0);
const good = code === 0 && counts.everyLaneRan && complete;
if (!good && existsSync(logs)) console.error(`test:interop: consoles, commands and captures are in ${logs}`);
console.log(`interop ${guest} (${how}): ${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(good ? 0 : 1);
