/** Numbers that were given back while a batch that the link has not looked at may still name them. */

/** Promise: no number is released while a batch is open that was filled before the number was given back. */
export class Quarantine {
  readonly #release: (number: number) => void;
  readonly #kept: number[] = [];
  #batches = 0;

  /** @param release makes a number free to be given out again */
  constructor(release: (number: number) => void) {
    this.#release = release;
  }

  /** The number is not used any more. */
  give(number: number): void {
    if (this.#batches === 0) this.#release(number);
    else this.#kept.push(number);
  }

  /** A batch has packets. */
  batchOpened(): void {
    this.#batches++;
  }

  /** The link has looked at every packet of a batch. */
  batchClosed(): void {
    if (--this.#batches > 0) return;
    const kept = this.#kept;
    for (let i = 0; i < kept.length; i++) this.#release(kept[i]);
    kept.length = 0;
  }
}
