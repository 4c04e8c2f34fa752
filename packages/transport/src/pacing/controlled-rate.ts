/** Holds the packets of a queue pair, requests and READ responses, to the rate of its congestion controller. */
import type { CongestionController } from '../congestion/controller.ts';

/** The credit of a late turn, µs: what its rate gives in this time may leave at once, and what was missed beyond that is lost. */
export const RATE_GRAIN = 200;
/** A wait is looked at again after so long, µs: the rate grows meanwhile. */
const LOOK_AGAIN = 1_000;
/** UDP header and ICRC. */
const UDP_AND_ICRC_BYTES = 8 + 4;

/** Promise: between two packets at one rate lies the time that the first one takes, but for the credit of a late turn. */
export class ControlledRate {
  readonly #controller: CongestionController;
  /** kbit/s that `#next` was computed with; 0: none. */
  #rate = 0;
  /** When the next packet may leave, µs. */
  readonly #next = new Float64Array(1);

  constructor(controller: CongestionController) {
    this.#controller = controller;
  }

  /** Whether there is a rate. Without one, the debt of earlier packets is forgotten. */
  get limited(): boolean {
    const isLimited = this.#controller.rate !== 0;
    if (!isLimited) this.#rate = 0;
    return isLimited;
  }

  /** µs after which the next packet may leave, or the rate has to be looked at again; 0: now. */
  wait(now: number): number {
    this.#follow(now);
    const next = this.#next[0];
    if (this.#rate === 0) return 0;
    if (next > now) return Math.min(next - now, LOOK_AGAIN);
    this.#next[0] = Math.max(next, now - RATE_GRAIN);
    return 0;
  }

  /** A packet leaves: `bytes` from the BTH through the pad, behind an IP header of `ipBytes`. */
  charge(bytes: number, ipBytes: number): void {
    const all = bytes + UDP_AND_ICRC_BYTES + ipBytes;
    if (this.#rate > 0) this.#next[0] += (all * 8000) / this.#rate;
    this.#controller.onSent(all);
  }

  /** Packets between two AckReqs, so that an ACK comes every millisecond or two. */
  ackInterval(pathMtu: number, most: number): number {
    return Math.min(Math.max(1, Math.floor(this.#controller.rate / 8 / pathMtu)), most);
  }

  /** A packet that waits, waits for as many bytes at another rate. Nothing is owed, nor saved up, from the time without one. */
  #follow(now: number): void {
    const { rate } = this.#controller;
    const was = this.#rate;
    if (rate === was) return;
    this.#rate = rate;
    const left = this.#next[0] - now;
    if (was === 0) this.#next[0] = now;
    else if (rate !== 0 && left > 0) this.#next[0] = now + (left * was) / rate;
  }
}
