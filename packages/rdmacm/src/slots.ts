/** Slots of an outbox, for those who wait for one. */

interface Waiter {
  resolve(slot: number | undefined): void;
}

/** Numbers that are in use one at a time. A slot that is released goes to the one who waits longest: order is kept. */
export class Slots {
  readonly #free: number[];
  readonly #waiters = new Set<Waiter>();
  #closed = false;

  constructor(count: number) {
    this.#free = Array.from({ length: count }, (_, slot) => slot);
  }

  /**
   * Resolves with a slot, or with undefined once it is closed; rejects with the signal's reason.
   *
   * Not an async function: the promise of a waiter would resolve a microtask later than that of a caller who finds a free slot,
   * and a later caller overtake it.
   */
  take(signal?: AbortSignal): Promise<number | undefined> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    if (this.#closed) return Promise.resolve(undefined);
    if (this.#free.length > 0) return Promise.resolve(this.#free.pop());
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiters.delete(waiter);
        reject(signal?.reason);
      };
      const waiter: Waiter = {
        resolve: (slot) => {
          signal?.removeEventListener('abort', onAbort);
          resolve(slot);
        },
      };
      this.#waiters.add(waiter);
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** Takes some out of use for good, before any is in use. */
  withhold(count: number): void {
    this.#free.splice(0, count);
  }

  /** Whether all are in use: who takes one now waits. */
  get isEmpty(): boolean {
    return this.#free.length === 0;
  }

  release(slot: number): void {
    const [waiter] = this.#waiters;
    if (waiter === undefined) {
      this.#free.push(slot);
      return;
    }
    this.#waiters.delete(waiter);
    waiter.resolve(slot);
  }

  /** Nobody waits any more. */
  close(): void {
    this.#closed = true;
    for (const waiter of this.#waiters) waiter.resolve(undefined);
    this.#waiters.clear();
  }
}
