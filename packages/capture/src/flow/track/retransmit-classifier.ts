/**
 * Causes of retransmissions (docs/capture.md, "How causes are found").
 *
 * The packets before a retransmission are kept as evidence: a sequence NAK, an RNR NAK with its
 * wait, a response that came while an earlier one was missing, and the start of the retry timer. A cause is
 * named only where the evidence excludes the others; two that are possible make it `unknown`. All times
 * are nanoseconds.
 */
import type { RetransmitCause } from '../facts.ts';
import { IdOrder } from './identification.ts';
import { type LikelyCause, LikelyCauses } from './likely-cause.ts';
import type { SentAgain } from './sent-again.ts';
import type { Verdict } from './verdict.ts';

const MICROSECOND = 1000;
const MILLISECOND = 1e6;

/**
 * No retry timer fires earlier than this: T = 4.096 µs · 2^timeout (IBTA vol 1 §9.7.6.1.3) with a timeout of 8,
 * 1.05 ms; ConnectX starts adaptive retransmission at 2 ms.
 */
const MIN_TIMER = 0.9 * MILLISECOND;
/** The same of senders without MigReq, rxe: its timers are whole jiffies of 4 ms, and it may react late. */
const MIN_JIFFIES_TIMER = 3.5 * MILLISECOND;
/**
 * Tail loss probes (RFC 8985 §7) come after two round trips of silence: node-roce's after 50 µs at the least. So a packet that is
 * retransmitted after less silence is not a probe, and after more it may be one.
 */
export const MIN_PROBE = 45 * MICROSECOND;
/** A requester that got a NAK goes back within this. */
const REACTION = 2 * MILLISECOND;
/** And within so much of its usual time, where no queue is on the way. */
const REACTION_SPREAD = 4 * MICROSECOND;
/** Packets this close were queued together. */
const BURST = 20 * MICROSECOND;
/** ConnectX's adaptive retransmission begins with 2 ms. */
const MIN_ADAPTIVE = 1.9 * MILLISECOND;
/** Queues on the way hold a packet no longer than this. */
const MAX_QUEUING_DELAY = 0.5 * MILLISECOND;
/** How near a timer is to its nominal length, as a share of it. */
const TIMER_TOLERANCE = 0.005;

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

/** The evidence of one requester's retransmissions; `judge` names the cause of a packet that comes again. */
export class RetransmitClassifier {
  /** ACK timeout T of the queue pair, from CM messages; 0: not known. */
  ackTimeout = 0;
  /** Since when the retry timer runs, as far as the capture shows: first send, progress, or last go-back-N. */
  timerStart = 0;
  /** Since when it runs, if a go-back-N of unknown cause was not one of the timer. */
  #earlierStart = Number.POSITIVE_INFINITY;
  /** When that was. */
  #unknownAt = Number.NEGATIVE_INFINITY;
  #unacked = -1;
  #nakPsn = -1;
  /** The PSN at which the sender would go on after the responses that it asked for. */
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
  /** Packets that NAKs or missing responses asked for so far have come again by then. */
  #askedUntil = Number.NEGATIVE_INFINITY;
  #rnrPsn = -1;
  #rnrTime = 0;
  #rnrWait = 0;
  /** The PSN of the last RNR NAK, and how many there were of it. */
  #missingPsn = -1;
  #missingTime = 0;
  /** The last PSN that was asked for again because its response was missing. */
  #askedPsn = -1;
  #event: GoBack | undefined;
  /** The one before, once something new was sent. */
  #ended: GoBack | undefined;
  /** The one before the one under way. */
  #previous: GoBack | undefined;
  /** A response was missing, a sequence NAK came, and nothing was sent since. */
  #missedSinceSend = false;
  #nakedSinceSend = false;
  /** The first of the last packets that were late or a go-back-N of their own, and when the last of them came. */
  #ambiguousPsn = 0;
  #ambiguousNext = 0;
  #ambiguousTime = Number.NEGATIVE_INFINITY;
  /** The retransmission that a probe interrupted. */
  #interrupted: GoBack | undefined;
  #lastProbe = Number.NEGATIVE_INFINITY;
  /** The last packet that was, or may have been, a probe; when something was last acknowledged. */
  #mayProbeTime = Number.NEGATIVE_INFINITY;
  #progressTime = Number.NEGATIVE_INFINITY;
  #probeInterval = 0;
  /** When a probe was answered, and whether the last NAK or response is such an answer: it is for either that the sender goes back. */
  #probeOver = Number.NEGATIVE_INFINITY;
  #nakAnswersProbe = false;
  #missingAnswersProbe = false;
  /** Past the PSNs that the last probe asks for, and past those in flight then; −1: none is out. */
  #probeEnd = -1;
  #probeFlightEnd = -1;
  /** When it was answered, and nothing was sent since; −1: it was not. */
  #probeAnswered = -1;
  /** The shortest time from a NAK to the packet that it asked for. */
  #reaction = Number.POSITIVE_INFINITY;

  readonly #likely = new LikelyCauses();
  /** The evidence of the last go-back-N whose packets were all overtaken. */
  #overtaken = 0;

  sequenceNak(psn: number, time: number, frame: number): void {
    this.#likely.nak(psn, time, frame);
    this.#nakAnswersProbe = this.#isProbed(time);
    this.#nakPsn = psn;
    this.#nakNext = psn;
    this.#nakTime = time;
    this.#askedUntil = Math.max(this.#askedUntil, time + MIN_TIMER);
    this.#probeEnd = -1;
    // Behind a READ or atomic without answer it is an implied NAK, and after one it adds no information.
    if (!this.#missedSinceSend && psn === this.#unacked) this.#nakedSinceSend = true;
  }

  /** False if it repeats the RNR NAK before it: nothing was retransmitted since. */
  rnrNak(psn: number, time: number, wait: number, frame: number): boolean {
    this.#likely.rnr(psn, time, frame, wait);
    if (this.#rnrPsn === psn) return false;
    this.#rnrPsn = psn;
    this.#rnrTime = time;
    this.#rnrWait = wait;
    this.#askedUntil = Math.max(this.#askedUntil, time + wait + MIN_TIMER);
    this.#probeEnd = -1;
    return true;
  }

  /** A response came though this PSN, of a READ or atomic before it, was not answered. */
  responseMissing(psn: number, time: number, frame: number): void {
    if (this.#missingPsn === psn) return;
    this.#likely.missing(psn, time, frame);
    this.#missingAnswersProbe = this.#isProbed(time);
    this.#missingPsn = psn;
    this.#missingTime = time;
    this.#askedUntil = Math.max(this.#askedUntil, time + MIN_TIMER);
    this.#missedSinceSend = true;
  }

  /** The PSN whose response was missing last. */
  get missingPsn(): number {
    return this.#likely.missingPsn;
  }

  /** A probe is out, or was answered just now. */
  #isProbed(time: number): boolean {
    return this.#lastProbe > Number.NEGATIVE_INFINITY || this.#probeOver === time;
  }

  /** An ACK (not a NAK) or a response came that acknowledges something new: a recovery is over. */
  recovered(): void {
    this.#likely.recovering = false;
  }

  /** Everything before `unacked` is answered. */
  progress(unacked: number, time: number): void {
    this.timerStart = time;
    this.#progressTime = time;
    this.#earlierStart = time;
    this.#unacked = unacked;
    if (this.#lastProbe > Number.NEGATIVE_INFINITY) this.#probeOver = time;
    this.#lastProbe = Number.NEGATIVE_INFINITY;
    if (this.#probeEnd < 0 || unacked < this.#probeEnd) return;
    // The peer has answered with all that it has: what was sent behind the probed packet is lost.
    if (unacked < this.#probeFlightEnd) this.#probeAnswered = time;
    this.#probeEnd = -1;
  }

  /** A packet was sent for the first time: any go-back-N is over. */
  sentNew(): void {
    if (this.#event !== undefined && this.#event.cause !== 'probe') {
      this.#ended = this.#event;
      this.#event = undefined;
    }
    this.#missedSinceSend = this.#nakedSinceSend = false;
    this.#probeAnswered = -1;
    // Overtaken by answers: there was nothing to go back to.
    const unacked = this.#unacked;
    if (this.#nakPsn < unacked) this.#nakPsn = -1;
    if (this.#rnrPsn < unacked) this.#rnrPsn = -1;
    if (this.#missingPsn < unacked) this.#missingPsn = -1;
  }

  /** When a packet was sent that comes late: before the go-back-N that it has missed. */
  sentBefore(time: number): number {
    return this.#event === undefined ? time : Math.min(time, this.#event.time - 1);
  }

  /** An RNR NAK for this PSN waits for its end: when it came, or −1. */
  rnrSince(psn: number): number {
    return this.#rnrPsn >= 0 && psn <= this.#rnrPsn ? this.#rnrTime : -1;
  }

  /** Evidence that a packet at this PSN is wanted again, to which nothing was sent yet. */
  isWanted(psn: number, lastSent: number, time: number): boolean {
    return (
      (psn === this.#ambiguousNext && time - this.#ambiguousTime < MIN_PROBE) ||
      (this.#nakPsn >= 0 && psn >= this.#nakPsn) ||
      (this.#rnrPsn >= 0 && psn >= this.#rnrPsn) ||
      (this.#missingPsn >= 0 && psn >= this.#missingPsn) ||
      (this.#probeAnswered >= 0 && psn === this.#unacked) ||
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
  filled(psn: number, next: number, lateness: number): void {
    this.#reordered = true;
    this.#likely.late(lateness);
    if (psn === this.#nakNext) this.#nakNext = next;
  }

  /** The same for a packet not seen before, which could just be late: it has to come when an answer to a NAK can. */
  isWantedSince(psn: number, time: number, noticed: number): boolean {
    const answersNak = this.#nakPsn >= 0 && psn >= this.#nakPsn && this.#nakTime >= noticed;
    if (answersNak && time - this.#nakTime >= 0.9 * this.#reaction) return true;
    // As long as no packet was late, losses explain all.
    if (this.#reordered) return false;
    const event = this.#event;
    const isNext = event !== undefined && psn === event.cursor && psn < event.end && noticed < event.time;
    return isNext || (answersNak && psn === this.#nakPsn && this.#reaction === Number.POSITIVE_INFINITY);
  }

  /** Names the cause of a retransmitted packet: for certain, else the likely one; and whether the requester went back with it. */
  judge(sent: SentAgain, verdict: Verdict): void {
    const { psn, sentBy, heard } = sent;
    const running = sentBy - this.timerStart;
    const before = this.#event;
    const isProbeDue = sent.migReq && this.isProbeDue(psn, sent.next, sent.end, sent.time);
    const { cause, begins } = this.#causeOf(sent);
    const event = this.#event;
    const isPart = event !== undefined && psn >= event.start && psn < event.end && event.time <= sentBy;
    if (begins && event !== undefined) {
      event.likely = this.#likely.of(sent, running, heard);
      if (event.likely === undefined && heard) event.likely = goingOn(before, psn);
      if (!heard) event.cause = 'unknown';
      event.evidenceFrame = this.#evidenceOf(event.cause, sent.lastFrame);
      event.wait = this.#waitOf(event.cause, sent, running);
    }
    if (cause === 'probe' || (cause === 'unknown' && isProbeDue)) this.#mayProbeTime = sent.time;
    verdict.begins = begins;
    if (cause !== 'unknown' && heard) {
      verdict.cause = cause;
      verdict.grade = 'certain';
      verdict.evidenceFrame = event?.evidenceFrame ?? 0;
      verdict.wait = event?.wait ?? 0;
      if (begins) this.#likely.confirmed(cause, sent, verdict.wait);
      if (begins) this.#likely.recovering = true;
      return;
    }
    const likely = isPart ? event.likely : this.#likely.of(sent, running, heard);
    if (begins) this.#likely.recovering = true;
    if (likely === undefined) return;
    const { evidenceFrame } = likely;
    // Overtaken by what was sent after it, of a go-back-N that is not known otherwise.
    const isOwn = sent.idOrder === IdOrder.OLDER && !sent.followsOn;
    if (isOwn && !isPart && evidenceFrame > 0 && evidenceFrame !== this.#overtaken) {
      this.#overtaken = evidenceFrame;
      verdict.begins = true;
    }
    verdict.cause = likely.cause;
    verdict.grade = 'likely';
    verdict.evidenceFrame = likely.evidenceFrame;
    verdict.wait = likely.wait;
  }

  #evidenceOf(cause: RetransmitCause, lastFrame: number): number {
    if (cause === 'sequence-nak') return this.#likely.nakFrame;
    if (cause === 'implied-nak') return this.#likely.missingFrame;
    return cause === 'rnr' ? this.#likely.rnrFrame : lastFrame;
  }

  #waitOf(cause: RetransmitCause, { time, lastSent, migReq }: SentAgain, running: number): number {
    if (cause === 'sequence-nak') return time - this.#nakTime;
    if (cause === 'implied-nak') return time - this.#missingTime;
    if (cause === 'rnr') return time - this.#rnrTime;
    return migReq ? running : Math.min(running, time - lastSent);
  }

  /** The cause that is certain, else `unknown`; and whether the packet begins a go-back-N. */
  #causeOf(sent: SentAgain): { cause: RetransmitCause; begins: boolean } {
    const { psn, next, time, lastSent, unacked, end, migReq, idOrder, unseen } = sent;
    // Overtaken: it may be of any go-back-N.
    if (idOrder === IdOrder.OLDER) return { cause: 'unknown', begins: false };
    const continued = this.#resumed(psn, time, lastSent, migReq);
    // Away from the sender what began the pause, and its end, may have been lost before the tap. At the sender a probe may interrupt.
    const isPause = migReq && this.#pauseOf(continued, time) >= MIN_PROBE;
    const mayBeProbe = isPause && (this.#isAway(this.#reaction) || this.isProbeDue(psn, next, end, time));
    if (continued !== undefined) {
      // The go-back-N of an implied NAK was answered: a later retransmission may be a probe, or a go-back-N for the answer to one.
      const isDone = continued.cause === 'implied-nak' && this.#answerTime > continued.last;
      const isDoubtful = this.#isDoubtful(continued, psn) || this.#mayBeOfPrevious(sent);
      const passesOver = psn > Math.max(continued.cursor, unacked);
      if (passesOver && (continued.mayCross || this.#passesOver(continued))) continued.cause = 'unknown';
      // The newest packet alone, and not in one go with them: a probe, if what was seen last had come late.
      const isApart = migReq && next === end && time - continued.last > REACTION_SPREAD;
      if (passesOver && isApart && idOrder === IdOrder.UNKNOWN) continued.cause = 'unknown';
      if (next > continued.cursor) continued.cursor = next;
      if (time - continued.last > continued.patience) continued.cause = 'unknown';
      continued.patience = Number.POSITIVE_INFINITY;
      continued.last = time;
      this.#probeAnswered = -1;
      if (mayBeProbe || isDone) continued.cause = 'unknown';
      return { cause: isDoubtful ? 'unknown' : continued.cause, begins: false };
    }
    // Where the order of packets is known, and one follows on the one before, nobody goes back with it.
    if (sent.followsOn && idOrder === IdOrder.NEWER && !migReq && this.#event !== undefined) {
      this.#event.cursor = Math.max(this.#event.cursor, next);
      this.#event.last = time;
      return { cause: 'unknown', begins: false };
    }
    // Late, or the begin of a go-back-N of its own: the packets after it decide.
    if (this.#isAmbiguous(psn, lastSent, idOrder)) {
      if (time - this.#ambiguousTime > MIN_PROBE) this.#ambiguousPsn = psn;
      this.#ambiguousNext = next;
      this.#ambiguousTime = time;
      return { cause: 'unknown', begins: false };
    }
    // Its begin was not seen; or it is late itself.
    const isLate = idOrder === IdOrder.UNKNOWN && migReq && this.#nakPsn >= 0 && psn > this.#nakNext;
    const cause = isLate ? 'unknown' : this.#newCause(sent);
    this.#missedSinceSend = this.#nakedSinceSend = false;
    const goesBack = this.#probeAnswered >= 0;
    this.#probeAnswered = -1;
    this.#probeEnd = cause === 'probe' && !goesBack ? next : -1;
    this.#probeFlightEnd = end;
    const before = this.#event;
    const isProbed = cause !== 'probe' && this.#lastProbe > Number.NEGATIVE_INFINITY;
    if (cause !== 'probe' || goesBack) this.#interrupted = undefined;
    else if (before?.cause !== 'probe') this.#interrupted = before;
    // Without an Identification it may be late itself; what follows at once is not, if it was seen before.
    const mayBeLate = cause === 'sequence-nak' && idOrder === IdOrder.UNKNOWN && (unseen || this.#reordered);
    const patience = mayBeLate ? (time - this.#nakTime) / 4 : Number.POSITIVE_INFINITY;
    // Nor is a go-back-N, though its first packet may be: a probe that crosses the NAK.
    const mayCross = cause === 'sequence-nak' && this.#mayCross(sent);
    this.#previous = before ?? this.#ended;
    const isSingle = cause === 'probe' && !goesBack && time - this.timerStart < MIN_TIMER;
    this.#event = {
      cause,
      time,
      start: psn,
      end,
      cursor: next,
      last: time,
      probed: isProbed || mayCross,
      patience,
      isSingle,
      mayCross,
      evidenceFrame: 0,
      wait: 0,
      likely: undefined,
    };
    if (cause !== 'probe') {
      this.#earlierStart = cause === 'unknown' ? this.timerStart : time;
      if (cause === 'unknown') this.#unknownAt = time;
      this.timerStart = time;
    }
    // An implied NAK may be a NAK for a PSN behind the answers that are missing.
    if (this.#nakPsn <= psn || cause === 'implied-nak') this.#nakPsn = -1;
    if (this.#rnrPsn >= psn || cause === 'rnr') this.#rnrPsn = -1;
    if (this.#missingPsn <= psn) this.#missingPsn = -1;
    return { cause: mayBeLate || mayCross ? 'unknown' : cause, begins: true };
  }

  #continues(psn: number, lastSent: number): boolean {
    return this.#event !== undefined && isPartOf(this.#event, psn, lastSent);
  }

  /** How long nothing of a go-back-N was sent and nothing was acknowledged; 0 of none. */
  #pauseOf(event: GoBack | undefined, time: number): number {
    return event === undefined ? 0 : time - Math.max(event.last, this.timerStart);
  }

  /** The go-back-N that this packet is part of. */
  #resumed(psn: number, time: number, lastSent: number, migReq: boolean): GoBack | undefined {
    const event = this.#event;
    if (event === undefined || !this.#continues(psn, lastSent)) return undefined;
    // After such a pause a timer may have begun another one, of which this is the first packet seen.
    const isPause = this.#pauseOf(event, time) >= (migReq ? MIN_TIMER : MIN_JIFFIES_TIMER);
    if (isPause && (migReq || psn !== event.cursor || psn === this.#unacked)) return undefined;
    if (this.#rnrPsn >= 0 && psn >= this.#rnrPsn && time - this.#rnrTime >= this.#rnrWait) return undefined;
    const nak = this.#nakPsn;
    const isNewNak = nak >= 0 && this.#nakTime >= event.time && psn >= nak;
    if (psn < event.cursor) return undefined;
    // A NAK past where it had come to: the sender went on from there.
    if (isNewNak && (nak > event.cursor || (event.cause === 'probe' && psn === nak))) return undefined;
    // The same for a response that was missing.
    if (event.cause === 'probe' && psn === this.#missingPsn && this.#missingTime >= event.time)
      return undefined;
    const interrupted = this.#interrupted;
    const mayGoOn = interrupted !== undefined && psn >= interrupted.cursor && psn < interrupted.end;
    if (mayGoOn && event.cause === 'probe') {
      // The probe was one packet, and the sender goes on where it had been; or goes back from the probe.
      const surely = psn === interrupted.cursor && psn > event.cursor;
      this.#event = surely ? interrupted : { ...interrupted, cause: 'unknown' };
    } else if (event.isSingle) return undefined;
    // Or it went back from the probe, which was answered.
    this.#interrupted = undefined;
    return this.#event;
  }

  /**
   * A go-back-N retransmits all packets. One that skips packets is a new one, of a sender that asks for missing responses alone; unless
   * the skipped packets were lost before the tap.
   */
  #passesOver({ cause }: GoBack): boolean {
    return cause === 'implied-nak' || !this.#isAway(this.#reaction);
  }

  /** Away from the sender: it may have gone back anew, and the capture does not show where that began. */
  #isDoubtful(event: GoBack, psn: number): boolean {
    if (event.probed && this.timerStart > event.time) return true;
    // A response is missing, and may be asked for alone.
    if (this.#missingPsn >= 0 && this.#missingTime > event.time) return true;
    const isNewNak = this.#nakPsn >= 0 && this.#nakTime >= event.time && psn >= this.#nakPsn;
    if (isNewNak && psn > this.#nakPsn) return true;
    return this.#isAway(this.#reaction) && (isNewNak || this.#isAnsweredSince(event));
  }

  /** Whether a READ's answer came since, which may ask for packets as well. The implied NAK that began this go-back-N does not count. */
  #isAnsweredSince({ cause, time }: GoBack): boolean {
    return this.#answerTime > time || (this.#answerTime === time && cause !== 'implied-nak');
  }

  /** It was due in the go-back-N before this one and was not seen there: away from the sender it may just be late. */
  #mayBeOfPrevious({ psn, lastSent, idOrder }: SentAgain): boolean {
    const previous = this.#previous;
    return (
      idOrder === IdOrder.UNKNOWN &&
      previous !== undefined &&
      isPartOf(previous, psn, lastSent) &&
      this.#isAway(this.#reaction)
    );
  }

  /** The same of one that ended, or of the one before that. */
  #mayBeOfEnded(sent: SentAgain): boolean {
    const ended = this.#ended;
    const isOfEnded = ended !== undefined && isPartOf(ended, sent.psn, sent.lastSent);
    const isUnordered = sent.idOrder === IdOrder.UNKNOWN && this.#isAway(this.#reaction);
    return (isUnordered && isOfEnded) || this.#mayBeOfPrevious(sent);
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
    const { psn, next, end, time, unacked, migReq, idOrder, unseen, afterAsking } = sent;
    const running = time - this.timerStart;
    const isNak = this.#nakPsn >= 0 && psn >= this.#nakPsn;
    // Answered, as the capture has it: what the sender has heard of it is not known.
    if (isNak && psn < unacked) return 'unknown';
    // It follows packets that may have begun the go-back-N.
    if (psn > this.#ambiguousPsn && time - this.#ambiguousTime < MIN_PROBE) return 'unknown';
    // Part of an earlier go-back-N perhaps, in another order.
    if (isNak && psn > this.#nakPsn && this.#reordered) return 'unknown';
    // Of an earlier go-back-N perhaps, which was not seen to send it.
    if (isNak && this.#mayBeOfEnded(sent)) return 'unknown';
    // The answer to a probe may be what it is sent for.
    if (isNak && migReq && this.#mayFollowProbe(sent)) return 'unknown';
    // It came in one burst with what was sent before the NAK could be known.
    if (isNak && !migReq && sent.lastNew > this.#nakTime && time - sent.lastNew < BURST) return 'unknown';
    // rxe begins the message anew, and sends a sequence NAK with the RNR NAK (docs/quirks.md).
    if (this.#rnrPsn >= 0 && (migReq ? psn >= this.#rnrPsn : psn <= this.#rnrPsn)) {
      const waited = time - this.#rnrTime;
      // Captures count in microseconds.
      if (waited >= this.#rnrWait - 2 * MICROSECOND) {
        const isWhereUnknown = this.#reaction === Number.POSITIVE_INFINITY;
        if (migReq && (isNak || psn > this.#rnrPsn)) return 'unknown';
        const late = waited - this.#rnrWait;
        // To the sender and back takes as long as after a NAK.
        const isBefore = !isWhereUnknown && late < 0.9 * this.#reaction;
        if (migReq && (isBefore || this.#comesTooSoon(late))) return 'unknown';
        if (migReq && afterAsking && this.#mayBeImplied(true, unseen, late, this.#rnrTime)) return 'unknown';
        if (!migReq && psn < unacked && this.#rnrPsn >= sent.messageEnd) return 'unknown';
        // A wait that is as short as a probe's decides nothing.
        const isLikeProbe = this.#rnrWait < 4 * MIN_PROBE;
        if (isLikeProbe && migReq && this.#rnrWait >= MIN_PROBE && (isWhereUnknown || next === end))
          return 'unknown';
        if (isLikeProbe && migReq && this.#mayNotWait(sent, late)) return 'unknown';
        if (this.#mayBeProbe(sent, late, isLikeProbe ? 0 : this.#leastLatency)) return 'unknown';
        const soon = waited <= 2 * this.#rnrWait + (migReq ? 0.3 : 1) * MILLISECOND;
        return soon && (running < MIN_TIMER || !migReq || !this.isTimerDue(time)) ? 'rnr' : 'unknown';
      }
    }
    // An answer ended the wait before its time, and what was sent behind is retransmitted: for that, or for the NAK.
    if (isNak && migReq && this.#rnrPsn >= 0 && this.#rnrTime >= sent.lastSent) return 'unknown';
    const isMissing = this.#missingPsn >= 0 && psn === this.#missingPsn;
    // A NAK behind it showed that it was missing: either may be what the sender answers.
    if (isMissing && !migReq && this.#likely.missingFrame === this.#likely.nakFrame) return 'unknown';
    if (isNak || isMissing) {
      const reaction = time - (isNak ? this.#nakTime : this.#missingTime);
      const isDoubtful =
        isMissing || this.#missedSinceSend || this.#mayBeImplied(afterAsking, unseen, reaction);
      if (isNak ? isDoubtful : this.#nakedSinceSend) return 'unknown';
      if (this.#comesTooSoon(reaction)) return 'unknown';
      if (!this.#noTimerYet(time, reaction, migReq)) return 'unknown';
      const mayBeLate = (unseen || this.#reordered) && idOrder === IdOrder.UNKNOWN;
      const mayBeProbe = this.#mayBeProbe(sent, reaction);
      if (isNak && !mayBeLate && reaction < this.#reaction) this.#reaction = reaction;
      if (mayBeProbe || (isNak ? this.#nakAnswersProbe : this.#missingAnswersProbe)) return 'unknown';
      // It was asked for already: the answer that shows this may have come for a probe.
      if (!isNak && psn === this.#askedPsn && running >= MIN_PROBE) return 'unknown';
      if (!isNak) this.#askedPsn = psn;
      return isNak ? 'sequence-nak' : 'implied-nak';
    }
    if (this.#rnrPsn >= 0 || this.#nakPsn >= 0) return 'unknown';
    // The answer to a probe shows that the packets sent after it are lost.
    if (this.#probeAnswered >= 0 && psn === unacked) {
      return this.#isAway(this.#reaction) && time < this.#askedUntil ? 'unknown' : 'probe';
    }
    return this.#timerCause(sent);
  }

  /**
   * Whether the NAK may have been lost behind the tap, or the response, and a probe have come in its place: after some silence, and
   * later than the sender reacts.
   */
  #mayBeProbe({ time, migReq }: SentAgain, reaction: number, latency = 0): boolean {
    const since = this.#unknownAt === this.timerStart ? this.#earlierStart : this.timerStart;
    if (!migReq || time - since < MIN_PROBE) return false;
    // Away from the sender also sooner: then it was on its way before.
    const isSooner = reaction < 0.9 * this.#reaction && this.#reaction < Number.POSITIVE_INFINITY;
    return this.#isLateReaction(reaction, latency) || (isSooner && this.#isAway(this.#reaction));
  }

  /** Later than this sender reacts; one that has not yet is taken to react within `latency`. */
  #isLateReaction(reaction: number, latency: number): boolean {
    const known = this.#reaction < Number.POSITIVE_INFINITY ? this.#reaction : latency;
    const usual = Math.min(known, this.#leastLatency);
    return reaction > REACTION_SPREAD + (usual === Number.POSITIVE_INFINITY ? 0 : usual);
  }

  /**
   * Away from the sender, where packets wait in queues, whether one that comes after a short RNR wait may have been sent before the
   * sender heard of that: no pause as long as the wait is before it, or it is later than the wait explains, or a probe is out.
   */
  #mayNotWait(sent: SentAgain, late: number): boolean {
    if (!this.#isAway(this.#reaction)) return false;
    const before = Math.max(sent.lastNew, this.#event?.last ?? Number.NEGATIVE_INFINITY);
    return sent.time - before < this.#rnrWait || this.#isLateReaction(late, 0) || this.#mayFollowProbe(sent);
  }

  /** Away from the sender: a probe came since the packet was sent last, or what may have been one. */
  #mayFollowProbe({ lastSent }: SentAgain): boolean {
    return this.#mayProbeTime > lastSent && this.#isAway(this.#reaction);
  }

  /** Whether the sender may have sent a probe before it took the NAK in: after so long a silence, or of the newest packet. */
  #mayCross({ psn, next, end, time, migReq, lastSent, lastNew }: SentAgain): boolean {
    if (!migReq || time <= this.#nakTime) return false;
    return time - Math.max(lastSent, lastNew) >= MIN_PROBE || (next === end && psn > this.#nakPsn);
  }

  /** A packet that comes again, which nothing asked for, may be a probe: the oldest that is not answered, or the newest. */
  isProbeDue(psn: number, next: number, end: number, time: number): boolean {
    return (psn === this.#unacked || next === end) && time - this.timerStart >= MIN_PROBE;
  }

  /**
   * The READ or atomic before it was answered, but the answer may have been lost behind the tap: then the NAK, or RNR NAK, was
   * taken for an implied one, and the READ that came again was lost before the tap.
   */
  #mayBeImplied(afterAsking: boolean, unseen: boolean, reaction: number, asked = this.#nakTime): boolean {
    if (afterAsking && unseen) return true;
    const answered = afterAsking ? this.#answerTime : this.#answerAgainTime;
    return this.#isAway(reaction) && asked - answered <= 2 * reaction;
  }

  /** From the tap to one end and back, and to the other and back, takes time: it was on its way before. */
  #comesTooSoon(reaction: number): boolean {
    return reaction + this.#leastLatency < MICROSECOND;
  }

  /** Whether the retry timer can't have been the cause. */
  #noTimerYet(time: number, reaction: number, migReq: boolean): boolean {
    const running = time - Math.min(this.timerStart, this.#earlierStart);
    if (this.ackTimeout > 0 && running >= 0.9 * this.ackTimeout) return false;
    // rxe's timer may have begun with an earlier packet, and it ignores NAKs while it recovers.
    if (!migReq) return running < MIN_JIFFIES_TIMER;
    if (reaction > REACTION) return false;
    // On the way the timer seems to run longer, by what packets wait there.
    const slack = Math.min(MAX_QUEUING_DELAY, 4 * reaction);
    return running < MIN_TIMER || (reaction < MIN_TIMER && !this.isTimerDue(time, slack));
  }

  /** The retry timer, or ConnectX's or node-roce's own, may fire now. */
  isTimerDue(time: number, slack = 0): boolean {
    return isNominal(time - this.timerStart, slack) || isNominal(time - this.#earlierStart, slack);
  }

  /** Nothing was heard: the timer of the standard, or a retransmission before it. */
  #timerCause({ psn, next, time, lastSent, unacked, end, migReq }: SentAgain): RetransmitCause {
    const running = time - this.timerStart;
    // A packet before it may have shown the tap the answer to a NAK first.
    if (this.#reordered && this.#likely.isAsked(psn, lastSent)) return 'unknown';
    if (!migReq) {
      // A timer goes back to the oldest packet without answer; hosts that pause go on where they were.
      if (psn !== unacked || this.#wentOnAfterPause(psn) || this.#likely.wasAsked(psn)) return 'unknown';
      const waited = Math.min(running, time - lastSent);
      if (waited < MIN_JIFFIES_TIMER) return 'unknown';
      return 'timeout';
    }
    // Too early for any other timer.
    if (running < MIN_TIMER && this.isProbeDue(psn, next, end, time)) {
      // Unless what came again since, of unknown cause, was a probe itself.
      const earliest = Math.min(this.#earlierStart, this.#progressTime);
      if (this.#unknownAt === this.timerStart && time - earliest >= MIN_TIMER) return 'unknown';
      const isAway = this.#isAway(this.#reaction);
      // There the first packets of a go-back-N may have been lost before the tap.
      // Or the first transmission, with which a timer began.
      const mayBeTimer = time - this.#progressTime >= MIN_TIMER;
      const mayBeAsked = isAway && (psn !== unacked || time < this.#askedUntil || mayBeTimer);
      return mayBeAsked ? 'unknown' : this.#probed(time);
    }
    // Answered as the capture has it, but the answer did not reach the sender: when its timer began is not known.
    if (psn !== unacked) return 'unknown';
    const { ackTimeout } = this;
    if (ackTimeout > 0 && running < 0.9 * ackTimeout && running >= MIN_TIMER) return this.#probed(time);
    const earlier = time - this.#earlierStart;
    const onGrid = isOnTimerGrid(running);
    if (onGrid && isAdaptive(running)) return 'unknown';
    if (this.#isAway(this.#reaction) && isNearBoth(running)) return 'unknown';
    // If the timer caused the retransmissions since, it has begun anew.
    if (this.#unknownAt === this.timerStart && isNominal(earlier)) return 'unknown';
    // Of a host that pauses, a silence may have that length by chance.
    if (onGrid && running >= 0.9 * ackTimeout) return this.#likely.pauses ? 'unknown' : 'timeout';
    const sinceProbe = time - this.#lastProbe;
    const adapts = this.#probeInterval >= MIN_ADAPTIVE;
    const doubled = adapts && Math.abs(sinceProbe / (2 * this.#probeInterval) - 1) < TIMER_TOLERANCE;
    if (isAdaptive(running) || (sinceProbe < Number.POSITIVE_INFINITY && doubled)) return this.#probed(time);
    return 'unknown';
  }

  /** The go-back-N under way would have gone on with this packet. */
  #wentOnAfterPause(psn: number): boolean {
    const event = this.#event ?? this.#ended;
    return event !== undefined && psn === event.cursor && psn < event.end;
  }

  #probed(time: number): RetransmitCause {
    const since = Math.max(this.timerStart, this.#lastProbe);
    this.#probeInterval = time - since;
    this.#lastProbe = time;
    return 'probe';
  }
}

/** Nothing asks for a packet, but the go-back-N had come to it: as far as can be seen, it goes on, with the cause that it had. */
function goingOn(event: GoBack | undefined, psn: number): LikelyCause | undefined {
  if (event === undefined || psn !== event.cursor || psn >= event.end) return undefined;
  const { cause, evidenceFrame, wait } = event;
  return cause === 'unknown' ? event.likely : { cause, evidenceFrame, wait };
}

/** Whether a go-back-N retransmits this PSN, and has not been seen to. */
const isPartOf = (event: GoBack, psn: number, lastSent: number): boolean =>
  psn >= event.start && psn < event.end && lastSent < event.time;

/** 4.096 µs · 2^k, or longer than that by `slack`. */
function isOnTimerGrid(nanoseconds: number, slack = 0): boolean {
  return nanoseconds >= MIN_TIMER && isPowerOfTwoTimes(nanoseconds, 4096, slack);
}

/** Whole milliseconds that are powers of two, from 2 on: ConnectX's own intervals. */
function isAdaptive(nanoseconds: number, slack = 0): boolean {
  return nanoseconds > MIN_ADAPTIVE && isPowerOfTwoTimes(nanoseconds, MILLISECOND, slack);
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
