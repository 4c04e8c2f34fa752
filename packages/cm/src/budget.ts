/** Answers to messages of nobody's, limited in rate, so that forged ones make no reflector of this side. */

/** A token bucket. */
export class Budget {
  readonly #burst: number;
  readonly #perMicrosecond: number;
  #tokens: number;
  #at = Number.NEGATIVE_INFINITY;

  /** @param perSecond answers in the long run @param burst answers at once */
  constructor(perSecond: number, burst: number) {
    this.#perMicrosecond = perSecond / 1e6;
    this.#burst = burst;
    this.#tokens = burst;
  }

  /** Whether one more may go. */
  take(now: number): boolean {
    const passed = Math.max(0, now - this.#at);
    this.#tokens = Math.min(this.#burst, this.#tokens + passed * this.#perMicrosecond);
    this.#at = now;
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }
}
