/** The end of an object that the engine has. */
import type { Engine } from './engine/engine.ts';

/** The end of an object. Promise: calls that meet make one command. */
export class Ending {
  #promise: Promise<void> | undefined;

  /** Runs `end`, or joins the call that did; after an error the next call tries again. An engine that is closed has no objects. */
  async once(engine: Engine, end: () => Promise<void>): Promise<void> {
    if (engine.closed) return;
    this.#promise ??= end().catch((error) => {
      this.#promise = undefined;
      throw error;
    });
    await this.#promise;
  }
}
