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
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Guests by name, and the suite that each is built from (docs/interop.md has their versions). */
const SUITES = { debian12: 'bookworm', debian13: 'trixie' };

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '../..');
const cache = join(root, '.cache/rxe-guest');
const { guest, sample, shell, filters } = options();
const logs = join(here, 'logs');
const NAMESPACE = 'roce-interop-'; // and the process that made it
const namespace = NAMESPACE + process.pid;

// Program, or a file, → the package that brings it.
const NEEDED = [
  ['ip', 'iproute2'],
  ['tcpdump', 'tcpdump'],
  ['tshark', 'tshark'],
  ['qemu-system-x86_64', 'qemu-system-x86'],
  ['setpriv', 'util-linux'],
  ['python3', 'python3'],
  ['gcc', 'gcc'],
  ['readelf', 'binutils'],
  ['depmod', 'kmod'],
  ['cpio', 'cpio'],
  ['unxz', 'xz-utils'],
];

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

function fail(message) {
  console.error(`test:interop: ${message}`);
  process.exit(1);
}

function call(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { stdio: ['ignore', 'inherit', 'inherit'], ...options });
  if (error) fail(`${command}: ${error.message}`);
  if (status !== 0) fail(`${command} ${args.join(' ')} ended with ${status}`);
}

const there = (what) =>
  what.startsWith('/')
    ? existsSync(what)
    : process.env.PATH.split(':').some((directory) => existsSync(join(directory, what)));

function apt(...args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  call('apt-get', ['-q', ...args], { env, stdio: ['ignore', 'ignore', 'inherit'] });
}

function installPackages() {
  const missing = NEEDED.filter(([what]) => !there(what)).map(([, name]) => name);
  if (process.getuid() !== 0) {
    const also = missing.length > 0 ? ` It also needs these Debian packages: ${missing.join(' ')}.` : '';
    fail(`needs root, for network namespaces and a tap device.${also}`);
  }
  if (missing.length > 0) {
    console.error(`test:interop: installing ${missing.join(' ')}`);
    apt('update');
    apt('-y', '--no-install-recommends', 'install', ...missing);
  }
}

function files(directory) {
  return readdirSync(directory, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((e) => (e.isDirectory() ? files(join(directory, e.name)) : [join(directory, e.name)]));
}

/** The directory of the guest's image, built now unless its sources are those of the last build. */
function buildGuest() {
  const sources = join(here, 'guest');
  const hash = createHash('sha256');
  for (const file of files(sources)) hash.update(relative(sources, file)).update(readFileSync(file));
  const image = join(cache, `${guest}-${hash.digest('hex').slice(0, 16)}`);
  if (existsSync(image)) return image;
  console.error(`test:interop: building the guest of ${guest}`);
  apt('update'); // the mirrors are found by the host's package lists
  const building = join(cache, `building-${process.pid}`);
  mkdirSync(building, { recursive: true });
  call('bash', [join(sources, 'build.sh'), SUITES[guest], building, cache]);
  for (const name of readdirSync(cache)) {
    if (name.startsWith(`${guest}-`)) rmSync(join(cache, name), { recursive: true, force: true });
  }
  renameSync(building, image);
  return image;
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

process.env.PATH = `${process.env.PATH ?? '/usr/bin:/bin'}:/usr/sbin:/sbin`;
installPackages();
const image = buildGuest();
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
