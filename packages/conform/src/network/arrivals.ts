/** Frames that arrived on a line of real sockets, until the tester takes them; waits go by the time in which the tester ran. */
import { performance } from 'node:perf_hooks';

/** A frame, and when it was noticed: ms. */
export interface Arrival {
  time: number;
  frame: Uint8Array;
}

/** ms of a step of a wait, and the most that a step counts for: a process that is stopped meanwhile loses no more. */
const STEP = 20;
const MOST = 25;

/** The frames that nobody took yet. */
export class Arrivals {
  #frames: Arrival[] = [];
  #onFrame: () => void = () => {};

  /** Adds frames that came at one time. */
  add(time: number, frames: readonly Uint8Array[]): void {
    for (const frame of frames) this.#frames.push({ time, frame });
    this.#onFrame();
  }

  take(): Arrival[] {
    return this.#frames.splice(0);
  }

  /**
   * Resolves when `done` returns true, or after `ms`. `done` is called each time that frames came. Only time in which this process ran
   * counts: a machine that is busy makes the wait longer, and no packet that came late in it is missed.
   */
  async wait(done: () => boolean, ms: number): Promise<void> {
    let isDone = false;
    await new Promise<void>((resolve) => {
      let left = ms;
      let timer: NodeJS.Timeout | undefined;
      const finish = () => {
        isDone = true;
        clearTimeout(timer);
        resolve();
      };
      const step = () => {
        const start = performance.now();
        timer = setTimeout(
          () => {
            left -= Math.min(performance.now() - start, MOST);
            // Timers fire before sockets are read: what came while the process was stopped is read first.
            if (left > 0) step();
            else setImmediate(() => isDone || finish());
          },
          Math.min(left, STEP),
        );
      };
      this.#onFrame = () => {
        if (!isDone && done()) finish();
      };
      step();
    });
    this.#onFrame = () => {};
  }
}
