/** End-to-end flow control of requests that consume a receive at the peer (IBTA vol 1 §9.7.7.2). */
import {
  AethKind,
  aethKind,
  aethValue,
  CREDIT_UNLIMITED,
  creditsOf,
  PSN_MASK,
  psnAdd,
  psnDiff,
} from '@node-roce/wire';
import type { Own } from '../own.ts';

/**
 * Send sequence numbers (SSN) count request messages as the responder's MSN does: one for each READ request,
 * into however many a READ is split. The limit only grows, and code 31 lifts it for good: so an old ACK, or a forged one,
 * holds nothing back. The limit is renewed with each ACK, at most 2^22 messages behind, so the two numbers are
 * compared within half of their range.
 */
export class Credits {
  /** Whether the peer counts its receives: else nothing is counted here, and nothing is ever `exhausted`. */
  readonly limited: boolean = false;
  /** SSN of the last message that was started. */
  #ssn = 0;
  /** The last SSN that the peer has a receive for. */
  #limit = 0;
  /** READ requests that were asked for a part alone: the responder may have counted the part, and the rest by itself. */
  #parts = 0;

  /** @param limited whether the service has credits: reliable connections do */
  reset(limited: boolean): void {
    this.#ssn = this.#limit = this.#parts = 0;
    (this as Own<Credits>).limited = limited;
  }

  /** Messages that may be started before they are `exhausted`; never below 0. */
  get left(): number {
    return this.limited ? Math.max(0, psnDiff(this.#limit, this.#ssn) + 1) : PSN_MASK;
  }

  /** Whether the last message that was started is the one that may go past the limit (§9.7.7.2.5). */
  get exhausted(): boolean {
    return this.limited && psnDiff(this.#ssn, this.#limit) > 0;
  }

  /** Counts messages that are started; negative: that are not started after all. */
  count(messages: number): void {
    this.#ssn = psnAdd(this.#ssn, messages);
  }

  /** A part of a READ request is asked for alone. */
  askedForPart(): void {
    this.#parts++;
  }

  /** Takes the credits of an AETH. @returns whether more may be sent than before */
  take(syndrome: number, msn: number): boolean {
    if (!this.limited || aethKind(syndrome) !== AethKind.ACK) return false;
    const code = aethValue(syndrome);
    if (code === CREDIT_UNLIMITED) {
      (this as Own<Credits>).limited = false;
      return true;
    }
    // No more can be done than was started, but for requests that were counted twice.
    const more = psnDiff(msn, this.#ssn);
    if (more > 0 && more <= this.#parts) {
      this.#ssn = msn;
      this.#parts -= more;
    }
    const limit = psnAdd(msn, creditsOf(code));
    if (psnDiff(limit, this.#limit) <= 0) return false;
    this.#limit = limit;
    return true;
  }
}

/** Of services that have none: never `limited`, so nothing is counted. */
export const NO_CREDITS = new Credits();
