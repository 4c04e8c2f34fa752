/** The time of a pump's turn. */
import type { Clock } from '@node-roce/transport';

/** A time that is not known, or has not been. */
export const UNKNOWN = 0;
const MORE = 1;

/**
 * The time of the turn at hand, µs, for the pump, its parts and the adapter. The link writes it where it can, since V8 allocates each number
 * with a fraction that a function returns; `tick` does so where it can't, or has not been called.
 */
export class TurnTime {
  /** The time; behind it 0 if the link received all there was. */
  readonly cells = new Float64Array(new SharedArrayBuffer(16));
  readonly #adapter: Clock;

  constructor(adapter: Clock) {
    this.#adapter = adapter;
  }

  /** Reads the clock. */
  tick(): void {
    this.cells[0] = performance.now() * 1000;
    this.#adapter[0] = this.cells[0];
  }

  /** Before a call of the link. */
  clear(): void {
    this.cells[0] = UNKNOWN;
    this.cells[MORE] = 1;
  }

  /** The link was called, and has written the time if it can. */
  timed(): void {
    if (this.cells[0] === UNKNOWN) this.tick();
    else this.#adapter[0] = this.cells[0];
  }

  /** The link received all there was. */
  get emptied(): boolean {
    return this.cells[MORE] === 0;
  }
}
