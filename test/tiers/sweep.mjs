// Temporary folders of runs that were killed outright.
import { readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const DAY = 86_400_000;

/**
 * Removes what has a name that begins with `prefix` and is older than a day. Only the age shows that a run is over: it may be in another PID
 * namespace.
 */
export function sweep(prefix, folder = tmpdir()) {
  for (const name of readdirSync(folder).filter((entry) => entry.startsWith(prefix))) {
    const path = join(folder, name);
    try {
      if (Date.now() - statSync(path).mtimeMs > DAY) rmSync(path, { recursive: true, force: true });
    } catch {
      // Another user's, or another run has just removed it.
    }
  }
}
