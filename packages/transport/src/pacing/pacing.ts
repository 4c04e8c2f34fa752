/** How fast a queue pair may send: `rate_limit` holds its requests, and the congestion controller's rate requests and READ responses. */
import type { TxBatch } from '../batch.ts';
import type { CongestionController } from '../congestion/controller.ts';
import type { Own } from '../own.ts';
import type { Owner } from '../qp/owner.ts';
import { lastPacketBytes } from '../requester/packets.ts';
import { Timer, type Timers } from '../requester/timers.ts';
import type { Responder } from '../responder/responder.ts';
import type { Clock } from '../times.ts';
import { ControlledRate } from './controlled-rate.ts';
import { RateLimit } from './rate-limit.ts';

/** A request that lets a reply go first asks again after so long, µs: the reply's own time is known then. */
const YIELD = 1;

/**
 * The slower one of both counts. Without either, asking costs one look at `mayLimit`.
 *
 * Promise: where requests and READ responses wait for the controller's rate, they leave in turn.
 */
export class Pacing {
  /** `rate_limit` is set, or the controller has a rate: else nothing is ever `limited`. */
  readonly mayLimit: boolean;
  readonly #owner: Owner;
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly congestion: CongestionController;
  readonly #limit = new RateLimit();
  /** Undefined where the controller has no rate. */
  readonly #control: ControlledRate | undefined;
  /** A reply waits for the rate; and the last packet was a reply. */
  #replyWaits = false;
  #replyWasLast = false;

  constructor(owner: Owner, clock: Clock, timers: Timers, congestion: CongestionController) {
    this.#owner = owner;
    this.#clock = clock;
    this.#timers = timers;
    this.congestion = congestion;
    this.#control = owner.reacts ? new ControlledRate(congestion) : undefined;
    this.mayLimit = owner.reacts;
  }

  /** Sets `rate_limit`, kbit/s. */
  setRate(rate: number): void {
    this.#limit.setRate(rate);
    (this as Own<Pacing>).mayLimit = rate !== 0 || this.#control !== undefined;
  }

  /** Whether requests are held back. */
  get limited(): boolean {
    return this.mayLimit && (this.#limit.limited || this.#control?.limited === true);
  }

  /** µs after which the next request may leave, or is to be asked for again; 0: now. */
  wait(): number {
    const now = this.#clock[0];
    const wait = this.#limit.limited ? this.#limit.wait(now) : 0;
    if (this.#control === undefined) return wait;
    const controlled = this.#control.wait(now);
    const yields = controlled === 0 && this.#replyWaits && !this.#replyWasLast;
    return Math.max(wait, yields ? YIELD : controlled);
  }

  /** Holds the next request back if the rate wants it: PACE runs until it may be asked again. @returns whether */
  holdBack(): boolean {
    const wait = this.wait();
    if (wait > 0) this.#timers.arm(Timer.PACE, wait);
    return wait > 0;
  }

  /** A request leaves: `bytes` from the BTH through the pad, behind an IP header of `ipBytes`. */
  charge(bytes: number, ipBytes: number): void {
    if (this.#limit.limited) this.#limit.charge(bytes, ipBytes);
    this.#control?.charge(bytes, ipBytes);
    this.#replyWasLast = false;
  }

  /** Packets between two AckReqs, so that an ACK comes every millisecond or two: later it would be overdue. */
  ackInterval(pathMtu: number, most: number): number {
    const interval = this.#limit.limited ? this.#limit.ackInterval(pathMtu, most) : most;
    return this.#control?.limited ? this.#control.ackInterval(pathMtu, interval) : interval;
  }

  /** No reply is owed any more, for whatever reason: requests need not wait for one. */
  noReplies(): void {
    this.#replyWaits = false;
  }

  /** Adds up to `budget` replies to the batch, READ responses as fast as the controller allows; returns how many. */
  respond(responder: Responder, batch: TxBatch, budget: number): number {
    const control = this.#control;
    this.#replyWaits = false;
    if (!control?.limited) return responder.transmit(batch, budget, true);
    let sent = responder.transmit(batch, budget, false);
    while (sent < budget && !batch.full && responder.owed > 0) {
      const wait = control.wait(this.#clock[0]);
      if (wait > 0) {
        this.#timers.arm(Timer.RESPOND, wait);
        this.#replyWaits = true;
        break;
      }
      const added = responder.transmit(batch, 1, true);
      if (added === 0) break;
      control.charge(lastPacketBytes(batch), this.#owner.attributes.ipBytes);
      this.#replyWasLast = true;
      sent += added;
    }
    return sent;
  }
}
