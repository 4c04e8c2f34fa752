/** Directions by addresses and queue pairs: open addressing in one typed array, so that a lookup allocates nothing. */
import type { Half } from './half.ts';

export class HalfTable {
  readonly #halves: Half[] = [];
  /** Index + 1 into `#halves`; 0: free. At most half full. */
  #places = new Uint32Array(256);
  #last: Half | undefined;

  /** @param sourceQp of datagrams; −1 for all others */
  find(source: number, destination: number, destQp: number, sourceQp: number): Half | undefined {
    const last = this.#last;
    if (last !== undefined && is(last, source, destination, destQp, sourceQp)) return last;
    const places = this.#places;
    const mask = places.length - 1;
    let place = hash(source, destination, destQp, sourceQp) & mask;
    for (let index = places[place]; index !== 0; index = places[place]) {
      const half = this.#halves[index - 1];
      if (is(half, source, destination, destQp, sourceQp)) {
        this.#last = half;
        return half;
      }
      place = (place + 1) & mask;
    }
    return undefined;
  }

  get size(): number {
    return this.#halves.length;
  }

  /** One that `find` did not find. */
  add(half: Half): void {
    this.#halves.push(half);
    if (this.#halves.length * 2 > this.#places.length) {
      this.#places = new Uint32Array(this.#places.length * 2);
      for (let i = 0; i < this.#halves.length; i++) this.#place(this.#halves[i], i + 1);
    } else {
      this.#place(half, this.#halves.length);
    }
  }

  #place(half: Half, index: number): void {
    const mask = this.#places.length - 1;
    let place = hash(half.source, half.destination, half.destQp, half.keyQp) & mask;
    while (this.#places[place] !== 0) place = (place + 1) & mask;
    this.#places[place] = index;
  }
}

function is(half: Half, source: number, destination: number, destQp: number, sourceQp: number): boolean {
  return (
    half.destQp === destQp &&
    half.source === source &&
    half.destination === destination &&
    half.keyQp === sourceQp
  );
}

function hash(source: number, destination: number, destQp: number, sourceQp: number): number {
  let h = Math.imul(destQp, 0x9e37_79b1) ^ Math.imul(source + 1, 0x85eb_ca6b);
  h ^= Math.imul(destination + 1, 0xc2b2_ae35) ^ Math.imul(sourceQp + 1, 0x27d4_eb2f);
  h ^= h >>> 15;
  return Math.imul(h, 0x2c1b_3c6d) >>> 8;
}
