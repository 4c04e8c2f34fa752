/** Directions by addresses and queue pairs: open addressing in one typed array, so that a lookup allocates nothing. */
import type { Direction } from './direction.ts';

/** A hash table of directions; `find` allocates nothing. */
export class DirectionTable {
  readonly #directions: Direction[] = [];
  /** Index + 1 into `#halves`; 0: free. At most half full. */
  #places = new Uint32Array(256);
  #last: Direction | undefined;

  /**
   * @param sourceQp of datagrams; −1 for all others
   * @param network the packet's VLAN and tunnel by number
   */
  find(
    source: number,
    destination: number,
    destQp: number,
    sourceQp: number,
    network = 0,
  ): Direction | undefined {
    const last = this.#last;
    if (last?.key.is(source, destination, destQp, sourceQp, network)) return last;
    const places = this.#places;
    const mask = places.length - 1;
    let place = hash(source, destination, destQp, sourceQp, network) & mask;
    for (let index = places[place]; index !== 0; index = places[place]) {
      const direction = this.#directions[index - 1];
      if (direction.key.is(source, destination, destQp, sourceQp, network)) {
        this.#last = direction;
        return direction;
      }
      place = (place + 1) & mask;
    }
    return undefined;
  }

  get size(): number {
    return this.#directions.length;
  }

  /** One that `find` did not find. */
  add(direction: Direction): void {
    this.#directions.push(direction);
    if (this.#directions.length * 2 > this.#places.length) {
      this.#places = new Uint32Array(this.#places.length * 2);
      for (let i = 0; i < this.#directions.length; i++) this.#place(this.#directions[i], i + 1);
    } else {
      this.#place(direction, this.#directions.length);
    }
  }

  /** Another one is found in place of one that is over, with the same addresses and queue pairs. */
  replace(over: Direction, direction: Direction): void {
    this.#directions[this.#directions.indexOf(over)] = direction;
    this.#last = undefined;
  }

  #place(direction: Direction, index: number): void {
    const mask = this.#places.length - 1;
    const { source, destination, destQp, sourceQp, network } = direction.key;
    let place = hash(source, destination, destQp, sourceQp, network) & mask;
    while (this.#places[place] !== 0) place = (place + 1) & mask;
    this.#places[place] = index;
  }
}

function hash(
  source: number,
  destination: number,
  destQp: number,
  sourceQp: number,
  network: number,
): number {
  let h = Math.imul(destQp, 0x9e37_79b1) ^ Math.imul(source + 1, 0x85eb_ca6b);
  h ^= Math.imul(destination + 1, 0xc2b2_ae35) ^ Math.imul(sourceQp + 1, 0x27d4_eb2f);
  h ^= Math.imul(network, 0x1656_67b1);
  h ^= h >>> 15;
  return Math.imul(h, 0x2c1b_3c6d) >>> 8;
}
