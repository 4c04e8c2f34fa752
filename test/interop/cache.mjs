// The user's cache folder, $XDG_CACHE_HOME/node-roce or ~/.cache/node-roce: what takes minutes to build, and all clones of the project use.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { join, relative } from 'node:path';
import { PATIENCE } from '../tiers/patience.mjs';

/** An entry that nothing has used for so long is removed. */
const UNUSED_DAYS = 14;
/** Waiting for another program's build ends after so many minutes. */
const WAIT_MINUTES = 40;

const DAY = 86_400_000;
const BUILDING = 'building-';
const LOCK = 'lock';

/** Days since a file or directory was changed or used. */
export const daysSince = (path) => (Date.now() - statSync(path).mtimeMs) / DAY;

function filesBelow(directory) {
  return readdirSync(directory, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((e) => (e.isDirectory() ? filesBelow(join(directory, e.name)) : [join(directory, e.name)]));
}

/**
 * 16 hexadecimal digits that change with any of the files below `directory`, their names, or one of `words`.
 * @param {(name: string) => boolean} isPart of the files, by their name below `directory`
 */
export function hashOf(directory, words = [], isPart = () => true) {
  const hash = createHash('sha256');
  for (const file of filesBelow(directory)) {
    const name = relative(directory, file);
    if (isPart(name)) hash.update(name).update(readFileSync(file));
  }
  for (const word of words) hash.update(word);
  return hash.digest('hex').slice(0, 16);
}

/** A folder of the cache: its entries are directories, complete from the moment at which they have their name. */
export class Cache {
  /** @param {string} name of the folder, and in messages */
  constructor(name) {
    this.name = name;
    this.folder = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'node-roce', name);
    mkdirSync(this.folder, { recursive: true });
  }

  /** The entries whose name `matches`, the newest first. */
  entries(matches) {
    return readdirSync(this.folder)
      .filter((name) => !name.startsWith(BUILDING) && matches.test(name))
      .map((name) => join(this.folder, name))
      .sort((a, b) => statSync(b).birthtimeMs - statSync(a).birthtimeMs);
  }

  /** Notes that an entry is in use. */
  use(entry) {
    utimesSync(entry, new Date(), new Date());
    return entry;
  }

  /**
   * Calls `work` while no other program holds the lock of this folder. The kernel releases the lock of a program that was killed.
   * @throws where another program holds the lock for WAIT_MINUTES
   */
  locked(work) {
    const path = join(this.folder, LOCK);
    const fd = openSync(path, 'a+');
    // flock(1) locks the open file that it inherits, so that the lock is ours once flock has ended.
    const lock = (...how) =>
      spawnSync('flock', [...how, '3'], { stdio: ['ignore', 'ignore', 'inherit', fd] });
    try {
      if (lock('--nonblock').status !== 0) {
        const holder = readFileSync(path, 'utf8').trim();
        const limit = WAIT_MINUTES * PATIENCE;
        console.error(
          `test:interop: ${holder || 'another process'} builds in ${this.folder}: waiting for it`,
        );
        if (lock('--timeout', `${limit * 60}`).status !== 0)
          throw new Error(`${path} is still locked by ${holder || 'another process'} after ${limit} minutes`);
      }
      writeFileSync(path, `process ${process.pid}`);
      this.#sweep();
      return work();
    } finally {
      closeSync(fd);
    }
  }

  /** Makes an entry: `build` gets an empty directory and returns the entry's name. To be called with the lock. */
  make(build) {
    const building = join(this.folder, `${BUILDING}${process.pid}`);
    mkdirSync(building);
    try {
      const entry = join(this.folder, build(building));
      rmSync(entry, { recursive: true, force: true });
      renameSync(building, entry);
      return entry;
    } finally {
      rmSync(building, { recursive: true, force: true });
    }
  }

  /** Removes what a killed build left (nobody else builds now), and entries that nobody uses any more. */
  #sweep() {
    for (const name of readdirSync(this.folder)) {
      const path = join(this.folder, name);
      const isEntry = name.startsWith('debian') || /^\d/.test(name);
      if (name.startsWith(BUILDING) || (isEntry && daysSince(path) > UNUSED_DAYS))
        rmSync(path, { recursive: true, force: true });
    }
  }
}
