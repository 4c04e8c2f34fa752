/** A host that is slow, not lossy: its thread works on packets in batches, and loses the processor now and then. */
import type { Random } from '@node-roce/wire';

export interface SlowOptions {
  /** Packets that it takes at once, at most. */
  batch: number;
  /** Work on each of them, µs: answers, timers and requests wait meanwhile. */
  perPacket: number;
  /** Share of the batches after which something else has the processor; 0 by default. */
  pause?: number;
  /** For so long, µs. */
  pauseMin?: number;
  pauseMax?: number;
}

/** Draws how long a host is busy. */
export class Slowness {
  readonly batch: number;
  readonly #options: SlowOptions;
  readonly #random: Random;

  constructor(options: SlowOptions, random: Random) {
    this.#options = options;
    this.batch = options.batch;
    this.#random = random;
  }

  /** µs that so many packets take. */
  timeFor(packets: number): number {
    const { perPacket, pause = 0, pauseMin = 0, pauseMax = pauseMin } = this.#options;
    const paused = this.#random.chance(pause) ? this.#random.between(pauseMin, pauseMax) : 0;
    return packets * perPacket + paused;
  }
}
