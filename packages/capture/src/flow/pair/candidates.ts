/**
 * Directions that wait for their partner, by the keys that a response can be compared with: the PSNs that were sent in them
 * lately, and their UDP source port. So a response among ten thousand connections is compared with a few.
 */
import type { Direction } from '../track/direction.ts';

/** PSNs that are looked up together: 2^12. A direction is found by its last two such ranges. */
const RANGE_BITS = 12;

/** Directions without a partner, by address pair and PSN range or UDP source port. */
export class Candidates {
  readonly #byPsn = new Map<number, Set<Direction>>();
  readonly #byPort = new Map<number, Set<Direction>>();
  /** How many directions came with a UDP source port, those that have their partner included. */
  readonly #entered = new Map<number, number>();

  enter(direction: Direction): void {
    const key = keyOf(direction.key.source, direction.key.destination, direction.span.lastPort);
    add(this.#byPort, key, direction);
    this.#entered.set(key, (this.#entered.get(key) ?? 0) + 1);
  }

  /** Whether others between the two addresses have the same UDP source port: so it does not follow from the QPNs. */
  sharesPort({ key: { source, destination }, span }: Direction): boolean {
    return (this.#entered.get(keyOf(source, destination, span.firstPort)) ?? 0) > 1;
  }

  /** A request went out. */
  sent(direction: Direction, psn: number): void {
    const range = psn >> RANGE_BITS;
    if (range === direction.search.psnRange || range === direction.search.psnRangeBefore) return;
    const {
      key: { source, destination },
      search: { psnRangeBefore },
    } = direction;
    if (psnRangeBefore >= 0) remove(this.#byPsn, keyOf(source, destination, psnRangeBefore), direction);
    direction.search.psnRangeBefore = direction.search.psnRange;
    direction.search.psnRange = range;
    add(this.#byPsn, keyOf(source, destination, range), direction);
  }

  /** It has found its partner. */
  leave(direction: Direction): void {
    const { source, destination } = direction.key;
    for (const range of [direction.search.psnRange, direction.search.psnRangeBefore]) {
      if (range >= 0) remove(this.#byPsn, keyOf(source, destination, range), direction);
    }
    remove(this.#byPort, keyOf(source, destination, direction.span.firstPort), direction);
  }

  /** Those against `direction` in which PSNs near this one were sent. */
  withPsn(direction: Direction, psn: number): Iterable<Direction> {
    return this.#byPsn.get(keyOf(direction.key.destination, direction.key.source, psn >> RANGE_BITS)) ?? [];
  }

  /** Those against `direction` from the same UDP port. */
  withPort(direction: Direction): Iterable<Direction> {
    return (
      this.#byPort.get(keyOf(direction.key.destination, direction.key.source, direction.span.lastPort)) ?? []
    );
  }
}

/** Addresses are numbers below 2^16, and so are ports and ranges: 48 bits. */
const keyOf = (source: number, destination: number, value: number): number =>
  (source * 0x10000 + destination) * 0x10000 + value;

function add(map: Map<number, Set<Direction>>, key: number, direction: Direction): void {
  const found = map.get(key);
  if (found === undefined) map.set(key, new Set([direction]));
  else found.add(direction);
}

function remove(map: Map<number, Set<Direction>>, key: number, direction: Direction): void {
  const found = map.get(key);
  found?.delete(direction);
  if (found?.size === 0) map.delete(key);
}
