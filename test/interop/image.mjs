// The guest's image, and the Debian packages that building and running it needs.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Cache, hashOf } from './cache.mjs';
import { call, fail, install } from './packages.mjs';

/** Guests by name, and the suite that each is built from (docs/interop.md has their versions). */
export const SUITES = { debian12: 'bookworm', debian13: 'trixie' };

const sources = fileURLToPath(new URL('guest', import.meta.url));

// Program, or a file, → the package that brings it.
const NEEDED = [
  ['ip', 'iproute2'],
  ['tcpdump', 'tcpdump'],
  ['tshark', 'tshark'],
  ['qemu-system-x86_64', 'qemu-system-x86'],
  ['setpriv', 'util-linux'],
  ['ethtool', 'ethtool'],
  ['python3', 'python3'],
  ['gcc', 'gcc'],
  ['readelf', 'binutils'],
  ['depmod', 'kmod'],
  ['cpio', 'cpio'],
  ['unxz', 'xz-utils'],
];

/** Installs the packages that are missing (root), or names them and ends the program. */
export function installPackages() {
  try {
    install(NEEDED);
  } catch (error) {
    fail(error.message);
  }
  if (process.getuid() !== 0) fail('needs root, for network namespaces');
}

/** The directory of the image of `guest` (a key of SUITES), built unless the cache has one of the same sources. */
export function buildGuest(guest) {
  const cache = new Cache('guest');
  const name = `${guest}-${hashOf(sources)}`;
  const found = () => cache.entries(new RegExp(`^${name}$`)).map((entry) => cache.use(entry))[0];
  return (
    found() ??
    cache.locked(
      () =>
        found() ??
        cache.make((building) => {
          console.error(`test:interop: building the guest of ${guest}`);
          const downloads = join(cache.folder, 'packages');
          mkdirSync(downloads, { recursive: true });
          call('bash', [join(sources, 'build.sh'), SUITES[guest], building, downloads]);
          return name;
        }),
    )
  );
}
