/** Waits for the peer: until something changed, it was silent for too long, or the caller gives up. */
import { silent } from '../errors.ts';
import type { Patience } from './channel.ts';
import { Silence } from './silence.ts';

/** Longest sleep, ms: timers do not take any length. */
const LOOK_EVERY = 1000;

/** Longest time of a timer, ms; a longer one would end at once. */
const MAX_TIMER = 2 ** 31 - 1;

/** Returns a signal that aborts after so many seconds, 25 days at most. */
export const after = (seconds: number): AbortSignal =>
  AbortSignal.timeout(Math.min(Math.ceil(seconds * 1000), MAX_TIMER));

/** A condition that one waiter waits on. */
export class Changes {
  #wake: () => void = () => {};

  /** Something changed: the waiter looks again. */
  notify(): void {
    this.#wake();
  }

  /** Resolves as soon as `found` returns something, and with that. */
  async until<T>(found: () => T | undefined, patience: Patience): Promise<T> {
    const { timeout, signal } = patience;
    const silence = new Silence(patience);
    for (;;) {
      const result = found();
      if (result !== undefined) return result;
      signal.throwIfAborted();
      const left = silence.left();
      if (left > 0) await this.#changed(Math.min(left, LOOK_EVERY), signal);
      else if (await silence.isTooLong()) throw silent(`the peer was silent for ${timeout} s`);
    }
  }

  #changed(milliseconds: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      let turn: NodeJS.Immediate | undefined;
      const wake = () => {
        clearTimeout(timer);
        clearImmediate(turn);
        signal.removeEventListener('abort', wake);
        this.#wake = () => {};
        resolve();
      };
      // After a stall of this process, timers run before sockets are read: what has come meanwhile is no silence.
      const timer = setTimeout(() => {
        turn = setImmediate(wake);
      }, milliseconds);
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
  const limit = after(timeout);
  try {
    return await call(AbortSignal.any([signal, limit]));
  } catch (error) {
    if (limit.aborted && !signal.aborted && error === limit.reason)
      throw silent(`${what} within ${timeout} s`);
    throw error;
  }
}
