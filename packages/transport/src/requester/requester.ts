/** The requester of a reliable queue pair: requests that its send queue has out, and their end. */
import { psnDiff } from '@node-roce/wire';
import type { TxBatch } from '../batch.ts';
import { Aimd } from '../congestion/aimd.ts';
import type { CongestionController } from '../congestion/controller.ts';
import { Dcqcn } from '../congestion/dcqcn.ts';
import { QpStateCode } from '../constants.ts';
import type { Context } from '../context.ts';
import { Pacing } from '../pacing/pacing.ts';
import type { QpAttributes } from '../qp/attributes.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { indexLess } from '../rings.ts';
import type { TimePlace } from '../times.ts';
import { Credits } from './credits.ts';
import { Drain } from './drain.ts';
import { FailedEntry } from './failed-entry.ts';
import { Flight } from './flight.ts';
import { RequestPackets } from './packets.ts';
import { OutstandingReads } from './reads.ts';
import { LossBursts, Recovery } from './recovery/recovery.ts';
import type { RequesterRole } from './role.ts';
import { ROUND_TRIP_TIMES, RoundTrip } from './round-trip.ts';
import { TIMERS, Timer, Timers } from './timers.ts';
import { READ_BUDGET_WAIT, Transmitter } from './transmitter.ts';
import { XrcPackets } from './xrc-packets.ts';

/**
 * Its parts send (`transmitter.ts`, from the cursor of `flight.ts`), fail, recover from losses (`recovery/`) and wait; it decides when.
 *
 * Promise: while something is in flight or to be retransmitted, a timer runs (unless `timeout` is 0), packets are with the
 * link, or a turn is due.
 */
export class Requester implements RequesterRole {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  readonly #flight: Flight;
  readonly #transmitter: Transmitter;
  readonly #drain: Drain;
  readonly timers: Timers;
  readonly credits = new Credits();
  readonly reads: OutstandingReads;
  readonly failed: FailedEntry;
  readonly recovery: Recovery;
  readonly congestion: CongestionController;
  readonly pacing: Pacing;
  /** Where the times of its parts are. */
  readonly #place: TimePlace;
  /** Packets are in a batch that the link has not taken. */
  #withLink = false;

  constructor(context: Context, owner: Owner, queue: SendQueue) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
    this.#flight = new Flight(queue);
    this.failed = new FailedEntry(owner, queue);
    this.reads = new OutstandingReads(context.readBudget, owner);
    const Packets = owner.type === 'XRC_INI' ? XrcPackets : RequestPackets;
    const packets = new Packets(context, owner, queue);
    this.#place = context.times.take();
    const { array, at } = this.#place;
    const losses = new LossBursts();
    const roundTrip = new RoundTrip(context.clock, losses, { array, at: at + TIMERS });
    this.congestion = owner.reacts
      ? new Dcqcn(roundTrip, owner.congestion)
      : new Aimd(roundTrip, { array, at: at + TIMERS + ROUND_TRIP_TIMES });
    this.timers = new Timers(context.clock, context.deadlines, this, this.#place);
    this.pacing = new Pacing(owner, context.clock, this.timers, this.congestion);
    const { timers, reads, failed, pacing, credits } = this;
    const parts = { context, owner, flight: this.#flight, failed, timers, reads, pacing };
    this.#drain = new Drain(parts);
    this.recovery = new Recovery(parts, packets, credits, roundTrip, losses);
    this.#transmitter = new Transmitter(parts, this.recovery, packets, credits);
    this.reads.setPathMtu(owner.attributes.pathMtu);
  }

  get sendPsn(): number {
    return this.#flight.sendPsn;
  }

  get unackedPsn(): number {
    return this.#flight.unackedPsn;
  }

  /** PSN that is sent next. */
  get cursorPsn(): number {
    return this.#flight.cursor.psn;
  }

  get drained(): boolean {
    return this.#drain.done;
  }

  // ------------------------------------------------------------------- states

  start(psn: number): void {
    this.reset();
    this.#queue.reset();
    this.#flight.start(psn);
    this.credits.reset(true);
  }

  reset(): void {
    this.stop();
    this.credits.reset(false);
    this.congestion.reset();
    const { rateLimit, pathMtu } = this.#owner.attributes;
    this.pacing.setRate(rateLimit);
    this.pacing.noReplies();
    this.reads.setPathMtu(pathMtu);
    this.recovery.reset();
    this.#flight.start(0);
    this.#drain.end();
  }

  stop(): void {
    this.timers.stopAll();
    this.reads.release();
    this.failed.forget();
    this.recovery.stop();
    this.reads.early.clear();
    this.#flight.stop();
  }

  close(): void {
    this.reset();
    this.timers.close();
    this.#context.times.give(this.#place);
  }

  resume(): void {
    this.#drain.end();
  }

  flushed(): void {
    this.#flight.toHead();
  }

  drain(): void {
    this.#transmitter.takeBack();
    this.#drain.begin();
  }

  configure(from: QpAttributes, to: QpAttributes): void {
    if (to.pathMtu !== from.pathMtu) this.reads.setPathMtu(to.pathMtu);
    if (to.rateLimit !== from.rateLimit) {
      this.pacing.setRate(to.rateLimit);
      this.timers.stop(Timer.PACE);
      this.#owner.wantsTurn();
    }
    if (to.timeout !== from.timeout) this.recovery.ackTimer.reconfigure(this.#flight.out > 0);
    if (to.retryCnt !== from.retryCnt) this.recovery.retries.grant(to.retryCnt);
    if (to.rnrRetry !== from.rnrRetry) this.recovery.retries.grantRnr(to.rnrRetry);
    if (to.maxRdAtomic !== from.maxRdAtomic) this.#owner.wantsTurn();
  }

  // ------------------------------------------------------------------ sending

  transmit(batch: TxBatch, budget: number): number {
    if (!this.#owner.sends || this.timers.isRunning(Timer.RNR)) return 0;
    const sent = this.#transmitter.transmit(batch, budget);
    if (sent > 0 && !this.#withLink) {
      this.#withLink = true;
      this.#context.awaitLink(this);
    }
    return sent;
  }

  // ------------------------------------------------------------------ failing

  refused(entry: number, psn: number, status: number): void {
    if (!this.#owner.sends) return;
    const queue = this.#queue;
    if (indexLess(entry, queue.head) || !indexLess(entry, queue.started)) return;
    // A packet that was retransmitted and is acknowledged by now.
    if (psnDiff(psn, this.unackedPsn) < 0) return;
    this.failed.set(entry, status);
    this.failed.completeIfOldest();
  }

  // --------------------------------------------------------- acknowledgements

  /** Everything before `psn` is acknowledged: the window may grow. */
  acknowledged(psn: number): void {
    const packets = this.#flight.acknowledged(psn);
    const { recovery } = this;
    if (recovery.idle) recovery.roundTrip.acknowledged(psn);
    else recovery.acknowledged(psn, packets);
    this.congestion.onAck(packets, psn, this.#flight.sendPsn);
    if (!this.reads.idle) this.reads.retire(psn);
  }

  /** An answer came that acknowledges nothing new: an ACK (ANY_ACK), or the response at a PSN. A packet came twice. */
  answeredTwice(answer: number): void {
    const { recovery } = this;
    if (!recovery.idle) recovery.answeredTwice();
    recovery.roundTrip.confirm(answer);
  }

  /** The READ response at `psn` came, and some before it did not. */
  answered(psn: number): void {
    this.recovery.roundTrip.answered(psn);
  }

  /** After responses that acknowledged something: the cursor, the timers and the turn to send. */
  settle(): void {
    // The peer takes requests again: the wait that it asked for is over.
    this.timers.stop(Timer.RNR);
    const { recovery } = this;
    if (!recovery.idle) recovery.settled();
    if (this.failed.waiting && this.failed.completeIfOldest()) return;
    this.recovery.ackTimer.restart(this.#flight.out > 0);
    if (this.#owner.state === QpStateCode.SQD) this.#drain.check();
    if (!this.sleeps) this.#owner.wantsTurn();
  }

  get sleeps(): boolean {
    return this.#queue.isAsleep && this.recovery.idle;
  }

  /** The receiver was not ready: nothing is sent for `wait` µs. */
  waitForReceiver(wait: number): void {
    this.recovery.goBack('rnr');
    // The peer is there and has answered: the ACK timer stands still meanwhile.
    this.timers.arm(Timer.RNR, wait);
  }

  // ------------------------------------------------------------------- timers

  /** The link has looked at every packet that was added: they are on their way. */
  taken(): void {
    this.#withLink = false;
    if (this.#owner.sends) this.recovery.ackTimer.taken(this.#flight.out > 0);
  }

  /** At most one retry a call (see the pump's order in docs/run-loop.md). */
  timersDue(): void {
    const { timers } = this;
    // With a rate, the next packet is on its way to ask for an answer.
    const isPaced = timers.isRunning(Timer.PACE);
    if (timers.takeDue(Timer.PACE)) this.#owner.wantsTurn();
    if (timers.takeDue(Timer.RESPOND)) this.#owner.wantsTurn();
    if (timers.takeDue(Timer.READ_BUDGET)) {
      if (this.reads.waited()) this.#owner.wantsTurn();
      else timers.arm(Timer.READ_BUDGET, READ_BUDGET_WAIT);
    }
    if (timers.takeDue(Timer.RNR)) this.#owner.wantsTurn();
    this.recovery.due(this.#withLink, isPaced);
  }

  /** The connection has taken another path: packets in flight on the one before are retransmitted, with new retries. */
  migrated(): void {
    this.recovery.migrated();
    this.congestion.reset();
    if (this.#owner.sends && this.#flight.out > 0) this.recovery.goBack('timeout');
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const { sends, attributes } = this.#owner;
    const parts =
      this.timers.check() ?? this.recovery.check() ?? this.reads.check() ?? this.congestion.check();
    if (parts !== undefined) return parts;
    if (!sends) return undefined;
    const { unackedPsn } = this.#flight;
    const broken = this.#flight.check() ?? this.failed.check() ?? this.reads.early.check(unackedPsn);
    if (broken !== undefined || attributes.timeout === 0) return broken;
    const { out } = this.#flight;
    const waits = this.timers.isRunning(Timer.RETRY) || this.timers.isRunning(Timer.RNR) || this.#withLink;
    return out > 0 && !waits ? `${out} PSNs in flight, and no timer runs` : undefined;
  }
}
