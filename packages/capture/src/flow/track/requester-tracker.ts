/**
 * One queue pair as requester, as a capture shows it: which of its packets are new, which come again and
 * why, what has been answered, and the messages that they make up (IBTA vol 1 §9.7).
 */
import { opcodeInfo, PSN_MASK } from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';
import type { DirectionCounts, MessageFailure } from '../facts.ts';
import { DistributionBuilder } from '../record/distribution.ts';
import type { EventLog } from '../record/events.ts';
import { StallWatch } from '../record/stalls.ts';
import { DamagedPackets } from './damaged.ts';
import { EarlyAnswers } from './early-answers.ts';
import { Episodes } from './episodes.ts';
import { type Identifications, IdOrder } from './identification.ts';
import { PassedRequests } from './loss-place.ts';
import { MessageAssembler, type UnnumberedMessage } from './messages.ts';
import { EntryFlags, unwrap, unwrapFirst } from './outstanding.ts';
import { Refusals } from './refusals.ts';
import { MIN_PROBE, RetransmitClassifier } from './retransmit-classifier.ts';
import type { SentAgain } from './sent-again.ts';
import { asksForData, isPathMtu, rethLength, SentRequests } from './sent-requests.ts';
import { Taken, type Verdict } from './verdict.ts';

/** A PSN this far ahead is no gap: the capture stopped for a while, or the queue pair began anew. */
const MAX_GAP = 4096;
/** Packets that the capture shows late by no more than this were reordered, not retransmitted. */
const REORDERING = 0.9e6;
/** Repetitions within this, with the same bytes and without a cause, come from a mirror. */
const MIRROR_LAG = 100e3;
const MIN_MIRROR_LAG = 1500;
/** UC: so many packets may come late before what is missing is given up. */
const REORDER_PACKETS = 64;
/** Packets that wait for a first answer; without one the capture shows one direction, and the last few packets are enough. */
const MAX_UNHEARD = 1024;
const UNHEARD_KEPT = 128;
/** A READ whose answers never come, though later ones do: the capture missed them. */
const GIVE_UP = 50e6;

/** A damaged packet was seen by so much before its absence was noticed. */
const DAMAGED_BEFORE = 1e9;
/**
 * Nanoseconds. New packets so long after an answer that came out of turn, and again so long after those, show that the answer
 * before it was not lost. Once is not enough: a busy requester sends the packets it has prepared before it reads answers.
 */
const WENT_ON = 2e6;

/** Follows one queue pair's requests: classifies each packet, completes messages, measures latencies. */
export class RequesterTracker extends SentRequests {
  readonly classifier = new RetransmitClassifier();
  readonly messages: MessageAssembler;
  readonly ackRoundTrip = new DistributionBuilder();
  readonly readRoundTrip = new DistributionBuilder();
  readonly rnrWait = new DistributionBuilder();
  readonly refusals = new Refusals();
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
  /** When something was last sent for the first time. */
  lastNew = Number.NEGATIVE_INFINITY;
  #maxUnheard = MAX_UNHEARD;
  /** Where it began, as far as is known. */
  #first = -1;
  readonly #verdict: Verdict;
  readonly #reliable: boolean;
  readonly #counts: DirectionCounts;
  readonly #events: EventLog;
  /** PSNs up to this one are acknowledged, but a READ before them was not answered. */
  #ackedTo = -1;
  /** The newest PSN of an ACK. */
  #newestAck = -1;
  /** The last PSN whose answer came while an earlier one was missing. */
  #answeredTo = -1;
  /** The newest PSN of a response. */
  #newestAnswer = -1;
  #stalledSince = -1;
  #stalledSends = 0;
  /** When it first sent something new, WENT_ON after the stall began. */
  #wentOnSince = -1;
  /** Of the request that is being taken. */
  #time = 0;
  #frame = 0;
  /** The frame of the answer that is being taken. */
  #answerFrame = 0;
  /** When the packet that is being taken had been sent by: not after it was seen. */
  #sentBy = 0;
  /** `SentAgain.followsOn` of it. */
  #followsOn = false;
  /** The frame in which the packet that comes again was seen before. */
  #lastFrame = 0;
  readonly #early = new EarlyAnswers();
  /** All answers to PSNs before this one that the capture shows, the requester has. */
  #presumed = -1;

  constructor(
    counts: DirectionCounts,
    events: EventLog,
    reliable: boolean,
    verdict: Verdict,
    emit: (message: UnnumberedMessage) => void,
  ) {
    super();
    this.#counts = counts;
    this.#events = events;
    this.#reliable = reliable;
    this.#verdict = verdict;
    this.messages = new MessageAssembler(emit);
  }

  /** Takes a request packet, and writes its classification to the verdict. */
  take(packet: RocePacket, ids: Identifications): void {
    if (!this.started) this.#start(unwrapFirst(packet.psn), packet.time);
    const psn = unwrap(packet.psn, this.next);
    const idOrder = ids.order(packet, psn);
    this.#sentBy = ids.sentBy;
    this.#time = packet.time;
    this.#frame = packet.frame;
    this.#followsOn = ids.followsOn;
    const verdict = this.#verdict;
    verdict.psn = psn;
    verdict.taken = psn >= this.next ? this.#takeNew(psn, packet) : this.#takeAgain(psn, packet, idOrder);
    const { isReadRequest } = packet.info;
    const next = psn + (isReadRequest ? this.responsesOf(packet) : 1);
    ids.sent(packet, next, verdict.taken === Taken.RETRANSMISSION);
    if (!this.#reliable) this.#settleUnreliable(REORDER_PACKETS);
    else if (verdict.taken !== Taken.REPEATED) {
      this.passed.passed(
        psn,
        next,
        packet.ackReq || asksForData(packet.opcode),
        this.openRead && isReadRequest,
      );
      this.#sentPacket(packet);
    }
    if (this.#reliable && !this.hasAnswers) this.#settleUnheard();
  }

  #sentPacket({ time, frame }: RocePacket): void {
    const { taken, cause } = this.#verdict;
    // Without the other direction nobody knows what was outstanding.
    const isOut = this.hasAnswers && this.messages.knowsAnswers && this.unacked < this.next;
    this.stalls.note(time, frame, taken === Taken.RETRANSMISSION ? cause : 'request', isOut);
  }

  /** An answer of any kind came. */
  heard(time: number, frame: number): void {
    this.stalls.note(time, frame, 'answer', this.messages.knowsAnswers && this.unacked < this.next);
  }

  /** An ACK, or the part of a NAK that acknowledges: everything up to this PSN, but not READs and atomics without answer. */
  acknowledge(psn: number, time: number, frame: number): void {
    this.#answerFrame = frame;
    this.#reach(psn, time);
    if (psn > this.#ackedTo) this.#ackedTo = psn;
    this.passed.acknowledged(psn + 1);
    this.#advance(this.#ackedTo, time);
  }

  /** Whether the PSN of this ACK was acknowledged before. Of one that was sent before the capture an ACK in the capture shows it. */
  wasAcknowledged(psn: number): boolean {
    const newest = this.#newestAck;
    if (psn > newest) this.#newestAck = psn;
    return psn < this.unacked && (psn >= this.#first || psn <= newest);
  }

  /** The response to a READ, or to an atomic. False if it was answered before. */
  answer(psn: number, isRead: boolean, last: boolean, time: number, frame: number): boolean {
    this.#answerFrame = frame;
    this.#reach(psn, time);
    this.classifier.answered(time, psn < this.unacked);
    this.passed.acknowledged(psn + 1);
    if (psn < this.unacked) {
      this.episodes.repeatedAnswer(psn, time, frame);
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
      this.#newestAnswer = Math.max(this.#newestAnswer, psn);
      this.#noteAnswer(psn, last, time);
      if (isRead) this.#early.add(psn);
      this.#missing(time);
      return true;
    }
    // One behind it came first: this one was overtaken.
    const isAskedAgain = this.#stalledSince < 0 || out.sends[slot] !== this.#stalledSends;
    if (psn < this.#newestAnswer && !isAskedAgain) this.episodes.late(psn, time, frame);
    this.#early.take(psn);
    this.#answerOldest(slot, last, time);
    if (this.#early.keeps) this.#takeEarly(time);
    return true;
  }

  /** The oldest READ or atomic has its next response. */
  #answerOldest(slot: number, last: boolean, time: number): void {
    const { out } = this;
    this.unacked++;
    this.#progress(time);
    this.#stalledSince = -1;
    const end = out.psns[slot] + out.spans[slot];
    if (out.spans[slot] === 0 ? !last : this.unacked < end) return;
    if (out.spans[slot] === 0) this.setSpan(out.walk, this.unacked - out.psns[slot]);
    this.#complete(time);
    this.#advance(this.#ackedTo, time);
  }

  /** Takes the responses behind one that was missing and is here now: the requester has them, and they acknowledge the SENDs and WRITEs between. */
  #takeEarly(time: number): void {
    const { out } = this;
    while (out.walk < out.tail && this.#early.isFrom(this.unacked)) {
      const slot = out.slot(out.walk);
      if (!this.isAsking(slot)) this.#advance(out.psns[slot], time);
      else if (out.spans[slot] > 0 && this.#early.take(this.unacked)) this.#answerOldest(slot, false, time);
      else return;
    }
    if (!this.#early.isFrom(this.unacked)) this.#early.clear();
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
    if (!this.#reliable) this.#settleUnreliable(0);
    if (failure !== undefined) this.fail(failure);
    // Requests that are acknowledged or answered behind a missing response were done, whether or not the requester knew.
    this.#presumed = this.next;
    this.#ackedTo = Math.max(this.#ackedTo, this.#answeredTo);
    while (this.#stalledSince >= 0 && this.out.walk < this.out.tail) {
      const since = this.#stalledSince;
      this.#skip();
      this.#advance(this.#ackedTo, since);
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
    if (!this.#reliable || crossing === undefined || out.head === out.tail) return;
    const slot = out.slot(out.tail - 1);
    const isSeen = (out.flags[slot] & EntryFlags.SEEN) !== 0;
    if (!isSeen || opcodeInfo(out.opcodes[slot])!.last) return;
    const { frame, answeredFrame, answerFrame } = crossing;
    this.stoppedInside = { frame, answerFrame: answeredFrame || answerFrame, lastFrame: this.#frame };
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

  #start(psn: number, time: number): void {
    this.#first = psn;
    this.next = psn;
    this.unacked = psn;
    this.classifier.timerStart = time;
  }

  #takeNew(psn: number, packet: RocePacket): number {
    const { out, classifier } = this;
    const { time, info, payloadLength } = packet;
    // Then the responses of a READ before it are known.
    if (info.hasPayload && !info.last && isPathMtu(payloadLength)) this.learnPathMtu(payloadLength);
    let skipped = psn - this.next;
    if (this.openRead) {
      const span = psn - out.psns[out.slot(out.tail - 1)];
      if (this.isPossibleSpan(span)) {
        this.setSpan(out.tail - 1, span);
        skipped = 0;
      }
      this.openRead = false;
    }
    if (skipped > MAX_GAP) {
      this.#startAnew(psn, time);
      skipped = 0;
    }
    if (this.unacked === this.next) classifier.timerStart = time;
    classifier.sentNew();
    this.lastNew = time;
    this.#early.passed(psn);
    if (this.#early.keeps) this.#takeEarly(time);
    this.#wentOn(time);
    if (skipped > 0) {
      this.#counts.gaps += skipped;
      for (let missing = psn - skipped; missing < psn; missing++) {
        const slot = this.#append(missing, time);
        out.firstFrames[slot] = packet.frame;
      }
    }
    const slot = this.#append(psn, time);
    this.next = psn + 1;
    this.fill(out.tail - 1, slot, packet);
    return Taken.NEW;
  }

  #append(psn: number, time: number): number {
    if (this.out.full) this.#giveUp(this.out.walk + 1);
    return this.out.append(psn, time);
  }

  #takeAgain(psn: number, packet: RocePacket, idOrder: number): number {
    const { out } = this;
    const { time } = packet;
    if (!this.#reliable && this.next - psn > MAX_GAP) return this.#beginAnew(psn, packet);
    const entry = this.find(psn);
    if (entry < 0) return this.#takeOlder(psn, packet, idOrder);
    const slot = out.slot(entry);
    const before = out.lastTimes[slot];
    if ((out.flags[slot] & EntryFlags.SEEN) === 0) {
      if ((out.flags[slot] & EntryFlags.MISSED) !== 0 && time - before < REORDERING) {
        this.#counts.missedByCapture--;
      }
      const again = this.#isSentAgain(psn, time, before, idOrder);
      this.fill(entry, slot, packet);
      if (idOrder === IdOrder.LATE)
        out.lastTimes[slot] = Math.min(this.#sentBy, this.classifier.sentBefore(time));
      if (!again && this.classifier.isNaked(psn)) out.flags[slot] |= EntryFlags.AWAITED;
      if (!again) this.#late(psn, time - before);
      if (!again) this.classifier.filled(psn, psn + Math.max(1, out.spans[slot]), time - before);
      if (!again) return Taken.NEW;
      return this.#retransmitted(psn, packet, before, idOrder, true);
    }
    if (!this.#reliable) {
      const isCopy = idOrder === IdOrder.UNKNOWN ? time - before < REORDERING : idOrder === IdOrder.LATE;
      return isCopy ? Taken.REPEATED : this.#beginAnew(psn, packet);
    }
    const isLate = idOrder === IdOrder.LATE;
    // A late packet where the responses of a READ were expected, whose number was a guess from the PSN behind it.
    if (isLate && out.psns[slot] !== psn && !packet.info.isReadRequest) {
      this.#late(psn, time - this.#sentBy);
      return Taken.NEW;
    }
    if (!this.#isTransmission(slot, psn, packet, before, idOrder)) return Taken.REPEATED;
    if (out.sends[slot] < 0xffff) out.sends[slot]++;
    if (packet.ackReq) out.flags[slot] |= EntryFlags.ACK_REQ_LAST;
    else out.flags[slot] &= ~EntryFlags.ACK_REQ_LAST;
    // Its own repetition has overtaken it; or it asks for a part of a READ that was seen, however many responses that has.
    if (isLate && out.psns[slot] === psn) {
      this.#late(psn, time - this.#sentBy);
      return Taken.NEW;
    }
    out.lastTimes[slot] = time;
    this.#lastFrame = out.lastFrames[slot];
    out.lastFrames[slot] = packet.frame;
    return this.#retransmitted(psn, packet, before, isLate ? IdOrder.OLDER : idOrder);
  }

  /** Older than all entries: from before the capture's first packet, or answered long ago. */
  #takeOlder(psn: number, packet: RocePacket, idOrder: number): number {
    const { out } = this;
    const oldest = out.psns[out.slot(out.head)];
    const isFirst = out.head === out.walk && this.unacked === oldest && oldest - psn <= MAX_GAP;
    if (!isFirst && idOrder === IdOrder.LATE) {
      this.episodes.late(psn, packet.time, packet.frame);
      return Taken.NEW;
    }
    if (!isFirst && !this.#reliable) {
      this.#late(psn, packet.time - this.lastNew);
      return Taken.NEW;
    }
    if (!isFirst) return this.#retransmitted(psn, packet, packet.time, idOrder);
    const before = out.firstTimes[out.slot(out.head)];
    for (let missing = oldest - 1; missing >= psn; missing--) {
      if (out.prepend(missing, before) < 0) return Taken.RETRANSMISSION;
    }
    this.unacked = psn;
    this.#counts.gaps += oldest - psn;
    const again = this.#isSentAgain(psn, packet.time, before, idOrder);
    this.fill(out.head, out.slot(out.head), packet);
    if (idOrder === IdOrder.LATE) out.lastTimes[out.slot(out.head)] = this.#sentBy;
    if (again) return this.#retransmitted(psn, packet, before, idOrder);
    this.#late(psn, packet.time - before);
    return Taken.NEW;
  }

  /** UC sends nothing twice (IBTA vol 1 §9.8.2): the queue pair starts with this PSN again. */
  #beginAnew(psn: number, packet: RocePacket): number {
    this.#startAnew(psn, packet.time);
    return this.#takeNew(psn, packet);
  }

  /** A first transmission came after packets that were sent after it. */
  #late(psn: number, by: number): void {
    const verdict = this.#verdict;
    verdict.late = true;
    verdict.lateBy = Math.max(0, by);
    verdict.overtaken = this.next - psn - 1;
    this.episodes.late(psn, this.#time, this.#frame);
  }

  /** A packet that was skipped comes: was it late, or lost and retransmitted? */
  #isSentAgain(psn: number, time: number, noticed: number, idOrder: number): boolean {
    if (!this.#reliable) return false;
    if (idOrder !== IdOrder.UNKNOWN) return idOrder !== IdOrder.LATE;
    return time - noticed >= REORDERING || this.classifier.isWantedSince(psn, time, noticed);
  }

  /**
   * A packet that was seen comes: was it sent twice, or shown twice? With Identifications that differ from
   * packet to packet a repetition was found before this is called.
   */
  #isTransmission(slot: number, psn: number, packet: RocePacket, before: number, idOrder: number): boolean {
    if (idOrder !== IdOrder.UNKNOWN) return true;
    for (const flag of [EntryFlags.ACK_REQ, EntryFlags.ACK_REQ_LAST])
      if (((this.out.flags[slot] & flag) !== 0) !== packet.ackReq) return true;
    if (this.out.opcodes[slot] !== packet.opcode || this.out.psns[slot] !== psn) return true;
    // A READ again, for a part of its responses.
    if (packet.info.isReadRequest && this.out.lengths[slot] !== rethLength(packet)) return true;
    const lag = packet.time - before;
    if ((this.out.flags[slot] & EntryFlags.AWAITED) !== 0 && lag > MIN_MIRROR_LAG) {
      this.out.flags[slot] &= ~EntryFlags.AWAITED;
      return true;
    }
    if (lag >= MIRROR_LAG || this.classifier.isWanted(psn, before, packet.time)) return true;
    if (this.classifier.isTimerDue(packet.time)) return true;
    const next = packet.info.isReadRequest ? psn + this.responsesOf(packet) : psn + 1;
    const isProbe = this.classifier.isProbeDue(psn, next, this.next, packet.time);
    if (isProbe && lag > MIN_MIRROR_LAG) return true;
    // Where the capture may take a response for missing that the requester has: of the one that the responder expects, or a READ
    // without a response.
    const isOpen = this.isAsking(slot) && (this.out.flags[slot] & EntryFlags.ANSWERED) === 0;
    const isOldest = psn === this.#ackedTo + 1 || (this.#stalledSince >= 0 && isOpen);
    if (isOldest && lag >= MIN_PROBE) return true;
    // A mirror is quicker than an answer.
    return psn < this.unacked && lag > MIN_MIRROR_LAG;
  }

  #retransmitted(psn: number, packet: RocePacket, before: number, idOrder: number, unseen = false): number {
    const { time } = packet;
    const { classifier, out } = this;
    const next = packet.info.isReadRequest ? psn + this.responsesOf(packet) : psn + 1;
    if (packet.info.isReadRequest) this.#early.askedAgain(psn, next, this.#isPartOfRead(psn, next));
    else this.#early.passed(psn);
    if (!this.#reliable) return Taken.RETRANSMISSION;
    const rnrSince = classifier.rnrSince(psn);
    const { unacked, next: end, hasAnswers: heard } = this;
    const entry = out.find(psn);
    const afterAsking = entry > out.head && this.isAsking(out.slot(entry - 1));
    const { migReq } = packet;
    const lastFrame = unseen ? 0 : this.#lastFrame;
    const sent = {
      psn,
      next,
      time,
      sentBy: this.#sentBy,
      messageEnd: rnrSince < 0 ? next : this.#messageEnd(psn),
      lastSent: before,
      lastNew: this.lastNew,
      lastFrame,
      roundTrip: this.stalls.meanRoundTrip,
      unacked,
      end,
      migReq,
      idOrder,
      followsOn: this.#followsOn,
      unseen,
      asks: packet.info.isReadRequest || packet.info.isAtomic,
      afterAsking,
      heard,
    };
    classifier.judge(sent, this.#verdict);
    if (this.#verdict.begins) {
      this.passed.place(this.#verdict, sent, classifier.missingPsn);
      this.#verdict.damagedFrame = this.#damageBehind(sent);
      this.#verdict.episode = this.episodes.goBack(sent, this.#verdict, packet.frame);
    } else {
      this.episodes.goesOn();
      // A copy that was sent before the recovery arrives after its begin.
      if (idOrder === IdOrder.OLDER) this.episodes.late(psn, time, packet.frame);
    }
    if (rnrSince >= 0 && this.#verdict.begins) this.rnrWait.add(time - rnrSince);
    return Taken.RETRANSMISSION;
  }

  /**
   * The packet with a wrong ICRC that explains why the requester went back; 0: none. Of a packet that was missing, `lastSent` is when
   * a later one showed that: the damaged frame came before.
   */
  #damageBehind({ psn, lastSent, unseen, end }: SentAgain): number {
    const { cause } = this.#verdict;
    if (cause === 'rnr') return 0;
    const since = unseen ? Math.min(lastSent, this.#time - DAMAGED_BEFORE) : lastSent;
    // The packet that was missing may have been retransmitted before this one, and damaged again.
    const first = Math.min(psn, this.unacked) & PSN_MASK;
    const request = this.damaged.frameBetween(
      first,
      psn & PSN_MASK,
      Math.min(since, this.#time - DAMAGED_BEFORE * Number(first !== (psn & PSN_MASK))),
    );
    if (request > 0 || cause === 'sequence-nak') return request;
    const answer = this.damagedAnswers.frameOf(psn & PSN_MASK, lastSent);
    if (answer > 0 || cause === 'implied-nak') return answer;
    // Nothing was heard: what was damaged may be a later packet, which asks for the answer, or the ACK of one.
    const last = (end - 1) & PSN_MASK;
    const later = this.damaged.frameBetween(psn & PSN_MASK, last, since);
    return later > 0 ? later : this.damagedAnswers.frameBetween(psn & PSN_MASK, last, lastSent);
  }

  /** Whether the READ that had the response at this PSN asked for more than up to `next`. */
  #isPartOfRead(psn: number, next: number): boolean {
    const { out } = this;
    const entry = this.find(psn);
    return entry >= out.head && next < out.psns[out.slot(entry)] + out.spans[out.slot(entry)];
  }

  /** Past the PSNs of the message with a packet at this PSN. */
  #messageEnd(psn: number): number {
    const { out } = this;
    const first = out.find(psn);
    for (let entry = first; first >= 0 && entry < out.tail; entry++) {
      const slot = out.slot(entry);
      const isSeen = (out.flags[slot] & EntryFlags.SEEN) !== 0;
      if (!isSeen || opcodeInfo(out.opcodes[slot])!.last) return out.psns[slot] + 1;
    }
    return psn + 1;
  }

  /** Makes sure that a PSN which was answered counts as sent. */
  #reach(psn: number, time: number): void {
    if (psn < this.next) return;
    if (this.openRead && psn - this.next < this.mostResponses()) {
      this.next = psn + 1;
      return;
    }
    if (psn - this.next > MAX_GAP) {
      this.#counts.missedByCapture += psn + 1 - this.next;
      this.#startAnew(psn + 1, time);
      return;
    }
    this.openRead = false;
    while (this.next <= psn) {
      this.#append(this.next, time);
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
          this.#counts.damagedAccepted++;
        } else {
          this.#counts.missedByCapture++;
          this.#events.add('missed', 0, time, 1);
        }
      }
      this.#complete(time);
    }
    if (!moved) return;
    this.#progress(time);
  }

  #progress(time: number): void {
    this.classifier.progress(this.unacked, time);
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
        this.classifier.acknowledged(latency);
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
    if (this.#stalledSince < 0) {
      this.#stalledSince = time;
      this.#stalledSends = out.sends[out.slot(out.walk)];
    }
    const askedAgain = out.lastTimes[out.slot(out.walk)] > this.#stalledSince;
    if (askedAgain) this.#stalledSince = time;
    if (time - this.#stalledSince < GIVE_UP) return false;
    this.#skip();
    return true;
  }

  /**
   * The requester sends something new. Had it missed a response, it would have asked again as soon as it saw a
   * later one (IBTA vol 1 §9.7.6.2): so it has what the capture has not.
   */
  #wentOn(time: number): void {
    if (this.#stalledSince < 0 || time - this.#stalledSince < WENT_ON || this.out.unanswered === 0) return;
    if (this.out.sends[this.out.slot(this.out.walk)] !== this.#stalledSends) return;
    if (this.#wentOnSince < this.#stalledSince) this.#wentOnSince = time;
    if (time - this.#wentOnSince < WENT_ON) return;
    this.#presumed = this.next;
    this.#skip();
    this.#advance(this.#ackedTo, time);
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
    this.#stalledSince = -1;
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
    this.#stalledSince = -1;
  }

  /** Without the other direction nothing is ever answered. */
  #settleUnheard(): void {
    const { out } = this;
    if (out.unanswered <= this.#maxUnheard) return;
    this.#maxUnheard = UNHEARD_KEPT;
    this.#giveUp(out.tail - UNHEARD_KEPT);
    out.shrink(2 * UNHEARD_KEPT);
  }

  /** UC: a message is at its end when its last packet is seen; what is missing may come late. */
  #settleUnreliable(late: number): void {
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
  #startAnew(psn: number, time: number): void {
    const { out } = this;
    if (!this.#reliable) this.#settleUnreliable(0);
    this.#giveUp(out.tail);
    this.messages.breakOff();
    out.head = out.walk;
    this.#early.clear();
    this.openRead = false;
    this.#start(psn, time);
  }
}
