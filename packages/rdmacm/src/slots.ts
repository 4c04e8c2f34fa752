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

  /** Resolves with a slot, or with undefined once it is closed; rejects with the signal's reason. */
  async take(signal?: AbortSignal): Promise<number | undefined> {
    signal?.throwIfAborted();
    if (this.#closed) return undefined;
    if (this.#free.length > 0) return this.#free.pop();
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
