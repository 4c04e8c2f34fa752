// Builds this folder: a libibverbs.so.1 for the programs of this machine, whose device is `roce device` (docs/run.md).
//
//   node native/ibverbs/build.mjs [--force] [--sanitize]
//   node native/ibverbs/build.mjs --prebuilt DIR [--arch ARCH]
//   node native/ibverbs/build.mjs --list LIBRARY > native/ibverbs/releases/rdma-core-56.txt
//
// The names and versions of its symbols are those of the installed library and of the releases in releases/: programs are linked with
// them, and the version of the private ones differs between releases. A symbol that is missing here becomes a function that fails with
// EOPNOTSUPP. `--list` prints the symbols of another release's library.
// In the same folder: libroce-paths.so (paths/), which is preloaded, and libibverbs.so, which loads libibverbs.so.1.
// `--prebuilt` builds them into DIR for the package on the registry: they run on glibc 2.28 and newer, and on ARCH (x64 or arm64) with the cross
// compiler of Debian. There, a failure is an error.
// `--sanitize` builds them with AddressSanitizer and UndefinedBehaviorSanitizer into sanitized/, next to the usual ones.
// Without the installed library, its header or a compiler, and where the compiler fails, nothing is built, and the reason is printed: the
// addon, which is built next, does not need it. In CI a failure is one.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const folder = fileURLToPath(new URL('.', import.meta.url));
const { values } = parseArgs({
  options: {
    arch: { type: 'string', default: process.arch },
    prebuilt: { type: 'string' },
    sanitize: { type: 'boolean', default: false },
    force: { type: 'boolean', default: false },
    list: { type: 'string' },
    optional: { type: 'boolean' }, // Of the script that runs next.
  },
  allowPositionals: true,
});
const { prebuilt, sanitize } = values;
const build = prebuilt === undefined ? join(folder, sanitize ? 'sanitized' : 'build') : resolve(prebuilt);
const library = join(build, 'libibverbs.so.1');
/** Where it is built: programs that start meanwhile find the library of before. */
const next = `${build}.next-${process.pid}`;

function skip(why) {
  if (prebuilt !== undefined) {
    console.error(`build-ibverbs: ${why}`);
    process.exit(1);
  }
  console.error(`build-ibverbs: not built, so \`roce run\` will not work: ${why}`);
  process.exit(0);
}

function output(command, args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  if (status === 0) return stdout;
  // The library of before is not of these sources: a device of today may have other rings.
  if (existsSync(next)) rmSync(build, { recursive: true, force: true });
  if (error) skip(`${command}: ${error.message}`);
  console.error(`build-ibverbs: ${command} ${args.join(' ')}\n${stderr}`);
  if (process.env.CI) process.exit(1);
  skip(`${command} failed`);
}

const isThere = (command) => spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0;
const CROSS_COMPILERS = { x64: 'x86_64-linux-gnu-gcc', arm64: 'aarch64-linux-gnu-gcc' };
const isForeign = values.arch !== process.arch;
const compilers = isForeign ? [CROSS_COMPILERS[values.arch]] : [process.env.CC, 'gcc', 'cc', 'clang'];
const compiler = compilers.find((name) => name && isThere(name));

/** Calls with each version and name of a library's symbols. */
function symbolsOf(path, call) {
  for (const line of output('objdump', ['-T', path]).split('\n')) {
    const [, version, name] = /\s(IBVERBS_[\w.]+)\s+(\w+)$/.exec(line) ?? [];
    // Versions themselves are symbols, too. Those in parentheses are of programs older than 2006.
    if (name && name !== version) call(version, name);
  }
}

/** Names by their version: those of the installed library, and those of other releases, whose programs this one serves, too. */
const versions = new Map();
function add(version, name) {
  if (!versions.has(version)) versions.set(version, new Set());
  versions.get(version).add(name);
}
/** IBVERBS_1.0, IBVERBS_1.1, …, IBVERBS_PRIVATE_34. */
const inOrder = () => [...versions].sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }));

if (values.list !== undefined) {
  symbolsOf(values.list, add);
  for (const [version, names] of inOrder()) console.log([version, ...[...names].sort()].join(' '));
  process.exit(0);
}

if (process.platform !== 'linux') skip('it exists for Linux only');
if (!compiler) {
  const machine = CROSS_COMPILERS[values.arch]?.replace('-gcc', '').replace('_', '-');
  skip(
    `no C compiler for ${values.arch} (Debian: apt-get install ${isForeign && machine ? `gcc-${machine}` : 'gcc'})`,
  );
}
if (!isThere('objdump')) skip('no objdump (Debian: apt-get install binutils)');
// The symbols are the same on each architecture.
const found = output(isForeign ? 'gcc' : compiler, ['-print-file-name=libibverbs.so.1']).trim();
if (!found.includes('/')) skip('libibverbs.so.1 is not installed (Debian: apt-get install libibverbs1)');
const installed = realpathSync(found);
const header = '/usr/include/infiniband/verbs.h';
if (!existsSync(header)) skip(`no ${header} (Debian: apt-get install libibverbs-dev)`);
const declared = readFileSync(header, 'utf8');
if (!declared.includes('phys_port_cnt_ex')) skip(`${header} is older than that of rdma-core 35`);

const sources = readdirSync(folder)
  .filter((name) => /\.[ch]$/.test(name))
  .sort();
/** Of the library that is preloaded; it speaks to the device, too. */
const paths = ['paths/kept.c', 'paths/kept.h', 'paths/paths.c', 'paths/ucma.c', 'paths/ucma.h'].map((name) =>
  join(folder, name),
);
/** Symbols of other releases than the installed one, as `--list` prints them. */
const releases = readdirSync(join(folder, 'releases'))
  .filter((name) => name.endsWith('.txt'))
  .sort()
  .map((name) => join(folder, 'releases', name));
const hash = createHash('sha256');
for (const path of [
  fileURLToPath(import.meta.url),
  header,
  installed,
  ...sources.map((s) => join(folder, s)),
  ...paths,
  ...releases,
])
  hash.update(`${basename(path)}\0`).update(readFileSync(path));
const id = hash.digest('hex').slice(0, 16);
const stamp = join(build, 'built-from');
if (
  prebuilt === undefined &&
  !values.force &&
  existsSync(library) &&
  existsSync(stamp) &&
  readFileSync(stamp, 'utf8') === id
)
  process.exit(0);

console.error(`build-ibverbs: building libibverbs.so.1 with the symbols of ${installed} …`);
process.on('exit', () => rmSync(next, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
rmSync(next, { recursive: true, force: true });
mkdirSync(next, { recursive: true });

// Thread-local variables that are there from the start: the handler of SIGSEGV may have interrupted malloc.
const flags = ['-std=gnu11', '-D_GNU_SOURCE', '-O2', '-fPIC', '-ftls-model=initial-exec'];
flags.push('-include', join(folder, 'old_glibc.h'));
flags.push('-Wall', '-Wextra', '-fno-strict-aliasing');
const sanitizers = sanitize ? ['-fsanitize=address,undefined', '-fno-omit-frame-pointer', '-g'] : [];
flags.push(...sanitizers);
if (!declared.includes('wr_atomic_write')) flags.push('-DROCE_NO_ATOMIC_WRITE');
if (prebuilt !== undefined) {
  // A cross compiler does not look into /usr/include; these headers are the same on each architecture.
  const headers = join(next, 'include');
  mkdirSync(headers);
  symlinkSync(dirname(header), join(headers, 'infiniband'));
  flags.push(`-I${headers}`);
}
const objects = sources
  .filter((name) => name.endsWith('.c'))
  .map((name) => {
    const object = join(next, name.replace(/c$/, 'o'));
    output(compiler, [...flags, '-c', join(folder, name), '-o', object]);
    return object;
  });
const defined = new Set(
  output(isForeign ? compiler.replace(/gcc$/, 'nm') : 'nm', ['--defined-only', '-g', ...objects])
    .split('\n')
    .flatMap((line) => /^[0-9a-f]+ T (\S+)$/.exec(line)?.[1] ?? []),
);

symbolsOf(installed, add);
for (const path of releases)
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    const [version, ...names] = line.split(' ');
    if (version.startsWith('IBVERBS_')) for (const name of names) add(version, name);
  }
const isPointer = (name) =>
  /create|import|reg_|alloc|open|_str$/.test(name) && !/unimport|cmd|dereg|dealloc|destroy/.test(name);
const stub = (symbol, name) =>
  `long ${symbol}(void) { roce_fails("${name}", EOPNOTSUPP, "not offered"); return ${isPointer(name) ? 0 : 'EOPNOTSUPP'}; }`;
/** A jump to our function of that name. */
const jump = (symbol, name) =>
  `__asm__(".text\\n.globl ${symbol}\\n.type ${symbol}, %function\\n${symbol}: " JUMP("${name}"));`;
const code = [
  '#include <errno.h>',
  'int roce_fails(const char *call, int error, const char *why);',
  '#if defined(__x86_64__)',
  '#define JUMP(name) "jmp " name "@PLT"',
  '#elif defined(__aarch64__)',
  '#define JUMP(name) "b " name',
  '#endif',
];
/** Each version is the child of the one before. */
const nodes = [];
const ordered = inOrder();
const seen = new Set();
for (const [i, [version, names]] of ordered.entries()) {
  const own = [];
  for (const name of names) {
    if (!seen.has(name)) {
      seen.add(name);
      own.push(name);
      if (!defined.has(name)) code.push(stub(name, name));
      continue;
    }
    // The name has another version already: one symbol more.
    const symbol = `roce_${nodes.length}_${name}`;
    code.push(defined.has(name) ? jump(symbol, name) : stub(symbol, name));
    code.push(`__asm__(".symver ${symbol}, ${name}@${version}");`);
  }
  const global = own.length > 0 ? ` global: ${own.join('; ')};` : '';
  nodes.push(`${version} {${global} } ${i > 0 ? ordered[i - 1][0] : ''};\n`);
}
writeFileSync(join(next, 'stubs.c'), `${code.join('\n')}\n`);
writeFileSync(join(next, 'versions-paths'), '{ global: *; local: roce_*; };\n');
writeFileSync(join(next, 'versions'), `${nodes.join('')}ROCE_LOCAL { local: *; };\n`);
/**
 * For an older glibc than that of the build, the parts of it before 2.34 are needed by name (old_glibc.h). A library for this machine needs
 * none: a root that holds only what its programs load may lack them.
 */
const needed =
  prebuilt === undefined ? ['-ldl'] : ['-s', '-Wl,--no-as-needed', '-l:libpthread.so.0', '-l:libdl.so.2'];
output(compiler, [
  ...['-shared', '-fPIC', '-O2', '-fno-builtin', '-pthread', '-Wl,-soname,libibverbs.so.1', ...sanitizers],
  // Handlers of SIGSEGV and of fork stay where they are after dlclose.
  '-Wl,-z,nodelete',
  ...[`-Wl,--version-script=${join(next, 'versions')}`, ...objects, join(next, 'stubs.c')],
  ...[...needed, '-o', join(next, 'libibverbs.so.1')],
]);
output(compiler, [
  ...['-shared', ...flags, '-U_FORTIFY_SOURCE', '-pthread', '-Wl,-soname,libroce-paths.so'],
  ...[`-Wl,--version-script=${join(next, 'versions-paths')}`, join(next, 'messages.o')],
  ...paths.filter((name) => name.endsWith('.c')),
  ...[...needed, '-o', join(next, 'libroce-paths.so')],
]);
// Programs that load the library at run time may ask for the name without a version (NCCL does), and would get the system's. It is a library
// that needs ours; packages of npm have no links. Without an object, the linker would ask for stacks that can be executed: glibc 2.41 refuses
// to load such a library then.
output(compiler, [
  ...[
    '-shared',
    '-nostdlib',
    '-s',
    '-Wl,-z,noexecstack',
    '-Wl,--no-as-needed',
    `-L${next}`,
    '-l:libibverbs.so.1',
  ],
  ...['-o', join(next, 'libibverbs.so')],
]);

// A file takes the place of another at once. The stamp comes last: what is not complete is built again.
if (prebuilt === undefined) writeFileSync(join(next, 'built-from'), id);
const made = readdirSync(next).filter((name) => prebuilt === undefined || name.includes('.so'));
const inTurn = [
  ...made.filter((name) => name !== 'built-from'),
  ...made.filter((name) => name === 'built-from'),
];
mkdirSync(build, { recursive: true });
for (const name of inTurn) renameSync(join(next, name), join(build, name));
for (const name of readdirSync(build))
  if (!made.includes(name)) rmSync(join(build, name), { recursive: true, force: true });
