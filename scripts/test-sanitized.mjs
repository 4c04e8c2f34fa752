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
};

const loaded = `import '@node-roce/dgram-native'; import fs from 'node:fs'; console.log(fs.readFileSync('/proc/self/maps', 'utf8'))`;
const maps = execFileSync(process.execPath, ['--input-type=module', '-e', loaded], {
  cwd: root,
  env,
  encoding: 'utf8',
});
if (!maps.includes('native/sanitized/build'))
  throw new Error('another addon is loaded than the sanitized one');

const named = process.argv.slice(2);
const tests = named.length > 0 ? named : TESTS;
const { status } = spawnSync('npx', ['vitest', 'run', '--pool=forks', '--maxWorkers=1', ...tests], {
  cwd: root,
  stdio: 'inherit',
  env,
});
const found = readdirSync(reports);
for (const name of found) console.log(readFileSync(join(reports, name), 'utf8'));
rmSync(reports, { recursive: true });
console.log(`result: ${found.length} reports of sanitizers`);
process.exit(status !== 0 || found.length > 0 ? 1 : 0);
