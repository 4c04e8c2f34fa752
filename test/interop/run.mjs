// `npm run test:interop`: everything against the real rdma_rxe, in a guest under QEMU.
//
//   --guest debian12|debian13   The guest's release; ROCE_GUEST=… does the same (debian12)
//   --sample SEED               Of the large matrices, cases that cover all pairs of values, chosen by SEED; ROCE_SAMPLE=… (all cases)
//   --shell                     Give a prompt for the guests before the tests
//
// Installs the Debian packages that are missing (root) or names them, builds the guest if there is none or its sources
// changed, and runs the suite inside a network namespace of its own. Other arguments go to vitest:
// `npm run test:interop -- pingpong -t IPv6`. Fails if a test failed or was skipped.
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildGuest, call, fail, installPackages, SUITES } from './image.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '../..');
const { guest, sample, shell, filters } = options();
const logs = join(here, 'logs');
const NAMESPACE = 'roce-interop-'; // and the process that made it
const namespace = NAMESPACE + process.pid;

/** Our own options, and `filters`: what is left, for vitest. */
function options() {
  const { ROCE_GUEST, ROCE_SAMPLE } = process.env;
  const found = { guest: ROCE_GUEST || 'debian12', sample: ROCE_SAMPLE || '', shell: false, filters: [] };
  const args = process.argv.slice(2);
  for (let argument = args.shift(); argument !== undefined; argument = args.shift()) {
    if (argument === '--shell') found.shell = true;
    else if (argument === '--guest') found.guest = args.shift() ?? '';
    else if (argument === '--sample') found.sample = args.shift() ?? '';
    else found.filters.push(argument);
  }
  const guests = Object.keys(SUITES);
  if (!guests.includes(found.guest)) fail(`--guest: expected ${guests.join(' or ')}, not "${found.guest}"`);
  return found;
}

/** A run that was killed outright leaves its namespace; its programs died with it (harness/process.ts). */
function sweep() {
  const { stdout } = spawnSync('ip', ['netns', 'list'], { encoding: 'utf8' });
  for (const name of stdout.match(/\broce-interop-\d+/g) ?? []) {
    if (!existsSync(`/proc/${name.slice(NAMESPACE.length)}`)) spawnSync('ip', ['netns', 'delete', name]);
  }
  rmSync(logs, { recursive: true, force: true });
}

/** Runs the suite in the namespace; resolves to vitest's exit code, not 0 if a signal ended it. */
function runSuite(image, scratch, report) {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const args = [
    ['netns', 'exec', namespace, process.execPath, vitest, 'run', '--config', join(here, 'vitest.config.ts')],
    ['--reporter=verbose', '--reporter=json', `--outputFile.json=${report}`],
    `--reporter=${join(root, 'test/tiers/second-runs.ts')}`,
    filters,
  ].flat();
  return new Promise((resolve) => {
    const child = spawn('ip', args, {
      cwd: root,
      stdio: 'inherit',
      env: {
        ...process.env,
        TMPDIR: scratch,
        ROCE_GUEST: guest,
        ROCE_GUEST_IMAGE: image,
        ROCE_SAMPLE: sample,
        ROCE_GUEST_SHELL: shell ? '1' : '',
      },
    });
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
      process.on(signal, () => {
        child.kill(signal);
        setTimeout(() => child.kill('SIGKILL'), 15_000).unref();
      });
    }
    child.on('exit', (code) => resolve(code ?? 1));
  });
}

/** vitest's counts; none at all when it wrote no report. */
function countsOf(report) {
  const none = { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 };
  return existsSync(report) ? { ...none, ...JSON.parse(readFileSync(report, 'utf8')) } : none;
}

installPackages();
const image = buildGuest(guest);
sweep();
// rxe and we answer each other within tens of ms: other work of this machine may wait that long.
setPriority(constants.priority.PRIORITY_HIGH);
// For what the tests put into the temporary directory, an ordinary user's among it: gone with the run.
const scratch = mkdtempSync(join(tmpdir(), NAMESPACE));
chmodSync(scratch, 0o755);
const report = join(scratch, 'report.json');
call('ip', ['netns', 'add', namespace]);
let code = 1;
try {
  code = await runSuite(image, scratch, report);
} finally {
  spawnSync('ip', ['netns', 'delete', namespace], { stdio: 'inherit' });
}
const counts = countsOf(report);
rmSync(scratch, { recursive: true, force: true });
const skipped = counts.numPendingTests + counts.numTodoTests;
// A filter skips by intent; the whole suite may not.
const complete = filters.length > 0 || skipped === 0;
const good = code === 0 && counts.numPassedTests > 0 && complete;
if (!good && existsSync(logs)) console.error(`test:interop: consoles, commands and captures are in ${logs}`);
console.log(
  `interop ${guest}: ${counts.numPassedTests} passed, ${counts.numFailedTests} failed, ${skipped} skipped`,
);
process.exit(good ? 0 : 1);
