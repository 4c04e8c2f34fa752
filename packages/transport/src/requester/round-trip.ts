/** The usual time from a request to its answer: one packet at a time is timed. */
import { psnDiff } from '@node-roce/wire';

/** A lost tail draws no NAK, so the oldest packet is retransmitted when an answer is overdue, not before this, µs. */
const PROBE_MIN = 8_000;
/** Overdue: the usual round trip and so many times its usual deviation (as RFC 6298 has it for TCP). */
const PROBE_DEVIATIONS = 4;
/** The longest probe interval, µs: a whole number of 31 bits is passed without a box. */
const PROBE_MAX = 0x3fff_ffff;

const SMOOTHED = 0;
const DEVIATION = 1;
const LEFT_AT = 2;

/** µs in a `Float64Array`, so that none is boxed. Before the first sample the round trip is 0. */
export class RoundTrip {
  readonly #clock: { readonly now: number };
  readonly #times = new Float64Array(3);
  /** The packet that is timed; −1: none. */
  #timedPsn = -1;
  /** Doublings of the probe interval since the last progress. */
  #backoff = 0;

  constructor(clock: { readonly now: number }) {
    this.#clock = clock;
  }

  reset(): void {
    this.#times.fill(0);
    this.#timedPsn = -1;
    this.#backoff = 0;
  }

  /** The first sending of the packet at `psn`: it is timed if none is. */
  begin(psn: number): void {
    if (this.#timedPsn >= 0) return;
    this.#timedPsn = psn;
    this.#times[LEFT_AT] = this.#clock.now;
  }

  /** The timed packet may be sent again: an answer says nothing any more (Karn's rule, RFC 6298 §3). */
  cancel(): void {
    this.#timedPsn = -1;
  }

  /** Everything before `psn` is acknowledged. */
  acknowledged(psn: number): void {
    this.#backoff = 0;
    if (this.#timedPsn < 0 || psnDiff(psn, this.#timedPsn) <= 0) return;
    this.#timedPsn = -1;
    const times = this.#times;
    const sample = Math.max(1, this.#clock.now - times[LEFT_AT]);
    if (times[SMOOTHED] === 0) {
      times[SMOOTHED] = sample;
      times[DEVIATION] = sample / 2;
      return;
    }
    times[DEVIATION] += (Math.abs(sample - times[SMOOTHED]) - times[DEVIATION]) / 4;
    times[SMOOTHED] += (sample - times[SMOOTHED]) / 8;
  }

  /** A probe drew nothing yet: the next waits twice as long. */
  backOff(): void {
    this.#backoff++;
  }

  /** Whole µs after which an answer is overdue; −1 before the first sample. */
  get probeDelay(): number {
    const times = this.#times;
    if (times[SMOOTHED] === 0) return -1;
    const overdue = Math.max(PROBE_MIN, times[SMOOTHED] + PROBE_DEVIATIONS * times[DEVIATION]);
    return Math.min(PROBE_MAX, overdue * 2 ** this.#backoff) | 0;
  }
}
