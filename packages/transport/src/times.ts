/** Numbers with a fraction (times, rates) of many queue pairs in one `Float64Array`: none is boxed, and none has an array of its own. */

/**
 * The engine's time, µs, at index 0. An array, since V8 allocates each number with a fraction that passes from function to function
 * as an argument or result.
 */
export type Clock = Float64Array;

/** Owners whose numbers are in one array. */
const OWNERS = 64;

/** A place for an owner's numbers: `array[at]` and those behind it. */
export interface TimePlace {
  readonly array: Float64Array;
  readonly at: number;
}

/** Promise: the numbers of a place that is taken are 0. */
export class Times {
  readonly #size: number;
  readonly #free: TimePlace[] = [];
  #array = new Float64Array(0);
  #next = 0;

  /** @param size numbers of an owner */
  constructor(size: number) {
    this.#size = size;
  }

  take(): TimePlace {
    const place = this.#free.pop();
    if (place !== undefined) {
      place.array.fill(0, place.at, place.at + this.#size);
      return place;
    }
    if (this.#next === this.#array.length) {
      this.#array = new Float64Array(OWNERS * this.#size);
      this.#next = 0;
    }
    const at = this.#next;
    this.#next += this.#size;
    return { array: this.#array, at };
  }

  give(place: TimePlace): void {
    this.#free.push(place);
  }
}
