/** The requester of a queue pair: requests that its send queue has out, and their end. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { TxBatch } from '../batch.ts';
import { Aimd } from '../congestion/aimd.ts';
import { type CongestionController, Loss } from '../congestion/controller.ts';
import { Dcqcn } from '../congestion/dcqcn.ts';
import { QpStateCode, type RetransmitCause, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import { Pacing } from '../pacing/pacing.ts';
import type { QpAttributes } from '../qp/attributes.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { indexLess } from '../serial.ts';
import type { TimePlace } from '../times.ts';
import { AckTimer } from './ack-timer.ts';
import { Credits } from './credits.ts';
import { FailedEntry } from './failed-entry.ts';
import { Flight } from './flight.ts';
import { OutOfOrder } from './out-of-order.ts';
import { RequestPackets } from './packets.ts';
import { OutstandingReads } from './reads.ts';
import { LossBursts } from './recovery/loss-bursts.ts';
import { Probe } from './recovery/probe.ts';
import { Repair } from './recovery/repair.ts';
import { Retries } from './recovery/retries.ts';
import { Again, SelectiveRepeat } from './recovery/selective-repeat.ts';
import { ROUND_TRIP_TIMES, RoundTrip } from './round-trip.ts';
import { TIMERS, Timer, Timers } from './timers.ts';
import { READ_BUDGET_WAIT, Transmitter } from './transmitter.ts';
import { XrcPackets } from './xrc-packets.ts';

/** Acknowledged so far beyond the cursor, packets were kept; one by itself may have been late. */
const KEPT_LEAST = 2;

/**
 * Its parts send (`transmitter.ts`, from the cursor of `flight.ts`), fail, probe and wait; it decides when. Only reliable connections
 * have windows, credits, timers and go-back-N; UC and UD send each packet once and complete an entry when the link has
 * taken it.
 *
 * Promise: while something is in flight or to be retransmitted, a timer runs (unless `timeout` is 0), packets are with the
 * link, or a turn is due.
 */
export class Requester {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  readonly #flight: Flight;
  readonly #probe: Probe;
  readonly #roundTrip: RoundTrip;
  readonly #ackTimer: AckTimer;
  readonly #transmitter: Transmitter;
  readonly timers: Timers;
  readonly retries = new Retries();
  readonly credits = new Credits();
  readonly reads: OutstandingReads;
  readonly failed: FailedEntry;
  readonly early = new OutOfOrder();
  readonly #repair: Repair;
  readonly #peerKeeps: SelectiveRepeat;
  readonly #losses = new LossBursts();
  readonly congestion: CongestionController;
  readonly pace: Pacing;
  /** Where the times of its parts are. */
  readonly #place: TimePlace;
  #timeouts = 0;
  /** The ACK timer ran out, and the packets that were in flight then may still be on their way. */
  #mayBeSlow = false;
  /** Packets are in a batch that the link has not taken. */
  #withLink = false;
  /** SQD: everything that was started is done, and the owner knows. */
  #drained = false;

  constructor(context: Context, owner: Owner, queue: SendQueue) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
    this.#flight = new Flight(queue);
    this.failed = new FailedEntry(owner, queue);
    this.reads = new OutstandingReads(context.readBudget, owner);
    const Packets = owner.type === 'XRC_INI' ? XrcPackets : RequestPackets;
    const packets = new Packets(context, owner, queue);
    this.#repair = new Repair(context, owner, queue, packets, this.failed, this.reads, this.early);
    this.#peerKeeps = new SelectiveRepeat(context.clock);
    this.#place = context.times.take();
    const { array, at } = this.#place;
    this.#roundTrip = new RoundTrip(context.clock, this.#losses, { array, at: at + TIMERS });
    this.#probe = new Probe(this.#roundTrip, this.#losses);
    this.congestion = owner.reacts
      ? new Dcqcn(this.#roundTrip, owner.congestion)
      : new Aimd(this.#roundTrip, { array, at: at + TIMERS + ROUND_TRIP_TIMES });
    this.timers = new Timers(context.clock, context.deadlines, this, this.#place);
    this.pace = new Pacing(owner, context.clock, this.timers, this.congestion);
    this.#ackTimer = new AckTimer(owner, this.timers, this.#roundTrip, this.#probe);
    const { timers, credits, reads, failed, congestion, early } = this;
    this.#transmitter = new Transmitter({
      context,
      owner,
      queue,
      packets,
      flight: this.#flight,
      failed,
      timers,
      credits,
      reads,
      roundTrip: this.#roundTrip,
      congestion,
      pacer: this.pace,
      probe: this.#probe,
      early,
      repair: this.#repair,
      peerKeeps: this.#peerKeeps,
      losses: this.#losses,
    });
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

  /** Times that all was retransmitted because nothing was heard, modulo 2^32. */
  get timeouts(): number {
    return this.#timeouts;
  }

  get drained(): boolean {
    return this.#drained;
  }

  // ------------------------------------------------------------------- states

  /** RTS: a fresh send side. Drops requests that were posted before, by a program that did not see the last RESET. */
  start(psn: number): void {
    this.reset();
    this.#queue.reset();
    this.#flight.start(psn);
    this.credits.reset(this.#owner.reliable);
  }

  /** RESET: as just created, with the attributes that the queue pair has now. */
  reset(): void {
    this.stop();
    this.credits.reset(false);
    this.#roundTrip.reset();
    this.#peerKeeps.reset();
    this.#losses.reset();
    this.#ackTimer.reset();
    this.congestion.reset();
    const { rateLimit, retryCnt, rnrRetry, pathMtu } = this.#owner.attributes;
    this.pace.setRate(rateLimit);
    this.retries.grant(retryCnt);
    this.retries.grantRnr(rnrRetry);
    this.#probe.enable(this.#owner.recovery.probes);
    this.reads.setPathMtu(pathMtu);
    this.#flight.start(0);
    this.#drained = false;
  }

  /** ERR, SQE: nothing more is sent, nothing is waited for. */
  stop(): void {
    this.timers.stopAll();
    this.reads.release();
    this.#roundTrip.cancel();
    this.failed.forget();
    this.#probe.forget();
    this.#repair.stop();
    this.early.clear();
    this.#transmitter.stop();
    this.#flight.stop();
  }

  /** The queue pair is gone. */
  close(): void {
    this.reset();
    this.timers.close();
    this.#context.times.give(this.#place);
  }

  /** Entering RTS from SQD or SQE. */
  resume(): void {
    this.#drained = false;
  }

  /** Everything was flushed: the cursor is at the next entry. */
  flushed(): void {
    this.#flight.toHead();
  }

  /** SQD: what was not sent is not started after all; nor does an entry fail that was not. */
  drain(): void {
    this.#transmitter.takeBack();
    if (this.failed.isAt(this.#queue.started)) this.failed.forget();
    this.checkDrained();
  }

  /** SQD: reports that everything that was started is done, once (IBTA vol 1 §10.3.1.6). */
  checkDrained(): void {
    if (this.#owner.state !== QpStateCode.SQD || this.#drained || this.#queue.head !== this.#queue.started)
      return;
    this.#drained = true;
    this.#owner.sendQueueDrained();
  }

  /** Takes over changed attributes; timers with an old value are restarted. */
  configure(from: QpAttributes, to: QpAttributes): void {
    if (to.pathMtu !== from.pathMtu) this.reads.setPathMtu(to.pathMtu);
    if (to.rateLimit !== from.rateLimit) {
      this.pace.setRate(to.rateLimit);
      this.timers.stop(Timer.PACE);
      this.#owner.wantsTurn();
    }
    if (to.timeout !== from.timeout && this.#owner.reliable) this.#ackTimer.reconfigure(this.#flight.out > 0);
    if (to.retryCnt !== from.retryCnt) this.retries.grant(to.retryCnt);
    if (to.rnrRetry !== from.rnrRetry) this.retries.grantRnr(to.rnrRetry);
    if (to.maxRdAtomic !== from.maxRdAtomic) this.#owner.wantsTurn();
  }

  // ------------------------------------------------------------------ sending

  /** Adds up to `budget` request packets to the batch; returns how many. */
  transmit(batch: TxBatch, budget: number): number {
    const { state } = this.#owner;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return 0;
    if (this.timers.isRunning(Timer.RNR)) return 0;
    const sent = this.#transmitter.transmit(batch, budget);
    if (sent > 0 && !this.#withLink) {
      this.#withLink = true;
      this.#context.awaitLink(this);
    }
    return sent;
  }

  // ------------------------------------------------------------------ failing

  /** The link refused a packet of `entry` at `psn` for good. */
  refused(entry: number, psn: number, status: number): void {
    const { state } = this.#owner;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return;
    const queue = this.#queue;
    if (indexLess(entry, queue.head) || !indexLess(entry, queue.started)) return;
    // A packet that was retransmitted and is acknowledged by now.
    if (this.#owner.reliable && psnDiff(psn, this.unackedPsn) < 0) return;
    this.failed.set(entry, status);
    // UC and UD complete what the link took of the batch first, in `taken`.
    if (this.#owner.reliable) this.failed.completeIfOldest();
  }

  // --------------------------------------------------------- acknowledgements

  /** Everything before `psn` is acknowledged: retries start anew, the window may grow. */
  acknowledged(psn: number): void {
    const packets = this.#flight.acknowledged(psn);
    this.#losses.acknowledged(packets);
    this.retries.progress();
    if (this.#losses.isLossy) this.#roundTrip.isAtMost(this.#peerKeeps.gapClosedAfter(psn));
    this.#peerKeeps.progress(psn);
    this.#roundTrip.acknowledged(psn);
    this.#probe.progress(this.#context.clock[0], psn);
    this.#ackTimer.acknowledged(psn);
    this.congestion.onAck(packets, psn, this.#flight.sendPsn);
    this.reads.retire(psn);
    if (this.#repair.active) this.#repair.acknowledged(psn);
  }

  /** An answer came that acknowledges nothing new: an ACK (ANY_ACK), or the response at a PSN. A packet came twice. */
  answeredTwice(answer: number): void {
    this.#probe.answeredTwice();
    this.#roundTrip.confirm(answer);
  }

  /** A sequence NAK for a packet that is acknowledged by now: what came behind that was discarded, perhaps, and no other NAK reports it. */
  nakOvertaken(): void {
    if (this.#owner.attributes.timeout !== 0 || this.#flight.out <= 0) return;
    this.#ackTimer.unsettled(this.sendPsn);
    this.#ackTimer.taken(true);
  }

  /** The READ response at `psn` came, and some before it did not. */
  answered(psn: number): void {
    this.#roundTrip.answered(psn);
  }

  /** The READ response at `psn`, which was the next one, is LAST or ONLY within a request: if the probe asked for it alone, those behind it are lost. */
  answeredAlone(psn: number): void {
    if (!this.#probe.asksOnlyFor(psn)) return;
    this.lossReported(Loss.GAP);
    this.rewind('probe');
  }

  /** After responses that acknowledged something: the cursor, the timers and the turn to send. */
  settle(): void {
    // The peer takes requests again: the wait that it asked for is over.
    this.timers.stop(Timer.RNR);
    const flight = this.#flight;
    if (flight.isCursorBehind && this.#isTimeoutUndone) {
      this.congestion.undo();
      this.#transmitter.takeUp();
    } else if (flight.isCursorBehind) {
      // Acknowledged beyond where the cursor had gone back to: what was sent before arrived after all, and was kept.
      const isKept = flight.cause === 'sequence-nak' && flight.out <= -KEPT_LEAST;
      if (isKept && this.#owner.recovery.selective) this.#peerKeeps.learn(this.#losses.isFrequent);
      this.#transmitter.catchUp();
    } else if (this.#probe.showsLoss(this.#context.clock[0], flight.unackedPsn)) {
      const { learned } = this.#peerKeeps;
      this.onLoss(learned ? Loss.GAP : Loss.WHOLE);
      if (learned) this.#fillGap(flight.unackedPsn, flight.out, 'probe');
      else this.rewind('probe');
    }
    if (this.failed.completeIfOldest()) return;
    this.#restartAckTimer();
    this.checkDrained();
    this.#owner.wantsTurn();
  }

  /**
   * More is acknowledged than was retransmitted since the timeout (F-RTO, RFC 5682): it was on its way, nothing was lost, the peer was
   * slow. Not clear where the peer keeps what comes behind a gap, or the next gap is near; nor on another path, where none of it is.
   */
  get #isTimeoutUndone(): boolean {
    return this.#mayBeSlow && !this.#peerKeeps.learned && !this.#losses.isFrequent;
  }

  /** An answer shows a loss. */
  lossReported(loss: number): void {
    this.#ackTimer.unsettled(this.sendPsn);
    this.#losses.seen();
    this.onLoss(loss);
  }

  /** A loss was seen. */
  onLoss(loss: number): void {
    this.#losses.lost();
    this.congestion.onLoss(loss, this.unackedPsn, this.sendPsn);
  }

  /** Everything from the oldest unacknowledged PSN is retransmitted. The ACK timer starts when the link has taken it. */
  rewind(cause: RetransmitCause): void {
    this.#mayBeSlow = false;
    this.#transmitter.goBack(cause);
    this.#ackTimer.stop();
  }

  /** A sequence NAK names the oldest packet in flight: all is retransmitted, or a gap, where the peer keeps the rest. */
  retrySequence(): boolean {
    const { unackedPsn, out } = this.#flight;
    const again = this.#owner.recovery.selective
      ? this.#peerKeeps.nakked(unackedPsn, this.#answerTime, this.congestion.window)
      : Again.ALL;
    if (again === Again.NOTHING) {
      this.#ackTimer.unsettled(this.sendPsn);
      // Without an ACK timer nothing else would ask again.
      if (this.#peerKeeps.learned || this.#owner.attributes.timeout === 0) this.#awaitGap();
      return true;
    }
    // A peer that keeps NAKs again and again while a gap is open; the ACK timer runs on meanwhile.
    const isFree = again === Again.GAP && this.#peerKeeps.isRepeated;
    if (!isFree && !this.spendRetry()) return false;
    this.lossReported(again === Again.ALL ? Loss.WHOLE : Loss.GAP);
    if (again === Again.ALL) {
      this.rewind('sequence-nak');
      if (this.#owner.recovery.selective) this.#peerKeeps.try();
    } else {
      // The packets behind it are acknowledged late.
      this.#roundTrip.cancel();
      this.#fillGap(unackedPsn, out, 'sequence-nak');
    }
    return true;
  }

  /** µs until a retransmission is answered. Where losses are frequent, a loss is likelier than a late packet. */
  get #answerTime(): number {
    return this.#losses.isLossy ? this.#roundTrip.smoothed : this.#roundTrip.settled;
  }

  /** The peer keeps the packets behind the oldest one in flight: that one, and easily lost ones near it, are retransmitted. */
  #fillGap(unackedPsn: number, out: number, cause: RetransmitCause): void {
    const packets = Math.min(out, this.#losses.burst(this.congestion.window));
    const end = psnAdd(unackedPsn, packets);
    this.#peerKeeps.sentAgain(unackedPsn, end, packets < out);
    this.timers.stop(Timer.GAP);
    this.#awaitGap();
    this.#roundTrip.cancelIn(unackedPsn, end);
    if (packets > 1) this.#repair.beginFirstTwice(unackedPsn, end, cause);
    else this.#repair.begin(unackedPsn, end, cause);
  }

  /** Waits for the answer to packets of the gap that were retransmitted; afterwards more are sent. */
  #awaitGap(): void {
    const wait = this.#peerKeeps.waits(this.#flight.unackedPsn, this.#answerTime, this.congestion.window);
    this.timers.armUnlessRunning(Timer.GAP, wait);
  }

  /** The receiver was not ready: nothing is sent for `wait` µs. */
  waitForReceiver(wait: number): void {
    this.rewind('rnr');
    // The peer is there and has answered: the ACK timer stands still meanwhile.
    this.timers.arm(Timer.RNR, wait);
  }

  #restartAckTimer(): void {
    this.#ackTimer.restart(this.#flight.out > 0);
  }

  // ------------------------------------------------------------------- timers

  /** The link has looked at every packet that was added: they are on their way. */
  taken(): void {
    this.#withLink = false;
    const { state, reliable } = this.#owner;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return;
    if (!reliable) this.#completeTaken();
    else this.#ackTimer.taken(this.#flight.out > 0);
  }

  /** UC, UD: the entries whose packets those were are done. */
  #completeTaken(): void {
    const queue = this.#queue;
    while (queue.head !== this.#flight.cursor.entry) {
      if (this.failed.completeIfOldest()) return;
      queue.complete(WcStatus.SUCCESS);
      if (this.#owner.state === QpStateCode.ERR) return;
    }
    this.#flight.taken();
    if (this.failed.completeIfOldest()) return;
    this.checkDrained();
    // A fenced LOCAL_INV may have waited for this.
    if (queue.head !== queue.posted) this.#owner.wantsTurn();
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
    if (timers.takeDue(Timer.GAP)) this.#gapOverdue();
    if (timers.takeDue(Timer.RETRY)) {
      timers.stop(Timer.PROBE);
      // Packets that wait for the link are not lost: the timer starts when it has taken them.
      if (this.#withLink) return;
      const { counters, attributes } = this.#owner;
      if (attributes.timeout === 0) {
        this.#unsettledOverdue();
        return;
      }
      counters.timeouts++;
      this.#timeouts = (this.#timeouts + 1) | 0;
      if (!this.spendRetry()) return;
      this.#probe.timedOut(this.#context.clock[0]);
      this.onLoss(Loss.TIMEOUT);
      this.rewind('timeout');
      this.#mayBeSlow = true;
    } else {
      const late = timers.lateness(Timer.PROBE);
      if (!timers.takeDue(Timer.PROBE) || this.#withLink || isPaced) return;
      if (this.#probe.isDelayed(late)) this.#ackTimer.taken(this.#flight.out > 0);
      else this.#wantProbe();
    }
  }

  /** Packets that a NAK was about may have been discarded once more, and nothing reports it: all is retransmitted, which takes no retry. */
  #unsettledOverdue(): void {
    // The NAK that is waiting for its time comes first, and takes a retry.
    if (this.timers.isRunning(Timer.GAP)) {
      this.#restartAckTimer();
      return;
    }
    this.#timeouts = (this.#timeouts + 1) | 0;
    if (this.#ackTimer.unsettledOverdue(this.sendPsn)) this.lossReported(Loss.WHOLE);
    this.rewind(this.#queue.rowOf(this.#queue.head)?.readOrAtomic ? 'implied-nak' : 'sequence-nak');
  }

  /** A probe leaves with the next turn, unless none is left or one is wanted; with the packets that are easily lost together with it. */
  #wantProbe(): void {
    if (!this.#probe.isAllowed || this.#probe.wanted) return;
    const { unackedPsn, out } = this.#flight;
    this.#owner.counters.probes++;
    this.#probe.want();
    // Once, and only where losses are near each other: a peer that is gone sees no more of it.
    const isNear = this.#losses.burst(this.congestion.window) > 1;
    const fills = isNear && this.#peerKeeps.learned && out > 1 && this.#probe.unanswered === 1;
    if (fills) this.#fillGap(unackedPsn, out, 'probe');
    this.#owner.wantsTurn();
  }

  /** The packets retransmitted for a NAK are not answered: another NAK came for them meanwhile, or nothing came at all. */
  #gapOverdue(): void {
    const { unackedPsn, out } = this.#flight;
    const keeps = this.#peerKeeps.keepsBehind(unackedPsn);
    if (out <= 0 || !(keeps || this.#peerKeeps.isNakked(unackedPsn)) || this.timers.isRunning(Timer.RNR))
      return;
    if (!this.#peerKeeps.nakCameAgain) {
      if (keeps && !this.#withLink && this.#probe.unanswered === 0) this.#wantProbe();
    } else if (this.retrySequence()) this.#owner.wantsTurn();
  }

  /** The connection has taken another path: packets in flight on the one before are retransmitted, with new retries. */
  migrated(): void {
    const { retryCnt } = this.#owner.attributes;
    this.retries.grant(retryCnt);
    this.#probe.enable(this.#owner.recovery.probes);
    this.#roundTrip.reset();
    this.#losses.reset();
    this.congestion.reset();
    const { state, reliable } = this.#owner;
    const sends = state === QpStateCode.RTS || state === QpStateCode.SQD;
    if (reliable && sends && this.#flight.out > 0) this.rewind('timeout');
  }

  /** Takes a retry; without one left, the connection migrates, or the oldest entry fails. @returns whether there was one */
  spendRetry(): boolean {
    const { counters } = this.#owner;
    if (this.retries.spend()) {
      counters.retries++;
      return true;
    }
    // All is retransmitted on the other path, with new retries: the caller has nothing to do.
    if (this.#owner.migrates()) return false;
    counters.retryExceededErr++;
    this.failed.completeOldest(WcStatus.RETRY_EXC_ERR);
    return false;
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const { state, reliable, attributes } = this.#owner;
    const parts =
      this.timers.check() ?? this.retries.check() ?? this.reads.check() ?? this.congestion.check();
    if (parts !== undefined) return parts;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return undefined;
    const { unackedPsn, sendPsn } = this.#flight;
    const broken =
      this.#flight.check(reliable) ??
      this.failed.check() ??
      this.early.check(unackedPsn) ??
      this.#repair.check(unackedPsn, sendPsn);
    if (broken !== undefined || !reliable || attributes.timeout === 0) return broken;
    const { out } = this.#flight;
    const waits = this.timers.isRunning(Timer.RETRY) || this.timers.isRunning(Timer.RNR) || this.#withLink;
    return out > 0 && !waits ? `${out} PSNs in flight, and no timer runs` : undefined;
  }
}
