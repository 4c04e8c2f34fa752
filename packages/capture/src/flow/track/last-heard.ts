/** When something of an address was last seen, in any connection. */
import type { RocePacket } from '../../read/packet.ts';

/** A time for each address; grows with the number of addresses. */
export class LastHeard {
  #times = new Float64Array(64).fill(Number.NEGATIVE_INFINITY);

  hear({ source, time }: RocePacket): void {
    if (source >= this.#times.length) {
      const more = new Float64Array(2 * source).fill(Number.NEGATIVE_INFINITY);
      more.set(this.#times);
      this.#times = more;
    }
    this.#times[source] = time;
  }

  /** The number of an address of the reader's table. */
  of(address: number): number {
    return this.#times[address];
  }
}
