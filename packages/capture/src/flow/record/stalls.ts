/**
 * Stalls of a requester: times in which requests were outstanding and nothing happened, each with what ended it. How long
 * a silence is a stall follows from the round trips of the queue pair itself.
 */
import type { Stall, StallEnd } from '../facts.ts';

/** No silence shorter than this is a stall, and none that is shorter than so many round trips. */
const MIN_STALL = 1e6;
const ROUND_TRIPS = 10;
/** The longest are kept, of each direction. */
const MAX_STALLS = 8;

/** Watches one requester. Times are nanoseconds. */
export class StallWatch {
  /** The longest, in order of their length. */
  readonly longest: Omit<Stall, 'from'>[] = [];
  count = 0;
  /** Of all of them. */
  total = 0;
  #last = 0;
  #lastFrame = 0;
  #outstanding = false;
  #roundTrip = 0;
  #roundTrips = 0;
  /** The mean before the answer that ends the silence: that one must not make itself usual. */
  #usual = 0;

  /** The mean of the last round trips; 0: none is known. */
  get meanRoundTrip(): number {
    return this.#roundTrip;
  }

  /** A packet was answered after this time, when it had been sent once. */
  roundTrip(nanoseconds: number): void {
    this.#roundTrips++;
    this.#roundTrip += (nanoseconds - this.#roundTrip) / Math.min(this.#roundTrips, 64);
  }

  /**
   * Something happened: a request was sent, or an answer came.
   * @param outstanding requests wait for their answers from now on
   */
  note(time: number, frame: number, end: StallEnd, outstanding: boolean): void {
    // Answers from before it was known whose they are come after later packets.
    if (time < this.#last) return;
    const duration = time - this.#last;
    if (this.#outstanding && duration >= MIN_STALL && duration >= ROUND_TRIPS * this.#usual) {
      this.#add({ start: this.#last, duration, after: this.#lastFrame, frame, end });
    }
    this.#usual = this.#roundTrip;
    this.#last = time;
    this.#lastFrame = frame;
    this.#outstanding = outstanding;
  }

  /** For how long nothing happened while nothing was outstanding, as the capture has it; 0 otherwise. */
  idle(time: number): number {
    return this.#outstanding || this.#lastFrame === 0 ? 0 : time - this.#last;
  }

  #add(stall: Omit<Stall, 'from'>): void {
    this.count++;
    this.total += stall.duration;
    const { longest } = this;
    if (longest.length === MAX_STALLS && longest[MAX_STALLS - 1].duration >= stall.duration) return;
    longest.push(stall);
    longest.sort((x, y) => y.duration - x.duration);
    if (longest.length > MAX_STALLS) longest.pop();
  }
}
