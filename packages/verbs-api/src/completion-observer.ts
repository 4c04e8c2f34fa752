/**
 * Looks at completions before the program does: settles awaited requests, and reports failures of queue pairs that are
 * watched. It takes completions out of the ring as they come; the program's own are held until it polls.
 */
import { PromisedRequests } from './posting/promised.ts';
import type { WorkCompletion } from './work-completion.ts';

/** The parts of a completion queue that an observer needs. */
export interface ObservedQueue {
  /** Takes all that is in the ring. */
  sweep(): WorkCompletion[];
  /** Resolves when there is something to sweep; rejects with the error that ended the queue. */
  wait(): Promise<void>;
  /** Completions were held that the program may be waiting for. */
  onHeld(): void;
}

/** Called with a completion that failed, or with the error that ended the completion queue. */
export type FailureListener = (failure: WorkCompletion | Error) => void;

/** Gives completions of awaited requests to their promises, and keeps the others for `poll`. */
export class CompletionObserver {
  readonly #promised: PromisedRequests;
  readonly #queue: ObservedQueue;
  readonly #watched = new Map<number, FailureListener>();
  #held: WorkCompletion[] = [];
  #running = false;

  constructor(tag: number, queue: ObservedQueue) {
    this.#promised = new PromisedRequests(tag);
    this.#queue = queue;
  }

  /** Completions of the program that wait for its poll. */
  get held(): number {
    return this.#held.length;
  }

  take(max: number): WorkCompletion[] {
    return this.#held.splice(0, max);
  }

  /** Returns whether the completion is one of an awaited request. */
  observe(wc: WorkCompletion): boolean {
    if (!wc.ok) {
      wc.awaited = this.#promised.owns(wc);
      this.#watched.get(wc.qpNum)?.(wc);
    }
    return this.#promised.settle(wc);
  }

  /** Posts a request of a queue pair and resolves with its completion. */
  post(
    qpNum: number,
    signal: AbortSignal | undefined,
    post: (wrId: bigint) => void,
  ): Promise<WorkCompletion> {
    const promise = this.#promised.post(qpNum, signal, post);
    this.#run();
    return promise;
  }

  /** Rejects the pending promises of a queue pair that is destroyed or was reset. */
  abandon(qpNum: number, reason: unknown): void {
    this.#promised.fail(reason, qpNum);
  }

  watch(qpNum: number, listener: FailureListener): void {
    this.#watched.set(qpNum, listener);
    this.#run();
  }

  unwatch(qpNum: number): void {
    this.#watched.delete(qpNum);
  }

  /** Sweeps as long as anybody waits. */
  #run(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#sweep();
  }

  /** It ends in the step in which it looks for the last time: who comes later starts another. */
  async #sweep(): Promise<void> {
    try {
      while (this.#promised.size > 0 || this.#watched.size > 0) {
        const own = this.#queue.sweep().filter((wc) => !this.observe(wc));
        this.#held.push(...own);
        if (own.length > 0) this.#queue.onHeld();
        if (this.#promised.size > 0 || this.#watched.size > 0) await this.#queue.wait();
      }
    } catch (error) {
      this.#promised.fail(error);
      for (const listener of [...this.#watched.values()]) listener(error as Error);
      this.#watched.clear();
    } finally {
      this.#running = false;
    }
  }
}
