/** The local ACK timer (IBTA vol 1 §9.7.6.1.3), and the probe's, which is quicker. */
import { ackTimeoutMicroseconds } from '@node-roce/wire';
import type { Owner } from '../qp/owner.ts';
import type { Probe } from './probe.ts';
import type { RoundTrip } from './round-trip.ts';
import { Timer, type Timers } from './timers.ts';

/** The retry timer runs `RETRY_TIMER_FACTOR` · 4.096 µs · 2^timeout; the rule allows 1 … 4 (§9.7.6.1.3). */
export const RETRY_TIMER_FACTOR = 2;

/** It runs this many times as long, as long as the rule allows, where that is less than `SLOW_SHARE` of the longest round trip. */
const SLOW_FACTOR = 2;
const SLOW_SHARE = 4;

/** By the code `timeout`, µs. */
const RETRY_DELAYS = Float64Array.from(
  { length: 32 },
  (_, code) => RETRY_TIMER_FACTOR * ackTimeoutMicroseconds(code),
);

/** Decides when RETRY and PROBE run; keeps nothing of its own. */
export class AckTimer {
  readonly #owner: Owner;
  readonly #timers: Timers;
  readonly #roundTrip: RoundTrip;
  readonly #probe: Probe;

  constructor(owner: Owner, timers: Timers, roundTrip: RoundTrip, probe: Probe) {
    this.#owner = owner;
    this.#timers = timers;
    this.#roundTrip = roundTrip;
    this.#probe = probe;
  }

  /** Starts both anew; stops them where nothing is in flight. */
  restart(isInFlight: boolean): void {
    const { timeout } = this.#owner.attributes;
    if (timeout === 0 || !isInFlight) {
      this.stop();
      return;
    }
    const delay = RETRY_DELAYS[timeout];
    const isSlow = SLOW_SHARE * this.#roundTrip.longest > delay;
    this.#timers.arm(Timer.RETRY, isSlow ? SLOW_FACTOR * delay : delay);
    this.#armProbe();
  }

  /** `timeout` was changed. During an RNR wait neither runs. */
  reconfigure(isInFlight: boolean): void {
    if (isInFlight && !this.#timers.isRunning(Timer.RNR)) this.restart(true);
  }

  /** The link has taken packets: a timer that does not run starts. */
  taken(isInFlight: boolean): void {
    const timers = this.#timers;
    if (timers.isRunning(Timer.RNR)) return;
    if (!timers.isRunning(Timer.RETRY)) this.restart(isInFlight);
    else if (!timers.isRunning(Timer.PROBE)) this.#armProbe();
  }

  stop(): void {
    this.#timers.stop(Timer.RETRY);
    this.#timers.stop(Timer.PROBE);
  }

  #armProbe(): void {
    const { delay } = this.#probe;
    // Where the rule's own timer is as quick, it needs no help.
    if (delay >= 0 && this.#timers.isLaterThan(Timer.RETRY, delay)) this.#timers.arm(Timer.PROBE, delay);
    else this.#timers.stop(Timer.PROBE);
  }
}
