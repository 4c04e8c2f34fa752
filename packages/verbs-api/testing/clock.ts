/**
 * A clock of the test's own. Devices on a network in memory read the time by `performance.now` and wait by `setTimeout`: with a clock
 * that only the test moves, no timer of the protocol expires because the machine is busy.
 */
import { onTestFinished, vi } from 'vitest';

const FAKED = ['performance', 'setTimeout', 'clearTimeout'] as const;
/** `performance.now` is never 0 in a program. */
const START_MS = 1000;

/**
 * Turns of the event loop: by then all has happened that follows on a network in memory from what was done, but for what waits for
 * a timer.
 */
export async function turns(count = 100): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** Stops the clock until the end of the test. */
export function stopClock(): void {
  vi.useFakeTimers({ toFake: [...FAKED] });
  vi.advanceTimersByTime(START_MS);
  onTestFinished(() => void vi.useRealTimers());
}

/** Moves a stopped clock, a millisecond at a time; the event loop turns after each. */
export async function pass(milliseconds: number): Promise<void> {
  for (let i = 0; i < milliseconds; i++) {
    vi.advanceTimersByTime(1);
    await turns(4);
  }
}

/** Until the end of the test the clock goes by turns of the event loop, `each` ms in each. */
export function clockOfTurns(each = 0.1): void {
  stopClock();
  let ended = false;
  const turn = () => {
    if (ended) return;
    vi.advanceTimersByTime(each);
    setImmediate(turn);
  };
  setImmediate(turn);
  onTestFinished(() => {
    ended = true;
  });
}
