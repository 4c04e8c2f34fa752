/** How far apart losses are: on a path that loses often, a retransmission is soon lost again. */
import type { Own } from '../../own.ts';

/** Fewer packets than this from one loss to the next: a path on which the first retransmitted packet is sent twice. */
const LOSSY = 12;
/** Fewer than this: there is hardly a window of packets without one. */
const FREQUENT = 32;
const DISTANCE_MAX = 1024;
/** After so many packets without one, the path loses none any more. */
const FORGOTTEN = 65_536;
/** So many in a row that were suspected, each near the one before, are no accident. */
const SUSPICIONS = 3;

/** Promise: the mean is of distances up to `DISTANCE_MAX`. */
export class LossBursts {
  /** Whether the connection loses packets, for all that answers show. */
  readonly areSeen: boolean = false;
  /** Packets acknowledged since the last loss. */
  #since = 0;
  /** The mean of the distances, each weighted by a quarter. */
  #mean = DISTANCE_MAX;
  /** Packets acknowledged since one was seen for certain. */
  #calm = FORGOTTEN;
  /** And since one was suspected. */
  #sinceSuspected = DISTANCE_MAX;
  /** Of those that were suspected in a row; up to `SUSPICIONS`. */
  #suspicions = 0;

  /** A new connection: nothing was lost yet. */
  reset(): void {
    this.#since = 0;
    this.#mean = DISTANCE_MAX;
    this.#calm = FORGOTTEN;
    this.#sinceSuspected = DISTANCE_MAX;
    this.#suspicions = 0;
    (this as Own<LossBursts>).areSeen = false;
  }

  /** Nothing was lost, nor suspected, for all that counts. */
  get isNone(): boolean {
    const isSuspected = this.#suspicions > 0 && this.#sinceSuspected < DISTANCE_MAX;
    return !this.areSeen && !isSuspected && this.#mean === DISTANCE_MAX;
  }

  acknowledged(packets: number): void {
    this.#since += packets;
    this.#calm += packets;
    this.#sinceSuspected += packets;
    if (this.areSeen) this.#judge();
    if (this.#since >= FORGOTTEN) this.#mean = DISTANCE_MAX;
  }

  /** An answer shows a loss. A timeout shows none: the peer may be slow. */
  seen(): void {
    this.#calm = 0;
    (this as Own<LossBursts>).areSeen = true;
  }

  /** An answer came as it would if one had been lost; a peer that had lost the processor may have sent it at the same time by accident. */
  suspected(): void {
    if (this.#sinceSuspected >= DISTANCE_MAX) this.#suspicions = 0;
    this.#suspicions = Math.min(this.#suspicions + 1, SUSPICIONS);
    this.#sinceSuspected = 0;
    this.#judge();
  }

  /** An answer came as it would if the peer had been slow: what was suspected before may have been that as well. */
  suspectedInVain(): void {
    this.#suspicions = 0;
    this.#judge();
  }

  #judge(): void {
    const isSuspected = this.#suspicions >= SUSPICIONS && this.#sinceSuspected < DISTANCE_MAX;
    (this as Own<LossBursts>).areSeen = isSuspected || this.#calm < FORGOTTEN;
  }

  /** A loss was seen, or may have been. */
  lost(): void {
    const distance = Math.min(this.#since, DISTANCE_MAX);
    this.#mean += (distance - this.#mean + 2) >> 2;
    this.#since = 0;
  }

  /** Whether a packet is easily lost twice. */
  get isLossy(): boolean {
    return this.#mean < LOSSY;
  }

  /** Whether the retransmissions for one loss are still on their way at the next. */
  get isFrequent(): boolean {
    return this.#mean < FREQUENT;
  }

  /**
   * How many packets from a gap on are retransmitted at once, where answers name one gap in a round trip: further gaps are among them where
   * losses are nearer to each other than that. An answer takes some longer than a window does to leave; half of what then has room in addition
   * the packets up to the next gap is retransmitted, the other half is new.
   */
  burst(window: number): number {
    return Math.max(1, ((window * 7) / 5 - this.#mean) >> 1);
  }
}
