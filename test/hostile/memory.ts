/** What a process holds after it has thrown away what it can. */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes of V8's heap and of array buffers after a collection. */
export function held(): number {
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** Samples in even steps of a long run: at the end of each quarter of `total`. */
export class Quarters {
  readonly samples: number[] = [];
  readonly #total: number;

  constructor(total: number) {
    this.#total = total;
  }

  /** To be called as often as one likes, with what was done so far. */
  at(done: number): void {
    while (this.samples.length < 4 && done >= ((this.samples.length + 1) * this.#total) / 4) {
      this.samples.push(held());
    }
  }

  /** Bytes by which the last quarter's end lies above the first's: what was warm by then stays out. */
  get growth(): number {
    return this.samples[3] - this.samples[0];
  }
}
