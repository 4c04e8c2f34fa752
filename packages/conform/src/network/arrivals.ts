/** Frames that arrived on a line of real sockets, until the tester takes them; waits go by the machine's clock. */

/** A frame, and when it was noticed: ms. */
export interface Arrival {
  time: number;
  frame: Uint8Array;
}

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

  /** Resolves when `done` returns true, or after `ms`. `done` is called each time that frames came. */
  async wait(done: () => boolean, ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#onFrame = () => {
        if (!done()) return;
        clearTimeout(timer);
        resolve();
      };
    });
    this.#onFrame = () => {};
  }
}
