const NONE = -1;

/**
 * The place where READ or atomic responses were found missing last: what is missing there is asked for once, until all is retransmitted because
 * nothing was heard.
 */
export class MissingResponses {
  /** `unackedPsn` when they were found missing, and the restarts then; −1: none are. */
  #psn = NONE;
  #restartsThen = 0;
  /** Times that all was retransmitted because nothing was heard, modulo 2^32. */
  #restarts = 0;

  /** All is retransmitted: responses that are missing then are missing again. */
  restarted(): void {
    this.#restarts = (this.#restarts + 1) | 0;
  }

  /** Whether they were asked for already, with everything before `unackedPsn` acknowledged. */
  isAsked(unackedPsn: number): boolean {
    return this.#psn === unackedPsn && this.#restartsThen === this.#restarts;
  }

  asked(unackedPsn: number): void {
    this.#psn = unackedPsn;
    this.#restartsThen = this.#restarts;
  }

  /** Something was acknowledged: everything before `unackedPsn`. */
  progress(unackedPsn: number): void {
    if (this.#psn !== unackedPsn) this.#psn = NONE;
  }

  forget(): void {
    this.#psn = NONE;
  }
}
