// The tests of the addon, and those that use it most, with an addon under AddressSanitizer and UndefinedBehaviorSanitizer: in programs'
// devices, too. Then a program with threads on a C library (native/ibverbs) under the same.
//
//   node scripts/test-sanitized.mjs [TEST…]
//
// Fails if a test fails or a sanitizer reports something. Leaks are not looked for: Node ends with memory in use.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const TESTS = [
  'native/test',
  'packages/link/src/udp.test.ts',
  'test/hostile/link.test.ts',
  'test/sockets/loopback.test.ts',
  'test/sockets/port-events.test.ts',
  'test/sockets/open-failure.test.ts',
  'test/links/id-window-device.test.ts',
  'packages/device/src/server.test.ts',
  'test/hostile/program.test.ts',
];

for (const script of ['scripts/build-native.mjs', 'native/ibverbs/build.mjs']) {
  const build = spawnSync(process.execPath, [join(root, script), '--sanitize'], { stdio: 'inherit' });
  if (build.status !== 0) process.exit(build.status ?? 1);
}

const compiler = process.env.CXX ?? 'g++';
const library = (name) => execFileSync(compiler, [`-print-file-name=${name}`], { encoding: 'utf8' }).trim();
const reports = mkdtempSync(join(tmpdir(), 'sanitizer-'));
const options = (name, more) => [`log_path=${join(reports, name)}`, ...more].join(':');
const ASAN = ['detect_leaks=0', 'allow_user_segv_handler=1'];
const env = {
  ...process.env,
  // The addon is looked for there alone.
  ROCE_ADDON_FOLDER: join(root, 'native/sanitized'),
  // The runtime has to be in the process before the addon is.
  LD_PRELOAD: `${library('libasan.so')} ${library('libubsan.so')}`,
  // V8 handles SIGSEGV itself.
  ASAN_OPTIONS: options('asan', ASAN),
  UBSAN_OPTIONS: options('ubsan', ['print_stacktrace=1']),
  // In each process: which addon it loaded.
  NODE_OPTIONS: `--import=${new URL('watch-addon.mjs', import.meta.url)}`,
  ROCE_ADDON_REPORTS: reports,
};

/**
 * Runs test/programs/threads.c on a device, with library and device sanitized. The program is not: the library shares whole pages, and would
 * read the redzones in them.
 */
async function runThreads() {
  const library = join(root, 'native/ibverbs/sanitized');
  if (!existsSync(join(library, 'libibverbs.so.1'))) return true;
  const folder = mkdtempSync(join(tmpdir(), 'sanitized-'));
  const program = join(folder, 'threads');
  const source = join(root, 'test/programs/threads.c');
  execFileSync('cc', ['-O1', '-g', '-pthread', '-rdynamic', source, '-o', program, '-libverbs'], {
    stdio: 'inherit',
  });
  const socket = join(folder, 'device.sock');
  const cli = join(root, 'packages/cli/bin/roce.js');
  const device = spawn(process.execPath, [cli, 'device', '-a', '127.0.0.78', '--socket', socket], { env });
  let said = '';
  for (const stream of [device.stdout, device.stderr]) stream.on('data', (data) => (said += data));
  const ended = once(device, 'exit');
  while (!existsSync(socket) && device.exitCode === null) await sleep(100);
  const own = {
    ...env,
    LD_LIBRARY_PATH: library,
    ROCE_SOCKET: socket,
    ASAN_OPTIONS: options('program', ASAN),
  };
  const run = spawn(program, [], { env: own, stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  run.stdout.on('data', (data) => (output += data));
  const [code] = await once(run, 'exit');
  device.kill('SIGTERM');
  await ended;
  rmSync(folder, { recursive: true });
  const isRight = code === 0 && /^ok$/m.test(output);
  if (!isRight) console.log(`threads.c: exit code ${code}\n${output}${said}`);
  return isRight;
}

const named = process.argv.slice(2);
const tests = named.length > 0 ? named : TESTS;
// Not by npx, which would be sanitized, too.
const vitest = join(root, 'node_modules/vitest/vitest.mjs');
const args = [vitest, 'run', '--maxWorkers=1', '--testTimeout=900000', ...tests];
const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit', env });
const hasRun = named.length > 0 || (await runThreads());
const files = readdirSync(reports);
const sanitized = files.filter((name) => name.startsWith('sanitized.'));
const found = files.filter((name) => !sanitized.includes(name));
for (const name of found) console.log(readFileSync(join(reports, name), 'utf8'));
rmSync(reports, { recursive: true });
console.log(
  `result: ${found.length} reports of sanitizers; ${sanitized.length} processes with the sanitized addon`,
);
process.exit(status !== 0 || !hasRun || found.length > 0 || sanitized.length === 0 ? 1 : 0);
