/** How a requester deals with sequence NAKs, by whether the peer keeps packets that come early. */
import { psnDiff } from '@node-roce/wire';
import type { Clock } from '../../times.ts';

/** Losses of one retransmitted packet before all packets are retransmitted. */
const REPEATS_MAX = 3;
const NONE = -1;
const NEVER = Number.NEGATIVE_INFINITY;

/** Gaps in a row behind which nothing was kept: the peer discards after all. One that keeps has lost the next packet, too, so often hardly ever. */
const DISPROOFS = 8;

/** Most doublings of the time in which a retransmission may be answered. */
const DOUBLINGS_MAX = 6;

/** Of the packets in flight, those that are retransmitted for a sequence NAK: none, the gap that it names, or all. */
export const Again = { NOTHING: 0, GAP: 1, ALL: 2 } as const;

/** Of a connection's sequence NAKs, those for which the packet that they name is retransmitted by itself first: the fourth, eighth, … 256th. */
const TRIAL_FIRST = 4;
const TRIAL_LAST = 256;

/**
 * A requester that goes back for a sequence NAK and hears an ACK beyond where it has got to since has learned that the peer keeps: one that
 * discards them cannot have them. From then on it sends again only what a NAK names. To find out, it waits for the answer to the packet that
 * is missing before it sends the others, on a path that has lost some already: a round trip, seven times at most.
 *
 * On a path that reorders, what is acknowledged there may have been on its way, retransmitted for an earlier NAK. A peer that has nothing behind
 * gap after gap is no keeper; from then on only what has no other explanation counts.
 *
 * Promise: a NAK that repeats makes the requester retransmit all, so a peer that was misjudged is served.
 */
export class SelectiveRepeat {
  readonly #clock: Clock;
  #learned = false;
  #lastNak = NONE;
  /** Sequence NAKs for which all packets in flight were retransmitted. */
  #naks = 0;
  #isTrying = false;
  #nakCameAgain = false;
  /** Times that it was repeated after the packet that it names was retransmitted. */
  #repeats = 0;
  /** When packets were retransmitted last, µs; the first PSN, and the one past them. */
  #at = NEVER;
  #from = 0;
  #end = 0;
  /** Some of them may be on their way; and whether that was so when those before them had been retransmitted. */
  #isOpen = false;
  /** The first of them is acknowledged. */
  #isClosed = false;
  #wasOpen = false;
  /** Behind them others were sent before; and how often in a row the peer had none of those. */
  #hasBehind = false;
  #disproofs = 0;
  /** It was misjudged once. */
  #isWary = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get learned(): boolean {
    return this.#learned;
  }

  /** Nothing is on its way again. */
  get isSettled(): boolean {
    return !this.#isOpen && !this.#isTrying;
  }

  /** The last NAK is of long ago, and its PSN comes again. What the peer has shown of itself counts for the whole connection. */
  forgetNak(): void {
    this.#lastNak = NONE;
  }

  /** All in flight was retransmitted for a gap, and nothing shows that the peer keeps early packets. */
  get goesBack(): boolean {
    return this.#naks > 0 && !this.#learned;
  }

  /**
   * More is acknowledged than was sent since the requester went back for a NAK. Where losses are frequent, that is hardly ever clear of what
   * was retransmitted for an earlier one, and the peer is believed until it has shown the contrary.
   */
  learn(isLossy: boolean): void {
    if (!this.#wasOpen || (isLossy && !this.#isWary)) this.#learned = true;
  }

  /** A new connection. */
  reset(): void {
    this.#learned = false;
    this.#naks = 0;
    this.#isTrying = false;
    this.#lastNak = NONE;
    this.#at = NEVER;
    this.#isOpen = this.#wasOpen = false;
    this.#disproofs = 0;
    this.#isWary = false;
  }

  /** One packet alone is retransmitted, if that may reveal more. */
  try(): void {
    const naks = ++this.#naks;
    const isTime = naks >= TRIAL_FIRST && naks <= TRIAL_LAST && (naks & (naks - 1)) === 0;
    if (isTime && !this.#learned) this.#isTrying = true;
  }

  /** The last NAK was a repeated one, after the packet that it names had been retransmitted. */
  get isRepeated(): boolean {
    return this.#repeats > 0;
  }

  /** A NAK came for packets that were retransmitted less than a round trip before. */
  get nakCameAgain(): boolean {
    return this.#nakCameAgain;
  }

  /** It is waited for the answer to that packet. */
  get isTrying(): boolean {
    return this.#isTrying;
  }

  /** Everything before `psn` is acknowledged, more than before: µs since the gap there was retransmitted; 0: no gap, or not that. */
  gapClosedAfter(psn: number): number {
    if (!this.#isOpen || !this.#learned || psnDiff(psn, this.#from) <= 0 || this.#isClosed) return 0;
    this.#isClosed = true;
    return this.#clock[0] - this.#at;
  }

  /** Everything before `psn` is acknowledged, and that is more than before. */
  progress(psn: number): void {
    this.#isTrying = false;
    if (!this.#isOpen) return;
    const beyond = psnDiff(psn, this.#end);
    if (beyond < 0) return;
    this.#isOpen = false;
    if (!this.#learned || !this.#hasBehind) return;
    this.#disproofs = beyond > 0 ? 0 : this.#disproofs + 1;
    if (this.#disproofs < DISPROOFS) return;
    this.#learned = false;
    this.#isWary = true;
    this.#disproofs = 0;
  }

  /** The packets in [from, end) are retransmitted; others behind them may be left out. */
  sentAgain(from: number, end: number, hasBehind: boolean): void {
    this.#from = from;
    this.#nakCameAgain = false;
    this.#isTrying = false;
    this.#at = this.#clock[0];
    this.#end = end;
    this.#wasOpen = this.#isOpen;
    this.#isOpen = true;
    this.#isClosed = false;
    this.#hasBehind = hasBehind;
  }

  /** Whether the last NAK named this packet. */
  isNakked(psn: number): boolean {
    return this.#lastNak === psn;
  }

  /** Whether a gap is open at the oldest packet in flight, and the peer keeps the packets behind it. */
  keepsBehind(unackedPsn: number): boolean {
    return this.#learned && this.#lastNak === unackedPsn;
  }

  /**
   * µs until a NAK for `psn`, or a later one, means that the retransmission was lost, too; 0: it means that now. The time doubles
   * with each lost retransmission, since the round trip may have grown. A packet sent behind others is answered after them.
   *
   * @param roundTrip µs
   * @param window packets that leave in that time
   */
  waits(psn: number, roundTrip: number, window: number): number {
    const isAgain = psn === this.#lastNak || (this.#learned && psnDiff(psn, this.#end) < 0);
    const time = roundTrip * 2 ** Math.max(0, Math.min(this.#repeats - 1, DOUBLINGS_MAX));
    if (!isAgain) return 0;
    const behind = (roundTrip * Math.max(0, psnDiff(psn, this.#from))) / window;
    return Math.max(0, this.#at + time + behind - this.#clock[0]);
  }

  /** A sequence NAK names `psn`. Packets retransmitted less than a round trip ago are on their way. @returns one of `Again` */
  nakked(psn: number, roundTrip: number, window: number): number {
    const repeats = psn === this.#lastNak;
    const waits = this.waits(psn, roundTrip, window) > 0;
    if (!repeats) this.#repeats = 0;
    this.#lastNak = psn;
    if (waits) {
      this.#nakCameAgain = true;
      return Again.NOTHING;
    }
    if (repeats) this.#repeats++;
    return !this.#learned || this.#repeats > REPEATS_MAX ? Again.ALL : Again.GAP;
  }
}
