/**
 * Tail loss probes (RFC 8985 §7, fitted to RoCE): a lost tail draws no NAK, so when an answer is overdue by the round
 * trip, one packet is sent once more for an answer. It takes no retry, and the ACK timer runs on.
 */
import { psnDiff } from '@node-roce/wire';
import type { Clock } from '../times.ts';
import { SendCursor } from './cursor.ts';
import type { RoundTrip } from './round-trip.ts';

/** An answer is overdue after two smoothed round trips and the largest ACK delay, but not before this, µs. */
const PROBE_MIN = 50;
/** Overdue before the first sample, µs: so that the loss of a first packet costs less than 1 ms where the round trip is short. */
const PROBE_FIRST = 900;
/** The longest interval, µs: a whole number of 31 bits is passed without a box. */
const PROBE_MAX = 0x3fff_ffff;
/** Probes for each time that the ACK timer may run out. */
export const PROBES_PER_TIMEOUT = 2;
/** Probes of one length of interval; it doubles for the next ones. */
const PROBES_PER_INTERVAL = 4;
/** Doublings of the interval after probes that were premature, at most. */
const PATIENCE_MAX = 10;

/**
 * Owns how many more may be sent without an answer. A peer that is gone sees `PROBES_PER_TIMEOUT` for each time that the ACK
 * timer runs out, and so 2 · (1 + retry_cnt) in all. On a path that has just lost packets and answered, those of later timeouts
 * may be sent before the first: there a probe is lost as easily as what it asks for.
 *
 * A path whose round trip has grown answers each probe before its time, and no packet is sent only once that could be timed. So the
 * interval doubles with each probe that was premature, until there is a sample (Karn's second rule).
 *
 * Promise: never more than 2 · (1 + retry_cnt) from one sign of progress to the next.
 */
export class Probe {
  readonly #clock: Clock;
  /** Where its packet is taken from: the requester's cursor stays where it is. */
  readonly cursor = new SendCursor();
  #granted = 0;
  /** Left until progress; and of them, until the next timeout. */
  #left = 0;
  #leftNow = 0;
  /** Of later timeouts, these may be sent ahead: two for each loss that was answered. */
  #ahead = 0;
  /** Sent since the last progress. */
  #unanswered = 0;
  /** Doublings of the interval; whether one may be due, for the last probe; and the PSN behind which one is taken back. */
  #patience = 0;
  #isOpen = false;
  #calmFrom = 0;
  #wanted = false;
  /** The last one asks for everything before this PSN; −1: none is awaited. */
  #end = -1;
  /** One past the last PSN in flight when it was sent. */
  #flightEnd = 0;
  /** When it was sent, µs. */
  #sentAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Grants the probes of `timeouts` times that the ACK timer may run out; 0: there are none. */
  grant(timeouts: number): void {
    this.#granted = PROBES_PER_TIMEOUT * timeouts;
    this.#ahead = 0;
    this.#patience = 0;
    this.#isOpen = false;
    this.#renew();
  }

  /** Everything before `unackedPsn` is acknowledged, with those before `sendPsn` sent. */
  progress(unackedPsn: number, sendPsn: number): void {
    if (this.#unanswered > 0) {
      this.pathLoses();
      this.#renew();
      return;
    }
    this.#leftNow = PROBES_PER_TIMEOUT + this.#ahead;
    // Once a flight: the responses of a READ are a hundred times progress, and one round trip.
    if (this.#patience === 0 || psnDiff(unackedPsn, this.#calmFrom) <= 0) return;
    this.#patience--;
    this.#calmFrom = sendPsn;
  }

  #renew(): void {
    this.#unanswered = 0;
    this.#left = this.#granted;
    this.#leftNow = PROBES_PER_TIMEOUT + this.#ahead;
  }

  /** The path loses packets, and the peer is there: it reports a loss, or answers a probe. */
  pathLoses(): void {
    const most = Math.max(0, this.#granted - PROBES_PER_TIMEOUT);
    this.#ahead = Math.min(this.#ahead + PROBES_PER_TIMEOUT, most);
  }

  /** The ACK timer ran out. */
  timedOut(): void {
    this.#leftNow = PROBES_PER_TIMEOUT;
    this.#ahead = 0;
  }

  /** Whether one more may be sent before the ACK timer runs out. */
  get anyLeft(): boolean {
    return this.#leftNow > 0 && this.#left > 0;
  }

  /** Whether the next turn sends a probe. */
  get wanted(): boolean {
    return this.#wanted;
  }

  /** An answer is overdue. */
  want(): void {
    this.#leftNow--;
    this.#left--;
    this.#unanswered++;
    this.#wanted = true;
  }

  /** The turn to send it has come. */
  take(): void {
    this.#wanted = false;
  }

  /** Sent, or about to be, since the last progress. */
  get unanswered(): number {
    return this.#unanswered;
  }

  /**
   * One was sent that asks for the PSNs before `end` (−1: its answer ends nothing), with those before `flightEnd` in flight. A costly
   * one counts as premature until there is a sample.
   */
  sent(end: number, flightEnd: number, isCostly: boolean): void {
    if (isCostly) this.#spare();
    this.#end = end;
    this.#flightEnd = flightEnd;
    this.#sentAt = this.#clock[0];
    this.#isOpen = true;
  }

  /** Others are retransmitted with it: an answer to a packet that came twice may be theirs. */
  hasCompany(): void {
    this.#isOpen = false;
  }

  /** Whether to ask for little: one was premature, or was not answered. A slow responder answers whatever it is asked, and is slower for it. */
  get isSparing(): boolean {
    return this.#unanswered > 1 || this.#patience > 0;
  }

  /** The peer had the packets already: it answers twice. PSNs before `sendPsn` were sent. @returns whether the last probe was awaited */
  premature(sendPsn: number): boolean {
    if (!this.#isOpen) return false;
    this.#isOpen = false;
    this.#ahead = 0;
    this.#spare();
    this.#calmFrom = sendPsn;
    return true;
  }

  #spare(): void {
    this.#patience = Math.min(this.#patience + 1, PATIENCE_MAX);
  }

  /** A packet that was sent once was answered. */
  sampled(): void {
    this.#patience = 0;
    this.#isOpen = false;
  }

  /** Everything in flight is retransmitted, or nothing is in flight any more: an answer shows nothing. */
  forget(): void {
    this.#wanted = false;
    this.#isOpen = false;
    this.#end = -1;
  }

  /**
   * Everything before `unackedPsn` is acknowledged. If that is the answer to the last one, whatever was in flight behind it is
   * lost: the peer has answered with all that it has. An answer sooner than half the least round trip is to the packets before.
   *
   * @returns whether something in flight is lost
   */
  showsLoss(unackedPsn: number, roundTrip: RoundTrip): boolean {
    if (this.#end < 0 || psnDiff(unackedPsn, this.#end) < 0) return false;
    this.#end = -1;
    return psnDiff(unackedPsn, this.#flightEnd) < 0 && this.#clock[0] - this.#sentAt >= roundTrip.least / 2;
  }

  /** Whole µs after which an answer is overdue; −1: no more may be sent before the ACK timer runs out. */
  delay({ smoothed, ackDelay }: RoundTrip): number {
    if (!this.anyLeft) return -1;
    const overdue = smoothed === 0 ? PROBE_FIRST : Math.max(PROBE_MIN, 2 * smoothed + ackDelay);
    const doublings = this.#patience + Math.floor(this.#unanswered / PROBES_PER_INTERVAL);
    return Math.min(PROBE_MAX, doublings === 0 ? overdue : overdue * 2 ** doublings) | 0;
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const fits = this.#left >= 0 && this.#leftNow >= 0 && this.#left + this.#unanswered === this.#granted;
    return fits
      ? undefined
      : `${this.#unanswered} probes sent and ${this.#left} left of ${this.#granted}, ${this.#leftNow} now`;
  }
}
