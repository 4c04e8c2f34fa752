/** End-to-end flow control of requests that consume a receive at the peer (IBTA vol 1 §9.7.7.2). */
import { AethKind, aethKind, aethValue, CREDIT_UNLIMITED, creditsOf, psnAdd, psnDiff } from '@node-roce/wire';

/**
 * Send sequence numbers (SSN) count request messages as the responder's MSN does: one for each READ request,
 * into however many a READ is split. The limit only grows, and code 31 lifts it for good: so an old ACK, or a forged one,
 * holds nothing back. The limit is renewed with each ACK, at most 2^22 messages behind, so the two numbers are
 * compared within half of their range.
 */
export class Credits {
  /** SSN of the last message that was started. */
  #ssn = 0;
  /** The last SSN that the peer has a receive for. */
  #limit = 0;
  #limited = false;

  /** @param limited whether the service has credits: reliable connections do */
  reset(limited: boolean): void {
    this.#ssn = this.#limit = 0;
    this.#limited = limited;
  }

  /** Whether the last message that was started is the one that may go past the limit (§9.7.7.2.5). */
  get exhausted(): boolean {
    return this.#limited && psnDiff(this.#ssn, this.#limit) > 0;
  }

  /** Counts messages that are started; negative: that are not started after all. */
  count(messages: number): void {
    this.#ssn = psnAdd(this.#ssn, messages);
  }

  /** Takes the credits of an AETH. @returns whether more may be sent than before */
  take(syndrome: number, msn: number): boolean {
    if (!this.#limited || aethKind(syndrome) !== AethKind.ACK) return false;
    const code = aethValue(syndrome);
    if (code === CREDIT_UNLIMITED) {
      this.#limited = false;
      return true;
    }
    const limit = psnAdd(msn, creditsOf(code));
    if (psnDiff(limit, this.#limit) <= 0) return false;
    this.#limit = limit;
    return true;
  }
}
