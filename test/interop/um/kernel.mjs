// The kernel of a guest under User-Mode Linux, built once and kept in the user's cache folder.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Cache, daysSince, hashOf } from '../cache.mjs';
import { call, install } from '../packages.mjs';

/** Guests whose kernel is also built for User-Mode Linux: Debian's suite and series of its source. */
const SOURCES = {
  debian12: { suite: 'bookworm', series: '6.1' },
  debian13: { suite: 'trixie', series: '6.12' },
};

/** The mirror is asked for a newer version of the source once a kernel is so old. */
const MAX_AGE_DAYS = 30;

const here = fileURLToPath(new URL('.', import.meta.url));

// Program, or a file, → the package that brings it: to look into the cache, and to build.
const ALWAYS_NEEDED = [
  ['flock', 'util-linux'],
  ['gcc', 'gcc'],
];
const NEEDED = [
  ['/usr/include/stdio.h', 'libc6-dev'],
  ['make', 'make'],
  ['flex', 'flex'],
  ['bison', 'bison'],
  ['bc', 'bc'],
  ['patch', 'patch'],
  ['xz', 'xz-utils'],
];

/** Whether there can be a kernel for User-Mode Linux of `guest` on this machine. */
export const hasUmKernel = (guest) =>
  guest in SOURCES && process.arch === 'x64' && process.platform === 'linux';

/** Version and file of Debian's package. @throws with the mirror's answer */
function fetch({ suite, series }, downloads) {
  const { status, stdout, stderr } = spawnSync('bash', [join(here, 'fetch.sh'), suite, series, downloads], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`no source of Linux ${series}: ${stderr.trim()}`);
  const [version, deb] = stdout.trim().split(' ');
  return { version, deb };
}

function build({ series }, { version, deb }, directory, log) {
  console.error(
    `test:interop: building linux-source-${series} ${version} for User-Mode Linux: minutes, once`,
  );
  // As process 1 of a namespace, so that a build ends whole.
  const whole = process.getuid() === 0 ? ['unshare', '--pid', '--fork', '--kill-child'] : [];
  const command = [...whole, 'bash', join(here, 'kernel/build.sh'), deb, series, directory, log];
  call('setpriv', ['--pdeathsig', 'KILL', ...command]);
  writeFileSync(join(directory, 'versions.txt'), `linux-source-${series} ${version}\n`);
}

/**
 * The kernel's file. It belongs to the version of Debian's package, and to the sources and compiler of this build.
 * @param {string} guest a guest with `hasUmKernel`
 * @throws if the package cannot be had or built
 */
export function buildUmKernel(guest) {
  const { series } = SOURCES[guest];
  const cache = new Cache('um');
  install(ALWAYS_NEEDED);
  const gcc = spawnSync('gcc', ['--version'], { encoding: 'utf8' }).stdout;
  // build.sh, kernel.config, kernel-SERIES.config, patches/SERIES-NAME.patch
  const isOfSeries = (name) =>
    !/\d/.test(name) || name.includes(`${series}.config`) || name.includes(`/${series}-`);
  const hash = hashOf(join(here, 'kernel'), [gcc], isOfSeries);
  const last = () => cache.entries(new RegExp(`^${series}-.*-${hash}$`))[0];
  const versions = (entry) => join(entry, 'versions.txt');
  const isFresh = (entry) => entry !== undefined && daysSince(versions(entry)) < MAX_AGE_DAYS;
  const kernelOf = (entry) => join(cache.use(entry), 'linux');
  if (isFresh(last())) return kernelOf(last());
  return cache.locked(() => {
    const old = last();
    if (isFresh(old)) return kernelOf(old);
    install(NEEDED);
    // The package stays until it is built, so that a build that failed needs no second download.
    const downloads = join(cache.folder, 'packages');
    mkdirSync(downloads, { recursive: true });
    let source;
    try {
      source = fetch(SOURCES[guest], downloads);
    } catch (error) {
      if (!old) throw error;
      console.error(`test:interop: ${error.message}\ntest:interop: the kernel of ${basename(old)} is taken`);
      return kernelOf(old);
    }
    const name = `${series}-${source.version.replaceAll(/[^\w.+~-]/g, '_')}-${hash}`;
    const entry = join(cache.folder, name);
    if (existsSync(entry)) {
      utimesSync(versions(entry), new Date(), new Date());
      return kernelOf(entry);
    }
    cache.make((directory) => {
      build(SOURCES[guest], source, directory, join(cache.folder, `build-${series}.log`));
      return name;
    });
    rmSync(downloads, { recursive: true });
    return kernelOf(entry);
  });
}
