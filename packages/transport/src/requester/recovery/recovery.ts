/**
 * Loss recovery of a requester, by one door: what is retransmitted, when, and what an answer shows (docs/architecture.md; RFC 8985 and RFC 9002, fitted
 * to RoCE's NAKs).
 */
import { psnAdd } from '@node-roce/wire';
import type { TxBatch } from '../../batch.ts';
import { Loss } from '../../congestion/controller.ts';
import type { RetransmitCause } from '../../constants.ts';
import type { Own } from '../../own.ts';
import { Wire } from '../../wr-opcodes.ts';
import { AckTimer } from '../ack-timer.ts';
import type { Credits } from '../credits.ts';
import type { RequestPackets } from '../packets.ts';
import type { RequesterParts } from '../parts.ts';
import type { RoundTrip } from '../round-trip.ts';
import { Timer } from '../timers.ts';
import type { LossBursts } from './loss-bursts.ts';
import { MissingResponses } from './missing-responses.ts';
import { Probe } from './probe.ts';
import { ProbeSender } from './probe-sender.ts';
import { ReadRepair } from './read-repair.ts';
import { Repair } from './repair.ts';
import { Retries, spendRetry } from './retries.ts';
import { Again, SelectiveRepeat } from './selective-repeat.ts';
import { catchUp, takeUp } from './take-up.ts';

export { LossBursts } from './loss-bursts.ts';

/** Acknowledged so far beyond the cursor, packets were kept; one by itself may have been late. */
const KEPT_LEAST = 2;
/** While a gap is open, this many times the window may be out: what the peer keeps is not in flight. */
const GAP_OPEN_FACTOR = 2;
const NONE = -1;

/**
 * While `idle`, nothing was lost, nothing is retransmitted, and no probe is out: then only that word is looked at, and the packets that are acknowledged
 * meanwhile are counted once it ends.
 *
 * Promise: idle again only with everything as in a new connection, but for the count of packets since the last loss, and for what is known of the
 * peer, which is looked at after a loss alone.
 */
export class Recovery {
  /** Nothing was lost: the only look that a connection without losses costs. */
  readonly idle: boolean = true;
  /** Whether there are tail loss probes. */
  readonly probes: boolean = false;
  readonly #parts: RequesterParts;
  readonly roundTrip: RoundTrip;
  readonly ackTimer: AckTimer;
  readonly retries = new Retries();
  readonly #losses: LossBursts;
  readonly #probe: Probe;
  readonly #probeSender: ProbeSender;
  readonly #repair: Repair;
  readonly #readRepair: ReadRepair;
  readonly #peer: SelectiveRepeat;
  readonly #missing = new MissingResponses();
  /** `flight.acknowledgedPackets` up to which losses were counted. */
  #counted = 0;
  /** The ACK timer ran out, and the packets that were in flight then may still be on their way. */
  #mayBeSlow = false;
  /** The PSN that an RNR NAK refused: until it comes again, the peer is silent about what follows (§9.7.5.2.8); −1: none is. */
  #refusedPsn = NONE;

  constructor(
    parts: RequesterParts,
    packets: RequestPackets,
    credits: Credits,
    roundTrip: RoundTrip,
    losses: LossBursts,
  ) {
    const { context, owner, timers } = parts;
    this.#parts = parts;
    this.roundTrip = roundTrip;
    this.#losses = losses;
    this.#probe = new Probe(roundTrip, losses);
    this.#probeSender = new ProbeSender(parts, packets, credits, this.#probe, roundTrip, losses);
    this.#repair = new Repair(parts, packets);
    this.#readRepair = new ReadRepair(parts, packets, roundTrip);
    this.#peer = new SelectiveRepeat(context.clock);
    this.ackTimer = new AckTimer(owner, timers, roundTrip, this);
  }

  // ------------------------------------------------------------------- states

  /** RESET: as just created. */
  reset(): void {
    const { owner, flight } = this.#parts;
    this.roundTrip.reset();
    this.#peer.reset();
    this.#losses.reset();
    this.ackTimer.reset();
    this.retries.grant(owner.attributes.retryCnt);
    this.retries.grantRnr(owner.attributes.rnrRetry);
    this.#enableProbes();
    this.#missing.forget();
    this.#mayBeSlow = false;
    this.#counted = flight.acknowledgedPackets;
    (this as Own<Recovery>).idle = true;
  }

  #enableProbes(): void {
    (this as Own<Recovery>).probes = this.#parts.owner.recovery.probes;
    this.#probe.enable(this.probes);
  }

  /** ERR, SQE: nothing more is retransmitted. */
  stop(): void {
    this.roundTrip.cancel();
    this.#probe.forget();
    this.#repair.stop();
    this.#refusedPsn = NONE;
  }

  /** The connection has taken another path, with nothing known of it; the peer is the same. */
  migrated(): void {
    this.#wake();
    this.retries.grant(this.#parts.owner.attributes.retryCnt);
    this.#enableProbes();
    this.roundTrip.reset();
    this.#losses.reset();
  }

  #wake(): void {
    if (!this.idle) return;
    (this as Own<Recovery>).idle = false;
    const { acknowledgedPackets } = this.#parts.flight;
    this.#losses.acknowledged((acknowledgedPackets - this.#counted) >>> 0);
  }

  /** Goes to rest where nothing is left of what woke it. */
  #rest(): void {
    const { flight, reads } = this.#parts;
    if (!this.#losses.isNone || !this.#probe.isQuiet || !this.#peer.isSettled || this.ackTimer.isUnsettled)
      return;
    if (this.#repair.active || reads.early.count > 0 || flight.cursor.psn !== flight.sendPsn) return;
    this.#mayBeSlow = false;
    this.#refusedPsn = NONE;
    this.#peer.forgetNak();
    this.#missing.forget();
    this.#counted = flight.acknowledgedPackets;
    (this as Own<Recovery>).idle = true;
  }

  // ------------------------------------------------------------------ answers

  /** `packets` more are acknowledged: everything before `psn`. */
  acknowledged(psn: number, packets: number): void {
    this.#losses.acknowledged(packets);
    this.retries.progress();
    if (this.#losses.isLossy) this.roundTrip.isAtMost(this.#peer.gapClosedAfter(psn));
    this.#peer.progress(psn);
    this.roundTrip.acknowledged(psn);
    this.#probe.progress(this.#parts.context.clock[0], psn);
    this.ackTimer.acknowledged(psn);
    if (this.#repair.active) this.#repair.acknowledged(psn);
    this.#rest();
  }

  /** After answers that acknowledged something: where the cursor goes on from. */
  settled(): void {
    const { context, flight, owner, pacing } = this.#parts;
    this.#missing.progress(flight.unackedPsn);
    if (flight.isCursorBehind && this.#isTimeoutUndone()) {
      pacing.congestion.undo();
      takeUp(this.#parts);
    } else if (flight.isCursorBehind) {
      // Acknowledged beyond where the cursor had gone back to: what was sent before arrived after all, and was kept.
      const isKept = flight.cause === 'sequence-nak' && flight.out <= -KEPT_LEAST;
      if (isKept && owner.recovery.selective) this.#peer.learn(this.#losses.isFrequent);
      catchUp(this.#parts);
    } else if (this.#probe.showsLoss(context.clock[0], flight.unackedPsn)) {
      const { learned } = this.#peer;
      this.#onLoss(learned ? Loss.GAP : Loss.WHOLE);
      if (learned) this.#fillGap(flight.unackedPsn, flight.out, 'probe');
      else this.goBack('probe');
    }
  }

  /**
   * More is acknowledged than was retransmitted since the timeout (F-RTO, RFC 5682): it was on its way, nothing was lost, the peer was
   * slow. Not clear where the peer keeps what comes behind a gap, or the next gap is near; nor on another path, where none of it is.
   */
  #isTimeoutUndone(): boolean {
    return this.#mayBeSlow && !this.#peer.learned && !this.#losses.isFrequent;
  }

  /** An answer came that acknowledges nothing new: a packet came twice. */
  answeredTwice(): void {
    this.#probe.answeredTwice();
  }

  /** The READ response at `psn`, which was the next one, is LAST or ONLY within a request: if the probe asked for it alone, those behind it are lost. */
  answeredAlone(psn: number): void {
    if (!this.#probe.asksOnlyFor(psn)) return;
    this.#lossReported(Loss.GAP);
    this.goBack('probe');
  }

  /** A sequence NAK for a packet that is acknowledged by now: what came behind that was discarded, perhaps, and no other NAK reports it. */
  nakOvertaken(): void {
    const { owner, flight } = this.#parts;
    if (owner.attributes.timeout !== 0 || flight.out <= 0) return;
    this.#wake();
    this.ackTimer.unsettled(flight.sendPsn);
    this.ackTimer.taken(true);
  }

  /** A sequence NAK names the oldest packet in flight: all is retransmitted, or a gap, where the peer keeps the rest. */
  nak(): boolean {
    this.#wake();
    const { owner, flight, pacing } = this.#parts;
    const { unackedPsn, out, sendPsn } = flight;
    // Without `selective` the peer is never known to keep packets: all, unless they are on their way.
    const again = this.#peer.nakked(unackedPsn, this.#answerTime(), pacing.congestion.window);
    if (again === Again.NOTHING) {
      this.ackTimer.unsettled(sendPsn);
      // Without an ACK timer nothing else would ask again; and a program that wants go-back-N has it, a round trip later.
      if (this.#peer.learned || owner.attributes.timeout === 0 || !owner.recovery.selective) this.#awaitGap();
      return true;
    }
    // A peer that keeps NAKs again and again while a gap is open; the ACK timer runs on meanwhile.
    const isFree = again === Again.GAP && this.#peer.isRepeated;
    if (!isFree && !this.#spends()) return false;
    this.#lossReported(again === Again.ALL ? Loss.WHOLE : Loss.GAP);
    if (again === Again.ALL) {
      this.goBack('sequence-nak');
      if (owner.recovery.selective) this.#peer.try();
    } else {
      // The packets behind it are acknowledged late.
      this.roundTrip.cancel();
      this.#fillGap(unackedPsn, out, 'sequence-nak');
    }
    return true;
  }

  /** A response was lost (implied NAK, §9.7.5.1.5): all is asked for again, once for each place where one is missing. */
  impliedNak(): void {
    const { flight } = this.#parts;
    if (this.#missing.isAsked(flight.unackedPsn) || flight.out <= 0) return;
    if (this.#spendForMissing()) this.goBack('implied-nak');
  }

  /** A response came, and some before it did not: those are asked for alone. @returns false: no retry was left */
  responsesMissing(): boolean {
    return this.#missing.isAsked(this.#parts.flight.unackedPsn) || this.#spendForMissing();
  }

  /** A response came before one that is missing, and is kept. */
  keptResponse(): void {
    this.#wake();
  }

  /** Takes a retry. @returns whether there was one */
  #spends(): boolean {
    const { owner, failed } = this.#parts;
    return spendRetry(this.retries, owner, failed);
  }

  /** It counts against `retry_cnt` as a timeout does. */
  #spendForMissing(): boolean {
    this.#wake();
    const { owner, flight } = this.#parts;
    owner.counters.impliedNakSeqErr++;
    if (!this.#spends()) return false;
    this.#lossReported(Loss.GAP);
    this.#missing.asked(flight.unackedPsn);
    return true;
  }

  /** An answer shows a loss. */
  #lossReported(loss: number): void {
    this.ackTimer.unsettled(this.#parts.flight.sendPsn);
    this.#losses.seen();
    this.#onLoss(loss);
  }

  #onLoss(loss: number): void {
    const { flight, pacing } = this.#parts;
    this.#losses.lost();
    pacing.congestion.onLoss(loss, flight.unackedPsn, flight.sendPsn);
  }

  // ------------------------------------------------------------ retransmission

  /** Everything from the oldest unacknowledged PSN is retransmitted. The ACK timer starts when the link has taken it. */
  goBack(cause: RetransmitCause): void {
    this.#wake();
    const { owner, flight, reads } = this.#parts;
    const { queue, unackedPsn } = flight;
    const { roundTrip } = this;
    this.#mayBeSlow = false;
    // A second response to the READ, for this time, shows that its responder is slow, and how slow.
    const isRead = queue.wireOf(queue.head) === Wire.READ;
    if (cause === 'probe') roundTrip.cancel();
    else if (cause !== 'timeout') roundTrip.nakked();
    else if (isRead && roundTrip.least > 0) roundTrip.doubt(unackedPsn);
    else roundTrip.goneBack();
    this.#probe.forget();
    this.#repair.stop();
    this.#peer.sentAgain(unackedPsn, flight.sendPsn, false);
    reads.release();
    if (cause === 'timeout') reads.timedOut();
    flight.goBack(cause, owner.attributes.pathMtu);
    this.#refusedPsn = cause === 'rnr' ? unackedPsn : NONE;
    owner.wantsTurn();
    this.ackTimer.stop();
    // The packet that a NAK names goes twice where it is easily lost again: without it, all that follows is in vain.
    if (cause !== 'sequence-nak' || !owner.recovery.selective || !this.#losses.isLossy || flight.isOver)
      return;
    if (!queue.isReadOrAtomic(queue.head)) this.#repair.beginTwin(unackedPsn, cause);
  }

  /** The peer keeps the packets behind the oldest one in flight: that one, and easily lost ones near it, are retransmitted. */
  #fillGap(unackedPsn: number, out: number, cause: RetransmitCause): void {
    const { pacing, timers } = this.#parts;
    const packets = Math.min(out, this.#losses.burst(pacing.congestion.window));
    const end = psnAdd(unackedPsn, packets);
    this.#peer.sentAgain(unackedPsn, end, packets < out);
    timers.stop(Timer.GAP);
    this.#awaitGap();
    this.roundTrip.cancelIn(unackedPsn, end);
    if (packets > 1) this.#repair.beginFirstTwice(unackedPsn, end, cause);
    else this.#repair.begin(unackedPsn, end, cause);
  }

  /** Waits for the answer to packets of the gap that were retransmitted; afterwards more are sent. */
  #awaitGap(): void {
    const { flight, pacing, timers } = this.#parts;
    const wait = this.#peer.waits(flight.unackedPsn, this.#answerTime(), pacing.congestion.window);
    timers.armUnlessRunning(Timer.GAP, wait);
  }

  /** µs until a retransmission is answered. Where losses are frequent, a loss is likelier than a late packet. */
  #answerTime(): number {
    return this.#losses.isLossy ? this.roundTrip.smoothed : this.roundTrip.settled;
  }

  /** Adds up to `budget` packets that are retransmitted while the cursor stays where it is. @returns how many */
  transmit(batch: TxBatch, budget: number): number {
    let sent = this.#probe.wanted ? this.#probeSender.transmit(batch, this.#refusedPsn) : 0;
    if (this.#repair.active) sent += this.#repair.transmit(batch, budget - sent);
    if (this.#parts.reads.early.count > 0) sent += this.#readRepair.transmit(batch, budget - sent);
    return sent;
  }

  /** Packets that may be out in a window of so many: while a gap is open, also those that the peer keeps. */
  windowOf(window: number): number {
    if (this.#peer.isTrying) return 1;
    return this.#peer.keepsBehind(this.#parts.flight.unackedPsn) ? GAP_OPEN_FACTOR * window : window;
  }

  /** A gap costs all that is in flight. */
  get goesBack(): boolean {
    return this.#peer.goesBack;
  }

  /** µs until a probe is sent; −1: none is. */
  get probeDelay(): number {
    return this.#probe.delay;
  }

  // ------------------------------------------------------------------- timers

  /** Timers of recovery, those that are due. At most one retry a call. @param withLink packets are in a batch that the link has not taken */
  due(withLink: boolean, isPaced: boolean): void {
    const { owner, flight, timers } = this.#parts;
    if (timers.takeDue(Timer.GAP)) this.#gapOverdue(withLink);
    if (timers.takeDue(Timer.RETRY)) {
      timers.stop(Timer.PROBE);
      // Packets that wait for the link are not lost: the timer starts when it has taken them.
      if (withLink) return;
      if (owner.attributes.timeout === 0) this.#unsettledOverdue();
      else this.#timedOut();
      return;
    }
    const late = timers.lateness(Timer.PROBE);
    if (!timers.takeDue(Timer.PROBE) || withLink || isPaced) return;
    this.#wake();
    if (this.#probe.isDelayed(late)) this.ackTimer.taken(flight.out > 0);
    else this.#wantProbe();
  }

  #timedOut(): void {
    this.#wake();
    this.#parts.owner.counters.timeouts++;
    this.#missing.restarted();
    if (!this.#spends()) return;
    this.#probe.timedOut(this.#parts.context.clock[0]);
    this.#onLoss(Loss.TIMEOUT);
    this.goBack('timeout');
    this.#mayBeSlow = true;
  }

  /** Packets that a NAK was about may have been discarded once more, and nothing reports it: all is retransmitted, which takes no retry. */
  #unsettledOverdue(): void {
    const { flight, timers } = this.#parts;
    // The NAK that is waiting for its time comes first, and takes a retry.
    if (timers.isRunning(Timer.GAP)) {
      this.ackTimer.restart(flight.out > 0);
      return;
    }
    const { queue } = flight;
    this.#missing.restarted();
    if (this.ackTimer.unsettledOverdue(flight.sendPsn)) this.#lossReported(Loss.WHOLE);
    this.goBack(queue.isReadOrAtomic(queue.head) ? 'implied-nak' : 'sequence-nak');
  }

  /** A probe leaves with the next turn, unless none is left or one is wanted; with the packets that are easily lost together with it. */
  #wantProbe(): void {
    if (!this.#probe.isAllowed || this.#probe.wanted) return;
    const { owner, flight, pacing } = this.#parts;
    const { unackedPsn, out } = flight;
    owner.counters.probes++;
    this.#probe.want();
    // Once, and only where losses are near each other: a peer that is gone sees no more of it.
    const isNear = this.#losses.burst(pacing.congestion.window) > 1;
    const fills = isNear && this.#peer.learned && out > 1 && this.#probe.unanswered === 1;
    if (fills) this.#fillGap(unackedPsn, out, 'probe');
    owner.wantsTurn();
  }

  /** The packets retransmitted for a NAK are not answered: another NAK came for them meanwhile, or nothing came at all. */
  #gapOverdue(withLink: boolean): void {
    const { owner, flight, timers } = this.#parts;
    const { unackedPsn, out } = flight;
    const keeps = this.#peer.keepsBehind(unackedPsn);
    if (out <= 0 || !(keeps || this.#peer.isNakked(unackedPsn)) || timers.isRunning(Timer.RNR)) return;
    if (!this.#peer.nakCameAgain) {
      if (keeps && !withLink && this.#probe.unanswered === 0) this.#wantProbe();
    } else if (this.nak()) owner.wantsTurn();
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const { flight, owner } = this.#parts;
    const broken = this.retries.check();
    return owner.sends ? (broken ?? this.#repair.check(flight.unackedPsn, flight.sendPsn)) : broken;
  }
}
