/** Queues of events, and the count of those that are taken and not acknowledged. */

/** Events about one object that a program has taken and not acknowledged: its destruction waits for them. */
export class AffiliatedEvents {
  #out = 0;
  #waived = false;
  /** Made with the first one. */
  #waiters: (() => void)[] | undefined;

  /** Taken and not acknowledged. */
  get pending(): number {
    return this.#out;
  }

  take(): void {
    this.#out++;
  }

  acknowledge(count = 1): void {
    this.#out = Math.max(0, this.#out - count);
    if (this.#out === 0) this.#settle();
  }

  /** None has to be acknowledged from now on. */
  waive(): void {
    this.#waived = true;
    this.#settle();
  }

  #settle(): void {
    for (const resolve of this.#waiters?.splice(0) ?? []) resolve();
  }

  /** Resolves once every one is acknowledged, or need not be. */
  async acknowledged(): Promise<void> {
    if (this.#out === 0 || this.#waived) return;
    this.#waiters ??= [];
    const waiters = this.#waiters;
    await new Promise<void>((resolve) => waiters.push(resolve));
  }
}

const MAX_QUEUED = 1024;

/** An async queue: each `next()` resolves with one item. */
export class EventQueue<T> {
  #queue: T[] = [];
  #waiters: { resolve(value: T): void; reject(reason: unknown): void }[] = [];
  #failure: unknown;
  readonly #limit: number;
  readonly #onDrop: ((value: T) => void) | undefined;

  /**
   * @param limit items that are kept; with one more, the oldest is dropped
   * @param onDrop called with an item that is dropped
   */
  constructor(limit = MAX_QUEUED, onDrop?: (value: T) => void) {
    this.#limit = limit;
    this.#onDrop = onDrop;
  }

  /** Gives the value to the oldest waiter; without one it is kept. */
  push(value: T): void {
    const waiter = this.#waiters.shift();
    if (waiter) {
      waiter.resolve(value);
      return;
    }
    if (this.#queue.length === this.#limit) {
      const dropped = this.#queue.shift() as T;
      this.#onDrop?.(dropped);
    }
    this.#queue.push(value);
  }

  /** The next, or undefined if there is none now. */
  poll(): T | undefined {
    return this.#queue.shift();
  }

  /** Rejects with the signal's reason, or with that of `fail`, after the queued events are taken. */
  async next(signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    if (this.#queue.length > 0) return this.#queue.shift() as T;
    if (this.#failure !== undefined) throw this.#failure;
    return new Promise<T>((resolve, reject) => {
      const onAbort = () => {
        this.#waiters = this.#waiters.filter((w) => w !== waiter);
        reject(signal?.reason);
      };
      const done = () => signal?.removeEventListener('abort', onAbort);
      const waiter = {
        resolve: (value: T) => {
          done();
          resolve(value);
        },
        reject: (reason: unknown) => {
          done();
          reject(reason);
        },
      };
      this.#waiters.push(waiter);
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** Drops the events that were not taken. */
  discard(test: (value: T) => boolean): void {
    this.#queue = this.#queue.filter((value) => !test(value));
  }

  /** Pending and later calls of `next` reject with the reason. */
  fail(reason: unknown): void {
    this.#failure = reason;
    for (const waiter of this.#waiters.splice(0)) waiter.reject(reason);
  }
}
