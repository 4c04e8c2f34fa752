/** Attempts, and how a signal ends the wait for them. */

/** As the promise, or rejects with the signal's reason where that comes first. */
export async function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  promise.catch(() => {}); // Nobody waits for it any more after an abort.
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** An attempt to connect, and its outcome, for those who wait for it, also after its end. */
export class Attempt {
  #outcome: { error?: unknown } | undefined;
  #waiting: { resolve(): void; reject(error: unknown): void } | undefined;

  /** Ends it; the first call counts. With an error, in failure. Returns whether it was the first. */
  end(outcome: { error?: unknown }): boolean {
    const isFirst = this.#outcome === undefined;
    this.#outcome ??= outcome;
    if (this.#outcome.error === undefined) this.#waiting?.resolve();
    else this.#waiting?.reject(this.#outcome.error);
    return isFirst;
  }

  /** Resolves or rejects as it ends; rejects with the signal's reason where that comes first. */
  async wait(signal: AbortSignal | undefined): Promise<void> {
    const onAbort = () => this.end({ error: signal?.reason });
    if (signal?.aborted) onAbort();
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      await new Promise<void>((resolve, reject) => {
        this.#waiting = { resolve, reject };
        if (this.#outcome) this.end(this.#outcome);
      });
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }
}
