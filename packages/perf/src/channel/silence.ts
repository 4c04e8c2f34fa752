/** The silence of a peer: how long it lasts, and the signs of life that end it. */
import type { Patience } from './channel.ts';

/** Measures how long nothing has come from the peer. */
export class Silence {
  readonly #patience: Patience;
  #since = performance.now();
  /** The signs in the middle of the silence. */
  #signs: number | undefined;

  constructor(patience: Patience) {
    this.#patience = patience;
  }

  /** Something has come, or a wait begins. */
  end(now = performance.now()): void {
    this.#since = now;
    this.#signs = undefined;
  }

  /** ms from `now` to the next look. */
  left(now = performance.now()): number {
    const limit = this.#patience.timeout * 1000;
    const isBefore = this.#patience.signs !== undefined && this.#signs === undefined;
    return this.#since + (isBefore ? limit / 2 : limit) - now;
  }

  /** Whether the peer is to be given up. Signs cost a call for each queue pair: they are read only where nothing else comes. */
  async isTooLong(now = performance.now()): Promise<boolean> {
    if (this.left(now) > 0) return false;
    const { signs } = this.#patience;
    if (signs === undefined) return true;
    const before = this.#signs;
    this.#signs = await signs();
    if (this.#signs === before) return true;
    // The next look comes a whole timeout after this one, which may be late.
    this.#since = performance.now();
    return false;
  }
}
