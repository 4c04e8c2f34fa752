/**
 * Episodes of one requester: retransmissions until something was answered, with the fate of the first copy as far as the capture
 * shows it. The reason of an episode is known only afterwards: answers that come twice show that both copies arrived.
 */
import type { EpisodeReason, Grade, MissingPacket, RetransmitCause, TapSide } from '../facts.ts';
import { MIN_JIFFIES_TIMER } from './retry-timer.ts';
import type { SentAgain } from './sent-again.ts';

/** Late packets that are remembered, requests and responses each; and settled episodes whose first copy may still come. */
const MAX_LATE = 16;
const MAX_SETTLED = 16;
/** What comes later than this, ns, is of another time. */
const LATEST = 1e9;
/** The same of an ACK that does not name the packet that it answers. */
const LATEST_ANSWER = 100e6;
/** Where the network duplicates packets, one answer too many may be to a duplicate: at so many retransmissions it is taken for that no more. */
const MIN_COPIES = 3;
/** A host that answers nothing for so long, and then everything, stood still; ns. */
const STOOD_STILL = 25e6;

/** The verdict on the packet with which a requester goes back. */
interface GoingBack {
  readonly cause: RetransmitCause;
  readonly grade: Grade;
  readonly missing: MissingPacket;
  readonly side: TapSide;
  readonly evidenceFrame: number;
  readonly damagedFrame: number;
}

/** One episode. Times are nanoseconds, PSNs unwrapped; frames are 0 where the capture shows none. */
export class Episode {
  readonly psn: number;
  /** The packet that was asked for: the capture may show only later ones of those that were sent again. */
  readonly missingPsn: number;
  /** Past the newest PSN sent when it began. */
  readonly end: number;
  cause: RetransmitCause;
  grade: Grade;
  readonly missing: MissingPacket;
  readonly side: TapSide;
  /** The packet with which the requester went back, when it was sent before. */
  readonly sentFrame: number;
  readonly sentTime: number;
  /** It was not seen before: the packet that came without it. */
  readonly gapFrame: number;
  /** The NAK, or the response behind the missing one. */
  readonly evidenceFrame: number;
  readonly damagedFrame: number;
  /** The first retransmission, and the last of the same packet. */
  readonly frame: number;
  readonly time: number;
  lastTime: number;
  lastFrame: number;
  /** How often the requester went back, and the packets that it retransmitted. */
  recoveries = 1;
  packets = 0;
  /** Of these, packets that ask for an answer. */
  asking = 0;
  /** A packet came late, behind packets that were sent after it: mostly the one with which it began. */
  lateFrame = 0;
  latePsn = -1;
  /** It had been answered, as the capture has it, before the first retransmission. */
  readonly answeredBefore: number;
  readonly answeredFrame: number;
  /** The first answer after the first retransmission; undefined: none yet. */
  answerTime: number | undefined;
  answerFrame = 0;
  /** Answers that repeat others, the last of them, and the longest pause between two of all these answers. */
  repeated = 0;
  /** Of these, answers to the packet that it began with. */
  again = 0;
  /** ACKs that repeat one of a packet sent later: rxe acknowledges a first copy that comes late with the newest PSN that it has. */
  laterAnswers = 0;
  lastAnswerTime = 0;
  lastAnswerFrame = 0;
  /** When the other end was last heard before the first answer, in any connection. */
  heard = Number.NEGATIVE_INFINITY;
  readonly isHeard: boolean;

  constructor(
    sent: SentAgain,
    verdict: GoingBack,
    frame: number,
    answeredTime: number,
    answeredFrame: number,
  ) {
    this.psn = sent.psn;
    this.missingPsn = verdict.cause === 'sequence-nak' ? Math.min(sent.psn, sent.unacked) : sent.psn;
    this.end = sent.end;
    this.cause = verdict.cause;
    this.grade = verdict.grade;
    this.missing = verdict.missing;
    this.side = verdict.side;
    this.sentFrame = sent.lastFrame;
    this.sentTime = sent.lastSent;
    this.gapFrame = sent.gapFrame;
    this.evidenceFrame = verdict.evidenceFrame;
    this.damagedFrame = verdict.damagedFrame;
    this.frame = frame;
    this.time = sent.time;
    this.lastTime = sent.time;
    this.lastFrame = frame;
    const isAnswered = sent.psn < sent.unacked;
    this.answeredBefore = isAnswered ? answeredTime : Number.NEGATIVE_INFINITY;
    this.answeredFrame = isAnswered ? answeredFrame : 0;
    this.isHeard = sent.heard;
    this.add(sent);
  }

  /** A packet, or the response with this PSN, was overtaken. */
  cameLate(psn: number, frame: number): void {
    this.lateFrame = frame;
    this.latePsn = psn;
  }

  /** The packet was retransmitted. */
  add({ needsAnswer }: SentAgain): void {
    this.packets++;
    if (needsAnswer) this.asking++;
  }

  /** More answers than retransmitted packets that need them: one of them is to a first copy. (rxe answers each copy of a packet.) */
  #isAnsweredTwice(isDoubled: boolean): boolean {
    if (isDoubled && this.recoveries < MIN_COPIES) return false;
    // A first copy that an RNR NAK refused has no other answer. After a NAK each packet is taken once, and a new one may ask for the answer.
    const isNak = this.cause === 'sequence-nak';
    const copies = this.cause === 'rnr' ? this.packets - 1 : isNak ? Math.max(1, this.asking) : this.packets;
    return this.answerTime !== undefined && this.repeated + 1 > copies;
  }

  /** From the last sign of the other end, or the first copy, to the first answer. */
  get silence(): number {
    if (this.answerTime === undefined) return 0;
    return this.answerTime - Math.max(this.sentTime, this.heard);
  }

  /** How sure it is which copies were sent, and why: the capture has the first one, and a timer sent the other. */
  get #sureOfCopies(): Grade {
    const isTimer = this.grade === 'certain' || this.time - this.sentTime >= MIN_JIFFIES_TIMER;
    return isTimer && this.sentFrame > 0 ? 'certain' : 'likely';
  }

  /** The reason, and how sure it is. @param isDoubled the network duplicates packets of the connection */
  judge(isDoubled = false): { reason: EpisodeReason; certainty: Grade } {
    const { cause } = this;
    const of = (reason: EpisodeReason, certainty: Grade = 'likely') => ({ reason, certainty });
    const isNaked = cause === 'sequence-nak' || cause === 'implied-nak';
    if (cause === 'rnr') return of('not-ready', this.grade);
    if (this.damagedFrame > 0) return of('damaged', isNaked ? this.grade : 'likely');
    if (!this.isHeard) return of('not-known', 'not-shown');
    if (this.lateFrame > 0) return of('reordered', isNaked ? this.grade : 'likely');
    if (isNaked) return this.#afterNak(isDoubled);
    if (cause === 'unknown') return of('not-known', 'not-shown');
    // Shown once, and answered once, before it: the capture, or the network, put it behind its answer.
    if (this.answeredFrame > 0 && this.sentFrame === 0 && this.repeated === 0) return of('reordered');
    if (this.answeredFrame > 0) {
      // An answer that had passed when half of the wait was over was lost; one that came at its end crossed the timer.
      const isCrossing = this.time - this.answeredBefore < this.answeredBefore - this.sentTime;
      return isCrossing ? of('spurious', this.#sureOfCopies) : of('lost');
    }
    if (this.#isAnsweredTwice(isDoubled)) return this.#bothArrived();
    return this.answerTime === undefined ? of('unanswered', 'certain') : of('lost');
  }

  /**
   * The reason of one recovery of the episode, and how sure it is. An RNR NAK is the reason of the copy that it asked for, and of no
   * other; and timeouts behind a NAK that nobody answers are not the NAK's.
   */
  judgeRecovery(
    cause: RetransmitCause,
    grade: Grade,
    missing: MissingPacket,
    isDoubled: boolean,
  ): { reason: EpisodeReason; certainty: Grade } {
    // `none`: a sequence NAK of the PSN that an RNR NAK refused, as rxe sends for the packet behind it.
    if (cause === 'rnr' || missing === 'none') return { reason: 'not-ready', certainty: grade };
    const isOpen = this.answerTime === undefined && cause === 'timeout';
    const isAsked = this.cause === 'sequence-nak' || this.cause === 'implied-nak' || this.cause === 'rnr';
    if (isOpen && isAsked) return { reason: 'unanswered', certainty: 'certain' };
    if (this.cause !== 'rnr') return this.judge(isDoubled);
    if (cause === 'unknown') return { reason: 'not-known', certainty: 'not-shown' };
    return this.#isAnsweredTwice(isDoubled) ? this.#bothArrived() : { reason: 'lost', certainty: 'likely' };
  }

  /** One end missed a packet: it was lost, or came late, which answers that come twice show. */
  #afterNak(isDoubled: boolean): { reason: EpisodeReason; certainty: Grade } {
    const isNak = this.cause === 'sequence-nak';
    const isAnsweredFirst = isNak && this.answeredFrame > 0;
    // Of responses behind the missing one more than one may come; of one that had not passed before, only if it was late.
    const isUnseen = this.missing === 'response' && this.side === 'responder';
    // A first copy that has not passed the capture was not answered.
    const isLate = isNak ? this.side === 'responder' && this.laterAnswers > 0 : isUnseen && this.again > 0;
    const isTwice = (isLate && !isDoubled) || (isNak && this.#isAnsweredTwice(isDoubled));
    if (isAnsweredFirst || (isTwice && this.recoveries === 1))
      return { reason: 'reordered', certainty: 'likely' };
    return { reason: 'lost', certainty: this.grade };
  }

  #bothArrived(): { reason: EpisodeReason; certainty: Grade } {
    const isBurst = this.answerTime! >= this.lastTime;
    const isStill = this.heard <= this.time && this.silence >= STOOD_STILL;
    return isBurst && isStill
      ? { reason: 'stood-still', certainty: 'likely' }
      : { reason: 'spurious', certainty: this.#sureOfCopies };
  }
}

interface LatePacket {
  psn: number;
  frame: number;
  time: number;
}

/** The episodes of one requester: one is open; those before it are settled. */
export class Episodes {
  /** Made with the first: most connections have none. */
  #late: LatePacket[] | undefined;
  #open: Episode | undefined;
  /** The newest last. Made with the first, too. */
  #settled: Episode[] | undefined;
  /** The last progress. */
  #answeredTime = Number.NEGATIVE_INFINITY;
  #answeredFrame = 0;

  /** The requester waits for an answer to a retransmission. */
  get isWaiting(): boolean {
    return this.#open !== undefined && this.#open.answerTime === undefined;
  }

  /** The requester went back. @returns the episode that it belongs to */
  goBack(sent: SentAgain, verdict: GoingBack, frame: number): Episode {
    const open = this.#open;
    if (open !== undefined && open.answerTime === undefined && sent.psn >= sent.unacked) {
      open.recoveries++;
      open.add(sent);
      open.lastTime = sent.time;
      open.lastFrame = frame;
      return open;
    }
    this.close();
    const episode = new Episode(sent, verdict, frame, this.#answeredTime, this.#answeredFrame);
    const isExact = verdict.cause === 'sequence-nak';
    const late = this.#late?.findLast(
      ({ psn, time }) =>
        time > sent.time - LATEST &&
        (isExact ? psn === episode.missingPsn : psn >= sent.psn && psn < sent.end),
    );
    if (late !== undefined && late.time >= sent.lastSent) episode.cameLate(late.psn, late.frame);
    this.#open = episode;
    return episode;
  }

  /** The recovery goes on with another packet. */
  goesOn(sent: SentAgain): void {
    this.#open?.add(sent);
  }

  /** Everything before `unacked` is answered. @param heard when the other end was last heard before */
  progress(unacked: number, time: number, frame: number, heard: number): void {
    this.#answeredTime = time;
    this.#answeredFrame = frame;
    const open = this.#open;
    if (open === undefined || open.answerTime !== undefined || unacked <= open.psn) return;
    open.answerTime = open.lastAnswerTime = time;
    open.answerFrame = open.lastAnswerFrame = frame;
    open.heard = heard;
  }

  /**
   * An answer to something that was answered before.
   * @param isCounted each request has one such answer: its ACK, or the first of its responses
   * @param isCredit it may be sent for its credits alone
   */
  repeatedAnswer(psn: number, time: number, frame: number, isCounted: boolean, isCredit = false): void {
    const episode = this.#openAt(psn) ?? this.#settledOf(psn, time);
    if (episode === undefined) {
      if (isCounted && !isCredit) this.#repeatedLater(psn, time);
      return;
    }
    episode.answerTime ??= time;
    if (episode.answerFrame === 0) episode.answerFrame = frame;
    if (isCounted || psn === episode.psn) episode.repeated++;
    if (psn === episode.psn) episode.again++;
    episode.lastAnswerTime = time;
    episode.lastAnswerFrame = frame;
  }

  /** An ACK was repeated that no retransmission explains: it may be the answer to the first copy of the last packet that was asked for. */
  #repeatedLater(psn: number, time: number): void {
    const last = this.#open ?? this.#settled?.at(-1);
    const isAsked = last?.cause === 'sequence-nak' && last.answerTime !== undefined && psn >= last.end;
    if (isAsked && time - last.time < LATEST_ANSWER) last.laterAnswers++;
  }

  /**
   * A packet, or the response with this PSN, was overtaken.
   * @param isFirst it is the first copy: it may come when the episode that it began is settled
   */
  late(psn: number, time: number, frame: number, isFirst = true): void {
    this.#late ??= [];
    if (this.#late.length === MAX_LATE) this.#late.shift();
    this.#late.push({ psn, frame, time });
    const settled = isFirst ? this.#settledOf(psn, time) : undefined;
    const episode = settled?.lateFrame === 0 ? settled : this.#openAt(psn);
    if (episode?.lateFrame === 0) episode.cameLate(psn, frame);
  }

  /** The open episode, if this PSN is among those that it may have retransmitted. */
  #openAt(psn: number): Episode | undefined {
    const open = this.#open;
    return open !== undefined && psn >= open.missingPsn && psn < open.end ? open : undefined;
  }

  /** The newest settled episode that is for this PSN. */
  #settledOf(psn: number, time: number): Episode | undefined {
    return this.#settled?.findLast(
      ({ missingPsn, time: begin }) => missingPsn === psn && time - begin < LATEST,
    );
  }

  /** The last episode, if the retransmitted packets had arrived before. */
  get lastCrossing(): Episode | undefined {
    const last = this.#open ?? this.#settled?.at(-1);
    return last?.judge().reason === 'spurious' ? last : undefined;
  }

  /** Nothing that comes later belongs to the open episode. */
  close(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    this.#settled ??= [];
    if (this.#settled.length === MAX_SETTLED) this.#settled.shift();
    this.#settled.push(open);
  }
}
