/**
 * Directions that wait for their partner, by what a response can be held against: the PSNs that were sent in them
 * lately, and their UDP source port. So a response among ten thousand connections is held against a few.
 */
import type { Half } from './half.ts';

/** PSNs that are looked up together: 2^12. A direction is found by its last two such ranges. */
const RANGE_BITS = 12;

export class Candidates {
  readonly #byPsn = new Map<number, Set<Half>>();
  readonly #byPort = new Map<number, Set<Half>>();

  enter(half: Half): void {
    add(this.#byPort, keyOf(half.source, half.destination, half.sourcePort), half);
  }

  /** A request went out. */
  sent(half: Half, psn: number): void {
    const range = psn >> RANGE_BITS;
    if (range === half.psnRange || range === half.psnRangeBefore) return;
    const { source, destination, psnRangeBefore } = half;
    if (psnRangeBefore >= 0) remove(this.#byPsn, keyOf(source, destination, psnRangeBefore), half);
    half.psnRangeBefore = half.psnRange;
    half.psnRange = range;
    add(this.#byPsn, keyOf(source, destination, range), half);
  }

  /** It has found its partner. */
  leave(half: Half): void {
    const { source, destination } = half;
    for (const range of [half.psnRange, half.psnRangeBefore]) {
      if (range >= 0) remove(this.#byPsn, keyOf(source, destination, range), half);
    }
    remove(this.#byPort, keyOf(source, destination, half.firstPort), half);
  }

  /** Those against `half` in which PSNs near this one were sent. */
  withPsn(half: Half, psn: number): Iterable<Half> {
    return this.#byPsn.get(keyOf(half.destination, half.source, psn >> RANGE_BITS)) ?? [];
  }

  /** Those against `half` from the same UDP port. */
  withPort(half: Half): Iterable<Half> {
    return this.#byPort.get(keyOf(half.destination, half.source, half.sourcePort)) ?? [];
  }
}

/** Addresses are numbers below 2^16, and so are ports and ranges: 48 bits. */
const keyOf = (source: number, destination: number, value: number): number =>
  (source * 0x10000 + destination) * 0x10000 + value;

function add(map: Map<number, Set<Half>>, key: number, half: Half): void {
  const found = map.get(key);
  if (found === undefined) map.set(key, new Set([half]));
  else found.add(half);
}

function remove(map: Map<number, Set<Half>>, key: number, half: Half): void {
  const found = map.get(key);
  found?.delete(half);
  if (found?.size === 0) map.delete(key);
}
