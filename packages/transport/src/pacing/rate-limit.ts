/**
 * `rate_limit` of a queue pair: requests leave no faster than so many kilobits a second, counted over
 * whole IP packets (ibv_modify_qp(3); responses are not held back).
 */

/** The credit of a late turn, µs: more would be a burst. */
const MAX_BURST_MICROSECONDS = 2_000;
/** UDP header and ICRC. */
const UDP_AND_ICRC_BYTES = 8 + 4;

/** Of those without a rate, which most are. */
const NOW = new Float64Array(1);

/** Promise: with a rate, packets never leave before the time that those before them took. */
export class RateLimit {
  /** kbit/s; 0: no limit. */
  #rate = 0;
  /** When the next packet may leave, µs. */
  #next = NOW;

  /** Sets the rate, kbit/s; a wait under another rate is over. */
  setRate(rate: number): void {
    if (rate === this.#rate) return;
    this.#rate = rate;
    this.#next = rate === 0 ? NOW : new Float64Array(1);
  }

  get limited(): boolean {
    return this.#rate !== 0;
  }

  /** µs until the next packet may leave; 0: now. */
  wait(now: number): number {
    const next = this.#next[0];
    if (next > now) return next - now;
    this.#next[0] = Math.max(next, now - MAX_BURST_MICROSECONDS);
    return 0;
  }

  /** A packet leaves: `bytes` from the BTH through the pad, behind an IP header of `ipBytes`. */
  charge(bytes: number, ipBytes: number): void {
    this.chargeBytes(bytes + UDP_AND_ICRC_BYTES + ipBytes);
  }

  /** The same for a frame or packet of `bytes` in all. */
  chargeBytes(bytes: number): void {
    this.#next[0] += (bytes * 8000) / this.#rate;
  }

  /** Packets between two AckReqs, so that an ACK comes every millisecond or two: later it would be overdue. */
  ackInterval(pathMtu: number, most: number): number {
    return Math.min(Math.max(1, Math.floor(this.#rate / 8 / pathMtu)), most);
  }
}
