// Programs and Debian packages of the host that the guests need.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

process.env.PATH = `${process.env.PATH ?? '/usr/bin:/bin'}:/usr/sbin:/sbin`;

/** Of apt: a mirror that does not answer, and another apt that runs, are waited for. */
const OPTIONS = [
  'Acquire::Retries=3',
  'Acquire::http::Timeout=30',
  'Acquire::https::Timeout=30',
  'DPkg::Lock::Timeout=600',
];
/** Seconds between the attempts of apt. */
const PAUSES = [5, 20, 60];

export function fail(message) {
  console.error(`test:interop: ${message}`);
  process.exit(1);
}

/** Runs a program to its end. @throws unless it succeeds */
export function call(command, args, options = {}) {
  const ended = spawnSync(command, args, { stdio: ['ignore', 'inherit', 'inherit'], ...options });
  if (ended.error) throw new Error(`${command}: ${ended.error.message}`);
  if (ended.status !== 0) {
    const why = ended.signal ?? ended.status;
    throw new Error(`${command} ${args.join(' ')} ended with ${why}\n${ended.stderr ?? ''}`.trim());
  }
}

const isThere = (what) =>
  what.startsWith('/')
    ? existsSync(what)
    : process.env.PATH.split(':').some((directory) => existsSync(join(directory, what)));

/** Repeated while it fails, as mirrors do: the last error has the mirror's answer. */
function apt(...args) {
  const options = ['-q', ...OPTIONS.flatMap((option) => ['-o', option]), ...args];
  for (const pause of [...PAUSES, undefined]) {
    try {
      call('apt-get', options, {
        env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
        stdio: ['ignore', 'ignore', 'pipe'],
        encoding: 'utf8',
      });
      return;
    } catch (error) {
      if (pause === undefined) throw error;
      console.error(`test:interop: ${error.message}\ntest:interop: once more in ${pause} s`);
      spawnSync('sleep', [`${pause}`]);
    }
  }
}

/**
 * Installs the packages that are missing (root).
 * @param {[string, string][]} needed a program, or a file by its path, and the package that brings it
 * @throws with the names of the missing packages, if this is not root
 */
export function install(needed) {
  const missing = needed.filter(([what]) => !isThere(what)).map(([, name]) => name);
  if (missing.length === 0) return;
  const names = [...new Set(missing)].join(' ');
  if (process.getuid() !== 0) throw new Error(`these Debian packages are missing: ${names}`);
  console.error(`test:interop: installing ${names}`);
  apt('update');
  apt('-y', '--no-install-recommends', 'install', ...names.split(' '));
}
