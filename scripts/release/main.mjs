// Packs the packages that users install (products.mjs): DIR/node-roce-*.tgz, which every package manager installs, and `npm publish` takes.
//
//   node scripts/release/main.mjs [--out DIR] [--snapshot] [--add DIR] [ARCH ...]
//
// ARCH: architectures of the addons in the packages: x64 and arm64, both by default (prebuild-native.mjs lists what they
// need). Without --snapshot it is a release: the tree is clean, all packages have one version, and CHANGELOG.md has a section of it with the day:
// `## 1.2.3 (2027-01-31)`.
//
// musl (Alpine): the packages hold no addon for it, and native/load.js names the command that compiles one there. On such a machine one can
// be put in. The recipe was not run: there was no musl to try it on.
//
//   apk add g++ make python3 linux-headers nodejs npm git && git clone … && cd node-roce
//   npm run setup && mkdir -p musl/linux-x64
//   cp native/build/Release/dgram_native.node musl/linux-x64/dgram_native.napi.musl.node    # node-gyp-build looks for this name
//   node scripts/release/main.mjs --add musl      # elsewhere, of the same commit, with the folder of that machine
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildId, buildModule } from '../../native/build-id.mjs';
import { assemble, Failure } from './assemble.mjs';
import { PRODUCTS } from './products.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { values, positionals: archs } = parseArgs({
  options: {
    out: { type: 'string' },
    add: { type: 'string' },
    snapshot: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const out = resolve(values.out ?? join(root, 'release'));
const folders = [...readdirSync(join(root, 'packages')).map((name) => join('packages', name)), 'native'];

function run(command, args, cwd = root) {
  // Standard output is for the names of the tarballs.
  const { status, stdout } = spawnSync(command, args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status !== 0) throw new Failure(`${command} ${args.join(' ')} failed${stdout ? `:\n${stdout}` : ''}`);
  return stdout;
}

const manifestOf = (folder) => JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'));

/** Throws unless the folder of `--add` holds addons of these sources, under the names that native/load.js looks for. */
function checkAdded(folder) {
  const files = existsSync(folder) ? readdirSync(folder, { recursive: true, withFileTypes: true }) : [];
  const addons = files
    .filter((file) => file.isFile())
    .map((file) => join(file.parentPath, file.name).slice(folder.length + 1));
  const stray = addons.find((path) => !/^linux-\w+\/dgram_native\.napi\.\w+\.node$/.test(path));
  if (addons.length === 0 || stray !== undefined)
    throw new Failure(
      `--add ${folder} ${stray === undefined ? 'holds no file' : `holds ${stray}`} (expected linux-ARCH/dgram_native.napi.LIBC.node)`,
    );
  const other = addons.find((path) => !readFileSync(join(folder, path)).includes(buildId()));
  if (other !== undefined)
    throw new Failure(`--add ${folder}: ${other} was built from other sources than native/src`);
}

/** Throws where the tree is not clean or complete enough for a release. */
function check() {
  const { version } = manifestOf('.');
  const others = folders.filter((folder) => manifestOf(folder).version !== version);
  if (others.length > 0) throw new Failure(`not of version ${version}: ${others.join(', ')}`);
  if (values.add !== undefined) checkAdded(resolve(values.add));
  if (values.snapshot) return;
  const changes = run('git', ['status', '--porcelain']);
  if (changes !== '') throw new Failure(`there are changes that are not committed:\n${changes}`);
  const heading = readFileSync(join(root, 'CHANGELOG.md'), 'utf8')
    .split('\n')
    .find((line) => line.startsWith(`## ${version} (`));
  if (!/ \(\d{4}-\d\d-\d\d\)$/.test(heading ?? ''))
    throw new Failure(`CHANGELOG.md has no section "## ${version} (YYYY-MM-DD)"`);
}

/**
 * A copy of the sources of the native package: an addon in native/prebuilds would be loaded, by whatever runs in the checkout meanwhile, in
 * place of what is built for it.
 */
function copyNative(place) {
  const made = /^(build|node_modules|prebuilds|sanitized|\.prebuild-.*)$/;
  cpSync(join(root, 'native'), place, { recursive: true, filter: (path) => !made.test(basename(path)) });
  writeFileSync(join(place, 'build.js'), buildModule());
  const prebuild = fileURLToPath(new URL('prebuild-native.mjs', import.meta.url));
  run(process.execPath, [prebuild, '--out', join(place, 'prebuilds'), ...archs]);
  if (values.add) cpSync(resolve(values.add), join(place, 'prebuilds'), { recursive: true });
}

function pack() {
  mkdirSync(out, { recursive: true });
  for (const file of readdirSync(out)) if (/^node-roce-.*\.tgz$/.test(file)) rmSync(join(out, file));
  run('npm', ['run', '--silent', 'build:ts']);
  const place = mkdtempSync(join(tmpdir(), 'roce-release-'));
  try {
    const native = join(place, 'native');
    copyNative(native);
    for (const [i, product] of PRODUCTS.entries()) {
      const folder = join(place, `${i}`);
      assemble(root, product, native, folder);
      run('npm', ['pack', '--silent', '--pack-destination', out], folder);
    }
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
  for (const file of readdirSync(out).filter((name) => name.endsWith('.tgz'))) console.log(join(out, file));
}

try {
  check();
  pack();
} catch (error) {
  if (!(error instanceof Failure)) throw error;
  console.error(`release: ${error.message}`);
  process.exitCode = 1;
}
