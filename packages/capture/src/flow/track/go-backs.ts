/** The go-back-N of one requester that is under way, and those before it: to which of them a packet that comes again may belong. */
import type { RetransmitCause } from '../facts.ts';
import type { AnswerEvidence } from './evidence.ts';
import { IdOrder } from './identification.ts';
import type { LikelyCause } from './likely-cause.ts';
import { MIN_JIFFIES_TIMER, MIN_PROBE, MIN_TIMER, type RetryTimer } from './retry-timer.ts';
import type { SentAgain } from './sent-again.ts';

/** Packets that are retransmitted together: from `start` up to `end`, each once. */
export interface GoBack {
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
  /** The next packet has to come within this, else the first one was not part of a go-back-N. */
  patience: number;
  /** A tail loss probe: one packet, which nothing follows. */
  isSingle: boolean;
  /** It may be a probe that crossed a NAK: of the oldest packet, and perhaps of the newest. */
  mayCross: boolean;
  /** The evidence of the cause, and the cause that is likely where none is certain. */
  evidenceFrame: number;
  wait: number;
  likely: LikelyCause | undefined;
}

/** The go-back-Ns of one requester. One is under way at most; what is sent for the first time ends it. */
export class GoBacks {
  /** The one under way. */
  event: GoBack | undefined;
  /** The retransmission that a probe interrupted. */
  interrupted: GoBack | undefined;
  /** The one before, once something new was sent. */
  #ended: GoBack | undefined;
  /** The one before the one under way. */
  #previous: GoBack | undefined;
  /** The first of the last packets that were late or a go-back-N of their own, and when the last of them came. */
  #ambiguousPsn = 0;
  #ambiguousNext = 0;
  #ambiguousTime = Number.NEGATIVE_INFINITY;
  readonly #timer: RetryTimer;
  readonly #evidence: AnswerEvidence;

  constructor(timer: RetryTimer, evidence: AnswerEvidence) {
    this.#timer = timer;
    this.#evidence = evidence;
  }

  begin(event: GoBack): void {
    this.#previous = this.event ?? this.#ended;
    this.event = event;
  }

  /** Something was sent for the first time. A probe may come among such packets. */
  sentNew(): void {
    if (this.event === undefined || this.event.cause === 'probe') return;
    this.#ended = this.event;
    this.event = undefined;
  }

  /** A packet that is late, or begins a go-back-N of its own: those after it decide. */
  ambiguous(psn: number, next: number, time: number): void {
    if (time - this.#ambiguousTime > MIN_PROBE) this.#ambiguousPsn = psn;
    this.#ambiguousNext = next;
    this.#ambiguousTime = time;
  }

  /** It comes right after such packets. */
  followsAmbiguous(psn: number, time: number): boolean {
    return psn === this.#ambiguousNext && time - this.#ambiguousTime < MIN_PROBE;
  }

  /** It comes after such packets, which may have begun the go-back-N. */
  isBehindAmbiguous(psn: number, time: number): boolean {
    return psn > this.#ambiguousPsn && time - this.#ambiguousTime < MIN_PROBE;
  }

  /** Such a packet came since this time, with the same PSN: one of the two is late, and the other was asked for. */
  isOtherCopy(psn: number, asked: number): boolean {
    return psn === this.#ambiguousPsn && this.#ambiguousTime >= asked;
  }

  /** When a packet was sent that comes late: before the go-back-N that it has missed. */
  sentBefore(time: number): number {
    return this.event === undefined ? time : Math.min(time, this.event.time - 1);
  }

  continues(psn: number, lastSent: number): boolean {
    return this.event !== undefined && isPartOf(this.event, psn, lastSent);
  }

  /** How long nothing of a go-back-N was sent and nothing was acknowledged; 0 of none. */
  pauseOf(event: GoBack | undefined, time: number): number {
    return event === undefined ? 0 : time - Math.max(event.last, this.#timer.start);
  }

  /** The go-back-N that this packet is part of. */
  resumed(psn: number, time: number, lastSent: number, migReq: boolean): GoBack | undefined {
    const event = this.event;
    if (event === undefined || !this.continues(psn, lastSent)) return undefined;
    // After such a pause a timer may have begun another one, of which this is the first packet seen.
    const isPause = this.pauseOf(event, time) >= (migReq ? MIN_TIMER : MIN_JIFFIES_TIMER);
    if (isPause && (migReq || psn !== event.cursor || psn === this.#timer.unacked)) return undefined;
    if (
      this.#evidence.refusals.openPsn >= 0 &&
      psn >= this.#evidence.refusals.openPsn &&
      time - this.#evidence.refusals.time >= this.#evidence.refusals.wait
    )
      return undefined;
    const nak = this.#evidence.nakPsn;
    const isNewNak = nak >= 0 && this.#evidence.nakTime >= event.time && psn >= nak;
    if (psn < event.cursor) return undefined;
    // A NAK past where it had come to: the sender went on from there.
    if (isNewNak && (nak > event.cursor || (event.cause === 'probe' && psn === nak))) return undefined;
    // The same for a response that was missing.
    if (
      event.cause === 'probe' &&
      psn === this.#evidence.missingPsn &&
      this.#evidence.missingTime >= event.time
    )
      return undefined;
    const interrupted = this.interrupted;
    const mayGoOn = interrupted !== undefined && psn >= interrupted.cursor && psn < interrupted.end;
    if (mayGoOn && event.cause === 'probe') {
      // The probe was one packet, and the sender goes on where it had been; or goes back from the probe.
      const surely = psn === interrupted.cursor && psn > event.cursor;
      this.event = surely ? interrupted : { ...interrupted, cause: 'unknown' };
    } else if (event.isSingle) return undefined;
    // Or it went back from the probe, which was answered.
    this.interrupted = undefined;
    return this.event;
  }

  /**
   * A go-back-N retransmits all packets. One that skips packets is a new one, of a sender that asks for missing responses alone; unless
   * the skipped packets were lost before the tap.
   */
  passesOver({ cause }: GoBack): boolean {
    return cause === 'implied-nak' || !this.#evidence.isAway(this.#evidence.reaction);
  }

  /** Away from the sender: it may have gone back anew, and the capture does not show where that began. */
  isDoubtful(event: GoBack, psn: number): boolean {
    if (event.probed && this.#timer.start > event.time) return true;
    // A response is missing, and may be asked for alone.
    if (this.#evidence.missingPsn >= 0 && this.#evidence.missingTime > event.time) return true;
    const isNewNak =
      this.#evidence.nakPsn >= 0 && this.#evidence.nakTime >= event.time && psn >= this.#evidence.nakPsn;
    if (isNewNak && psn > this.#evidence.nakPsn) return true;
    return this.#evidence.isAway(this.#evidence.reaction) && (isNewNak || this.#isAnsweredSince(event));
  }

  /** Whether a READ's answer came since, which may ask for packets as well. The implied NAK that began this go-back-N does not count. */
  #isAnsweredSince({ cause, time }: GoBack): boolean {
    return (
      this.#evidence.answerTime > time || (this.#evidence.answerTime === time && cause !== 'implied-nak')
    );
  }

  /** It was due in the go-back-N before this one and was not seen there: away from the sender it may just be late. */
  mayBeOfPrevious({ psn, lastSent, idOrder }: SentAgain): boolean {
    const previous = this.#previous;
    return (
      idOrder === IdOrder.UNKNOWN &&
      previous !== undefined &&
      isPartOf(previous, psn, lastSent) &&
      this.#evidence.isAway(this.#evidence.reaction)
    );
  }

  /** The same of one that ended, or of the one before that. */
  mayBeOfEnded(sent: SentAgain): boolean {
    const ended = this.#ended;
    const isOfEnded = ended !== undefined && isPartOf(ended, sent.psn, sent.lastSent);
    const isUnordered = sent.idOrder === IdOrder.UNKNOWN && this.#evidence.isAway(this.#evidence.reaction);
    return (isUnordered && isOfEnded) || this.mayBeOfPrevious(sent);
  }

  isAmbiguous(psn: number, lastSent: number, idOrder: number): boolean {
    const event = this.event ?? this.#ended;
    return (
      idOrder === IdOrder.UNKNOWN &&
      event !== undefined &&
      psn < event.cursor &&
      isPartOf(event, psn, lastSent)
    );
  }

  /** The go-back-N under way would have gone on with this packet. */
  wentOnAfterPause(psn: number): boolean {
    const event = this.event ?? this.#ended;
    return event !== undefined && psn === event.cursor && psn < event.end;
  }
}

/** Whether a go-back-N retransmits this PSN, and has not been seen to. */
const isPartOf = (event: GoBack, psn: number, lastSent: number): boolean =>
  psn >= event.start && psn < event.end && lastSent < event.time;
