/** The timers of a requester: the one place that arms, stops and lists them. */
import type { Deadlines, Waiter } from '../deadlines.ts';
import type { Clock, TimePlace } from '../times.ts';

export const Timer = {
  /** The local ACK timer (IBTA vol 1 §9.7.6.1.3): nothing was acknowledged for the time that `timeout` sets. */
  RETRY: 0,
  /** An answer is overdue by the usual round trip: one packet is sent once more (`recovery/probe.ts`). */
  PROBE: 1,
  /** The wait that an RNR NAK asked for (§9.7.5.2.8) is over. */
  RNR: 2,
  /** `rate_limit` allows the next packet. */
  PACE: 3,
  /** A READ waits for the device's receive budget: is anything given back? */
  READ_BUDGET: 4,
  /** The answer to packets that were retransmitted for a NAK is overdue (`recovery/selective-repeat.ts`). */
  GAP: 5,
  /** The congestion controller's rate allows the next READ response. */
  RESPOND: 6,
} as const;

export const TIMERS = 7;
const STOPPED = Number.POSITIVE_INFINITY;

/** Times are virtual, in µs. Promise: RETRY and PROBE do not run while RNR runs. */
export class Timers {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #times: Float64Array;
  readonly #first: number;
  readonly #id: number;

  /** @param place room for `TIMERS` */
  constructor(
    clock: Clock,
    deadlines: Deadlines,
    waiter: Waiter,
    place: TimePlace = { array: new Float64Array(TIMERS), at: 0 },
  ) {
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#times = place.array;
    this.#first = place.at;
    this.#stopTimers();
    this.#id = deadlines.enroll(waiter, place.array, place.at, TIMERS);
  }

  #stopTimers(): void {
    this.#times.fill(STOPPED, this.#first, this.#first + TIMERS);
  }

  /** The timer fires `delay` µs from now; a time that it was armed for before is forgotten. */
  arm(timer: number, delay: number): void {
    const at = this.#first + timer;
    this.#times[at] = this.#clock[0] + delay;
    this.#deadlines.armed(this.#id, at);
  }

  /** The same, `delays[index]` µs from now. */
  armFrom(timer: number, delays: Float64Array, index: number): void {
    const at = this.#first + timer;
    this.#times[at] = this.#clock[0] + delays[index];
    this.#deadlines.armed(this.#id, at);
  }

  armUnlessRunning(timer: number, delay: number): void {
    if (!this.isRunning(timer)) this.arm(timer, delay);
  }

  stop(timer: number): void {
    this.#times[this.#first + timer] = STOPPED;
  }

  stopAll(): void {
    this.#stopTimers();
    this.#deadlines.disarm(this.#id);
  }

  isRunning(timer: number): boolean {
    return this.#times[this.#first + timer] !== STOPPED;
  }

  /** Whether the timer fires later than `delay` µs from now; true where it is stopped. */
  isLaterThan(timer: number, delay: number): boolean {
    return this.#times[this.#first + timer] - this.#clock[0] > delay;
  }

  /** µs that a timer which has fired is late. */
  lateness(timer: number): number {
    return this.#clock[0] - this.#times[this.#first + timer];
  }

  /** Whether the timer has fired; if so it is stopped now. */
  takeDue(timer: number): boolean {
    if (this.#times[this.#first + timer] > this.#clock[0]) return false;
    this.#times[this.#first + timer] = STOPPED;
    return true;
  }

  /** The queue pair is gone. */
  close(): void {
    this.stopAll();
    this.#deadlines.leave(this.#id);
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const waits = this.isRunning(Timer.RNR) && (this.isRunning(Timer.RETRY) || this.isRunning(Timer.PROBE));
    return waits ? 'the ACK timer runs during an RNR wait' : undefined;
  }
}
