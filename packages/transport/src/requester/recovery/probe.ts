/**
 * Tail loss probes (RFC 8985 §7, fitted to RoCE): a lost tail draws no NAK, so when an answer is overdue by the round trip, one packet is
 * sent once more for an answer. It takes no retry, and the ACK timer runs on.
 */
import { psnDiff } from '@node-roce/wire';
import { OVERDUE_MAX, type RoundTrip } from '../round-trip.ts';
import type { LossBursts } from './loss-bursts.ts';

/** Its answer comes a round trip after it, up to this many times the least one. */
const PROMPT = 3 / 2;
const NONE = -1;

/**
 * Owns whether one may be sent. A probe shows no loss, and nor does its answer: that an ACK covers it may be due to the packets before it,
 * which a busy peer has just come to. A NAK, or a response past one that is missing, shows a loss, and the probe is there to draw it.
 *
 * - None before the round trip is known, so that a peer that never answers sees 1 + `retry_cnt` transmissions.
 * - On a connection that lost nothing, one for each flight (RFC 8985 §7.3): none until all that was in flight then is acknowledged.
 * - Where losses were seen, a probe is lost as easily as what it asks for: further ones follow, the interval doubling (RFC 9002 §6.2.1).
 * - None after the ACK timer has run out, until something is acknowledged.
 */
export class Probe {
  readonly #roundTrip: RoundTrip;
  readonly #losses: LossBursts;
  #enabled = false;
  #wanted = false;
  /** Sent, or about to be, since the last progress. */
  #unanswered = 0;
  /** One past the last PSN in flight when the last one was sent, until that is acknowledged; −1: it is. */
  #flightEnd = NONE;
  /** It asks for everything before this PSN; −1: nothing is awaited. */
  #end = NONE;
  /** When it was sent, or the timer ran out, µs. */
  #sentAt = 0;
  /** It asks for one response of a READ that has more, at this PSN; −1: it does not. */
  #part = NONE;
  /** The answer came a round trip after it, and not twice so far. */
  #mayHaveRepaired = false;
  #timedOut = false;
  /** The timer was late once since the last progress. */
  #isDelayed = false;

  constructor(roundTrip: RoundTrip, losses: LossBursts) {
    this.#roundTrip = roundTrip;
    this.#losses = losses;
  }

  /** A new connection, or another path: whether there are any. */
  enable(enabled: boolean): void {
    this.#enabled = enabled;
    this.#unanswered = 0;
    this.#timedOut = false;
    this.#mayHaveRepaired = false;
    this.forget();
  }

  /** Whether one may be sent now. */
  get isAllowed(): boolean {
    if (!this.#enabled || this.#timedOut || this.#roundTrip.smoothed === 0) return false;
    return this.#flightEnd === NONE || this.#losses.areSeen;
  }

  /** Whole µs after which an answer is overdue; −1: none may be sent. */
  get delay(): number {
    if (!this.isAllowed) return NONE;
    const { overdue } = this.#roundTrip;
    return this.#unanswered === 0 ? overdue : Math.min(OVERDUE_MAX, overdue * 2 ** this.#doublings()) | 0;
  }

  /** As on a connection that was never probed. */
  get isQuiet(): boolean {
    if (this.#wanted || this.#unanswered > 0 || this.#mayHaveRepaired) return false;
    return !this.#timedOut && this.#flightEnd === NONE && this.#end === NONE;
  }

  /** After each, but where losses are frequent after each second one: there the first is easily lost. */
  #doublings(): number {
    return this.#losses.isFrequent ? this.#unanswered >> 1 : this.#unanswered;
  }

  /** Whether the next turn sends one. */
  get wanted(): boolean {
    return this.#wanted;
  }

  /**
   * The timer has fired, `late` µs after its time. If that is longer than a round trip, this host was paused, and the answer may be here by now:
   * it is given another interval, once.
   *
   * @returns whether that is so
   */
  isDelayed(late: number): boolean {
    if (this.#isDelayed || late <= this.#roundTrip.least) return false;
    this.#isDelayed = true;
    return true;
  }

  /** An answer is overdue. */
  want(): void {
    this.#unanswered++;
    this.#wanted = true;
  }

  /** The turn to send it has come. */
  take(): void {
    this.#wanted = false;
  }

  /** Sent, or about to be, since the last progress. */
  get unanswered(): number {
    return this.#unanswered;
  }

  /** One was sent at `now` µs, with those before `flightEnd` in flight; for one response of many at the PSN `part` (−1: it was not). */
  sent(now: number, end: number, flightEnd: number, part: number): void {
    this.#sentAt = now;
    this.#end = end;
    this.#flightEnd = flightEnd;
    this.#part = part;
    this.#mayHaveRepaired = false;
  }

  /** Whether the last one asks for the READ response at `psn` alone: a response there that is LAST or ONLY is its own. */
  asksOnlyFor(psn: number): boolean {
    return this.#part === psn;
  }

  /**
   * Everything before `unackedPsn` is acknowledged, and where losses are frequent that is most likely the answer to the last one: what was
   * sent before it, and is not answered, is lost (RACK, RFC 8985 §6.2). An answer sooner than half the least round trip is to the packets before.
   *
   * @returns whether something in flight is lost
   */
  showsLoss(now: number, unackedPsn: number): boolean {
    if (this.#end === NONE || psnDiff(unackedPsn, this.#end) < 0) return false;
    this.#end = NONE;
    if (this.#flightEnd === NONE || !this.#losses.isFrequent) return false;
    return now - this.#sentAt >= this.#roundTrip.least / 2;
  }

  /** Everything before `unackedPsn` is acknowledged at `now` µs, and that is more than before. */
  progress(now: number, unackedPsn: number): void {
    this.#unanswered = 0;
    this.#isDelayed = false;
    // More came, and no second answer: what was repeated had been lost (RFC 8985 §7.4.2), or a responder has answered both at once.
    if (this.#mayHaveRepaired) this.#losses.suspected();
    this.#mayHaveRepaired = false;
    // Sooner than a round trip takes, it is to the packets before; later, the peer was slow.
    const { least } = this.#roundTrip;
    const after = now - this.#sentAt;
    const isPrompt = after >= least && after <= PROMPT * least;
    if (this.#timedOut) {
      this.#timedOut = false;
      // After so long a silence, that is no accident.
      if (isPrompt) this.#losses.seen();
    } else if (this.#flightEnd !== NONE && psnDiff(unackedPsn, this.#flightEnd) >= 0) {
      this.forget();
      this.#mayHaveRepaired = isPrompt;
      if (!isPrompt) this.#losses.suspectedInVain();
    }
  }

  /** The peer answers twice: it had the packet already. */
  answeredTwice(): void {
    if (this.#mayHaveRepaired) this.#losses.suspectedInVain();
    this.#mayHaveRepaired = false;
  }

  /** The ACK timer ran out at `now` µs, and the oldest packet is retransmitted. */
  timedOut(now: number): void {
    this.#timedOut = true;
    this.#sentAt = now;
  }

  /** The flight is acknowledged, or everything in flight is retransmitted, or nothing is in flight any more. */
  forget(): void {
    this.#wanted = false;
    this.#flightEnd = NONE;
    this.#end = NONE;
    this.#part = NONE;
  }
}
