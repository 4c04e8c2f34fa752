// The guest's image, and the Debian packages that building and running it needs. For run.mjs and test/capture-real.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Guests by name, and the suite that each is built from (docs/interop.md has their versions). */
export const SUITES = { debian12: 'bookworm', debian13: 'trixie' };

const here = fileURLToPath(new URL('.', import.meta.url));
const cache = join(here, '../../.cache/rxe-guest');

process.env.PATH = `${process.env.PATH ?? '/usr/bin:/bin'}:/usr/sbin:/sbin`;

// Program, or a file, → the package that brings it.
const NEEDED = [
  ['ip', 'iproute2'],
  ['tcpdump', 'tcpdump'],
  ['tshark', 'tshark'],
  ['qemu-system-x86_64', 'qemu-system-x86'],
  ['setpriv', 'util-linux'],
  ['python3', 'python3'],
  ['gcc', 'gcc'],
  ['readelf', 'binutils'],
  ['depmod', 'kmod'],
  ['cpio', 'cpio'],
  ['unxz', 'xz-utils'],
];

export function fail(message) {
  console.error(`test:interop: ${message}`);
  process.exit(1);
}

export function call(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { stdio: ['ignore', 'inherit', 'inherit'], ...options });
  if (error) fail(`${command}: ${error.message}`);
  if (status !== 0) fail(`${command} ${args.join(' ')} ended with ${status}`);
}

const there = (what) =>
  what.startsWith('/')
    ? existsSync(what)
    : process.env.PATH.split(':').some((directory) => existsSync(join(directory, what)));

function apt(...args) {
  const options = ['-q', '-o', 'Acquire::Retries=3'];
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  call('apt-get', [...options, ...args], { env, stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Installs the packages that are missing (root), or names them and ends the program. */
export function installPackages() {
  const missing = NEEDED.filter(([what]) => !there(what)).map(([, name]) => name);
  if (process.getuid() !== 0) {
    const also = missing.length > 0 ? ` It also needs these Debian packages: ${missing.join(' ')}.` : '';
    fail(`needs root, for network namespaces and a tap device.${also}`);
  }
  if (missing.length > 0) {
    console.error(`test:interop: installing ${missing.join(' ')}`);
    apt('update');
    apt('-y', '--no-install-recommends', 'install', ...missing);
  }
}

function files(directory) {
  return readdirSync(directory, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((e) => (e.isDirectory() ? files(join(directory, e.name)) : [join(directory, e.name)]));
}

/** The directory of the image of `guest` (a key of SUITES), built now unless its sources are those of the last build. */
export function buildGuest(guest) {
  const sources = join(here, 'guest');
  const hash = createHash('sha256');
  for (const file of files(sources)) hash.update(relative(sources, file)).update(readFileSync(file));
  const image = join(cache, `${guest}-${hash.digest('hex').slice(0, 16)}`);
  if (existsSync(image)) return image;
  console.error(`test:interop: building the guest of ${guest}`);
  apt('update'); // the mirrors are found by the host's package lists
  const building = join(cache, `building-${process.pid}`);
  mkdirSync(building, { recursive: true });
  call('bash', [join(sources, 'build.sh'), SUITES[guest], building, cache]);
  for (const name of readdirSync(cache)) {
    if (name.startsWith(`${guest}-`)) rmSync(join(cache, name), { recursive: true, force: true });
  }
  renameSync(building, image);
  return image;
}
