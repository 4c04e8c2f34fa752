/** Library and environment of a program that reaches a device; and which programs cannot. */
import { accessSync, closeSync, constants, existsSync, openSync, readSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { folder as native } from '@node-roce/dgram-native/folder';
import { listInterfaces, readText } from '@node-roce/link';

/** The interface of a device that was given no address: the first one but the loopback that has an IPv4 address; `lo` where there is none. */
export function defaultInterface(): string {
  const others = listInterfaces().filter(({ name }) => name !== 'lo');
  return others.find(({ addresses }) => addresses.some(({ family }) => family === 4))?.name ?? 'lo';
}

/**
 * Returns the path of the library that programs get in place of the system's: the one that was built on this machine, else the one of the
 * package.
 *
 * @throws an Error with `code` ERR_ROCE_NO_LIBRARY if there is neither
 */
export function libraryPath(): string {
  const places = ['ibverbs/build', `prebuilds/linux-${process.arch}/ibverbs`];
  const path = places
    .map((place) => join(native, place, 'libibverbs.so.1'))
    .find((candidate) => existsSync(candidate));
  if (path !== undefined) return path;
  throw Object.assign(
    new Error(
      `no libibverbs.so.1 for ${process.platform}-${process.arch} in ${native}. Build it with \`node ${join(native, 'ibverbs/build.mjs')}\` (Debian: apt-get install gcc binutils libibverbs-dev)`,
    ),
    { code: 'ERR_ROCE_NO_LIBRARY' },
  );
}

/** How the device reaches registered memory. `auto`: by sharing, and by attaching where that is refused or would harm. */
export type MemoryWay = 'auto' | 'attach' | 'share';

/**
 * The environment of a program: it finds the library before the system's, and the library finds the device. Another library, which is
 * preloaded, shows the device under /sys and /dev.
 */
export function programEnvironment(
  library: string,
  socket: string,
  env: Readonly<Record<string, string | undefined>>,
  memory: MemoryWay = 'auto',
): Record<string, string | undefined> {
  const paths = [dirname(library), ...(env.LD_LIBRARY_PATH ? [env.LD_LIBRARY_PATH] : [])];
  const given = env.LD_PRELOAD ? [env.LD_PRELOAD] : [];
  // Another libibverbs that is preloaded would come before ours.
  const ours = given.some((list) => list.includes('libibverbs.so')) ? [library] : [];
  const preload = [join(dirname(library), 'libroce-paths.so'), ...ours, ...given];
  return {
    ...env,
    LD_LIBRARY_PATH: paths.join(delimiter),
    LD_PRELOAD: preload.join(delimiter),
    ROCE_SOCKET: socket,
    ...(memory === 'auto' ? {} : { ROCE_MEMORY: memory }),
    // Its runtime ends programs of gcc where it is not the first library. Ours has no function of its.
    ASAN_OPTIONS: ['verify_asan_link_order=0', ...(env.ASAN_OPTIONS ? [env.ASAN_OPTIONS] : [])].join(':'),
  };
}

/** Why a program cannot be run. */
export interface Refusal {
  reason: string;
  /** There is no such program. */
  isMissing: boolean;
}

/** Returns the reason why a program cannot run with the library; undefined where it can. */
export function whyNot(
  program: string,
  env: Readonly<Record<string, string | undefined>>,
): Refusal | undefined {
  const places = placesOf(program, env.PATH ?? '');
  const path = places.find(isProgram);
  const refuse = (reason: string) => ({ reason, isMissing: false });
  if (path === undefined) {
    if (places.some((place) => kindOf(place) === 'file')) return refuse('not executable (chmod +x)');
    // Folders of PATH may have folders of any name.
    if (program.includes('/') && kindOf(program) === 'directory') return refuse('a directory');
    return { reason: 'no such program', isMissing: true };
  }
  const { mode, uid, gid } = statSync(path);
  const isPrivileged =
    ((mode & 0o4000) !== 0 && uid !== process.getuid?.()) ||
    ((mode & 0o2000) !== 0 && gid !== process.getgid?.());
  if (isPrivileged) return refuse('setuid or setgid: the system ignores LD_LIBRARY_PATH for it');
  const script = scriptsProgram(path);
  const interpreter = interpreterOf(script ?? path);
  if (interpreter?.includes('musl')) {
    const what = script === undefined ? '' : `a script of ${script}, which is `;
    return refuse(`${what}linked with musl (${interpreter}); the library is for glibc`);
  }
  // A script may start other programs.
  if (script !== undefined) return undefined;
  if (interpreter === 'static') return refuse('statically linked: it loads no libibverbs.so.1');
  if (interpreter === '32 bits') return refuse('a program of 32 bits; the library is for 64 bits');
  return undefined;
}

/**
 * Whether a process has capabilities by its program's file (setcap(8)): the system ignores LD_LIBRARY_PATH and LD_PRELOAD for it. Node can't read the
 * file's attribute. As the kernel decides: those that were inherited are in the ambient set, and root has all without files. False of a process
 * that is gone.
 */
export function hasGainedCapabilities(pid: number): boolean {
  const status = readText(`/proc/${pid}/status`);
  const value = (name: string) => new RegExp(`^${name}:\\s*(\\S+)$`, 'm').exec(status)?.[1] ?? '0';
  const [permitted, ambient] = ['CapPrm', 'CapAmb'].map((name) => BigInt(`0x${value(name)}`));
  return !/^Uid:\s*0\s/m.test(status) && (permitted & ~ambient) !== 0n;
}

/** The program that the first line of a script names; undefined for other files. */
function scriptsProgram(path: string): string | undefined {
  const start = reading(path, (read) => read(256, 0).toString('latin1'));
  return /^#![ \t]*(\S+)/.exec(start ?? '')?.[1];
}

type Read = (length: number, at: number) => Buffer;

/** Calls with a function that reads bytes of a file, fewer at its end; undefined where the file can't be opened: running it gives the kernel's error. */
function reading<T>(path: string, use: (read: Read) => T): T | undefined {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch {
    return undefined;
  }
  try {
    return use((length, at) => {
      const bytes = Buffer.alloc(length);
      return bytes.subarray(0, readSync(fd, bytes, 0, length, at));
    });
  } finally {
    closeSync(fd);
  }
}

/** Where a shell looks for a program. */
function placesOf(program: string, path: string): string[] {
  return program.includes('/') ? [program] : path.split(delimiter).map((folder) => join(folder, program));
}

function kindOf(place: string): 'file' | 'directory' | undefined {
  try {
    const about = statSync(place);
    if (about.isFile()) return 'file';
    return about.isDirectory() ? 'directory' : undefined;
  } catch {
    return undefined;
  }
}

function isProgram(place: string): boolean {
  try {
    accessSync(place, constants.X_OK);
    return kindOf(place) === 'file';
  } catch {
    return false;
  }
}

const PT_INTERP = 3;

/** The dynamic loader that an ELF file names, `static` where it names none, `32 bits` of such a file; undefined for other files. */
function interpreterOf(path: string): string | undefined {
  return reading(path, (read) => {
    const header = read(64, 0);
    const isElf = header.length >= 52 && header.readUInt32BE(0) === 0x7f454c46 && header[5] === 1;
    if (isElf && header[4] === 1) return '32 bits';
    if (!isElf || header.length < 64 || header[4] !== 2) return undefined;
    const [at, size, count] = [header.readBigUInt64LE(32), header.readUInt16LE(54), header.readUInt16LE(56)];
    for (let i = 0; i < count && size >= 56; i++) {
      const entry = read(size, Number(at) + i * size);
      if (entry.length < 56) return undefined;
      if (entry.readUInt32LE(0) !== PT_INTERP) continue;
      const length = Math.min(Number(entry.readBigUInt64LE(32)), 4096);
      return read(length, Number(entry.readBigUInt64LE(8)))
        .toString('latin1')
        .replace(/\0.*$/s, '');
    }
    return 'static';
  });
}
