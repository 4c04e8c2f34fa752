// Finds the addon and loads it; where that fails, reports the cause and the remedy.
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { folder } from './folder.js';

// Bundlers would evaluate an imported createRequire, and look for the addon when they bundle.
const { createRequire } = process.getBuiltinModule('node:module');
const require = createRequire(`${folder}/load.js`);

/** Returns the facts that decide whether an addon loads: platform, arch, the C library, where this package is, and whether a bundler took its code elsewhere. */
export function thisMachine() {
  const { platform, arch, version } = process;
  // Linux without glibc is musl, in practice: Alpine, Void, a static Node.
  const isMusl = platform === 'linux' && process.report.getReport().header.glibcVersionRuntime === undefined;
  return { platform, arch, version, isMusl, folder, isBundled: !existsSync(`${folder}/binding.gyp`) };
}

/** The shell command that builds the addon of the package in this folder: a checkout has a script of its own. */
export function buildCommand({ folder }) {
  return folder.includes('/node_modules/')
    ? `npx --yes node-gyp@12 rebuild --directory=${folder}`
    : 'npm run build:native';
}

function buildAdvice(machine) {
  if (machine.isBundled)
    return `The program is a bundle: copy the folder "prebuilds" of node-roce to ${folder}, or keep node-roce out of the bundle (docs/guide/deployment.md).`;
  const needs = machine.isMusl
    ? 'apk add g++ make python3 linux-headers'
    : 'Debian: apt-get install g++ make python3';
  return `Build it with \`${buildCommand(machine)}\` (it needs a C++17 compiler, make and Python 3; ${needs}).`;
}

/** Whether the loader's error means that a file was built for the other C library. */
const isOfOtherLibc = (why) =>
  /libc\.musl|ld-musl|Error (loading shared library|relocating)|ld-linux[^:]*: No such file/.test(why);

/**
 * The error for a failure of `require`: `ERR_ROCE_NO_ADDON` where there is no addon for the machine, `ERR_ROCE_ADDON_LOAD` where there
 * is one that the system does not load.
 */
export function loadError(cause, machine) {
  const { platform, arch, version, isMusl } = machine;
  const libc = platform === 'linux' ? (isMusl ? ' with musl' : ' with glibc') : '';
  const where = `${platform}-${arch}${libc}, Node ${version}`;
  const [why] = `${cause.message}`.split('\n');
  const make = (code, text) =>
    Object.assign(new Error(`@node-roce/dgram-native ${text}`, { cause }), { code });
  if (platform !== 'linux') {
    const text = `could not be loaded on ${where}. It exists for Linux only; the dgram link between node-roce peers works without it.`;
    return make('ERR_ROCE_NO_ADDON', text);
  }
  if (cause.code !== 'ERR_DLOPEN_FAILED') {
    return make('ERR_ROCE_NO_ADDON', `has no addon for ${where}. ${buildAdvice(machine)}`);
  }
  if (isOfOtherLibc(why)) {
    const text = `has an addon for another C library than that of ${where} (${why}). ${buildAdvice(machine)}`;
    return make('ERR_ROCE_ADDON_LOAD', text);
  }
  if (/GLIBC_[\d.]+' not found/.test(why)) {
    const text = `has an addon for a newer glibc than that of ${where} (${why}). ${buildAdvice(machine)}`;
    return make('ERR_ROCE_ADDON_LOAD', text);
  }
  if (/failed to map segment|Operation not permitted/.test(why)) {
    const text = `could not be loaded on ${where}: ${why}. The file system must allow programs to be executed: mount it without noexec.`;
    return make('ERR_ROCE_ADDON_LOAD', text);
  }
  return make('ERR_ROCE_ADDON_LOAD', `could not be loaded on ${where}: ${why}. ${buildAdvice(machine)}`);
}

/** The error for an addon that was built from other sources than this package's. */
export function staleError(found, expected, machine) {
  const message = `the addon of @node-roce/dgram-native was built from other sources than this package's (${found ?? 'older ones'}, expected ${expected}). Build it again with \`${buildCommand(machine)}\`.`;
  return Object.assign(new Error(message), { code: 'ERR_ROCE_STALE_ADDON' });
}

/**
 * Files that may be the addon: the one that was compiled here, then the one of the package, by architecture and C library. The variable
 * ROCE_ADDON_FOLDER names another folder to look in: for tests, and an addon that cannot be next to the program.
 */
function candidates({ arch, isMusl }) {
  const place = process.env.ROCE_ADDON_FOLDER ?? folder;
  const libc = process.env.LIBC ?? (isMusl ? 'musl' : 'glibc');
  return [
    `${place}/build/Release/dgram_native.node`,
    `${place}/prebuilds/linux-${arch}/dgram_native.napi.${libc}.node`,
  ];
}

/** Loads the addon that was built here (build/Release), or came with the package (prebuilds). */
export function loadAddon() {
  const machine = thisMachine();
  const path = candidates(machine).find((file) => existsSync(file));
  try {
    if (path === undefined) throw new Error('there is no file for this machine');
    return require(resolve(path));
  } catch (cause) {
    throw loadError(cause, machine);
  }
}
