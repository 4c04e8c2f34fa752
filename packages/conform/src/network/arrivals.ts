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

/** Bytes that wait to be taken: a device that floods while nobody takes must not fill the memory. */
const MOST_BYTES = 1 << 27;
/** Bytes that a frame costs besides its own. */
const FRAME_COSTS = 256;

/** The frames that nobody took yet. */
export class Arrivals {
  #frames: Arrival[] = [];
  #bytes = 0;
  #onFrame: () => void = () => {};

  /** Adds frames that came at one time; those for which there is no room are lost. */
  add(time: number, frames: readonly Uint8Array[]): void {
    for (const frame of frames) {
      this.#bytes += frame.length + FRAME_COSTS;
      if (this.#bytes <= MOST_BYTES) this.#frames.push({ time, frame });
    }
    this.#onFrame();
  }

  /** @throws Error if frames were lost: what is missing in them is not the device's fault */
  take(): Arrival[] {
    const isLost = this.#bytes > MOST_BYTES;
    this.#bytes = 0;
    const frames = this.#frames.splice(0);
    if (isLost) throw new Error('more packets than the tester can hold: the device does not stop sending');
    return frames;
  }

  /**
   * Resolves when `done` returns true, or after `ms`. `done` is called each time that frames came. Only time in which this process ran
   * counts: a machine that is busy makes the wait longer, and no packet that came late in it is missed. Rejects if `done` throws.
   */
  async wait(done: () => boolean, ms: number): Promise<void> {
    let isDone = false;
    await new Promise<void>((resolve, reject) => {
      let left = ms;
      let timer: NodeJS.Timeout | undefined;
      const end = () => {
        isDone = true;
        clearTimeout(timer);
        this.#onFrame = () => {};
      };
      const finish = () => {
        end();
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
        try {
          if (done()) finish();
        } catch (error) {
          // In the socket's callback, nobody would catch it.
          end();
          reject(error);
        }
      };
      step();
    });
  }
}
