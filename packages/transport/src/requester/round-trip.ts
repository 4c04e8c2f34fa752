/** The time from a request to its answer: one packet at a time is timed. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { Clock, TimePlace } from '../times.ts';

/** `settled` before the first sample, µs. */
const SETTLED_FIRST = 1_000;

const SMOOTHED = 0;
const LEAST = 1;
/** The largest delay of an ACK beyond the smoothed round trip; a quarter of it is forgotten with each sample. */
const ACK_DELAY = 2;
const LEFT_AT = 3;
/** A sample that counts if the packet was not lost; 0: there is none. */
const DOUBTFUL = 4;
export const ROUND_TRIP_TIMES = 5;

/** µs, none of them boxed. Before the first sample all are 0. */
export class RoundTrip {
  readonly clock: Clock;
  readonly #times: Float64Array;
  readonly #first: number;
  /** The packet that is timed; −1: none. */
  #timedPsn = -1;
  /** It may be retransmitted by a probe. */
  #inDoubt = false;

  /** @param place room for `ROUND_TRIP_TIMES` */
  constructor(clock: Clock, place: TimePlace = { array: new Float64Array(ROUND_TRIP_TIMES), at: 0 }) {
    this.clock = clock;
    this.#times = place.array;
    this.#first = place.at;
  }

  reset(): void {
    this.#times.fill(0, this.#first, this.#first + ROUND_TRIP_TIMES);
    this.#timedPsn = -1;
    this.#inDoubt = false;
  }

  /** The first sending of the packet at `psn`: it is timed if none is. */
  begin(psn: number): void {
    if (this.#timedPsn >= 0) return;
    this.#timedPsn = psn;
    this.#inDoubt = false;
    this.#times[this.#first + LEFT_AT] = this.clock[0];
  }

  /** A probe leaves: whether the timed packet is answered for its first sending, a second answer will show (`confirm`). */
  doubt(): void {
    this.#inDoubt = true;
    this.#times[this.#first + DOUBTFUL] = 0;
  }

  /** The peer answered the probe as well: the packet had arrived the first time. @returns whether that makes a sample */
  confirm(): boolean {
    const sample = this.#times[this.#first + DOUBTFUL];
    if (sample === 0) return false;
    this.#times[this.#first + DOUBTFUL] = 0;
    this.#add(sample);
    return true;
  }

  /** Drops the sample: the timed packet may be retransmitted, so its answer measures nothing (Karn's rule, RFC 6298 §3). */
  cancel(): void {
    this.#timedPsn = -1;
  }

  /** The packets in [from, end) are retransmitted. */
  cancelIn(from: number, end: number): void {
    const psn = this.#timedPsn;
    if (psn >= 0 && psnDiff(psn, from) >= 0 && psnDiff(psn, end) < 0) this.#timedPsn = -1;
  }

  /** The packet at `psn` is answered, and some before it are not. @returns whether that is a sample */
  answered(psn: number): boolean {
    return psn === this.#timedPsn && this.acknowledged(psnAdd(psn, 1));
  }

  /** Everything before `psn` is acknowledged. @returns whether that is a sample */
  acknowledged(psn: number): boolean {
    if (this.#timedPsn < 0 || psnDiff(psn, this.#timedPsn) <= 0) return false;
    this.#timedPsn = -1;
    const sample = Math.max(1, this.clock[0] - this.#times[this.#first + LEFT_AT]);
    if (this.#inDoubt) {
      this.#times[this.#first + DOUBTFUL] = sample;
      return false;
    }
    this.#add(sample);
    return true;
  }

  /**
   * So long, µs, a packet took that was perhaps sent more than once: the round trip is no longer. Where losses are so frequent that nothing
   * else is timed, a first sample that was too long would stay.
   */
  isAtMost(time: number): void {
    const times = this.#times;
    const first = this.#first;
    if (time <= 0 || time >= times[first + SMOOTHED]) return;
    times[first + SMOOTHED] += (Math.max(time, times[first + LEAST]) - times[first + SMOOTHED]) / 8;
  }

  #add(sample: number): void {
    const times = this.#times;
    const first = this.#first;
    if (times[first + SMOOTHED] === 0) {
      times[first + SMOOTHED] = times[first + LEAST] = sample;
      return;
    }
    times[first + ACK_DELAY] = Math.max(sample - times[first + SMOOTHED], times[first + ACK_DELAY] * (3 / 4));
    times[first + SMOOTHED] += (sample - times[first + SMOOTHED]) / 8;
    times[first + LEAST] = Math.min(times[first + LEAST], sample);
  }

  /** The smoothed round trip (RFC 6298 §2), µs; 0 before the first sample. */
  get smoothed(): number {
    return this.#times[this.#first + SMOOTHED];
  }

  /** After so long without an answer, no packet is on its way any more, whatever overtook it (RFC 8985 §6.2), µs. */
  get settled(): number {
    if (this.#times[this.#first + SMOOTHED] === 0) return SETTLED_FIRST;
    return this.#times[this.#first + SMOOTHED] * (5 / 4) + this.#times[this.#first + ACK_DELAY];
  }

  /** The shortest that was seen, µs; 0 before the first sample. */
  get least(): number {
    return this.#times[this.#first + LEAST];
  }

  /** The largest delay of an ACK seen lately, beyond the smoothed round trip, µs. */
  get ackDelay(): number {
    return this.#times[this.#first + ACK_DELAY];
  }
}
