/** Numbers, or memory, that were given back while a batch that the link has not looked at may still name them. */

/** Promise: nothing is released while a batch is open that was filled before it was given back. */
export class Quarantine<T = number> {
  readonly #release: (thing: T) => void;
  readonly #kept: T[] = [];
  #batches = 0;

  /** @param release makes a number free to be given out again */
  constructor(release: (thing: T) => void) {
    this.#release = release;
  }

  /** The number is not used any more. */
  give(thing: T): void {
    if (this.#batches === 0) this.#release(thing);
    else this.#kept.push(thing);
  }

  /** A batch has packets. */
  batchOpened(): void {
    this.#batches++;
  }

  /** The link has looked at every packet of a batch. */
  batchClosed(): void {
    if (--this.#batches > 0) return;
    const kept = this.#kept;
    // V8 calls its runtime to set the length of an array.
    if (kept.length === 0) return;
    for (let i = 0; i < kept.length; i++) this.#release(kept[i]);
    kept.length = 0;
  }
}
