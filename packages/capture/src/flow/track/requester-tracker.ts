/**
 * One queue pair as requester, as a capture shows it: which of its packets are new, which are late or shown twice, and which
 * come again and why (IBTA vol 1 §9.7).
 */
import { opcodeInfo, PSN_MASK } from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';
import type { DirectionCounts } from '../facts.ts';
import type { EventLog } from '../record/events.ts';
import { AnsweredRequests } from './answered-requests.ts';
import { DAMAGED_BEFORE } from './damaged.ts';
import { type Identifications, IdOrder } from './identification.ts';
import type { UnnumberedMessage } from './messages.ts';
import { EntryFlags, unwrap, unwrapFirst } from './outstanding.ts';
import { MIN_JIFFIES_TIMER, MIN_PROBE } from './retry-timer.ts';
import type { SentAgain } from './sent-again.ts';
import { asksForData, isPathMtu, MAX_GAP, rethLength } from './sent-requests.ts';
import { Taken, type Verdict } from './verdict.ts';

/** Packets that the capture shows late by no more than this were reordered, not retransmitted. */
const REORDERING = 0.9e6;
/** Repetitions within this, with the same bytes and without a cause, come from a mirror. */
const MIRROR_LAG = 100e3;
const MIN_MIRROR_LAG = 1500;
/** UC: so many packets may come late before what is missing is given up. */
const REORDER_PACKETS = 64;

/** Follows one queue pair's requests and classifies each packet; what is answered is the base's. */
export class RequesterTracker extends AnsweredRequests {
  /** When something was last sent for the first time. */
  lastNew = Number.NEGATIVE_INFINITY;
  readonly #verdict: Verdict;
  /** Of the request that is being taken. */
  #time = 0;
  /** When the packet that is being taken had been sent by: not after it was seen. */
  #sentBy = 0;
  /** `SentAgain.followsOn` of it. */
  #followsOn = false;
  /** The frame in which the packet that comes again was seen before; or the one that showed that it was missing. */
  #lastFrame = 0;
  #gapFrame = 0;
  /** What it took so far had wrong ICRCs, and its sender can do better: the PSNs may be the damage. */
  #isDoubted = false;

  constructor(
    counts: DirectionCounts,
    events: EventLog,
    reliable: boolean,
    verdict: Verdict,
    emit: (message: UnnumberedMessage) => void,
  ) {
    super(counts, events, reliable, emit);
    this.#verdict = verdict;
  }

  /** The packets so far had wrong ICRCs: if the next one does not follow on, they name no PSN. */
  doubt(): void {
    this.#isDoubted = true;
  }

  #believe({ psn: next, time }: RocePacket): void {
    this.#isDoubted = false;
    const { out } = this;
    const psn = unwrap(next, this.next);
    if (out.head < out.tail && psn < out.psns[out.slot(out.head)]) this.startAnew(psn, time);
  }

  /** Takes a request packet, and writes its classification to the verdict. */
  take(packet: RocePacket, ids: Identifications): void {
    if (!this.started) this.start(unwrapFirst(packet.psn), packet.time);
    else if (this.#isDoubted) this.#believe(packet);
    const psn = unwrap(packet.psn, this.next);
    const idOrder = ids.order(packet, psn);
    this.#sentBy = ids.sentBy;
    this.#time = packet.time;
    this.#lastFrame = 0;
    this.#gapFrame = 0;
    this.frame = packet.frame;
    this.#followsOn = ids.followsOn;
    const verdict = this.#verdict;
    verdict.psn = psn;
    this.learnFromRest(psn, packet);
    verdict.taken = psn >= this.next ? this.#takeNew(psn, packet) : this.#takeAgain(psn, packet, idOrder);
    const { isReadRequest } = packet.info;
    const next = psn + (isReadRequest ? this.responsesOf(packet) : 1);
    ids.sent(packet, next, verdict.taken === Taken.RETRANSMISSION);
    if (!this.reliable) this.settleUnreliable(REORDER_PACKETS);
    else if (verdict.taken !== Taken.REPEATED) {
      this.passed.passed(
        psn,
        next,
        packet.ackReq || asksForData(packet.opcode),
        this.openRead && isReadRequest,
      );
      this.#sentPacket(packet);
    }
    if (this.reliable && !this.hasAnswers) this.settleUnheard();
  }

  #sentPacket({ time, frame }: RocePacket): void {
    const { taken, cause } = this.#verdict;
    // Without the other direction nobody knows what was outstanding.
    const isOut = this.hasAnswers && this.messages.knowsAnswers && this.unacked < this.next;
    this.stalls.note(time, frame, taken === Taken.RETRANSMISSION ? cause : 'request', isOut);
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
      this.startAnew(psn, time);
      skipped = 0;
    }
    if (this.unacked === this.next) classifier.timer.begin(time);
    classifier.sentNew();
    this.lastNew = time;
    this.early.passed(psn);
    if (this.early.keeps) this.takeEarly(time);
    this.wentOn(time);
    if (skipped > 0) {
      this.counts.gaps += skipped;
      for (let missing = psn - skipped; missing < psn; missing++) {
        const slot = this.append(missing, time);
        out.firstFrames[slot] = packet.frame;
      }
    }
    const slot = this.append(psn, time);
    this.next = psn + 1;
    this.fill(out.tail - 1, slot, packet);
    return Taken.NEW;
  }

  #takeAgain(psn: number, packet: RocePacket, idOrder: number): number {
    const { out } = this;
    const { time } = packet;
    if (!this.reliable && this.next - psn > MAX_GAP) return this.#beginAnew(psn, packet);
    const entry = this.find(psn);
    if (entry < 0) return this.#takeOlder(psn, packet, idOrder);
    const slot = out.slot(entry);
    const before = out.lastTimes[slot];
    if ((out.flags[slot] & EntryFlags.SEEN) === 0) {
      if ((out.flags[slot] & EntryFlags.MISSED) !== 0 && time - before < REORDERING) {
        this.counts.missedByCapture--;
      }
      // Its answer came first: captures of several queues or ports show that, and nothing is retransmitted so soon.
      const isAnswered = (out.flags[slot] & EntryFlags.MISSED) !== 0;
      const soon = packet.migReq ? MIN_PROBE : MIN_JIFFIES_TIMER;
      const followsAnswer = isAnswered && time - before < soon;
      const again = !followsAnswer && this.#isSentAgain(psn, time, before, idOrder);
      this.#gapFrame = out.firstFrames[slot];
      this.fill(entry, slot, packet);
      if (idOrder === IdOrder.LATE)
        out.lastTimes[slot] = Math.min(this.#sentBy, this.classifier.sentBefore(time));
      if (!again && this.classifier.evidence.isNaked(psn)) out.flags[slot] |= EntryFlags.AWAITED;
      if (!again) this.#late(psn, time - before);
      if (!again) this.classifier.filled(psn, psn + Math.max(1, out.spans[slot]), time - before);
      if (!again) return Taken.NEW;
      return this.#retransmitted(psn, packet, before, idOrder, true, isAnswered);
    }
    if (!this.reliable) {
      const isCopy = idOrder === IdOrder.UNKNOWN ? time - before < REORDERING : idOrder === IdOrder.LATE;
      return isCopy ? Taken.REPEATED : this.#beginAnew(psn, packet);
    }
    const isLate = idOrder === IdOrder.LATE;
    // A late packet where the responses of a READ were expected, whose number was a guess from the PSN behind it.
    if (isLate && out.psns[slot] !== psn && !packet.info.isReadRequest) {
      this.#late(psn, time - this.#sentBy);
      return Taken.NEW;
    }
    if (!this.#takeTransmission(slot, psn, packet, before, idOrder)) return Taken.REPEATED;
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
    if (!isFirst && !this.reliable) {
      this.#late(psn, packet.time - this.lastNew);
      return Taken.NEW;
    }
    if (!isFirst) return this.#retransmitted(psn, packet, packet.time, idOrder);
    const before = out.firstTimes[out.slot(out.head)];
    for (let missing = oldest - 1; missing >= psn; missing--) {
      if (out.prepend(missing, before) < 0) return Taken.RETRANSMISSION;
    }
    this.unacked = psn;
    this.counts.gaps += oldest - psn;
    const again = this.#isSentAgain(psn, packet.time, before, idOrder);
    this.fill(out.head, out.slot(out.head), packet);
    if (idOrder === IdOrder.LATE) out.lastTimes[out.slot(out.head)] = this.#sentBy;
    if (again) return this.#retransmitted(psn, packet, before, idOrder);
    this.#late(psn, packet.time - before);
    return Taken.NEW;
  }

  /** UC sends nothing twice (IBTA vol 1 §9.8.2): the queue pair starts with this PSN again. */
  #beginAnew(psn: number, packet: RocePacket): number {
    this.startAnew(psn, packet.time);
    return this.#takeNew(psn, packet);
  }

  /** A first transmission came after packets that were sent after it. */
  #late(psn: number, by: number): void {
    const verdict = this.#verdict;
    verdict.late = true;
    verdict.lateBy = Math.max(0, by);
    verdict.overtaken = this.next - psn - 1;
    this.episodes.late(psn, this.#time, this.frame);
  }

  /** A packet that was skipped comes: was it late, or lost and retransmitted? */
  #isSentAgain(psn: number, time: number, noticed: number, idOrder: number): boolean {
    if (!this.reliable) return false;
    if (idOrder !== IdOrder.UNKNOWN) return idOrder !== IdOrder.LATE;
    return time - noticed >= REORDERING || this.classifier.isWantedSince(psn, time, noticed);
  }

  /**
   * A packet that was seen comes: was it sent twice, or shown twice? With Identifications that differ from
   * packet to packet a repetition was found before this is called. An awaited one has come then.
   * @returns whether it was sent twice
   */
  #takeTransmission(slot: number, psn: number, packet: RocePacket, before: number, idOrder: number): boolean {
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
    if (this.classifier.timer.isDue(packet.time)) return true;
    const next = packet.info.isReadRequest ? psn + this.responsesOf(packet) : psn + 1;
    // Asking for what is missing does not start the time of a probe anew.
    const { timer } = this.classifier;
    const since = this.early.keeps ? timer.silentSince : timer.start;
    const isProbe = timer.isProbeDue(psn, next, this.next, packet.time, since);
    if (isProbe && lag > MIN_MIRROR_LAG) return true;
    // Where the capture may take a response for missing that the requester has: of the one that the responder expects, or a READ
    // without a response.
    const isOpen = this.isAsking(slot) && (this.out.flags[slot] & EntryFlags.ANSWERED) === 0;
    const isOldest = psn === this.ackedTo + 1 || (this.stalledSince >= 0 && isOpen);
    if (isOldest && lag >= MIN_PROBE) return true;
    // A mirror is quicker than an answer.
    return psn < this.unacked && lag > MIN_MIRROR_LAG;
  }

  /** @param isMissed the capture shows it for the first time, and its answer before it */
  #retransmitted(
    psn: number,
    packet: RocePacket,
    before: number,
    idOrder: number,
    unseen = false,
    isMissed = false,
  ): number {
    const { time } = packet;
    const { classifier, out } = this;
    const next = packet.info.isReadRequest ? psn + this.responsesOf(packet) : psn + 1;
    if (asksForData(packet.opcode)) this.early.askedAgain(psn, next, this.#isPartOfRead(psn, next));
    else this.early.passed(psn);
    if (!this.reliable) return Taken.RETRANSMISSION;
    const rnrSince = classifier.evidence.rnrSince(psn);
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
      gapFrame: this.#gapFrame,
      roundTrip: this.stalls.meanRoundTrip,
      unacked,
      end,
      migReq,
      idOrder,
      followsOn: this.#followsOn,
      unseen,
      asks: packet.info.isReadRequest || packet.info.isAtomic,
      needsAnswer: packet.ackReq || asksForData(packet.opcode),
      afterAsking,
      heard,
    };
    classifier.judge(sent, this.#verdict);
    // It may be the first copy, which the capture, or the network, put behind its answer, or behind packets sent after it.
    const isNoCopy = idOrder === IdOrder.UNKNOWN || (idOrder === IdOrder.NEWER && this.#followsOn);
    const isLikeLate = lastFrame === 0 && isNoCopy && this.#verdict.cause === 'timeout';
    const mayBeFirst = isMissed || isLikeLate;
    if (mayBeFirst && this.#verdict.grade === 'certain') this.#verdict.grade = 'likely';
    if (this.#verdict.begins) {
      this.passed.place(this.#verdict, sent, classifier.missingPsn);
      this.#findDamage(sent);
      this.#verdict.episode = this.episodes.goBack(sent, this.#verdict, packet.frame);
    } else {
      this.episodes.goesOn(sent);
      // A copy that was sent before the recovery arrives after its begin.
      if (idOrder === IdOrder.OLDER) this.episodes.late(psn, time, packet.frame, false);
    }
    const { begins, cause, missing } = this.#verdict;
    // A timer sends it later, if its first copy after the wait is lost.
    if (rnrSince >= 0 && begins && (cause === 'rnr' || missing === 'none')) this.rnrWait.add(time - rnrSince);
    return Taken.RETRANSMISSION;
  }

  /** Names in the verdict the packet with a wrong ICRC that explains why the requester went back, and whose it was. */
  #findDamage(sent: SentAgain): void {
    const verdict = this.#verdict;
    const frame = this.#damageBehind(sent);
    verdict.damagedFrame = Math.abs(frame);
    if (frame === 0) return;
    // It was damaged before it came here.
    verdict.missing = frame > 0 ? 'request' : 'response';
    verdict.side = frame > 0 ? 'requester' : 'responder';
  }

  /**
   * The frame of the damaged packet; 0: none; negative: it is an answer. Of a packet that was missing, `lastSent` is when
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
    if (answer > 0 || cause === 'implied-nak') return -answer;
    // Nothing was heard: what was damaged may be a later packet, which asks for the answer, or the ACK of one.
    const last = (end - 1) & PSN_MASK;
    const later = this.damaged.frameBetween(psn & PSN_MASK, last, since);
    return later > 0 ? later : -this.damagedAnswers.frameBetween(psn & PSN_MASK, last, lastSent);
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
}
