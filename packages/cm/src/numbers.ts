/** Communication ids, request ids and transaction ids. */

/** Ids that were in use lately and are kept back. */
interface Released {
  id: number;
  until: number;
}

/** Draws ids at random; one that was released is not drawn again for a while. */
export class Numbers {
  readonly #random: () => number;
  readonly #agent: bigint;
  readonly #kept = new Set<number>();
  readonly #released: Released[] = [];
  #first = 0;

  constructor(random: () => number) {
    this.#random = random;
    this.#agent = BigInt(random());
  }

  /** An id that is not 0 and not in use. */
  draw(now: number, used: (id: number) => boolean): number {
    this.#expire(now);
    for (;;) {
      const id = this.#random() >>> 0;
      if (id !== 0 && !used(id) && !this.#kept.has(id)) return id;
    }
  }

  /** Gives an id back. @param hold µs for which it is not drawn */
  release(id: number, now: number, hold: number): void {
    this.#expire(now);
    this.#kept.add(id);
    this.#released.push({ id, until: now + hold });
  }

  /** Opaque to the peer. As Linux makes it: a number of the adapter, then the id in x86's byte order. */
  transactionId(id: number): bigint {
    const swapped = ((id & 0xff) << 24) | ((id & 0xff00) << 8) | ((id >>> 8) & 0xff00) | (id >>> 24);
    return (this.#agent << 32n) | BigInt(swapped >>> 0);
  }

  #expire(now: number): void {
    const released = this.#released;
    for (; this.#first < released.length && released[this.#first].until <= now; this.#first++)
      this.#kept.delete(released[this.#first].id);
    if (this.#first > 1024 && 2 * this.#first > released.length) {
      released.splice(0, this.#first);
      this.#first = 0;
    }
  }
}
