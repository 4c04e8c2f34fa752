/**
 * Causes of retransmissions (docs/capture-causes.md, "How causes are found").
 *
 * The packets before a retransmission are its evidence. `evidence.ts` keeps sequence NAKs, RNR NAKs with their waits, and missing
 * responses; `retry-timer.ts` decides which silence is a timeout and which a probe; `go-backs.ts` finds the retransmission that a packet
 * continues. A cause is certain only where the evidence excludes the others. Otherwise `likely-cause.ts` names the likely one. All times
 * are nanoseconds.
 */
import type { RetransmitCause } from '../facts.ts';
import { AnswerEvidence, REACTION_SPREAD } from './evidence.ts';
import { type GoBack, GoBacks } from './go-backs.ts';
import { IdOrder } from './identification.ts';
import { type LikelyCause, LikelyCauses } from './likely-cause.ts';
import { MIN_JIFFIES_TIMER, MIN_PROBE, MIN_TIMER, RetryTimer } from './retry-timer.ts';
import type { SentAgain } from './sent-again.ts';
import type { Verdict } from './verdict.ts';

const MICROSECOND = 1000;
const MILLISECOND = 1e6;

/** Packets this close were queued together. */
const BURST = 20 * MICROSECOND;

/** The evidence of one requester's retransmissions; `judge` names the cause of a packet that comes again. */
export class RetransmitClassifier {
  readonly timer = new RetryTimer();
  readonly evidence = new AnswerEvidence();
  /** The last PSN that was asked for again because its response was missing. */
  #askedPsn = -1;
  /** The last packet that was, or may have been, a probe. */
  #mayProbeTime = Number.NEGATIVE_INFINITY;
  readonly #likely = new LikelyCauses();
  readonly #goBacks = new GoBacks(this.timer, this.evidence);
  /** The evidence of the last go-back-N whose packets were all overtaken. */
  #overtaken = 0;

  sequenceNak(psn: number, time: number, frame: number): void {
    const { timer } = this;
    this.#likely.nak(psn, time, frame);
    this.evidence.sequenceNak(psn, time, timer.unacked, timer.isProbed(time));
    timer.probeEnd = -1;
  }

  /** @param sends transmissions of the request so far */
  rnrNak(psn: number, time: number, wait: number, frame: number, sends: number): void {
    this.#likely.rnr(psn, time, frame, wait);
    if (this.evidence.rnrNak(psn, time, wait, sends)) this.timer.probeEnd = -1;
  }

  /** A response came though this PSN, of a READ or atomic before it, was not answered. */
  responseMissing(psn: number, time: number, frame: number): void {
    if (this.evidence.missingPsn === psn) return;
    this.#likely.missing(psn, time, frame);
    this.evidence.responseMissing(psn, time, this.timer.isProbed(time));
  }

  /** The PSN whose response was missing last. */
  get missingPsn(): number {
    return this.#likely.missingPsn;
  }

  /** An ACK (not a NAK) or a response came that acknowledges something new: a recovery is over. */
  recovered(): void {
    this.#likely.recovering = false;
  }

  /** A packet was sent for the first time: any go-back-N is over. */
  sentNew(): void {
    this.#goBacks.sentNew();
    this.timer.probeAnswered = -1;
    this.evidence.sentNew(this.timer.unacked);
  }

  /** When a packet was sent that comes late: before the go-back-N that it has missed. */
  sentBefore(time: number): number {
    return this.#goBacks.sentBefore(time);
  }

  /** Evidence that a packet at this PSN is wanted again, to which nothing was sent yet. */
  isWanted(psn: number, lastSent: number, time: number): boolean {
    return (
      this.#goBacks.followsAmbiguous(psn, time) ||
      (this.evidence.nakPsn >= 0 && psn >= this.evidence.nakPsn) ||
      (this.evidence.refusals.openPsn >= 0 && psn >= this.evidence.refusals.openPsn) ||
      (this.evidence.missingPsn >= 0 && psn >= this.evidence.missingPsn) ||
      (this.timer.probeAnswered >= 0 && psn === this.timer.unacked) ||
      this.#goBacks.continues(psn, lastSent)
    );
  }

  /** A packet that was missing came late; perhaps for the NAK. */
  filled(psn: number, next: number, lateness: number): void {
    this.evidence.reordered = true;
    this.#likely.late(lateness);
    if (psn === this.evidence.nakNext) this.evidence.nakNext = next;
  }

  /** The same for a packet not seen before, which could just be late: it has to come when an answer to a NAK can. */
  isWantedSince(psn: number, time: number, noticed: number): boolean {
    const answersNak =
      this.evidence.nakPsn >= 0 && psn >= this.evidence.nakPsn && this.evidence.nakTime >= noticed;
    if (answersNak && time - this.evidence.nakTime >= 0.9 * this.evidence.reaction) return true;
    // As long as no packet was late, losses explain all.
    if (this.evidence.reordered) return false;
    const event = this.#goBacks.event;
    const isNext = event !== undefined && psn === event.cursor && psn < event.end && noticed < event.time;
    return (
      isNext ||
      (answersNak && psn === this.evidence.nakPsn && this.evidence.reaction === Number.POSITIVE_INFINITY)
    );
  }

  /** Names the cause of a retransmitted packet: for certain, else the likely one; and whether the requester went back with it. */
  judge(sent: SentAgain, verdict: Verdict): void {
    const { psn, sentBy, heard } = sent;
    const running = sentBy - this.timer.start;
    const before = this.#goBacks.event;
    // Of two probes the second passes over what is between. The first may be for an answer that the capture has: of unknown cause, it ends no silence.
    const isSecond = before !== undefined && psn > before.cursor;
    const since = isSecond ? this.timer.earliestStart : this.timer.start;
    const goesOn = before?.cause === 'unknown' && psn === before.cursor;
    const isProbeDue = sent.migReq && this.timer.isProbeDue(psn, sent.next, sent.end, sent.time, since);
    const { cause, begins } = this.#causeOf(sent);
    const event = this.#goBacks.event;
    const isPart = event !== undefined && psn >= event.start && psn < event.end && event.time <= sentBy;
    if (begins && event !== undefined) {
      event.likely = this.#likely.of(sent, running, heard);
      if (event.likely === undefined && heard) event.likely = goingOn(before, psn);
      if (!heard) event.cause = 'unknown';
      event.evidenceFrame = this.#evidenceOf(event.cause, sent.lastFrame);
      event.wait = this.#waitOf(event.cause, sent, running);
    }
    const mayBeProbe = cause === 'unknown' && isProbeDue;
    if (cause === 'probe' || mayBeProbe) this.#mayProbeTime = sent.time;
    // At the sender, too, a NAK that answers it may not be what it goes back for. (Elsewhere: `#mayFollowProbe`.)
    if (mayBeProbe && !this.evidence.isAway(this.evidence.reaction)) this.timer.lastProbe = sent.time;
    // Nothing follows a probe.
    else if (goesOn) this.timer.lastProbe = Number.NEGATIVE_INFINITY;
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
    if (cause === 'sequence-nak') return time - this.evidence.nakTime;
    if (cause === 'implied-nak') return time - this.evidence.missingTime;
    if (cause === 'rnr') return time - this.evidence.refusals.time;
    return migReq ? running : Math.min(running, time - lastSent);
  }

  /** The cause that is certain, else `unknown`; and whether the packet begins a go-back-N. */
  #causeOf(sent: SentAgain): { cause: RetransmitCause; begins: boolean } {
    const { psn, next, time, lastSent, unacked, end, migReq, idOrder, unseen } = sent;
    // Overtaken: it may be of any go-back-N.
    if (idOrder === IdOrder.OLDER) return { cause: 'unknown', begins: false };
    const continued = this.#goBacks.resumed(psn, time, lastSent, migReq);
    // Away from the sender what began the pause, and its end, may have been lost before the tap. At the sender a probe may interrupt.
    const isPause = migReq && this.#goBacks.pauseOf(continued, time) >= MIN_PROBE;
    const mayBeProbe =
      isPause &&
      (this.evidence.isAway(this.evidence.reaction) || this.timer.isProbeDue(psn, next, end, time));
    if (continued !== undefined) {
      // The go-back-N of an implied NAK was answered: a later retransmission may be a probe, or a go-back-N for the answer to one.
      const isDone = continued.cause === 'implied-nak' && this.evidence.answerTime > continued.last;
      const isDoubtful = this.#goBacks.isDoubtful(continued, psn) || this.#goBacks.mayBeOfPrevious(sent);
      const passesOver = psn > Math.max(continued.cursor, unacked);
      if (passesOver && (continued.mayCross || this.#goBacks.passesOver(continued)))
        continued.cause = 'unknown';
      // The newest packet alone, and not in one go with them: a probe, if what was seen last had come late.
      const isApart = migReq && next === end && time - continued.last > REACTION_SPREAD;
      if (passesOver && isApart && idOrder === IdOrder.UNKNOWN) continued.cause = 'unknown';
      if (next > continued.cursor) continued.cursor = next;
      if (time - continued.last > continued.patience) continued.cause = 'unknown';
      continued.patience = Number.POSITIVE_INFINITY;
      continued.last = time;
      this.timer.probeAnswered = -1;
      if (mayBeProbe || isDone) continued.cause = 'unknown';
      return { cause: isDoubtful ? 'unknown' : continued.cause, begins: false };
    }
    // Where the order of packets is known, and one follows on the one before, nobody goes back with it.
    if (sent.followsOn && idOrder === IdOrder.NEWER && !migReq && this.#goBacks.event !== undefined) {
      this.#goBacks.event.cursor = Math.max(this.#goBacks.event.cursor, next);
      this.#goBacks.event.last = time;
      return { cause: 'unknown', begins: false };
    }
    // Late, or the begin of a go-back-N of its own: the packets after it decide.
    if (this.#goBacks.isAmbiguous(psn, lastSent, idOrder)) {
      this.#goBacks.ambiguous(psn, next, time);
      return { cause: 'unknown', begins: false };
    }
    // Its begin was not seen; or it is late itself.
    const isLate =
      idOrder === IdOrder.UNKNOWN && migReq && this.evidence.nakPsn >= 0 && psn > this.evidence.nakNext;
    const cause = isLate ? 'unknown' : this.#newCause(sent);
    this.evidence.missedSinceSend = this.evidence.nakedSinceSend = false;
    const goesBack = this.timer.goesBack(time);
    this.timer.probeAnswered = -1;
    this.timer.probeEnd = cause === 'probe' && !goesBack ? next : -1;
    this.timer.flightEnd = end;
    const before = this.#goBacks.event;
    const isProbed = cause !== 'probe' && this.timer.lastProbe > Number.NEGATIVE_INFINITY;
    if (cause !== 'probe' || goesBack) this.#goBacks.interrupted = undefined;
    else if (before?.cause !== 'probe') this.#goBacks.interrupted = before;
    // Without an Identification it may be late itself; what follows at once is not, if it was seen before.
    const mayBeLate =
      cause === 'sequence-nak' && idOrder === IdOrder.UNKNOWN && (unseen || this.evidence.reordered);
    const patience = mayBeLate ? (time - this.evidence.nakTime) / 4 : Number.POSITIVE_INFINITY;
    // Nor is a go-back-N, though its first packet may be: a probe that crosses the NAK.
    const mayCross = cause === 'sequence-nak' && this.#mayCross(sent);
    const isSingle = cause === 'probe' && !goesBack && time - this.timer.start < MIN_TIMER;
    this.#goBacks.begin({
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
    });
    if (cause !== 'probe') this.timer.wentBack(cause, time);
    // An implied NAK may be a NAK for a PSN behind the answers that are missing.
    if (this.evidence.nakPsn <= psn || cause === 'implied-nak') this.evidence.nakPsn = -1;
    if (this.evidence.refusals.openPsn >= psn || cause === 'rnr') this.evidence.refusals.close();
    if (this.evidence.missingPsn <= psn) this.evidence.missingPsn = -1;
    return { cause: mayBeLate || mayCross ? 'unknown' : cause, begins: true };
  }

  #newCause(sent: SentAgain): RetransmitCause {
    const { psn, next, end, time, unacked, migReq, idOrder, unseen, afterAsking } = sent;
    const running = time - this.timer.start;
    const isNak = this.evidence.nakPsn >= 0 && psn >= this.evidence.nakPsn;
    // Answered, as the capture has it: what the sender has heard of it is not known.
    if (isNak && psn < unacked) return 'unknown';
    // It follows packets that may have begun the go-back-N.
    if (this.#goBacks.isBehindAmbiguous(psn, time)) return 'unknown';
    if (isNak && this.#goBacks.isOtherCopy(psn, this.evidence.nakTime)) return 'unknown';
    // Part of an earlier go-back-N perhaps, in another order.
    if (isNak && psn > this.evidence.nakPsn && this.evidence.reordered) return 'unknown';
    // Of an earlier go-back-N perhaps, which was not seen to send it.
    if (isNak && this.#goBacks.mayBeOfEnded(sent)) return 'unknown';
    // It came in one burst with what was sent before the NAK could be known.
    if (isNak && !migReq && sent.lastNew > this.evidence.nakTime && time - sent.lastNew < BURST)
      return 'unknown';
    // rxe begins the message anew, and sends a sequence NAK with the RNR NAK (docs/quirks.md).
    if (
      this.evidence.refusals.openPsn >= 0 &&
      (migReq ? psn >= this.evidence.refusals.openPsn : psn <= this.evidence.refusals.openPsn)
    ) {
      const waited = time - this.evidence.refusals.time;
      // Captures count in microseconds.
      if (waited >= this.evidence.refusals.wait - 2 * MICROSECOND) {
        const isWhereUnknown = this.evidence.reaction === Number.POSITIVE_INFINITY;
        if (migReq && (isNak || psn > this.evidence.refusals.openPsn)) return 'unknown';
        const late = waited - this.evidence.refusals.wait;
        // To the sender and back takes as long as after a NAK.
        const isBefore = !isWhereUnknown && late < 0.9 * this.evidence.reaction;
        if (migReq && (isBefore || this.evidence.comesTooSoon(late))) return 'unknown';
        if (
          migReq &&
          afterAsking &&
          this.evidence.mayBeImplied(true, unseen, late, this.evidence.refusals.time)
        )
          return 'unknown';
        if (!migReq && psn < unacked && this.evidence.refusals.openPsn >= sent.messageEnd) return 'unknown';
        // A wait that is as short as a probe's decides nothing.
        const isLikeProbe = this.evidence.refusals.wait < 4 * MIN_PROBE;
        if (
          isLikeProbe &&
          migReq &&
          this.evidence.refusals.wait >= MIN_PROBE &&
          (isWhereUnknown || next === end)
        )
          return 'unknown';
        if (isLikeProbe && migReq && this.#mayNotWait(sent, late)) return 'unknown';
        if (this.#mayBeProbe(sent, late, isLikeProbe ? 0 : this.evidence.leastLatency)) return 'unknown';
        const soon = waited <= 2 * this.evidence.refusals.wait + (migReq ? 0.3 : 1) * MILLISECOND;
        return soon && (running < MIN_TIMER || !migReq || !this.timer.isDue(time)) ? 'rnr' : 'unknown';
      }
    }
    // An answer ended the wait before its time, and what was sent behind is retransmitted: for that, or for the NAK.
    if (
      isNak &&
      migReq &&
      this.evidence.refusals.openPsn >= 0 &&
      this.evidence.refusals.time >= sent.lastSent
    )
      return 'unknown';
    const isMissing = this.evidence.missingPsn >= 0 && psn === this.evidence.missingPsn;
    // The answer to a probe may be what it is sent for. Behind a missing response the sender goes back at once.
    const soonest = isMissing ? time - this.evidence.missingTime : Number.POSITIVE_INFINITY;
    if ((isNak || isMissing) && migReq && this.#mayFollowProbe(sent, soonest)) return 'unknown';
    // A NAK behind it showed that it was missing: either may be what the sender answers.
    if (isMissing && !migReq && this.#likely.missingFrame === this.#likely.nakFrame) return 'unknown';
    if (isNak || isMissing) {
      const reaction = time - (isNak ? this.evidence.nakTime : this.evidence.missingTime);
      const isDoubtful =
        isMissing ||
        this.evidence.missedSinceSend ||
        this.evidence.mayBeImplied(afterAsking, unseen, reaction);
      if (isNak ? isDoubtful : this.evidence.nakedSinceSend) return 'unknown';
      if (this.evidence.comesTooSoon(reaction)) return 'unknown';
      if (!this.timer.isNotYet(time, reaction, migReq)) return 'unknown';
      const mayBeLate = (unseen || this.evidence.reordered) && idOrder === IdOrder.UNKNOWN;
      const mayBeProbe = this.#mayBeProbe(sent, reaction);
      if (isNak && !mayBeLate && reaction < this.evidence.reaction) this.evidence.reaction = reaction;
      if (mayBeProbe || (isNak ? this.evidence.nakAnswersProbe : this.evidence.missingAnswersProbe))
        return 'unknown';
      // It was asked for already: the answer that shows this may have come for a probe.
      if (!isNak && psn === this.#askedPsn && running >= MIN_PROBE) return 'unknown';
      if (!isNak) this.#askedPsn = psn;
      return isNak ? 'sequence-nak' : 'implied-nak';
    }
    if (this.evidence.refusals.openPsn >= 0 || this.evidence.nakPsn >= 0) return 'unknown';
    // The answer to a probe shows that the packets sent after it are lost.
    if (this.timer.goesBack(time) && psn === unacked) {
      return this.evidence.isAway(this.evidence.reaction) && time < this.evidence.askedUntil
        ? 'unknown'
        : 'probe';
    }
    return this.#timerCause(sent);
  }

  /**
   * Whether the NAK may have been lost behind the tap, or the response, and a probe have come in its place: after some silence, and
   * later than the sender reacts.
   */
  #mayBeProbe(sent: SentAgain, reaction: number, latency = 0): boolean {
    const { psn, time, lastSent, unacked, migReq } = sent;
    // Its answer passed the tap, and may not have come to the sender yet.
    const since = psn < unacked ? lastSent : this.timer.earliestStart;
    if (!migReq || time - since < MIN_PROBE) return false;
    // Away from the sender also sooner: then it was on its way before.
    const isSooner =
      reaction < 0.9 * this.evidence.reaction && this.evidence.reaction < Number.POSITIVE_INFINITY;
    return (
      this.evidence.isLateReaction(reaction, latency) ||
      (isSooner && this.evidence.isAway(this.evidence.reaction))
    );
  }

  /**
   * Away from the sender, where packets wait in queues, whether one that comes after a short RNR wait may have been sent before the
   * sender heard of that: no pause as long as the wait is before it, or it is later than the wait explains, or a probe is out.
   */
  #mayNotWait(sent: SentAgain, late: number): boolean {
    if (!this.evidence.isAway(this.evidence.reaction)) return false;
    const before = Math.max(sent.lastNew, this.#goBacks.event?.last ?? Number.NEGATIVE_INFINITY);
    return (
      sent.time - before < this.evidence.refusals.wait ||
      this.evidence.isLateReaction(late, 0) ||
      this.#mayFollowProbe(sent)
    );
  }

  /**
   * Away from the sender: a probe came since the packet was sent last, or what may have been one.
   * @param reaction how soon the sender reacts, if sooner than to any NAK
   */
  #mayFollowProbe({ lastSent }: SentAgain, reaction = Number.POSITIVE_INFINITY): boolean {
    const { evidence } = this;
    return this.#mayProbeTime > lastSent && evidence.isAway(Math.min(evidence.reaction, reaction));
  }

  /** Whether the sender may have sent a probe before it took the NAK in: after so long a silence, or of the newest packet. */
  #mayCross({ psn, next, end, time, migReq, lastSent, lastNew }: SentAgain): boolean {
    if (!migReq || time <= this.evidence.nakTime) return false;
    return time - Math.max(lastSent, lastNew) >= MIN_PROBE || (next === end && psn > this.evidence.nakPsn);
  }

  /** Nothing was heard: a timer, or a retransmission before it. */
  #timerCause(sent: SentAgain): RetransmitCause {
    const { psn, time, lastSent, unacked, migReq } = sent;
    // A packet before it may have shown the tap the answer to a NAK first.
    if (this.evidence.reordered && this.#likely.isAsked(psn, lastSent)) return 'unknown';
    if (!migReq) {
      // A timer goes back to the oldest packet without answer; hosts that pause go on where they were.
      if (psn !== unacked || this.#goBacks.wentOnAfterPause(psn) || this.#likely.wasAsked(psn))
        return 'unknown';
      const waited = Math.min(time - this.timer.start, time - lastSent);
      if (waited < MIN_JIFFIES_TIMER) return 'unknown';
      return 'timeout';
    }
    const { evidence } = this;
    return this.timer.causeOf(
      sent,
      evidence.isAway(evidence.reaction),
      evidence.askedUntil,
      this.#likely.pauses,
    );
  }
}

/** Nothing asks for a packet, but the go-back-N had come to it: as far as can be seen, it goes on, with the cause that it had. */
function goingOn(event: GoBack | undefined, psn: number): LikelyCause | undefined {
  if (event === undefined || psn !== event.cursor || psn >= event.end) return undefined;
  const { cause, evidenceFrame, wait } = event;
  return cause === 'unknown' ? event.likely : { cause, evidenceFrame, wait };
}
