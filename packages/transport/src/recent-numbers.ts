/**
 * Numbers that were given back and are not given out again for a while: QPNs and key indices. They are drawn at random, so
 * one could come back at once; a packet of its former life that is still on its way would then find the new owner.
 */

/** How many others are given back before a number may be drawn again. */
export const REUSE_DISTANCE = 4096;

/** Numbers of late: such a number is not given out again soon. */
export class RecentNumbers {
  readonly #ring: number[] = [];
  readonly #numbers = new Set<number>();
  #next = 0;

  /** Keeps a number back until `REUSE_DISTANCE` more have been. */
  add(number: number): void {
    if (this.#ring.length === REUSE_DISTANCE) this.#numbers.delete(this.#ring[this.#next]);
    this.#ring[this.#next] = number;
    this.#numbers.add(number);
    this.#next = (this.#next + 1) % REUSE_DISTANCE;
  }

  has(number: number): boolean {
    return this.#numbers.has(number);
  }
}
