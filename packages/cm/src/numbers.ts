/** Communication ids, request ids and transaction ids, and numbers that are kept back after their use. */
import { EVERY_NUMBER, intoClass, type ResidueClass } from '@node-roce/transport';

/** A number and the time until which it is kept. */
interface Entry {
  number: number;
  until: number;
}

/** Numbers that were in use lately. */
export class KeptNumbers {
  readonly #numbers = new Map<number, number>();
  readonly #queue: Entry[] = [];
  readonly #limit: number;
  #first = 0;

  /** @param limit numbers that are kept at most; beyond, the oldest is let go early */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#numbers.size;
  }

  /** Keeps a number for `hold` µs. */
  keep(number: number, now: number, hold: number): void {
    this.#expire(now);
    const until = now + hold;
    this.#numbers.set(number, Math.max(until, this.#numbers.get(number) ?? until));
    this.#queue.push({ number, until });
    if (this.#queue.length - this.#first > this.#limit)
      this.#numbers.delete(this.#queue[this.#first++].number);
  }

  has(number: number, now: number): boolean {
    const until = this.#numbers.get(number);
    return until !== undefined && until > now;
  }

  /** Those at the head of the queue whose time is over; one behind a longer one waits for it. */
  #expire(now: number): void {
    const queue = this.#queue;
    for (; this.#first < queue.length && queue[this.#first].until <= now; this.#first++) {
      const { number, until } = queue[this.#first];
      if (this.#numbers.get(number) === until) this.#numbers.delete(number);
    }
    if (this.#first > 1024 && 2 * this.#first > queue.length) {
      queue.splice(0, this.#first);
      this.#first = 0;
    }
  }
}

/** A stranger's requests draw ids: those that were refused take this much room at most. */
const MAX_KEPT_IDS = 65_536;

/** Draws ids at random; one that was released is not drawn again for a while. */
export class Numbers {
  readonly #random: () => number;
  readonly #ids: ResidueClass;
  readonly #agent: bigint;
  readonly #kept = new KeptNumbers(MAX_KEPT_IDS);

  constructor(random: () => number, ids: ResidueClass = EVERY_NUMBER) {
    this.#random = random;
    this.#ids = ids;
    this.#agent = BigInt(random());
  }

  /** An id that is not 0 and not in use. */
  draw(now: number, used: (id: number) => boolean): number {
    for (;;) {
      const id = intoClass(this.#random(), this.#ids);
      if (id !== 0 && !used(id) && !this.#kept.has(id, now)) return id;
    }
  }

  /** Ids that are kept back. */
  get kept(): number {
    return this.#kept.size;
  }

  /** Gives an id back. @param hold µs for which it is not drawn */
  release(id: number, now: number, hold: number): void {
    this.#kept.keep(id, now, hold);
  }

  /** Opaque to the peer. As Linux makes it: a number of the adapter, then the id in x86's byte order. */
  transactionId(id: number): bigint {
    const swapped = ((id & 0xff) << 24) | ((id & 0xff00) << 8) | ((id >>> 8) & 0xff00) | (id >>> 24);
    return (this.#agent << 32n) | BigInt(swapped >>> 0);
  }
}
