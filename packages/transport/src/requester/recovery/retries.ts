/** How often a requester may still ask again: `retry_cnt` and `rnr_retry` (ibv_modify_qp(3)). */
import { WcStatus } from '../../constants.ts';
import type { Owner } from '../../qp/owner.ts';
import type { FailedEntry } from '../failed-entry.ts';

/** `rnr_retry` 7 means for ever; `retry_cnt` 7 is a count like the others. */
const RNR_RETRY_INFINITE = 7;

/** Promise: what is left is never more than was granted, and never negative. */
export class Retries {
  #granted = 0;
  #left = 0;
  #rnrGranted = 0;
  #rnrLeft = 0;

  /** Grants `retryCnt` retries anew. */
  grant(retryCnt: number): void {
    this.#granted = this.#left = retryCnt;
  }

  /** Grants `rnrRetry` retries after RNR NAKs anew. */
  grantRnr(rnrRetry: number): void {
    this.#rnrGranted = this.#rnrLeft = rnrRetry;
  }

  /** Something was acknowledged: both counts start anew. */
  progress(): void {
    this.#left = this.#granted;
    this.#rnrLeft = this.#rnrGranted;
  }

  get anyLeft(): boolean {
    return this.#left > 0;
  }

  /** Takes a retry after a timeout, a NAK or an implied NAK. False: none is left. */
  spend(): boolean {
    if (this.#left === 0) return false;
    this.#left--;
    return true;
  }

  /** Takes a retry after an RNR NAK. False: none is left. */
  spendRnr(): boolean {
    if (this.#rnrGranted === RNR_RETRY_INFINITE) return true;
    if (this.#rnrLeft === 0) return false;
    this.#rnrLeft--;
    return true;
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const fits =
      this.#left >= 0 &&
      this.#left <= this.#granted &&
      this.#rnrLeft >= 0 &&
      this.#rnrLeft <= this.#rnrGranted;
    return fits
      ? undefined
      : `${this.#left} of ${this.#granted} retries, ${this.#rnrLeft} of ${this.#rnrGranted} after RNR NAKs`;
  }
}

/** Takes a retry; without one left, the connection migrates, or the oldest entry fails. @returns whether there was one */
export function spendRetry(retries: Retries, owner: Owner, failed: FailedEntry): boolean {
  const { counters } = owner;
  if (retries.spend()) {
    counters.retries++;
    return true;
  }
  // All is retransmitted on the other path, with new retries: the caller has nothing to do.
  if (owner.migrates()) return false;
  counters.retryExceededErr++;
  failed.completeOldest(WcStatus.RETRY_EXC_ERR);
  return false;
}
