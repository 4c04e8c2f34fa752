// Results of the mutants of each file: JSON files below .cache, valid as long as the file is the same.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const FOLDER = fileURLToPath(new URL('.cache/', import.meta.url));
const CURRENT = `${FOLDER}current`;

const fileOf = (name) => `${FOLDER}${name.replaceAll('/', '+')}.json`;
export const hashOf = (text) => createHash('sha256').update(text).digest('hex').slice(0, 16);

/** The mutants of one file. Each is `dead`, `alive`, `not covered`, or not judged. */
export class Results {
  #name;
  #hash;
  #mutants;
  #bundle;
  #unsaved = 0;

  /** @param made the mutants as StrykerJS makes them, in its order */
  constructor(name, text, made) {
    mkdirSync(FOLDER, { recursive: true });
    this.#name = name;
    this.#hash = hashOf(text);
    const before = read(name);
    const known = before?.hash === this.#hash ? before.mutants : [];
    this.#mutants = made.map(({ id, location: { start }, mutatorName, replacement }, i) => ({
      id,
      at: `${start.line + 1}:${start.column + 1}`,
      change: `${mutatorName} → ${replacement}`,
      state: known[i]?.state,
      killer: known[i]?.killer,
      by: known[i]?.by,
    }));
    this.#takeCrash();
  }

  /** A mutant that ended the process is dead. */
  #takeCrash() {
    if (!existsSync(CURRENT)) return;
    const [name, hash, id] = readFileSync(CURRENT, 'utf8').split(' ');
    if (name !== this.#name) return;
    rmSync(CURRENT);
    const mutant = this.#mutants.find((each) => each.id === id);
    if (hash === this.#hash && mutant) this.set(mutant, 'dead', 'it ends the process');
  }

  /** Of every so many the one at `offset`, if it is not dead, nor judged by this bundle. */
  open(offset, every, bundle) {
    this.#bundle = bundle;
    return this.#mutants.filter(
      ({ state, by }, i) => i % every === offset && state !== 'dead' && by !== bundle,
    );
  }

  begin({ id }) {
    writeFileSync(CURRENT, `${this.#name} ${this.#hash} ${id}`);
  }

  set(mutant, state, killer) {
    rmSync(CURRENT, { force: true });
    mutant.state = state;
    mutant.killer = killer;
    mutant.by = state === 'dead' ? undefined : this.#bundle;
    if (++this.#unsaved >= 10) this.save();
  }

  save() {
    const mutants = this.#mutants.map(({ id: _, ...mutant }) => mutant);
    writeFileSync(fileOf(this.#name), `${JSON.stringify({ name: this.#name, hash: this.#hash, mutants })}\n`);
    this.#unsaved = 0;
  }

  static line(name) {
    const { dead, judged, all } = count(read(name)?.mutants ?? []);
    return `${dead} of ${judged} die${judged < all ? `, ${all - judged} not judged` : ''}`;
  }
}

const COVERAGE = `${FOLDER}coverage/`;

/** Which tests execute what, and how long they take, for a bundle that was run before. */
export function knownCoverage(hash) {
  const path = `${COVERAGE}${hash}`;
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined;
}

export function keepCoverage(hash, value) {
  mkdirSync(COVERAGE, { recursive: true });
  writeFileSync(`${COVERAGE}${hash}`, JSON.stringify(value));
}

function read(name) {
  return existsSync(fileOf(name)) ? JSON.parse(readFileSync(fileOf(name), 'utf8')) : undefined;
}

/** Every file's results, by name; `stale` where the file has changed since. */
export function allResults(source) {
  const names = existsSync(FOLDER) ? readdirSync(FOLDER).filter((file) => file.endsWith('.json')) : [];
  return names
    .map((file) => JSON.parse(readFileSync(FOLDER + file, 'utf8')))
    .filter(({ name }) => name !== undefined && existsSync(source + name))
    .map((each) => ({ ...each, stale: hashOf(readFileSync(source + each.name, 'utf8')) !== each.hash }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

export function count(mutants) {
  const judged = mutants.filter(({ state }) => state !== undefined);
  return {
    dead: judged.filter(({ state }) => state === 'dead').length,
    judged: judged.length,
    all: mutants.length,
  };
}
