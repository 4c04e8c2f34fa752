/**
 * Causes of retransmissions (docs/capture.md, "How causes are found").
 *
 * What the capture shows before a packet comes again is kept as evidence: a sequence NAK, an RNR NAK with its
 * wait, a response that came while an earlier one was missing, and since when the retry timer runs. A cause is
 * named only where the evidence excludes the others; two that are possible make it `unknown`. All times
 * are nanoseconds.
 */
import type { RetransmitCause } from './analysis.ts';
import { IdOrder } from './identification.ts';

const MICROSECOND = 1000;
const MILLISECOND = 1e6;

/**
 * No retry timer fires earlier than this: T = 4.096 µs · 2^timeout (IBTA vol 1 §9.7.6.1.3) with a timeout of 8,
 * 1.05 ms; ConnectX starts adaptive retransmission at 2 ms.
 */
const MIN_TIMER = 0.9 * MILLISECOND;
/** The same of senders without MigReq, rxe: its timers are whole jiffies of 4 ms, and it may react late. */
const MIN_JIFFIES_TIMER = 3.5 * MILLISECOND;
/** A requester that got a NAK goes back within this. */
const REACTION = 2 * MILLISECOND;
/** Queues on the way hold a packet no longer than this. */
const MAX_QUEUING_DELAY = 0.5 * MILLISECOND;
/** How near a timer is to its nominal length, as a share of it. */
const TIMER_TOLERANCE = 0.015;

/** Packets that are retransmitted together: from `start` up to `end`, each once. */
interface GoBack {
  cause: RetransmitCause;
  time: number;
  start: number;
  end: number;
  /** Expected next. */
  cursor: number;
  /** When the last of them went. */
  last: number;
  /** A probe was out when it began: an answer may be to that, and the sender go back from there. */
  probed: boolean;
  /** The next packet has to come within this, else the first one was none of a going back. */
  patience: number;
}

/** A request packet that comes again. PSNs are unwrapped. */
export interface SentAgain {
  psn: number;
  /** Past its PSNs. */
  next: number;
  time: number;
  /** When it was sent before, or was noticed to be missing. */
  lastSent: number;
  /** The oldest PSN that is not answered, as the capture has it. */
  unacked: number;
  /** Past the newest PSN sent. */
  end: number;
  /** Of the sender's packets: rxe has 0 there, ConnectX and node-roce 1. */
  migReq: boolean;
  /** The order by its Identification; one of `IdOrder`. */
  idOrder: number;
  /** It was not seen before. */
  unseen: boolean;
  /** It follows a READ or atomic. */
  afterAsking: boolean;
}

/** The evidence of one requester's retransmissions; `causeOf` names the cause, or `unknown`. */
export class RetransmitClassifier {
  /** ACK timeout T of the queue pair, from CM messages; 0: not known. */
  ackTimeout = 0;
  /** Since when the retry timer runs, as far as the capture shows: first send, progress, or last going back. */
  timerStart = 0;
  /** Since when it runs, if a going back of unknown cause was none of the timer's. */
  #earlierStart = Number.POSITIVE_INFINITY;
  /** When that was. */
  #unknownAt = Number.NEGATIVE_INFINITY;
  #unacked = -1;
  #nakPsn = -1;
  /** Where the sender would go on after what it asked for. */
  #nakNext = -1;
  #nakTime = 0;
  /** Packets have come late. */
  #reordered = false;
  /** The shortest time from a packet to its answer. */
  #leastLatency = Number.POSITIVE_INFINITY;
  /** When a READ or atomic was last answered. */
  #answerTime = Number.NEGATIVE_INFINITY;
  /** When one came again: the sender had missed it, or the one after it. */
  #answerAgainTime = Number.NEGATIVE_INFINITY;
  #rnrPsn = -1;
  #rnrTime = 0;
  #rnrWait = 0;
  #missingPsn = -1;
  #missingTime = 0;
  #event: GoBack | undefined;
  /** The one before, once something new was sent. */
  #ended: GoBack | undefined;
  /** The one before the one under way. */
  #previous: GoBack | undefined;
  /** A response was missing, a sequence NAK came, and nothing was sent since. */
  #missedSinceSend = false;
  #nakedSinceSend = false;
  /** The retransmission that a probe interrupted. */
  #interrupted: GoBack | undefined;
  #lastProbe = Number.NEGATIVE_INFINITY;
  #probeInterval = 0;
  /** The shortest time from a NAK to the packet that it asked for. */
  #reaction = Number.POSITIVE_INFINITY;
  /** The shortest interval of a timer of this sender that was seen. */
  #shortestTimer = Number.POSITIVE_INFINITY;

  sequenceNak(psn: number, time: number): void {
    this.#nakPsn = psn;
    this.#nakNext = psn;
    this.#nakTime = time;
    // Behind a READ or atomic without answer it is an implied NAK, and after one it says nothing new.
    if (!this.#missedSinceSend && psn === this.#unacked) this.#nakedSinceSend = true;
  }

  /** False if it says what is known: nothing was sent again since. */
  rnrNak(psn: number, time: number, wait: number): boolean {
    if (this.#rnrPsn === psn) return false;
    this.#rnrPsn = psn;
    this.#rnrTime = time;
    this.#rnrWait = wait;
    return true;
  }

  /** A response came though this PSN, of a READ or atomic before it, was not answered. */
  responseMissing(psn: number, time: number): void {
    if (this.#missingPsn === psn) return;
    this.#missingPsn = psn;
    this.#missingTime = time;
    this.#missedSinceSend = true;
  }

  /** Everything before `unacked` is answered. */
  progress(unacked: number, time: number): void {
    this.timerStart = time;
    this.#earlierStart = time;
    this.#unacked = unacked;
    this.#lastProbe = Number.NEGATIVE_INFINITY;
  }

  /** The cause of the going back under way rests on half of what happened. */
  doubt(): void {
    if (this.#event !== undefined) this.#event.cause = 'unknown';
  }

  /** A packet went out for the first time: whatever was sent again is at its end. */
  sentNew(): void {
    if (this.#event !== undefined && this.#event.cause !== 'probe') {
      this.#ended = this.#event;
      this.#event = undefined;
    }
    this.#missedSinceSend = this.#nakedSinceSend = false;
    // Overtaken by answers: there was nothing to go back to.
    const unacked = this.#unacked;
    if (this.#nakPsn < unacked) this.#nakPsn = -1;
    if (this.#rnrPsn < unacked) this.#rnrPsn = -1;
    if (this.#missingPsn < unacked) this.#missingPsn = -1;
  }

  /** When a packet was sent that comes late: before the going back that it has missed. */
  sentBefore(time: number): number {
    return this.#event === undefined ? time : Math.min(time, this.#event.time - 1);
  }

  /** An RNR NAK for this PSN waits for its end: when it came, or −1. */
  rnrSince(psn: number): number {
    return this.#rnrPsn >= 0 && psn <= this.#rnrPsn ? this.#rnrTime : -1;
  }

  /** Evidence that a packet at this PSN is wanted again, to which nothing was sent yet. */
  isWanted(psn: number, lastSent: number): boolean {
    return (
      (this.#nakPsn >= 0 && psn >= this.#nakPsn) ||
      (this.#rnrPsn >= 0 && psn >= this.#rnrPsn) ||
      (this.#missingPsn >= 0 && psn >= this.#missingPsn) ||
      this.#continues(psn, lastSent)
    );
  }

  /** A packet was answered after this time. */
  acknowledged(latency: number): void {
    if (latency < this.#leastLatency) this.#leastLatency = latency;
  }

  /** A response to a READ or atomic came; again, if the capture has shown it before. */
  answered(time: number, again: boolean): void {
    this.#answerTime = time;
    if (again) this.#answerAgainTime = time;
  }

  /** A sequence NAK asks for a packet at this PSN. */
  isNaked(psn: number): boolean {
    return this.#nakPsn >= 0 && psn >= this.#nakPsn;
  }

  /** A packet that was missing came late; perhaps for the NAK. */
  filled(psn: number, next: number): void {
    this.#reordered = true;
    if (psn === this.#nakNext) this.#nakNext = next;
  }

  /** The same for a packet not seen before, which could just be late: it has to come when an answer to a NAK can. */
  isWantedSince(psn: number, time: number, noticed: number): boolean {
    const answersNak = this.#nakPsn >= 0 && psn >= this.#nakPsn && this.#nakTime >= noticed;
    return answersNak && time - this.#nakTime >= 0.9 * this.#reaction;
  }

  /** The cause of a packet that is sent again, and whether it begins a going back. */
  causeOf(sent: SentAgain): { cause: RetransmitCause; begins: boolean } {
    const { psn, next, time, lastSent, end, migReq, idOrder, unseen } = sent;
    // Overtaken: it may be of any going back.
    if (idOrder === IdOrder.OLDER) return { cause: 'unknown', begins: false };
    const continued = this.#resumed(psn, time, lastSent);
    if (continued !== undefined) {
      if (next > continued.cursor) continued.cursor = next;
      if (time - continued.last > continued.patience) continued.cause = 'unknown';
      continued.patience = Number.POSITIVE_INFINITY;
      continued.last = time;
      const isDoubtful = this.#isDoubtful(continued, psn) || this.#mayBeOfPrevious(sent);
      return { cause: isDoubtful ? 'unknown' : continued.cause, begins: false };
    }
    // Late, or a going back of its own: what follows will tell.
    if (this.#isAmbiguous(psn, lastSent, idOrder)) return { cause: 'unknown', begins: false };
    // Its begin was not seen; or it is late itself.
    const isLate = idOrder === IdOrder.UNKNOWN && migReq && this.#nakPsn >= 0 && psn > this.#nakNext;
    const cause = isLate ? 'unknown' : this.#newCause(sent);
    this.#missedSinceSend = this.#nakedSinceSend = false;
    const before = this.#event;
    const probed = cause !== 'probe' && this.#lastProbe > Number.NEGATIVE_INFINITY;
    if (cause !== 'probe') this.#interrupted = undefined;
    else if (before?.cause !== 'probe') this.#interrupted = before;
    // Without an Identification it may be late itself; what follows at once is not, if it was seen before.
    const mayBeLate = cause === 'sequence-nak' && idOrder === IdOrder.UNKNOWN && (unseen || this.#reordered);
    const patience = mayBeLate ? (time - this.#nakTime) / 4 : Number.POSITIVE_INFINITY;
    this.#previous = before ?? this.#ended;
    this.#event = { cause, time, start: psn, end, cursor: next, last: time, probed, patience };
    if (cause !== 'probe') {
      this.#earlierStart = cause === 'unknown' ? this.timerStart : time;
      if (cause === 'unknown') this.#unknownAt = time;
      this.timerStart = time;
    }
    // An implied NAK may be a NAK for a PSN behind the answers that are missing.
    if (this.#nakPsn <= psn || cause === 'implied-nak') this.#nakPsn = -1;
    if (this.#rnrPsn >= psn || cause === 'rnr') this.#rnrPsn = -1;
    if (this.#missingPsn <= psn) this.#missingPsn = -1;
    return { cause: mayBeLate ? 'unknown' : cause, begins: true };
  }

  #continues(psn: number, lastSent: number): boolean {
    return this.#event !== undefined && isPartOf(this.#event, psn, lastSent);
  }

  /** The going back that this packet is part of. */
  #resumed(psn: number, time: number, lastSent: number): GoBack | undefined {
    const event = this.#event;
    if (event === undefined || !this.#continues(psn, lastSent)) return undefined;
    // After such a pause a timer may have begun another one, of which this is the first packet seen.
    const pause = time - Math.max(event.last, this.timerStart);
    if (pause >= MIN_TIMER) return undefined;
    if (this.#rnrPsn >= 0 && psn >= this.#rnrPsn && time - this.#rnrTime >= this.#rnrWait) return undefined;
    const nak = this.#nakPsn;
    const isNewNak = nak >= 0 && this.#nakTime >= event.time && psn >= nak;
    if (psn < event.cursor) return undefined;
    // A NAK past where it had come to: the sender went on from there.
    if (isNewNak && (nak > event.cursor || (event.cause === 'probe' && psn === nak))) return undefined;
    const interrupted = this.#interrupted;
    if (interrupted !== undefined && event.cause === 'probe' && psn >= interrupted.cursor) {
      // The probe was one packet, and the sender goes on where it had been; or goes back from the probe.
      const surely = psn === interrupted.cursor && psn > event.cursor;
      this.#event = surely ? interrupted : { ...interrupted, cause: 'unknown' };
    }
    // Or it went back from the probe, which was answered.
    this.#interrupted = undefined;
    return this.#event;
  }

  /** Away from the sender: it may have gone back anew, and the capture does not show where that began. */
  #isDoubtful(event: GoBack, psn: number): boolean {
    if (event.probed && this.timerStart > event.time) return true;
    const isNewNak = this.#nakPsn >= 0 && this.#nakTime >= event.time && psn >= this.#nakPsn;
    if (isNewNak && psn > this.#nakPsn) return true;
    return this.#isAway(this.#reaction) && (isNewNak || this.#isAnsweredSince(event));
  }

  /** Packets after a READ's answer may have been asked for by that: an implied NAK is none to one that began with it. */
  #isAnsweredSince({ cause, time }: GoBack): boolean {
    return this.#answerTime > time || (this.#answerTime === time && cause !== 'implied-nak');
  }

  /** It was due in the going back before this one and was not seen there: away from the sender it may just be late. */
  #mayBeOfPrevious({ psn, lastSent, idOrder }: SentAgain): boolean {
    const previous = this.#previous;
    return (
      idOrder === IdOrder.UNKNOWN &&
      previous !== undefined &&
      isPartOf(previous, psn, lastSent) &&
      this.#isAway(this.#reaction)
    );
  }

  /** The tap is not at the sender, which would react much sooner than it gets answers. */
  #isAway(reaction: number): boolean {
    return reaction >= MICROSECOND && 4 * reaction >= this.#leastLatency;
  }

  #isAmbiguous(psn: number, lastSent: number, idOrder: number): boolean {
    const event = this.#event ?? this.#ended;
    return (
      idOrder === IdOrder.UNKNOWN &&
      event !== undefined &&
      psn < event.cursor &&
      isPartOf(event, psn, lastSent)
    );
  }

  #newCause(sent: SentAgain): RetransmitCause {
    const { psn, time, unacked, migReq, idOrder, unseen, afterAsking } = sent;
    const running = time - this.timerStart;
    const isNak = this.#nakPsn >= 0 && psn >= this.#nakPsn;
    // Answered, as the capture has it: what the sender has heard of it is not known.
    if (isNak && psn < unacked) return 'unknown';
    // rxe begins the message anew, and sends a sequence NAK with the RNR NAK (docs/quirks.md).
    if (this.#rnrPsn >= 0 && (migReq ? psn >= this.#rnrPsn : psn <= this.#rnrPsn)) {
      const waited = time - this.#rnrTime;
      // Captures count in microseconds.
      if (waited >= this.#rnrWait - 2 * MICROSECOND) {
        if (migReq && (isNak || psn > this.#rnrPsn)) return 'unknown';
        const soon = waited <= 2 * this.#rnrWait + (migReq ? 0.3 : 1) * MILLISECOND;
        return soon && (running < MIN_TIMER || !migReq || !this.isTimerDue(time)) ? 'rnr' : 'unknown';
      }
    }
    const isMissing = this.#missingPsn >= 0 && psn === this.#missingPsn;
    if (isNak || isMissing) {
      const reaction = time - (isNak ? this.#nakTime : this.#missingTime);
      const isDoubtful =
        isMissing || this.#missedSinceSend || this.#mayBeImplied(afterAsking, unseen, reaction);
      if (isNak ? isDoubtful : this.#nakedSinceSend) return 'unknown';
      if (this.#comesTooSoon(reaction)) return 'unknown';
      if (!this.#noTimerYet(time, reaction, migReq)) return 'unknown';
      const mayBeLate = (unseen || this.#reordered) && idOrder === IdOrder.UNKNOWN;
      if (isNak && !mayBeLate && reaction < this.#reaction) this.#reaction = reaction;
      return isNak ? 'sequence-nak' : 'implied-nak';
    }
    if (this.#rnrPsn >= 0 || this.#nakPsn >= 0) return 'unknown';
    return this.#timerCause(sent);
  }

  /**
   * The READ or atomic before it was answered, but the answer may have been lost behind the tap: then the NAK was
   * taken for an implied one, and the READ that came again was lost before the tap.
   */
  #mayBeImplied(afterAsking: boolean, unseen: boolean, reaction: number): boolean {
    if (afterAsking && unseen) return true;
    const answered = afterAsking ? this.#answerTime : this.#answerAgainTime;
    return this.#isAway(reaction) && this.#nakTime - answered <= 2 * reaction;
  }

  /** From the tap to one end and back, and to the other and back, takes time: it was on its way before. */
  #comesTooSoon(reaction: number): boolean {
    return reaction + this.#leastLatency < MICROSECOND;
  }

  /** Whether the retry timer can't have been the cause. */
  #noTimerYet(time: number, reaction: number, migReq: boolean): boolean {
    if (reaction > REACTION) return false;
    const running = time - Math.min(this.timerStart, this.#earlierStart);
    if (this.ackTimeout > 0 && running >= 0.9 * this.ackTimeout) return false;
    if (!migReq) return running < MIN_JIFFIES_TIMER || running < 0.8 * this.#shortestTimer;
    // On the way the timer seems to run longer, by what packets wait there.
    const slack = Math.min(MAX_QUEUING_DELAY, 4 * reaction);
    return running < MIN_TIMER || (reaction < MIN_TIMER && !this.isTimerDue(time, slack));
  }

  /** The retry timer, or ConnectX's or node-roce's own, may fire now. */
  isTimerDue(time: number, slack = 0): boolean {
    return isNominal(time - this.timerStart, slack) || isNominal(time - this.#earlierStart, slack);
  }

  /** Nothing was heard: the timer of the standard, or a retransmission before it. */
  #timerCause({ psn, time, lastSent, unacked, migReq }: SentAgain): RetransmitCause {
    const running = time - this.timerStart;
    if (!migReq) {
      const waited = Math.min(running, time - lastSent);
      if (waited < MIN_JIFFIES_TIMER) return 'unknown';
      this.#shortestTimer = Math.min(this.#shortestTimer, waited);
      return 'timeout';
    }
    // Answered as the capture has it, but the answer did not reach the sender: when its timer began is not known.
    if (psn !== unacked) return 'unknown';
    const { ackTimeout } = this;
    if (ackTimeout > 0 && running < 0.9 * ackTimeout && running >= MIN_TIMER) return this.#probed(time);
    const earlier = time - this.#earlierStart;
    const onGrid = isOnTimerGrid(running);
    if (onGrid && isAdaptive(running)) return 'unknown';
    if (this.#isAway(this.#reaction) && isNearBoth(running)) return 'unknown';
    // If what was sent again since was the timer's doing, it has begun anew.
    if (this.#unknownAt === this.timerStart && isNominal(earlier)) return 'unknown';
    if (onGrid && running >= 0.9 * ackTimeout) return 'timeout';
    const sinceProbe = time - this.#lastProbe;
    const doubled = Math.abs(sinceProbe / (2 * this.#probeInterval) - 1) < TIMER_TOLERANCE;
    if (isAdaptive(running) || (sinceProbe < Number.POSITIVE_INFINITY && doubled)) return this.#probed(time);
    return 'unknown';
  }

  #probed(time: number): RetransmitCause {
    const since = Math.max(this.timerStart, this.#lastProbe);
    this.#probeInterval = time - since;
    this.#lastProbe = time;
    return 'probe';
  }
}

/** Whether a going back sends this PSN again, and has not been seen to. */
const isPartOf = (event: GoBack, psn: number, lastSent: number): boolean =>
  psn >= event.start && psn < event.end && lastSent < event.time;

/** 4.096 µs · 2^k, or longer than that by `slack`. */
function isOnTimerGrid(nanoseconds: number, slack = 0): boolean {
  return nanoseconds >= MIN_TIMER && isPowerOfTwoTimes(nanoseconds, 4096, slack);
}

/** Whole milliseconds that are powers of two, from 2 on: ConnectX's and node-roce's own intervals. */
function isAdaptive(nanoseconds: number, slack = 0): boolean {
  return nanoseconds > 1.9 * MILLISECOND && isPowerOfTwoTimes(nanoseconds, MILLISECOND, slack);
}

/** Either, if packets and answers waited in queues. */
function isNearBoth(nanoseconds: number): boolean {
  const isNear = (is: typeof isAdaptive) => is(nanoseconds + MAX_QUEUING_DELAY / 2, MAX_QUEUING_DELAY);
  return isNear(isOnTimerGrid) && isNear(isAdaptive);
}

const isNominal = (nanoseconds: number, slack = 0): boolean =>
  isOnTimerGrid(nanoseconds, slack) || isAdaptive(nanoseconds, slack);

function isPowerOfTwoTimes(value: number, unit: number, slack: number): boolean {
  const nominal = unit * 2 ** Math.floor(Math.log2(value / unit / (1 - TIMER_TOLERANCE)));
  return value <= nominal * (1 + TIMER_TOLERANCE) + slack;
}
