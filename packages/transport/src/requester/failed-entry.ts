/** The send entry that can't be sent: it fails when all before it are done. */
import type { Own } from '../own.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { indexLess } from '../rings.ts';

/** Promise: an entry that has failed is not complete; of several, the first in the queue counts. */
export class FailedEntry {
  /** Whether an entry has failed and waits for those before it. */
  readonly waiting: boolean = false;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  #index = 0;
  /** `WcStatus` to complete it with. */
  #status = 0;

  constructor(owner: Owner, queue: SendQueue) {
    this.#owner = owner;
    this.#queue = queue;
  }

  /** Whether the entry that has failed is this one. */
  isAt(entry: number): boolean {
    return this.waiting && this.#index === entry;
  }

  /** The entry can't be sent. */
  set(entry: number, status: number): void {
    if (this.waiting && !indexLess(entry, this.#index)) return;
    (this as Own<FailedEntry>).waiting = true;
    this.#index = entry;
    this.#status = status;
  }

  /** No entry has failed: the queue pair is not sending, or the entry is looked at again. */
  forget(): void {
    (this as Own<FailedEntry>).waiting = false;
  }

  /** Completes the entry that has failed if it is the oldest. @returns whether it was */
  completeIfOldest(): boolean {
    if (!this.waiting || indexLess(this.#queue.head, this.#index)) return false;
    if (this.#queue.head !== this.#index) {
      // It was to be retransmitted, and what had been sent before has arrived after all.
      this.forget();
      return false;
    }
    this.completeOldest(this.#status);
    return true;
  }

  /** The oldest entry completes with this status, the rest is flushed. */
  completeOldest(status: number): void {
    this.#queue.complete(status);
    this.#owner.sendFailed();
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const isDone = this.waiting && indexLess(this.#index, this.#queue.head);
    return isDone ? 'an entry that is done has failed' : undefined;
  }
}
