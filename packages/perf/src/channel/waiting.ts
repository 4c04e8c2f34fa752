/** Waits for the peer: until something changed, it was silent for too long, or the caller gives up. */
import { silent } from '../errors.ts';
import type { Patience } from './channel.ts';

/** Longest time between two looks at the signs of life, ms. */
const LOOK_EVERY = 1000;

/** A condition that one waiter waits on. */
export class Changes {
  #wake: () => void = () => {};

  /** Something changed: the waiter looks again. */
  notify(): void {
    this.#wake();
  }

  /** Resolves as soon as `found` returns something, and with that. */
  async until<T>(found: () => T | undefined, { timeout, signal, signs }: Patience): Promise<T> {
    const limit = timeout * 1000;
    let since = performance.now();
    let before = signs === undefined ? 0 : await signs();
    for (;;) {
      const result = found();
      if (result !== undefined) return result;
      signal.throwIfAborted();
      const left = since + limit - performance.now();
      if (left <= 0) {
        const now = signs === undefined ? 0 : await signs();
        if (now === before) throw silent(`the peer was silent for ${timeout} s`);
        before = now;
        since = performance.now();
        continue;
      }
      await this.#changed(Math.min(left, LOOK_EVERY), signal);
    }
  }

  #changed(milliseconds: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', wake);
        this.#wake = () => {};
        resolve();
      };
      const timer = setTimeout(wake, milliseconds);
      signal.addEventListener('abort', wake, { once: true });
      this.#wake = wake;
    });
  }
}

/** Runs a call that takes a signal, for as long as the peer may be silent. @throws RoceError ERR_ROCE_TIMEOUT in place of an abort by time */
export async function within<T>(
  { timeout, signal }: Patience,
  what: string,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const limit = AbortSignal.timeout(Math.ceil(timeout * 1000));
  try {
    return await call(AbortSignal.any([signal, limit]));
  } catch (error) {
    if (limit.aborted && !signal.aborted && error === limit.reason)
      throw silent(`${what} within ${timeout} s`);
    throw error;
  }
}
