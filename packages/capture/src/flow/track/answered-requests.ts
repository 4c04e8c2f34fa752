/**
 * The requests of one queue pair and their answers, as a capture shows them: what is acknowledged, what is missing, and
 * the messages that are complete (IBTA vol 1 §9.7).
 */
import { opcodeInfo, PSN_MASK } from '@node-roce/wire';
import type { DirectionCounts, MessageFailure } from '../facts.ts';
import { DistributionBuilder } from '../record/distribution.ts';
import type { EventLog } from '../record/events.ts';
import { StallWatch } from '../record/stalls.ts';
import { DAMAGED_BEFORE, DamagedPackets } from './damaged.ts';
import { EarlyAnswers } from './early-answers.ts';
import { Episodes } from './episodes.ts';
import { PassedRequests } from './loss-place.ts';
import { MessageAssembler, type UnnumberedMessage } from './messages.ts';
import { EntryFlags } from './outstanding.ts';
import { RetransmitClassifier } from './retransmit-classifier.ts';
import { MAX_GAP, SentRequests } from './sent-requests.ts';

/** Packets that wait for a first answer; without one the capture shows one direction, and the last few packets are enough. */
const MAX_UNHEARD = 1024;
const UNHEARD_KEPT = 128;
/** A READ whose answers never come, though later ones do: the capture missed them. */
const GIVE_UP = 50e6;
/**
 * Nanoseconds. New packets so long after an answer that came out of turn, and again so long after those, show that the answer
 * before it was not lost. Once is not enough: a busy requester sends the packets it has prepared before it reads answers.
 */
const WENT_ON = 2e6;

/** The requests of one queue pair with their answers. Everything before `unacked` is answered, or given up. */
export class AnsweredRequests extends SentRequests {
  readonly classifier = new RetransmitClassifier();
  readonly messages: MessageAssembler;
  readonly ackRoundTrip = new DistributionBuilder();
  readonly readRoundTrip = new DistributionBuilder();
  readonly rnrWait = new DistributionBuilder();
  readonly stalls = new StallWatch();
  readonly passed = new PassedRequests();
  /** Requests, and answers to them, that came with a wrong ICRC. */
  readonly damaged = new DamagedPackets();
  readonly damagedAnswers = new DamagedPackets();
  readonly episodes = new Episodes();
  /** When the other end was last heard before the answer that is being taken, in any connection. */
  peerHeard = Number.NEGATIVE_INFINITY;
  /** Bytes of payload of the longest packet that was answered. */
  mostAnswered = -1;
  /** Of the packet that was refused for good; and of the oldest one that is not answered at the end, with its frame. */
  failedSize = -1;
  oldestSize = -1;
  oldestFrame = 0;
  /** It went silent inside a message, everything acknowledged, after an answer crossed a retransmission; given at the end. */
  stoppedInside: { frame: number; answerFrame: number; lastFrame: number } | undefined;
  /** The oldest PSN that is not answered, unwrapped. */
  unacked = -1;
  /** The other direction of the connection is in the capture. */
  hasAnswers = false;
  #maxUnheard = MAX_UNHEARD;
  /** Where it began, as far as is known. */
  #first = -1;
  protected readonly reliable: boolean;
  protected readonly counts: DirectionCounts;
  readonly #events: EventLog;
  /** PSNs up to this one are acknowledged, but a READ before them was not answered. */
  protected ackedTo = -1;
  /** The newest PSN of an ACK. */
  #newestAck = -1;
  /** The last PSN whose answer came while an earlier one was missing. */
  #answeredTo = -1;
  /** The newest PSN of a response. */
  #newestAnswer = -1;
  #newestAnswerTime = -1;
  protected stalledSince = -1;
  #stalledSends = 0;
  /** When it first sent something new, WENT_ON after the stall began. */
  #wentOnSince = -1;
  /** Of the request that is being taken, or was last. */
  protected frame = 0;
  /** The frame of the answer that is being taken. */
  #answerFrame = 0;
  protected readonly early = new EarlyAnswers();
  /** All answers to PSNs before this one that the capture shows, the requester has. */
  #presumed = -1;

  constructor(
    counts: DirectionCounts,
    events: EventLog,
    reliable: boolean,
    emit: (message: UnnumberedMessage) => void,
  ) {
    super();
    this.counts = counts;
    this.#events = events;
    this.reliable = reliable;
    this.messages = new MessageAssembler(emit);
  }

  /** An answer of any kind came. */
  heard(time: number, frame: number): void {
    this.stalls.note(time, frame, 'answer', this.messages.knowsAnswers && this.unacked < this.next);
  }

  /** An ACK, or the part of a NAK that acknowledges: everything up to this PSN, but not READs and atomics without answer. */
  acknowledge(psn: number, time: number, frame: number): void {
    this.#answerFrame = frame;
    this.#reach(psn, time);
    if (psn > this.ackedTo) this.ackedTo = psn;
    this.passed.acknowledged(psn + 1);
    this.#advance(this.ackedTo, time);
  }

  /** Notes an ACK. @returns whether its PSN was acknowledged before: of one sent before the capture an ACK in the capture shows it */
  noteAck(psn: number): boolean {
    const newest = this.#newestAck;
    if (psn > newest) this.#newestAck = psn;
    return psn < this.unacked && (psn >= this.#first || psn <= newest);
  }

  /** The response to a READ, or to an atomic. False if it was answered before. */
  answer(psn: number, isRead: boolean, last: boolean, time: number, frame: number): boolean {
    this.#answerFrame = frame;
    this.#reach(psn, time);
    this.classifier.evidence.answered(time, psn < this.unacked);
    this.passed.acknowledged(psn + 1);
    if (psn < this.unacked) {
      this.episodes.repeatedAnswer(psn, time, frame, this.out.begins(psn));
      return false;
    }
    this.#advance(psn - 1, time);
    const { out } = this;
    if (out.walk === out.tail) return true;
    const slot = out.slot(out.walk);
    if (!this.isAsking(slot)) {
      // The capture missed the request of this answer, or the request's opcode does not fit: an answer acknowledges, too.
      this.acknowledge(psn, time, frame);
      return true;
    }
    if (psn !== this.unacked) {
      if (psn > this.#newestAnswer) {
        this.#newestAnswer = psn;
        this.#newestAnswerTime = time;
      }
      this.#noteAnswer(psn, last, time);
      if (isRead) this.early.add(psn);
      this.#missing(time);
      return true;
    }
    // One behind it came first: this one was overtaken, unless it answers a retransmission: then the other may answer the first copy.
    const isSentOnce = this.stalledSince >= 0 && out.sends[slot] === 1;
    const isOvertaken = isSentOnce && out.lastTimes[slot] <= this.#newestAnswerTime;
    if (psn < this.#newestAnswer && isOvertaken) this.episodes.late(psn, time, frame);
    this.early.take(psn);
    this.#answerOldest(slot, last, time);
    if (this.early.keeps) this.takeEarly(time);
    return true;
  }

  /** The oldest READ or atomic has its next response. */
  #answerOldest(slot: number, last: boolean, time: number): void {
    const { out } = this;
    this.unacked++;
    this.#progress(time);
    this.stalledSince = -1;
    const end = out.psns[slot] + out.spans[slot];
    if (out.spans[slot] === 0 ? !last : this.unacked < end) return;
    // The last one of a part that was asked for again.
    if (out.spans[slot] === 0 && !this.isPossibleSpan(this.unacked - out.psns[slot], slot)) return;
    if (out.spans[slot] === 0) this.setSpan(out.walk, this.unacked - out.psns[slot]);
    this.#complete(time);
    this.#advance(this.ackedTo, time);
  }

  /** Takes the responses behind one that was missing and is here now: the requester has them, and they acknowledge the SENDs and WRITEs between. */
  protected takeEarly(time: number): void {
    const { out } = this;
    while (out.walk < out.tail && this.early.isFrom(this.unacked)) {
      const slot = out.slot(out.walk);
      if (!this.isAsking(slot)) this.#advance(out.psns[slot], time);
      else if (out.spans[slot] > 0 && this.early.take(this.unacked)) this.#answerOldest(slot, false, time);
      else return;
    }
    if (!this.early.isFrom(this.unacked)) this.early.clear();
  }

  /** The peer refused for good: what is out fails (IBTA vol 1 §9.7.5.2, §10.3.1.7). */
  fail(reason: MessageFailure): void {
    this.messages.failure = reason;
    if (this.out.walk < this.out.tail) this.failedSize = this.out.sizes[this.out.slot(this.out.walk)];
    this.#giveUp(this.out.tail);
    this.messages.breakOff();
    this.messages.failure = undefined;
    this.unacked = this.next;
  }

  /** The capture is at its end. */
  finish(failure: MessageFailure | undefined): void {
    this.#noteEnd();
    this.episodes.close();
    if (!this.reliable) this.settleUnreliable(0);
    if (failure !== undefined) this.fail(failure);
    // Requests that are acknowledged or answered behind a missing response were done, whether or not the requester knew.
    this.#presumed = this.next;
    this.ackedTo = Math.max(this.ackedTo, this.#answeredTo);
    while (this.stalledSince >= 0 && this.out.walk < this.out.tail) {
      const since = this.stalledSince;
      this.#skip();
      this.#advance(this.ackedTo, since);
    }
    this.#giveUp(this.out.tail);
    this.messages.breakOff();
  }

  #noteEnd(): void {
    const { out } = this;
    if (out.walk < out.tail) {
      const slot = out.slot(out.walk);
      this.oldestSize = out.sizes[slot];
      this.oldestFrame = out.lastFrames[slot];
      return;
    }
    const crossing = this.episodes.lastCrossing;
    if (!this.reliable || crossing === undefined || out.head === out.tail) return;
    const slot = out.slot(out.tail - 1);
    const isSeen = (out.flags[slot] & EntryFlags.SEEN) !== 0;
    if (!isSeen || opcodeInfo(out.opcodes[slot])!.last) return;
    const { frame, answeredFrame, answerFrame } = crossing;
    this.stoppedInside = { frame, answerFrame: answeredFrame || answerFrame, lastFrame: this.frame };
  }

  /** Sends of the oldest packet that was not answered; and when it went first and last. */
  get oldest(): { sends: number; first: number; time: number; psn: number } | undefined {
    const { out } = this;
    for (let entry = out.walk; entry < out.tail; entry++) {
      const slot = out.slot(entry);
      if ((out.flags[slot] & EntryFlags.SEEN) === 0) continue;
      return {
        sends: out.sends[slot],
        first: out.firstTimes[slot],
        time: out.lastTimes[slot],
        psn: out.psns[slot],
      };
    }
    return undefined;
  }

  /** Something was answered since the first packet. */
  get hasProgress(): boolean {
    return this.unacked > this.#first;
  }

  protected start(psn: number, time: number): void {
    this.#first = psn;
    this.next = psn;
    this.unacked = psn;
    this.classifier.timer.begin(time);
  }

  protected append(psn: number, time: number): number {
    if (this.out.full) this.#giveUp(this.out.walk + 1);
    return this.out.append(psn, time);
  }

  /** Makes sure that a PSN which was answered counts as sent. */
  #reach(psn: number, time: number): void {
    if (psn < this.next) return;
    if (this.openRead && psn - this.next < this.mostResponses()) {
      this.next = psn + 1;
      return;
    }
    if (psn - this.next > MAX_GAP) {
      this.counts.missedByCapture += psn + 1 - this.next;
      this.startAnew(psn + 1, time);
      return;
    }
    this.openRead = false;
    while (this.next <= psn) {
      this.append(this.next, time);
      this.next++;
    }
  }

  /** Answers everything up to `psn` that an ACK can answer. */
  #advance(psn: number, time: number): void {
    const { out } = this;
    let moved = false;
    while (out.walk < out.tail) {
      const slot = out.slot(out.walk);
      if (out.psns[slot] > psn) break;
      if (this.isAsking(slot)) {
        // Its responses have come up to there.
        if (this.unacked > psn) break;
        if (out.psns[slot] < this.#presumed && (out.flags[slot] & EntryFlags.ANSWERED) !== 0) this.#skip();
        else if (!this.#missing(time)) break;
        moved = true;
        continue;
      }
      if ((out.flags[slot] & EntryFlags.COVERED) !== 0) {
        out.walk++;
        continue;
      }
      this.unacked = out.psns[slot] + 1;
      moved = true;
      if ((out.flags[slot] & EntryFlags.SEEN) === 0) {
        out.flags[slot] |= EntryFlags.MISSED;
        const damaged = this.damaged.frameOf(
          out.psns[slot] & PSN_MASK,
          out.firstTimes[slot] - DAMAGED_BEFORE,
        );
        out.lastTimes[slot] = time;
        if (damaged > 0) {
          this.counts.damagedAccepted++;
        } else {
          this.counts.missedByCapture++;
          this.#events.add('missed', 0, time, 1);
        }
      }
      this.#complete(time);
    }
    if (!moved) return;
    this.#progress(time);
  }

  #progress(time: number): void {
    this.classifier.timer.progress(this.unacked, time);
    this.episodes.progress(this.unacked, time, this.#answerFrame, this.peerHeard);
  }

  /** The oldest entry is answered. */
  #complete(time: number): void {
    const { out } = this;
    const slot = out.slot(out.walk);
    const latency = time - out.lastTimes[slot];
    if ((out.flags[slot] & EntryFlags.SEEN) !== 0 && this.messages.knowsAnswers) {
      // Of a retransmitted one it is not known which copy was answered.
      if (out.sizes[slot] > this.mostAnswered) this.mostAnswered = out.sizes[slot];
      if (out.sends[slot] === 1) {
        this.classifier.evidence.acknowledged(latency);
        this.stalls.roundTrip(latency);
      }
      if (this.isAsking(slot)) this.readRoundTrip.add(latency);
      else if (opcodeInfo(out.opcodes[slot])!.last) this.ackRoundTrip.add(latency);
    }
    this.messages.take(out, out.walk, time, true);
    out.walk++;
  }

  /**
   * Something later was answered, but not the READ or atomic that is the oldest. True if it is given up:
   * the requester went on without asking again, so it has what the capture has not.
   */
  #missing(time: number): boolean {
    const { out } = this;
    this.classifier.responseMissing(this.unacked, time, this.#answerFrame);
    if (this.stalledSince < 0) {
      this.stalledSince = time;
      this.#stalledSends = out.sends[out.slot(out.walk)];
    }
    const askedAgain = out.lastTimes[out.slot(out.walk)] > this.stalledSince;
    if (askedAgain) this.stalledSince = time;
    if (time - this.stalledSince < GIVE_UP) return false;
    this.#skip();
    return true;
  }

  /**
   * The requester sends something new. Had it missed a response, it would have asked again as soon as it saw a
   * later one (IBTA vol 1 §9.7.6.2): so it has what the capture has not.
   */
  protected wentOn(time: number): void {
    if (this.stalledSince < 0 || time - this.stalledSince < WENT_ON || this.out.unanswered === 0) return;
    if (this.out.sends[this.out.slot(this.out.walk)] !== this.#stalledSends) return;
    if (this.#wentOnSince < this.stalledSince) this.#wentOnSince = time;
    if (time - this.#wentOnSince < WENT_ON) return;
    this.#presumed = this.next;
    this.#skip();
    this.#advance(this.ackedTo, time);
  }

  /** The last response to a READ or atomic behind one that is missing: it counts once that one is given up. */
  #noteAnswer(psn: number, last: boolean, time: number): void {
    const { out } = this;
    const entry = out.find(psn);
    if (entry < out.walk) return;
    const slot = out.slot(entry);
    const span = out.spans[slot];
    if (!this.isAsking(slot) || (span === 0 ? !last : psn !== out.psns[slot] + span - 1)) return;
    out.flags[slot] |= EntryFlags.ANSWERED;
    out.answerTimes[slot] = time;
    if (psn > this.#answeredTo) this.#answeredTo = psn;
  }

  /** Goes on behind the oldest READ or atomic; it is complete if its last response was seen. */
  #skip(): void {
    const { out } = this;
    const slot = out.slot(out.walk);
    const isAnswered = (out.flags[slot] & EntryFlags.ANSWERED) !== 0;
    this.unacked = out.psns[slot] + Math.max(1, out.spans[slot]);
    this.stalledSince = -1;
    this.messages.take(out, out.walk, isAnswered ? out.answerTimes[slot] : undefined, true);
    out.walk++;
  }

  /** Reports the unanswered requests, up to this entry. */
  #giveUp(end: number): void {
    const { out } = this;
    while (out.walk < end) {
      const slot = out.slot(out.walk);
      this.unacked = out.psns[slot] + Math.max(1, out.spans[slot]);
      this.messages.take(out, out.walk, undefined, true);
      out.walk++;
    }
    this.stalledSince = -1;
  }

  /** Without the other direction nothing is ever answered. */
  protected settleUnheard(): void {
    const { out } = this;
    if (out.unanswered <= this.#maxUnheard) return;
    this.#maxUnheard = UNHEARD_KEPT;
    this.#giveUp(out.tail - UNHEARD_KEPT);
    out.shrink(2 * UNHEARD_KEPT);
  }

  /** UC: a message is at its end when its last packet is seen; what is missing may come late. */
  protected settleUnreliable(late: number): void {
    const { out } = this;
    while (out.walk < out.tail) {
      const slot = out.slot(out.walk);
      const isSeen = (out.flags[slot] & EntryFlags.SEEN) !== 0;
      if (!isSeen && out.unanswered <= late) return;
      // Those before the first packet may have passed before the capture.
      if (!isSeen && out.firstFrames[slot] > 0)
        this.#events.add('lost', out.firstFrames[slot], out.firstTimes[slot], 1);
      this.unacked = out.psns[slot] + 1;
      this.messages.take(out, out.walk, undefined, false);
      out.walk++;
    }
  }

  /** Outstanding packets are not followed any further. */
  protected startAnew(psn: number, time: number): void {
    const { out } = this;
    if (!this.reliable) this.settleUnreliable(0);
    this.#giveUp(out.tail);
    this.messages.breakOff();
    out.head = out.walk;
    this.early.clear();
    this.openRead = false;
    this.start(psn, time);
  }
}
