/** The time from a request to its answer: one packet at a time is timed. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { Clock, TimePlace } from '../times.ts';

/** `settled` before the first sample, µs. */
const SETTLED_FIRST = 1_000;

const SMOOTHED = 0;
const LEAST = 1;
/** The largest delay of an ACK beyond the smoothed round trip, and when that was. */
const ACK_DELAY = 2;
const ACK_DELAY_AT = 3;
const LEFT_AT = 4;
/** A sample that counts if the packet was not lost; 0: there is none. */
const DOUBTFUL = 5;
/** The sample at hand: passed to a function, it would be boxed. */
const SAMPLE = 6;
export const ROUND_TRIP_TIMES = 7;

/** So long the largest ACK delay counts, µs: a peer that lost the processor once will do so again. */
const ACK_DELAY_KEPT = 10_000_000;
/** Where losses were seen they delay ACKs, too: so much of it is kept with each sample. */
const ACK_DELAY_SHARE = 3 / 4;

/** An answer is overdue after two smoothed round trips and the largest ACK delay, but not before this, µs. */
const OVERDUE_MIN = 50;
/** The longest such time, µs: a whole number of 31 bits is passed without a box. */
export const OVERDUE_MAX = 0x3fff_ffff;

const NO_LOSSES = { areSeen: false };

/** `doubt`, `confirm`: any ACK. */
export const ANY_ACK = -1;

/** µs, none of them boxed. Before the first sample all are 0. */
export class RoundTrip {
  readonly clock: Clock;
  readonly #times: Float64Array;
  readonly #first: number;
  /** The packet that is timed; −1: none. */
  #timedPsn = -1;
  readonly #losses: { readonly areSeen: boolean };
  /** It may be retransmitted by a probe or after a timeout; the second answer to that will be so. */
  #inDoubt = false;
  #secondAnswer = ANY_ACK;
  /** Nothing was acknowledged since all was retransmitted. */
  #isBack = false;

  /** @param place room for `ROUND_TRIP_TIMES` */
  constructor(
    clock: Clock,
    losses: { readonly areSeen: boolean } = NO_LOSSES,
    place: TimePlace = { array: new Float64Array(ROUND_TRIP_TIMES), at: 0 },
  ) {
    this.clock = clock;
    this.#losses = losses;
    this.#times = place.array;
    this.#first = place.at;
  }

  reset(): void {
    this.#times.fill(0, this.#first, this.#first + ROUND_TRIP_TIMES);
    this.#timedPsn = -1;
    this.#inDoubt = this.#isBack = false;
  }

  /** The first sending of the packet at `psn`: it is timed if none is. */
  begin(psn: number): void {
    if (this.#timedPsn >= 0) return;
    this.#timedPsn = psn;
    this.#inDoubt = false;
    this.#times[this.#first + LEFT_AT] = this.clock[0];
  }

  /**
   * A packet in flight is retransmitted, by a probe or after a timeout, which a second answer will show to have been needless (`confirm`).
   *
   * @param answer the PSN of a READ response, or ANY_ACK
   */
  doubt(answer: number): void {
    this.#inDoubt = true;
    this.#secondAnswer = answer;
    this.#times[this.#first + DOUBTFUL] = 0;
  }

  /** An answer came that acknowledges nothing new. Where it is the second one, the packet had arrived the first time. */
  confirm(answer: number): void {
    const sample = this.#times[this.#first + DOUBTFUL];
    if (sample === 0 || answer !== this.#secondAnswer) return;
    this.#times[this.#first + DOUBTFUL] = 0;
    this.#times[this.#first + SAMPLE] = sample;
    this.#add();
  }

  /** A NAK came: the round trip is no longer than the time since the timed packet left, which will do until there is a sample. */
  nakked(): void {
    const times = this.#times;
    const first = this.#first;
    if (this.#timedPsn >= 0 && times[first + SMOOTHED] === 0) {
      times[first + SMOOTHED] = Math.max(1, this.clock[0] - times[first + LEFT_AT]);
    }
    this.goneBack();
  }

  /** Everything in flight is retransmitted: it may be timed until there is a sample, for the peer has discarded it, or it was sent long ago. */
  goneBack(): void {
    this.cancel();
    this.#isBack = true;
  }

  /** Whether a packet that is retransmitted may be timed: an answer is to that, and not to one before it. */
  get timesAgain(): boolean {
    return this.#isBack && this.#times[this.#first + LEAST] === 0;
  }

  /** Drops the sample: the timed packet may be retransmitted, so its answer measures nothing (Karn's rule, RFC 6298 §3). */
  cancel(): void {
    this.#timedPsn = -1;
    this.#isBack = false;
    this.#times[this.#first + DOUBTFUL] = 0;
  }

  /** The packets in [from, end) are retransmitted. */
  cancelIn(from: number, end: number): void {
    const psn = this.#timedPsn;
    // A second answer may be to these.
    this.#times[this.#first + DOUBTFUL] = 0;
    if (psn >= 0 && psnDiff(psn, from) >= 0 && psnDiff(psn, end) < 0) this.#timedPsn = -1;
  }

  /** The packet at `psn` is answered, and some before it are not. */
  answered(psn: number): void {
    if (psn === this.#timedPsn) this.acknowledged(psnAdd(psn, 1));
  }

  /** Everything before `psn` is acknowledged. */
  acknowledged(psn: number): void {
    this.#isBack = false;
    if (this.#timedPsn < 0 || psnDiff(psn, this.#timedPsn) <= 0) return;
    this.#timedPsn = -1;
    const times = this.#times;
    const first = this.#first;
    const sample = Math.max(1, this.clock[0] - times[first + LEFT_AT]);
    // Too long, perhaps: better than none.
    if (this.#inDoubt && times[first + LEAST] === 0) times[first + SMOOTHED] = sample;
    else if (this.#inDoubt) times[first + DOUBTFUL] = sample;
    else {
      times[first + SAMPLE] = sample;
      this.#add();
    }
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

  #add(): void {
    const times = this.#times;
    const first = this.#first;
    const sample = times[first + SAMPLE];
    if (times[first + LEAST] === 0) {
      times[first + SMOOTHED] = times[first + LEAST] = sample;
      return;
    }
    const late = sample - times[first + SMOOTHED];
    const isKept = this.clock[0] - times[first + ACK_DELAY_AT] < ACK_DELAY_KEPT;
    if (this.#losses.areSeen) times[first + ACK_DELAY] *= ACK_DELAY_SHARE;
    else if (!isKept) times[first + ACK_DELAY] = 0;
    if (late >= times[first + ACK_DELAY]) {
      times[first + ACK_DELAY] = late;
      times[first + ACK_DELAY_AT] = this.clock[0];
    }
    times[first + SMOOTHED] += (sample - times[first + SMOOTHED]) / 8;
    times[first + LEAST] = Math.min(times[first + LEAST], sample);
  }

  /** The smoothed round trip (RFC 6298 §2), µs; 0 before the first sample. */
  get smoothed(): number {
    return this.#times[this.#first + SMOOTHED];
  }

  /** After so long without an answer, no packet is on its way any more, whatever overtook it (RFC 8985 §6.2), µs. */
  get settled(): number {
    if (this.#times[this.#first + LEAST] === 0) return SETTLED_FIRST;
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

  /** Whole µs after which the answer to a packet is overdue. */
  get overdue(): number {
    const times = this.#times;
    const first = this.#first;
    const overdue = Math.max(OVERDUE_MIN, 2 * times[first + SMOOTHED] + times[first + ACK_DELAY]);
    return Math.min(OVERDUE_MAX, overdue) | 0;
  }

  /** Whether there was a sample. */
  get isKnown(): boolean {
    return this.#times[this.#first + SMOOTHED] > 0;
  }

  /** Whether `share` times the longest that was seen lately is more than `delays[index]`, µs. */
  exceeds(share: number, delays: Float64Array, index: number): boolean {
    const times = this.#times;
    const first = this.#first;
    return share * (times[first + SMOOTHED] + times[first + ACK_DELAY]) > delays[index];
  }
}
