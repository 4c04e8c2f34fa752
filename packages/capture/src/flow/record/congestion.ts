/** Delays from congestion marks to the packets that notify the sender of them (RFC 3168; IBTA annex A17.9.3). */
import { DistributionBuilder } from './distribution.ts';

/** Times from the first ECN mark of a direction to the next CNP. */
export class CongestionWatch {
  /** From the first mark in this direction to the first CNP against it. */
  readonly delay = new DistributionBuilder();
  #markedAt = Number.NaN;

  /** A packet of this direction has CE. */
  marked(time: number): void {
    if (Number.isNaN(this.#markedAt)) this.#markedAt = time;
  }

  /** The other direction has a CNP. */
  notified(time: number): void {
    if (Number.isNaN(this.#markedAt)) return;
    this.delay.add(time - this.#markedAt);
    this.#markedAt = Number.NaN;
  }
}
