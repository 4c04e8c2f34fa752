// The interop suite's guest with Node, the packages of `roce perf` and `roce device` and the library of its programs in /opt/roce: what rxe
// and node-roce run on in turn.
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildModule } from '../../native/build-id.mjs';
import { buildGuest } from '../../test/interop/image.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '../..');
const PACKAGES = 'perf rdmacm verbs-api transport cm link pcap wire device ibverbs'.split(' ');

/** Standard output of a program that has to succeed. */
function output(command, args, options = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, { maxBuffer: 2 ** 30, ...options });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}: ${stderr}`);
  return stdout;
}

/** Shared libraries of a program, by path. */
const librariesOf = (file) => [...`${output('ldd', [file])}`.matchAll(/=> (\/\S+)/g)].map(([, path]) => path);

/** Lays out /opt/roce below `stage`. */
function stageRoce(stage) {
  const roce = join(stage, 'opt/roce');
  const scope = join(roce, 'node_modules/@node-roce');
  for (const name of PACKAGES) {
    const from = join(root, 'packages', name);
    mkdirSync(join(scope, name), { recursive: true });
    copyFileSync(join(from, 'package.json'), join(scope, name, 'package.json'));
    cpSync(join(from, 'dist'), join(scope, name, 'dist'), {
      recursive: true,
      filter: (path) => !path.endsWith('.map') && !path.endsWith('.d.ts'),
    });
  }
  const addon = join(scope, 'dgram-native');
  mkdirSync(join(addon, 'build/Release'), { recursive: true });
  const modules = readdirSync(join(root, 'native')).filter((name) => /\.m?js$/.test(name));
  for (const file of ['package.json', 'build/Release/dgram_native.node', ...modules])
    copyFileSync(join(root, 'native', file), join(addon, file));
  writeFileSync(join(addon, 'build.js'), buildModule());
  copyFileSync(join(here, 'side.mjs'), join(roce, 'side.mjs'));
  const library = join(roce, 'library');
  mkdirSync(library);
  for (const file of ['libibverbs.so.1', 'libroce-paths.so'])
    copyFileSync(join(root, 'native/ibverbs/build', file), join(library, file));
  // Node with the libraries that it runs with here; the guest's own are for the guest's programs.
  const lib = join(roce, 'lib');
  mkdirSync(lib);
  for (const library of librariesOf(process.execPath)) copyFileSync(library, join(lib, basename(library)));
  copyFileSync('/lib64/ld-linux-x86-64.so.2', join(lib, 'ld.so'));
  output('strip', ['-o', join(roce, 'node'), process.execPath]);
}

/** Starts /opt/roce/side.mjs in the guest, before its arguments. */
export const NODE_SIDE = '/opt/roce/lib/ld.so --library-path /opt/roce/lib /opt/roce/node /opt/roce/side.mjs';

/** The library of the guest's programs. */
export const LIBRARY = '/opt/roce/library/libibverbs.so.1';

/** Makes an image below `directory`; returns its directory, in which nothing else is, as a guest saves its state near it. */
export function buildImage(release, directory) {
  const base = buildGuest(release);
  const image = join(directory, 'images', release);
  mkdirSync(image, { recursive: true });
  copyFileSync(join(base, 'vmlinuz'), join(image, 'vmlinuz'));
  const stage = join(directory, 'stage');
  mkdirSync(stage);
  stageRoce(stage);
  const list = output('find', ['.'], { cwd: stage });
  const more = output('cpio', ['--create', '--format=newc', '--owner=0:0', '--quiet'], {
    cwd: stage,
    input: list,
  });
  // The kernel unpacks archives that follow each other, as long as each begins at a multiple of four bytes.
  const first = readFileSync(join(base, 'initramfs.cpio'));
  const pad = Buffer.alloc((4 - (first.length % 4)) % 4);
  writeFileSync(join(image, 'initramfs.cpio'), Buffer.concat([first, pad, more]));
  return image;
}
