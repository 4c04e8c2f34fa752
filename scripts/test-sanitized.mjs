// The tests of the addon, and those that use it most, with an addon under AddressSanitizer and UndefinedBehaviorSanitizer.
//
//   node scripts/test-sanitized.mjs [TEST…]
//
// Fails if a test fails or a sanitizer reports something. Leaks are not looked for: Node ends with memory in use.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const TESTS = [
  'native/test',
  'packages/link/src/udp.test.ts',
  'test/hostile-link.test.ts',
  'test/verbs-loopback.test.ts',
  'test/port-events.test.ts',
  'test/open-failure.test.ts',
  'test/id-window-device.test.ts',
];

const build = spawnSync(process.execPath, [join(root, 'scripts/build-native.mjs'), '--sanitize'], {
  stdio: 'inherit',
});
if (build.status !== 0) process.exit(build.status ?? 1);

const compiler = process.env.CXX ?? 'g++';
const library = (name) => execFileSync(compiler, [`-print-file-name=${name}`], { encoding: 'utf8' }).trim();
const reports = mkdtempSync(join(tmpdir(), 'sanitizer-'));
const options = (name, more) => [`log_path=${join(reports, name)}`, ...more].join(':');
const env = {
  ...process.env,
  // node-gyp-build looks there first.
  '@NODE_ROCE/DGRAM_NATIVE_PREBUILD': join(root, 'native/sanitized'),
  // The runtime has to be in the process before the addon is.
  LD_PRELOAD: `${library('libasan.so')} ${library('libubsan.so')}`,
  // V8 handles SIGSEGV itself.
  ASAN_OPTIONS: options('asan', ['detect_leaks=0', 'allow_user_segv_handler=1']),
  UBSAN_OPTIONS: options('ubsan', ['print_stacktrace=1']),
  // In each process: which addon it loaded.
  NODE_OPTIONS: `--import=${new URL('watch-addon.mjs', import.meta.url)}`,
  ROCE_ADDON_REPORTS: reports,
};

const named = process.argv.slice(2);
const tests = named.length > 0 ? named : TESTS;
// Not by npx: its shell, dash, drops variables with such a name, and the usual addon is loaded.
const vitest = join(root, 'node_modules/vitest/vitest.mjs');
const args = [vitest, 'run', '--pool=forks', '--maxWorkers=1', '--testTimeout=180000', ...tests];
const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit', env });
const files = readdirSync(reports);
const sanitized = files.filter((name) => name.startsWith('sanitized.'));
const found = files.filter((name) => !sanitized.includes(name));
for (const name of found) console.log(readFileSync(join(reports, name), 'utf8'));
rmSync(reports, { recursive: true });
console.log(
  `result: ${found.length} reports of sanitizers; ${sanitized.length} processes with the sanitized addon`,
);
process.exit(status !== 0 || found.length > 0 || sanitized.length === 0 ? 1 : 0);
