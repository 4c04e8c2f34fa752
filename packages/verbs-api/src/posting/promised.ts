/**
 * Requests whose completion is awaited (`await qp.send(bytes)`). They are distinguished from a program's own by their wrId: a
 * tag of this completion queue, drawn at random, in the high word and a count in the low one. The completion queue takes
 * theirs out of what a program polls.
 */
import { completionError, type WorkCompletion } from '../work-completion.ts';

interface Waiter {
  readonly qpNum: number;
  resolve(wc: WorkCompletion): void;
  reject(reason: unknown): void;
}

/** The awaited requests of a queue pair. */
export class PromisedRequests {
  readonly #tag: number;
  readonly #waiters = new Map<number, Waiter>();
  #next = 0;

  /** @param tag 32 random bits */
  constructor(tag: number) {
    this.#tag = tag >>> 0;
  }

  /** Promises that are not settled, and aborted ones whose request is still under way. */
  get size(): number {
    return this.#waiters.size;
  }

  /**
   * Posts a request and resolves with its completion; rejects with a RoceError if it fails, or with the signal's reason.
   * An abort does not recall the request: its completion is dropped.
   */
  post(
    qpNum: number,
    signal: AbortSignal | undefined,
    post: (wrId: bigint) => void,
  ): Promise<WorkCompletion> {
    signal?.throwIfAborted();
    const number = this.#next;
    this.#next = (this.#next + 1) >>> 0;
    post((BigInt(this.#tag) << 32n) | BigInt(number));
    return new Promise((resolve, reject) => {
      const onAbort = () => reject(signal?.reason);
      signal?.addEventListener('abort', onAbort, { once: true });
      const settled = () => signal?.removeEventListener('abort', onAbort);
      this.#waiters.set(number, {
        qpNum,
        resolve: (wc) => {
          settled();
          resolve(wc);
        },
        reject: (reason) => {
          settled();
          reject(reason);
        },
      });
    });
  }

  /** Whether a completion is that of an awaited request. */
  owns(wc: WorkCompletion): boolean {
    return wc.wrIdHigh === this.#tag && this.#waiters.has(wc.wrIdLow);
  }

  /** Settles the promise of a completion. Returns false if it is the program's own. */
  settle(wc: WorkCompletion): boolean {
    if (wc.wrIdHigh !== this.#tag) return false;
    const waiter = this.#waiters.get(wc.wrIdLow);
    if (waiter === undefined) return false;
    this.#waiters.delete(wc.wrIdLow);
    if (wc.ok) waiter.resolve(wc);
    else waiter.reject(completionError(wc));
    return true;
  }

  /** Rejects the pending promises: of one queue pair, which is gone, or all. */
  fail(reason: unknown, qpNum?: number): void {
    for (const [number, waiter] of this.#waiters) {
      if (qpNum !== undefined && waiter.qpNum !== qpNum) continue;
      this.#waiters.delete(number);
      waiter.reject(reason);
    }
  }
}
