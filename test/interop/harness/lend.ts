/** Programs of this machine that run in the guest, which does not have them. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Guest } from './guest.ts';
import { onRelease } from './release.ts';

/** Of librdmacm1: sockets of a program become sockets of RDMA. */
export const RSPRELOAD = '/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so';

/** Where the files are in the guest. */
const PLACE = '/tmp/lent';

/** Whether this machine has the files, and the same release of Debian as the guest. */
export const canLend = (...files: string[]): boolean =>
  files.every((path) => existsSync(path)) &&
  readFileSync('/etc/os-release', 'utf8').includes(
    onRelease({ debian12: 'VERSION_ID="12"', debian13: 'VERSION_ID="13"' }),
  );

/**
 * Copies programs to the guest, with the libraries that they need.
 *
 * @param more other files, such as a library that is preloaded
 * @returns what a command line in the guest begins with: `${lent.environment} ${lent.path('/usr/bin/curl')}`
 */
export async function lend(
  guest: Guest,
  programs: readonly string[],
  more: readonly string[] = [],
): Promise<{ environment: string; path(file: string): string }> {
  const listed = execFileSync('ldd', programs, { encoding: 'utf8' });
  const libraries = new Set([...listed.matchAll(/=> (\/\S+)/g)].map(([, path]) => path));
  const args = ['-czhPf', '-', '--', ...more, ...programs, ...libraries];
  const archive = execFileSync('tar', args, { maxBuffer: 2 ** 28 });
  const unpack = `mkdir -p ${PLACE} && base64 -d | gunzip | tar -x -C ${PLACE}`;
  await guest.must(unpack, { stdin: archive.toString('base64'), timeout: 600_000 });
  // The guest's own first.
  const folders = ['/usr/lib/x86_64-linux-gnu', ...[...libraries].map((path) => PLACE + dirname(path))];
  return {
    environment: `LD_LIBRARY_PATH=${[...new Set(folders)].join(':')}`,
    path: (file) => `${PLACE}${file}`,
  };
}

/** Removes all of them. */
export const takeBack = (guest: Guest) => guest.must(`rm -rf ${PLACE}`);
