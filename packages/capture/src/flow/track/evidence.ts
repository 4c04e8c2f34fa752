/**
 * The answers that ask one requester for packets, as a capture shows them, and how quickly it reacts. All times are
 * nanoseconds, PSNs unwrapped.
 */
import { MIN_TIMER } from './retry-timer.ts';

const MICROSECOND = 1000;
/** A sender reacts within so much of its usual time, where no queue is on the way. */
export const REACTION_SPREAD = 4 * MICROSECOND;

/** The answers that may be the cause of a retransmission. A PSN of −1: nothing of the kind waits for it. */
export class AnswerEvidence {
  /** RNR NAKs. */
  readonly refusals = new Refusals();
  /** The last sequence NAK, and the PSN at which the sender would go on after the responses that it asked for. */
  nakPsn = -1;
  nakNext = -1;
  nakTime = 0;
  /** It answers a probe: it is for either that the sender goes back. */
  nakAnswersProbe = false;
  /** The PSN whose response was missing. */
  missingPsn = -1;
  missingTime = 0;
  missingAnswersProbe = false;
  /** A response was missing, a sequence NAK came, and nothing was sent since. */
  missedSinceSend = false;
  nakedSinceSend = false;
  /** Packets have come late. */
  reordered = false;
  /** The shortest time from a packet to its answer; from a NAK to the packet that it asked for. */
  leastLatency = Number.POSITIVE_INFINITY;
  reaction = Number.POSITIVE_INFINITY;
  /** When a READ or atomic was last answered. */
  answerTime = Number.NEGATIVE_INFINITY;
  /** When one came again: the sender had missed it, or the one after it. */
  answerAgainTime = Number.NEGATIVE_INFINITY;
  /** Packets that NAKs or missing responses asked for so far have come again by then. */
  askedUntil = Number.NEGATIVE_INFINITY;

  /** @param unacked before it everything is answered @param answersProbe a probe is out, or was answered just now */
  sequenceNak(psn: number, time: number, unacked: number, answersProbe: boolean): void {
    this.nakAnswersProbe = answersProbe;
    this.nakPsn = psn;
    this.nakNext = psn;
    this.nakTime = time;
    this.askedUntil = Math.max(this.askedUntil, time + MIN_TIMER);
    // Behind a READ or atomic without answer it is an implied NAK, and after one it adds no information.
    if (!this.missedSinceSend && psn === unacked) this.nakedSinceSend = true;
  }

  /** @returns false if it repeats the one before it: nothing was retransmitted since */
  rnrNak(psn: number, time: number, wait: number, sends: number): boolean {
    if (!this.refusals.add(psn, time, wait, sends)) return false;
    this.askedUntil = Math.max(this.askedUntil, time + wait + MIN_TIMER);
    return true;
  }

  /** A response came though this PSN was not answered. */
  responseMissing(psn: number, time: number, answersProbe: boolean): void {
    this.missingAnswersProbe = answersProbe;
    this.missingPsn = psn;
    this.missingTime = time;
    this.askedUntil = Math.max(this.askedUntil, time + MIN_TIMER);
    this.missedSinceSend = true;
  }

  /** Something new was sent: what answers have overtaken asks for nothing. */
  sentNew(unacked: number): void {
    this.missedSinceSend = this.nakedSinceSend = false;
    if (this.nakPsn < unacked) this.nakPsn = -1;
    if (this.refusals.openPsn < unacked) this.refusals.close();
    if (this.missingPsn < unacked) this.missingPsn = -1;
  }

  /** A packet was answered after this time. */
  acknowledged(latency: number): void {
    if (latency < this.leastLatency) this.leastLatency = latency;
  }

  /** A response to a READ or atomic came; again, if the capture has shown it before. */
  answered(time: number, again: boolean): void {
    this.answerTime = time;
    if (again) this.answerAgainTime = time;
  }

  /** A sequence NAK asks for a packet at this PSN. */
  isNaked(psn: number): boolean {
    return this.nakPsn >= 0 && psn >= this.nakPsn;
  }

  /** An RNR NAK for this PSN waits for its end: when it came, or −1. */
  rnrSince(psn: number): number {
    const { openPsn, time } = this.refusals;
    return openPsn >= 0 && psn <= openPsn ? time : -1;
  }

  /** The tap is not at the sender, which would react much sooner than it gets answers. */
  isAway(reaction: number): boolean {
    return reaction >= MICROSECOND && 4 * reaction >= this.leastLatency;
  }

  /** Later than this sender reacts; one that has not yet is taken to react within `latency`. */
  isLateReaction(reaction: number, latency: number): boolean {
    const known = this.reaction < Number.POSITIVE_INFINITY ? this.reaction : latency;
    const usual = Math.min(known, this.leastLatency);
    return reaction > REACTION_SPREAD + (usual === Number.POSITIVE_INFINITY ? 0 : usual);
  }

  /**
   * The READ or atomic before it was answered, but the answer may have been lost behind the tap: then the NAK, or RNR NAK, was
   * taken for an implied one, and the READ that came again was lost before the tap.
   */
  mayBeImplied(afterAsking: boolean, unseen: boolean, reaction: number, asked = this.nakTime): boolean {
    if (afterAsking && unseen) return true;
    const answered = afterAsking ? this.answerTime : this.answerAgainTime;
    return this.isAway(reaction) && asked - answered <= 2 * reaction;
  }

  /** From the tap to one end and back, and to the other and back, takes time: it was on its way before. */
  comesTooSoon(reaction: number): boolean {
    return reaction + this.leastLatency < MICROSECOND;
  }
}

/** The RNR NAKs of the request that a responder refused last (IBTA vol 1 §9.7.5.2.8). */
class Refusals {
  /** PSN of the request; −1 before the first. */
  psn = -1;
  count = 0;
  /** When the last one came: nanoseconds since the capture's begin. */
  time = 0;
  /** How long it asks the requester to wait, in nanoseconds. */
  wait = 0;
  /** Transmissions of the request until then. */
  sends = 0;
  #isOpen = false;

  /** The PSN whose retransmission is waited for; −1: it came, or was answered. */
  get openPsn(): number {
    return this.#isOpen ? this.psn : -1;
  }

  /** @returns false if it repeats one that is open: nothing was sent since */
  add(psn: number, time: number, wait: number, sends: number): boolean {
    if (this.#isOpen && this.psn === psn) return false;
    this.count = this.psn === psn ? this.count + 1 : 1;
    this.psn = psn;
    this.time = time;
    this.wait = wait;
    this.sends = sends;
    this.#isOpen = true;
    return true;
  }

  /** The request was retransmitted, or the wait is over for another reason. */
  close(): void {
    this.#isOpen = false;
  }
}
