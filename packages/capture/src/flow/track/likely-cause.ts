/**
 * The likely cause of a retransmission, where the evidence does not exclude all others (docs/capture-causes.md, "How causes are
 * found"): the newest thing that asked for the packet since it was sent last; else the silence. All times
 * are nanoseconds.
 */
import type { RetransmitCause } from '../facts.ts';
import { fitsTimer, isExactTimer } from '../record/timers.ts';
import { MIN_JIFFIES_TIMER, MIN_PROBE, MIN_TIMER } from './retry-timer.ts';
import type { SentAgain } from './sent-again.ts';

const MILLISECOND = 1e6;
/** Tail loss probes come after two round trips, or a little later where the last ACK may be delayed: after less than so many. */
const PROBE_ROUND_TRIPS = 8;
/** A reaction is the usual one if it takes no longer than so many times this sender's earlier ones. */
const USUAL = 4;
/** An RNR wait ends so much later: in time of the way, and in that of rxe's timers. */
const LATE = 0.1 * MILLISECOND;
const LATE_JIFFIES = 8 * MILLISECOND;
/** No host that works takes longer to answer a NAK: the retransmission was lost before the tap, and the timer did the rest. */
const LONGEST = 32 * MILLISECOND;
const JIFFY = 4 * MILLISECOND;
/** Observed timers of one queue pair are alike by this share. */
const ALIKE = 0.15;

/** A cause with its evidence. */
export interface LikelyCause {
  cause: RetransmitCause;
  evidenceFrame: number;
  /** Since the evidence, or since the retry timer runs; 0: since when is not known. */
  wait: number;
}

/** One thing that asks for a PSN. */
interface Request {
  psn: number;
  time: number;
  frame: number;
  /** It came while the requester recovered already: rxe ignores that until an ACK comes. */
  ignored: boolean;
}

/** NAKs remembered: where packets come out of order, the next one may pass before the first is answered. */
const NAKS = 8;

const NEVER: Request = { psn: -1, time: Number.NEGATIVE_INFINITY, frame: 0, ignored: false };

/** The NAKs and missing responses of one requester, and how it reacts to them. */
export class LikelyCauses {
  /** The requester went back, and nothing was acknowledged since. */
  recovering = false;
  /** The last sequence NAKs, the newest first. */
  readonly #naks: Request[] = [];
  #rnr = NEVER;
  #rnrWait = 0;
  #missing = NEVER;
  /** The longest usual time from a NAK or missing response to the packet that it asked for; 0: none was seen. */
  #reaction = 0;
  #lateness = 0;
  /** The last silence that ended in a timeout; 0: none. */
  #timer = 0;
  /** The longest silence that ended in a probe; 0: none. And the packet that the last one brought. */
  #probe = 0;
  #probePsn = -1;
  #probeTime = Number.NEGATIVE_INFINITY;
  /** Silences that no timer is as long as have ended in probes: this sender pauses, and may pause for as long as a timer is. */
  pauses = false;

  nak(psn: number, time: number, frame: number): void {
    this.#naks.unshift({ psn, time, frame, ignored: this.recovering });
    if (this.#naks.length > NAKS) this.#naks.pop();
  }

  rnr(psn: number, time: number, frame: number, wait: number): void {
    this.#rnr = { psn, time, frame, ignored: false };
    this.#rnrWait = wait;
  }

  missing(psn: number, time: number, frame: number): void {
    this.#missing = { psn, time, frame, ignored: this.recovering };
  }

  get #nak(): Request {
    return this.#naks[0] ?? NEVER;
  }

  get nakFrame(): number {
    return this.#nak.frame;
  }

  get rnrFrame(): number {
    return this.#rnr.frame;
  }

  get missingFrame(): number {
    return this.#missing.frame;
  }

  get missingPsn(): number {
    return this.#missing.psn;
  }

  get rnrTime(): number {
    return this.#rnr.time;
  }

  /** How long the answer to a NAK takes at most, as seen so far, and what packets of this sender have come late by. */
  get usualReaction(): number {
    return USUAL * this.#reaction + this.#lateness;
  }

  /** A packet of this sender came late by so much. */
  late(by: number): void {
    if (by > this.#lateness) this.#lateness = by;
  }

  /** Learns this sender's habits from a cause that is certain. */
  confirmed(cause: RetransmitCause, { psn, time }: SentAgain, silence: number): void {
    if (cause === 'sequence-nak') this.#reacted(time - this.#nak.time);
    else if (cause === 'implied-nak') this.#reacted(time - this.#missing.time);
    else if (cause === 'timeout') this.#timer = silence;
    else if (cause === 'probe') this.#probed(psn, silence, time);
  }

  /**
   * The likely cause of a packet with which the requester went back; undefined if nothing speaks for one.
   * @param running since the retry timer runs, as the capture shows
   * @param heard both directions are in the capture
   */
  of(sent: SentAgain, running: number, heard: boolean): LikelyCause | undefined {
    const { psn, next, sentBy: time, lastSent, lastFrame, migReq, unacked } = sent;
    const silence = Math.min(running, time - lastSent);
    const isTimer = this.#isTimer(silence, migReq);
    const rnr = this.#rnr;
    const waited = time - rnr.time;
    if (
      rnr.time >= lastSent &&
      (migReq ? psn >= rnr.psn : psn <= rnr.psn) &&
      waited >= 0.95 * this.#rnrWait
    ) {
      // No probe is sent within the wait, and a timer ends no earlier: a busy host is late.
      const latest = migReq ? 1.15 * this.#rnrWait + LATE : 2 * this.#rnrWait + LATE_JIFFIES;
      const isOnlyLate = migReq && heard && psn === rnr.psn && !isTimer && waited < LONGEST;
      if (waited <= latest || isOnlyLate) {
        return { cause: 'rnr', evidenceFrame: rnr.frame, wait: waited };
      }
    }
    const nak = this.#nakFor(sent);
    const missing = this.#missing;
    const isNaked = nak !== NEVER;
    const isMissing = missing.time >= lastSent && missing.time <= time && psn === missing.psn;
    const asked = isMissing && (!isNaked || missing.time > nak.time) ? missing : isNaked ? nak : undefined;
    if (asked !== undefined) {
      const reaction = time - asked.time;
      const isNew = this.#reaction === 0 && reaction < LONGEST && !this.#isKnownTimer(silence, migReq);
      // Hosts pause: but for what it ignores, rxe answers a NAK however late.
      const isHeeded = !migReq && !asked.ignored && reaction < LONGEST && !this.#isLikeBefore(silence);
      const isNoTimer = !isTimer && (migReq || reaction < LONGEST);
      if (isHeeded || reaction <= this.usualReaction || isNoTimer || isNew) {
        const cause = asked === nak ? 'sequence-nak' : 'implied-nak';
        return { cause, evidenceFrame: asked.frame, wait: reaction };
      }
    }
    // Its answer passed the tap, and so did later ones: one of them was lost behind it.
    if (!migReq && sent.asks && next < unacked && silence < LONGEST)
      return { cause: 'implied-nak', evidenceFrame: 0, wait: silence };
    const isProbe = migReq && heard && this.#isProbe(sent, silence);
    if (isTimer && !isProbe && (heard || fitsTimer(silence, migReq) >= 0)) {
      return { cause: 'timeout', evidenceFrame: lastFrame, wait: silence };
    }
    if (!heard) return undefined;
    // A response behind a missing one came, and the READ goes back further: an earlier one was lost behind the tap, too.
    if (!migReq && sent.asks && silence < MIN_JIFFIES_TIMER && missing.time >= lastSent)
      return { cause: 'implied-nak', evidenceFrame: missing.frame, wait: time - missing.time };
    // rxe has no other reason to go back: its timer began with an earlier packet, or the answer was still on its way.
    const since = time - lastSent;
    const wait = since >= MIN_JIFFIES_TIMER ? since : 0;
    if (!migReq) return { cause: 'timeout', evidenceFrame: lastFrame, wait };
    // Its answer passed the tap, and so did later ones: one of them was lost behind it.
    if (sent.asks && next < unacked) return { cause: 'implied-nak', evidenceFrame: 0, wait: silence };
    // At once after the packet that a probe brought: the sender goes back from there.
    const isAfterProbe = migReq && psn === this.#probePsn && time - this.#probeTime < MIN_PROBE;
    if (!isProbe && isAfterProbe) return { cause: 'probe', evidenceFrame: lastFrame, wait: 0 };
    if (!isProbe) return undefined;
    this.#probed(psn, silence, time);
    return { cause: 'probe', evidenceFrame: lastFrame, wait: silence };
  }

  /**
   * The oldest or the newest packet comes again after some round trips of silence, or after such as this sender has probed before.
   * Older than the oldest: the answer passed the tap and was lost behind it.
   */
  #isProbe({ psn, next, unacked, end, roundTrip }: SentAgain, silence: number): boolean {
    if (silence < MIN_PROBE || (psn > unacked && next !== end)) return false;
    if (silence < MIN_TIMER || silence <= Math.max(PROBE_ROUND_TRIPS * roundTrip, 2 * this.#probe))
      return true;
    const isNoTimer = fitsTimer(silence, true) < 0;
    if (this.#probe === 0) return isNoTimer && silence < LONGEST;
    // A sender that probes does so before the timer ends, though late on a busy host.
    return isNoTimer || (psn !== this.#probePsn && silence < LONGEST && !this.#isLikeBefore(silence));
  }

  #probed(psn: number, silence: number, time: number): void {
    this.#probePsn = psn;
    this.#probeTime = time;
    if (silence > this.#probe) this.#probe = silence;
    if (silence >= MIN_TIMER && fitsTimer(silence, true) < 0) this.pauses = true;
  }

  /** The NAK for this very PSN, else the newest one that asks for it among others. Late packets may have passed it. */
  #nakFor({ psn, sentBy, lastSent }: SentAgain): Request {
    // Nothing else repeats a packet at once: a burst may hold it twice.
    const isAtOnce = sentBy - lastSent < MIN_PROBE;
    const since = lastSent - Math.max(this.#lateness, isAtOnce ? LONGEST : 0);
    const exact = this.#naks.find((nak) => nak.psn === psn && nak.time >= since && nak.time <= sentBy);
    if (exact !== undefined) return exact;
    const nak = this.#nak;
    return nak.time >= lastSent && nak.time <= sentBy && psn >= nak.psn ? nak : NEVER;
  }

  #reacted(reaction: number): void {
    if (reaction > this.#reaction) this.#reaction = reaction;
  }

  /** Whether a NAK or a missing response asked for this PSN after it was sent last. */
  isAsked(psn: number, lastSent: number): boolean {
    return (
      (this.#nak.psn === psn && this.#nak.time >= lastSent) ||
      (this.#missing.psn === psn && this.#missing.time >= lastSent)
    );
  }

  /** Whether a NAK or a missing response has asked for this PSN at all: a slow sender may answer it twice. */
  wasAsked(psn: number): boolean {
    return this.#nak.psn === psn || this.#missing.psn === psn;
  }

  /** Hardware keeps to its timers, so exactly that a host's pause hardly ever is one; those of others count once they were seen. */
  #isKnownTimer(silence: number, migReq: boolean): boolean {
    return (migReq && isExactTimer(silence)) || this.#isLikeBefore(silence);
  }

  /** Whether a silence may be the retry timer: one of the standard's, as long as one before, or rxe's, which is coarse. */
  #isTimer(silence: number, migReq: boolean): boolean {
    if (silence < (migReq ? MIN_TIMER : MIN_JIFFIES_TIMER)) return false;
    return !migReq || this.#isLikeBefore(silence) || fitsTimer(silence, migReq) >= 0;
  }

  #isLikeBefore(silence: number): boolean {
    return this.#timer > 0 && Math.abs(silence - this.#timer) < Math.max(ALIKE * this.#timer, JIFFY);
  }
}
