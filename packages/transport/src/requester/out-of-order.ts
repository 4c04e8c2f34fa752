/** Responses to READs and atomics that came before one that is missing: their data is in place, by PSN. */
import { psnAdd, psnDiff } from '@node-roce/wire';

/** PSNs beyond the oldest that is not acknowledged; a power of two. */
const RANGE = 1 << 14;
const MASK = RANGE - 1;
const NONE = -1;
const NO_BITS = new Uint32Array(0);

/** Gaps with at most so many answered PSNs between them are asked for in one request. */
const JOINED = 8;

/**
 * Owns a bit for each PSN that was answered early.
 *
 * Promise: all are within `RANGE` of each other; without one, nothing is remembered.
 */
export class OutOfOrder {
  /** Made with the first one. */
  #bits = NO_BITS;
  #count = 0;
  #highest = 0;

  get count(): number {
    return this.#count;
  }

  /** The last PSN that was answered; of no meaning without one. */
  get highest(): number {
    return this.#highest;
  }

  has(psn: number): boolean {
    if (this.#count === 0 || (this.#bits[(psn & MASK) >> 5] & (1 << (psn & 31))) === 0) return false;
    // Beyond the last one, the bit is that of another PSN.
    return psnDiff(psn, this.#highest) <= 0;
  }

  /** Whether a response behind `psn` came early. */
  isBefore(psn: number): boolean {
    return this.#count > 0 && psnDiff(psn, this.#highest) < 0;
  }

  /** Whether there is a place for a PSN this far beyond the oldest. */
  fits(psn: number, unackedPsn: number): boolean {
    return psnDiff(psn, unackedPsn) < RANGE;
  }

  /** The response at `psn`, which fits, is in place. */
  add(psn: number): void {
    if (this.#bits === NO_BITS) this.#bits = new Uint32Array(RANGE / 32);
    this.#bits[(psn & MASK) >> 5] |= 1 << (psn & 31);
    if (this.#count++ === 0 || psnDiff(psn, this.#highest) > 0) this.#highest = psn;
  }

  /** Its turn has come. @returns whether it was answered */
  take(psn: number): boolean {
    if (!this.has(psn)) return false;
    this.#bits[(psn & MASK) >> 5] &= ~(1 << (psn & 31));
    this.#count--;
    return true;
  }

  /** The first PSN from `from` on, before `end`, that is not answered; −1: there is none. */
  missing(from: number, end: number): number {
    for (let psn = from; psnDiff(psn, end) < 0; psn = psnAdd(psn, 1)) if (!this.has(psn)) return psn;
    return NONE;
  }

  /** How many of `limit` PSNs from this one are not answered. */
  countMissing(psn: number, limit: number): number {
    if (!this.isBefore(psn)) return limit;
    let count = 0;
    for (let i = 0; i < limit; i++) if (!this.has(psnAdd(psn, i))) count++;
    return count;
  }

  /** PSNs from this missing one that one request asks for, of `limit`: up to the end of the last gap near the one before it. */
  span(psn: number, limit: number, joined: number = JOINED): number {
    if (!this.isBefore(psn)) return limit;
    let length = 1;
    for (let i = 1; i < limit && i - length <= joined; i++) if (!this.has(psnAdd(psn, i))) length = i + 1;
    return length;
  }

  /** PSNs from this one that are answered, up to `limit`. */
  answeredFrom(psn: number, limit: number): number {
    let count = 0;
    while (count < limit && this.has(psnAdd(psn, count))) count++;
    return count;
  }

  /**
   * PSNs of an entry from `psn` on, of `left` that it has, that need not be retransmitted: READs and atomics that were answered, SENDs
   * and WRITEs before a response, which acknowledges them.
   */
  answeredAt(psn: number, left: number, readOrAtomic: boolean): number {
    if (this.#count === 0) return 0;
    if (readOrAtomic) return this.answeredFrom(psn, left);
    return psnDiff(psn, this.#highest) < 0 ? left : 0;
  }

  clear(): void {
    if (this.#count > 0) this.#bits.fill(0);
    this.#count = 0;
  }

  /** The broken promise, if there is one. */
  check(unackedPsn: number): string | undefined {
    if (this.#count === 0) return undefined;
    return this.#count > 0 && psnDiff(this.#highest, unackedPsn) > 0 && !this.has(unackedPsn)
      ? undefined
      : `${this.#count} responses up to ${this.#highest} are early, and ${unackedPsn} is awaited`;
  }
}
