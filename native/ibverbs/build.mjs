// Builds this folder: a libibverbs.so.1 for the programs of this machine, whose device is `roce device` (docs/run.md).
//
//   node native/ibverbs/build.mjs [--force]
//
// The names and versions of its symbols are those of the installed library: programs are linked with them, and the version of
// the private ones differs between releases. A symbol that is missing here becomes a function that fails with EOPNOTSUPP.
// Without the installed library, its header or a compiler, nothing is built, and the reason is printed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('.', import.meta.url));
const build = join(folder, 'build');
const library = join(build, 'libibverbs.so.1');

function skip(why) {
  console.error(`build-ibverbs: not built, so \`roce run\` will not work: ${why}`);
  process.exit(0);
}

function output(command, args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  if (status === 0) return stdout;
  if (error) skip(`${command}: ${error.message}`);
  console.error(`build-ibverbs: ${command} ${args.join(' ')}\n${stderr}`);
  process.exit(1);
}

const isThere = (command) => spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0;
const compiler = [process.env.CC, 'gcc', 'cc', 'clang'].find((name) => name && isThere(name));

if (process.platform !== 'linux') skip('it exists for Linux only');
if (!compiler) skip('no C compiler (Debian: apt-get install gcc)');
if (!isThere('objdump')) skip('no objdump (Debian: apt-get install binutils)');
const found = output(compiler, ['-print-file-name=libibverbs.so.1']).trim();
if (!found.includes('/')) skip('libibverbs.so.1 is not installed (Debian: apt-get install libibverbs1)');
const installed = realpathSync(found);
const header = '/usr/include/infiniband/verbs.h';
if (!existsSync(header)) skip(`no ${header} (Debian: apt-get install libibverbs-dev)`);

const sources = readdirSync(folder)
  .filter((name) => /\.[ch]$/.test(name))
  .sort();
const hash = createHash('sha256');
for (const path of [
  fileURLToPath(import.meta.url),
  header,
  installed,
  ...sources.map((s) => join(folder, s)),
])
  hash.update(`${basename(path)}\0`).update(readFileSync(path));
const id = hash.digest('hex').slice(0, 16);
const stamp = join(build, 'built-from');
if (
  !process.argv.includes('--force') &&
  existsSync(library) &&
  existsSync(stamp) &&
  readFileSync(stamp, 'utf8') === id
)
  process.exit(0);

console.error(`build-ibverbs: building libibverbs.so.1 with the symbols of ${installed} …`);
rmSync(build, { recursive: true, force: true });
mkdirSync(build);

const flags = ['-std=gnu11', '-D_GNU_SOURCE', '-O2', '-fPIC', '-Wall', '-Wextra', '-fno-strict-aliasing'];
const objects = sources
  .filter((name) => name.endsWith('.c'))
  .map((name) => {
    const object = join(build, name.replace(/c$/, 'o'));
    output(compiler, [...flags, '-c', join(folder, name), '-o', object]);
    return object;
  });
const defined = new Set(
  output('nm', ['--defined-only', '-g', ...objects])
    .split('\n')
    .flatMap((line) => /^[0-9a-f]+ T (\S+)$/.exec(line)?.[1] ?? []),
);

/** Names of the installed library by their version, in the order of the versions. */
const versions = new Map();
for (const line of output('objdump', ['-T', installed]).split('\n')) {
  const [, version, name] = /\s(IBVERBS_[\w.]+)\s+(\w+)$/.exec(line) ?? [];
  // Versions themselves are symbols, too. Those in parentheses are of programs older than 2006.
  if (!name || name === version) continue;
  if (!versions.has(version)) versions.set(version, []);
  versions.get(version).push(name);
}
/** IBVERBS_1.0, IBVERBS_1.1, …, IBVERBS_PRIVATE_34: each is the child of the one before. */
const ordered = [...versions].sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }));
const names = new Set(ordered.flatMap(([, list]) => list));
const isPointer = (name) =>
  /create|import|reg_|alloc|open/.test(name) && !/unimport|cmd|dereg|dealloc|destroy/.test(name);
const stubs = [...names]
  .filter((name) => !defined.has(name))
  .map((name) => `long ${name}(void) { errno = EOPNOTSUPP; return ${isPointer(name) ? 0 : 'EOPNOTSUPP'}; }`);
writeFileSync(join(build, 'stubs.c'), `#include <errno.h>\n${stubs.join('\n')}\n`);
const nodes = ordered.map(
  ([version, list], i) => `${version} { global: ${list.join('; ')}; } ${i > 0 ? ordered[i - 1][0] : ''};\n`,
);
writeFileSync(join(build, 'versions'), `${nodes.join('')}ROCE_LOCAL { local: *; };\n`);
output(compiler, [
  ...['-shared', '-fPIC', '-O2', '-fno-builtin', '-pthread', '-Wl,-soname,libibverbs.so.1'],
  ...[`-Wl,--version-script=${join(build, 'versions')}`, ...objects, join(build, 'stubs.c'), '-o', library],
]);
writeFileSync(stamp, id);
