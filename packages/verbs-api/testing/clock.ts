/**
 * A clock of the test's own. Devices on a network in memory read the time by `performance.now` and wait by `setTimeout`: with a clock
 * that only the test moves, no timer of the protocol expires because the machine is busy.
 */
import { onTestFinished, vi } from 'vitest';

/** ms; the timers of Node go by whole ones. */
let now = 0;
let timersAt = 0;
/** Milliseconds of one look at the clock: loops that end by time end. */
let perRead = 0;

/**
 * Turns of the event loop: by then all has happened that follows on a network in memory from what was done, but for what waits for
 * a timer.
 */
export async function turns(count = 100): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** Moves the clock, and calls the timers that are due. */
export function move(milliseconds: number): void {
  now += milliseconds;
  const whole = Math.floor(now - timersAt);
  timersAt += whole;
  if (whole > 0) vi.advanceTimersByTime(whole);
}

/** Moves the clock, a millisecond at a time; the event loop turns after each. */
export async function pass(milliseconds: number): Promise<void> {
  for (let i = 0; i < milliseconds; i++) {
    move(1);
    await turns(4);
  }
}

/** Stops the clock until the end of the test. */
export function stopClock(): void {
  // 0 is no time of a program.
  now = 1000;
  timersAt = now;
  perRead = 0;
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] });
  const reading = vi.spyOn(performance, 'now').mockImplementation(() => {
    now += perRead;
    return now;
  });
  onTestFinished(() => {
    reading.mockRestore();
    vi.useRealTimers();
  });
}

/** Until the end of the test the clock goes by turns of the event loop and by looks at it, so many ms each. */
export function clockOfTurns(perTurn = 0.1, perLook = 0): void {
  stopClock();
  perRead = perLook;
  let ended = false;
  const turn = () => {
    if (ended) return;
    move(perTurn);
    setImmediate(turn);
  };
  setImmediate(turn);
  onTestFinished(() => {
    ended = true;
  });
}
