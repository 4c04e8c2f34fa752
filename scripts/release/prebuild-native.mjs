// Builds the addon for the package on the registry, native/prebuilds/linux-ARCH/dgram_native.napi.glibc.node, and the libraries of `roce run`,
// native/prebuilds/linux-ARCH/ibverbs.
//
//   node scripts/release/prebuild-native.mjs [--out DIR] [ARCH ...]
//
// ARCH: x64 and arm64, both by default; the one that is not this machine's with Debian's cross compiler (g++-aarch64-linux-gnu,
// g++-x86-64-linux-gnu). The addon holds libstdc++ and libgcc. All of it runs on glibc 2.28 and newer. The libraries need libibverbs-dev.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { nodeDir } from '../node-dir.mjs';

const COMPILERS = { x64: 'x86_64-linux-gnu-g++', arm64: 'aarch64-linux-gnu-g++' };
const native = fileURLToPath(new URL('../../native', import.meta.url));
const { values, positionals } = parseArgs({ options: { out: { type: 'string' } }, allowPositionals: true });
const out = resolve(values.out ?? join(native, 'prebuilds'));
const wanted = positionals.length > 0 ? positionals : Object.keys(COMPILERS);

class Failure extends Error {}

function fail(message) {
  throw new Failure(message);
}

function prebuild(arch) {
  const compiler = arch === process.arch ? (process.env.CXX ?? 'g++') : COMPILERS[arch];
  if (!compiler) fail(`${arch} is not one of ${Object.keys(COMPILERS).join(', ')}`);
  if (spawnSync(compiler, ['--version'], { stdio: 'ignore' }).status !== 0) {
    const machine = COMPILERS[arch].replace('-g++', '').replace('_', '-');
    fail(
      `no compiler ${compiler} for ${arch} (Debian: apt-get install ${arch === process.arch ? 'g++' : `g++-${machine}`})`,
    );
  }
  // A copy of the sources: node-gyp empties its folder `build`, and the addon there is the one in use.
  // It lies here because binding.gyp looks for node-addon-api from its own folder upwards.
  const place = mkdtempSync(join(native, '.prebuild-'));
  try {
    for (const source of ['src', 'binding.gyp', 'build-id.mjs', 'package.json'])
      cpSync(join(native, source), join(place, source), { recursive: true });
    const gyp = createRequire(join(native, 'package.json')).resolve('node-gyp/bin/node-gyp.js');
    const dir = nodeDir();
    const { npm_config_nodedir: _, ...environment } = process.env;
    const options = ['--jobs=max', '--loglevel=warn', `--arch=${arch}`, ...(dir ? [`--nodedir=${dir}`] : [])];
    console.error(`prebuild-native: ${arch} with ${compiler} …`);
    const run = spawnSync(process.execPath, [gyp, 'rebuild', ...options, '--', '-Dprebuild=1'], {
      cwd: place,
      env: { ...environment, CXX: compiler, CC: compiler.replace(/g\+\+$/, 'gcc') },
      encoding: 'utf8',
    });
    if (run.status !== 0) {
      process.stderr.write(run.stdout + run.stderr);
      fail('the build failed; see above');
    }
    const target = join(out, `linux-${arch}`);
    rmSync(target, { recursive: true, force: true });
    mkdirSync(target, { recursive: true });
    // native/load.js looks for this name: any Node, this C library.
    cpSync(join(place, 'build/Release/dgram_native.node'), join(target, 'dgram_native.napi.glibc.node'));
    const script = join(native, 'ibverbs/build.mjs');
    const args = [script, '--prebuilt', join(target, 'ibverbs'), '--arch', arch];
    const library = spawnSync(process.execPath, args, { encoding: 'utf8' });
    if (library.status !== 0) fail(`the library of \`roce run\`: ${library.stdout}${library.stderr}`.trim());
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

try {
  if (process.platform !== 'linux') fail('the addon exists for Linux only');
  for (const arch of wanted) prebuild(arch);
} catch (error) {
  if (!(error instanceof Failure)) throw error;
  console.error(`prebuild-native: ${error.message}`);
  process.exitCode = 1;
}
