/** Memory of a process after garbage collection. */
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/**
 * Bytes of V8's heap and of array buffers after collections: the least of a few looks, because memory of array buffers
 * is given back by another thread, in its own time.
 */
export async function held(): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let look = 0; look < 4; look++) {
    collect();
    await setTimeout(5);
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    least = Math.min(least, heapUsed + arrayBuffers);
  }
  return least;
}

/** Samples in even steps of a long run: at the end of each quarter of `total`. */
export class Quarters {
  readonly samples: number[] = [];
  readonly #total: number;

  constructor(total: number) {
    this.#total = total;
  }

  /** To be called at any time, with the amount of work done so far. */
  async at(done: number): Promise<void> {
    while (this.samples.length < 4 && done >= ((this.samples.length + 1) * this.#total) / 4) {
      this.samples.push(await held());
    }
  }

  /** Bytes by which the last quarter's end lies above the first's: what was warm by then stays out. */
  get growth(): number {
    return this.samples[3] - this.samples[0];
  }
}
