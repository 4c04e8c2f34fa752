/** The local ACK timer (IBTA vol 1 §9.7.6.1.3), and the probe's, which is quicker. */
import { ackTimeoutMicroseconds, psnDiff } from '@node-roce/wire';
import type { Owner } from '../qp/owner.ts';
import type { RoundTrip } from './round-trip.ts';
import { Timer, type Timers } from './timers.ts';

/** The retry timer runs `RETRY_TIMER_FACTOR` · 4.096 µs · 2^timeout; the rule allows 1 … 4 (§9.7.6.1.3). */
export const RETRY_TIMER_FACTOR = 2;

/** It runs twice as long, as long as the rule allows, where that is less than `SLOW_SHARE` of the longest round trip. */
const SLOW_FACTOR = 2;
const SLOW_SHARE = 4;

/** Without a timer (`timeout` 0) an answer that shows a loss is asked after by itself: after so many times the time in which all settles, doubled each time. */
const SETTLED_FACTOR = 2;
const DOUBLINGS_MAX = 16;
const NONE = -1;

/** By the code `timeout`, µs. */
const RETRY_DELAYS = Float64Array.from(
  { length: 32 },
  (_, code) => RETRY_TIMER_FACTOR * ackTimeoutMicroseconds(code),
);
const SLOW_DELAYS = RETRY_DELAYS.map((delay) => SLOW_FACTOR * delay);

/** The probe that the timer may be helped by: before a loss its time is that of the round trip. */
export interface Probes {
  /** Nothing was lost, and no probe is out. */
  readonly idle: boolean;
  readonly probes: boolean;
  /** µs; −1: none is sent. */
  readonly probeDelay: number;
}

/**
 * Decides when RETRY and PROBE run.
 *
 * With `timeout` 0 a peer that is silent is waited for without end. But where answers have shown that packets were lost, or came out of order, it may
 * have discarded what was retransmitted, too, and has reported it already: then RETRY runs until all that was in flight is acknowledged.
 */
export class AckTimer {
  readonly #owner: Owner;
  readonly #timers: Timers;
  readonly #roundTrip: RoundTrip;
  readonly #recovery: Probes;
  /** With `timeout` 0: packets before this PSN may have to be retransmitted; −1: none. */
  #unsettledEnd = NONE;
  /** Times that RETRY ran out for that since the last progress. */
  #doublings = 0;

  constructor(owner: Owner, timers: Timers, roundTrip: RoundTrip, recovery: Probes) {
    this.#owner = owner;
    this.#timers = timers;
    this.#roundTrip = roundTrip;
    this.#recovery = recovery;
  }

  /** Starts both anew; stops them where nothing is in flight. */
  restart(isInFlight: boolean): void {
    const { timeout } = this.#owner.attributes;
    if (!isInFlight || (timeout === 0 && this.#unsettledEnd === NONE)) {
      this.stop();
      return;
    }
    if (timeout === 0) {
      const wait = SETTLED_FACTOR * this.#roundTrip.settled * 2 ** this.#doublings;
      this.#timers.arm(Timer.RETRY, wait);
      return;
    }
    // Places of numbers with a fraction, and not the numbers: V8 allocates one wherever it inlines no call here, for each READ response.
    const isSlow = this.#roundTrip.exceeds(SLOW_SHARE, RETRY_DELAYS, timeout);
    this.#timers.armFrom(Timer.RETRY, isSlow ? SLOW_DELAYS : RETRY_DELAYS, timeout);
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
    else if (!timers.isRunning(Timer.PROBE) && this.#owner.attributes.timeout !== 0) this.#armProbe();
  }

  /** An answer shows that packets before `sendPsn` were lost, or came out of order. */
  unsettled(sendPsn: number): void {
    if (this.#owner.attributes.timeout === 0) this.#unsettledEnd = sendPsn;
  }

  /** Whether packets may have to be retransmitted that nothing but RETRY asks for. */
  get isUnsettled(): boolean {
    return this.#unsettledEnd !== NONE;
  }

  /** Everything before `psn` is acknowledged. */
  acknowledged(psn: number): void {
    this.#doublings = 0;
    if (this.#unsettledEnd !== NONE && psnDiff(psn, this.#unsettledEnd) >= 0) this.#unsettledEnd = NONE;
  }

  /** RETRY ran out with `timeout` 0; what is before `sendPsn` is retransmitted. @returns whether that is the first time since the last progress */
  unsettledOverdue(sendPsn: number): boolean {
    this.unsettled(sendPsn);
    this.#doublings = Math.min(this.#doublings + 1, DOUBLINGS_MAX);
    return this.#doublings === 1;
  }

  /** A new connection. */
  reset(): void {
    this.#unsettledEnd = NONE;
    this.#doublings = 0;
  }

  stop(): void {
    this.#timers.stop(Timer.RETRY);
    this.#timers.stop(Timer.PROBE);
  }

  #probeDelay(): number {
    const recovery = this.#recovery;
    if (!recovery.idle) return recovery.probeDelay;
    // None before the round trip is known.
    return recovery.probes && this.#roundTrip.isKnown ? this.#roundTrip.overdue : NONE;
  }

  #armProbe(): void {
    const delay = this.#probeDelay();
    // Where the rule's own timer is as quick, it needs no help.
    if (delay >= 0 && this.#timers.isLaterThan(Timer.RETRY, delay)) this.#timers.arm(Timer.PROBE, delay);
    else this.#timers.stop(Timer.PROBE);
  }
}
