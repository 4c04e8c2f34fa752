// Builds the native addon unless what is there is of these sources and this Node.
//
//   node scripts/build-native.mjs [--force] [--optional] [--sanitize]
//
// --sanitize builds one with AddressSanitizer and UndefinedBehaviorSanitizer into native/sanitized, next to the usual one.
// --optional turns a failure into a sentence: adapters then use the dgram link, which needs no addon.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildId } from '../native/build-id.mjs';
import { nodeDir } from './node-dir.mjs';

const native = fileURLToPath(new URL('../native', import.meta.url));
const sanitize = process.argv.includes('--sanitize');
/** Where it is built. A sanitized one has a copy of the sources: node-gyp empties its folder `build`. */
const place = sanitize ? join(native, 'sanitized') : native;
const built = join(place, 'build/Release/dgram_native.node');
/** Records the Node that the addon was built with. */
const stamp = join(place, 'build/built-with.json');
const optional = process.argv.includes('--optional');
const force = process.argv.includes('--force');

function fail(message) {
  console.error(
    `build-native: ${message}${optional ? '. Going on without the addon: adapters use the dgram link, which reaches node-roce programs only.' : ''}`,
  );
  process.exit(optional ? 0 : 1);
}

const build = buildId();
const builtWith = JSON.stringify({
  build,
  modules: process.versions.modules,
  napi: process.versions.napi,
  arch: process.arch,
});

function isFresh() {
  return existsSync(built) && existsSync(stamp) && readFileSync(stamp, 'utf8') === builtWith;
}

function isThere(command) {
  return command !== undefined && spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0;
}

if (process.platform !== 'linux') fail('the addon exists for Linux only');
if (!force && isFresh()) process.exit(0);

const compiler = [process.env.CXX, 'g++', 'c++', 'clang++'].find(isThere);
if (!compiler) fail('no C++ compiler: install g++ and make (Debian: apt-get install g++ make python3)');
if (!isThere('make')) fail('no make: install it (Debian: apt-get install make)');
if (!isThere(process.env.npm_config_python ?? process.env.PYTHON ?? 'python3'))
  fail('no Python 3, which node-gyp needs (Debian: apt-get install python3)');

let gyp;
try {
  gyp = createRequire(join(native, 'package.json')).resolve('node-gyp/bin/node-gyp.js');
} catch {
  fail('node-gyp is not installed: run `npm run setup` first');
}

const dir = nodeDir();
const args = [gyp, 'rebuild', '--jobs=max', '--loglevel=warn', ...(dir ? [`--nodedir=${dir}`] : [])];
console.error(`build-native: building the addon${dir ? ` with the headers in ${dir}` : ''} …`);
const { npm_config_nodedir: _, ...environment } = process.env;
if (sanitize) {
  rmSync(place, { recursive: true, force: true });
  for (const source of ['src', 'binding.gyp', 'build-id.mjs', 'package.json'])
    cpSync(join(native, source), join(place, source), { recursive: true });
  const flags = '-fsanitize=address,undefined -fno-omit-frame-pointer -g';
  Object.assign(environment, { CXXFLAGS: flags, LDFLAGS: flags });
}
const run = spawnSync(process.execPath, args, {
  cwd: place,
  env: { ...environment, CXX: process.env.CXX ?? compiler },
  encoding: 'utf8',
});
if (run.status !== 0) {
  process.stderr.write(run.stdout + run.stderr);
  fail('the build failed; see above');
}
writeFileSync(stamp, builtWith);
