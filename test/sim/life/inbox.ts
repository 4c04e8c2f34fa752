/** Where the messages of a session arrive: receives of a queue pair's own, or of an SRQ that sessions share. */
import type { SimReceive, SimSrq } from '@node-roce/sim';
import { require } from '../../../packages/sim/src/network/workload-checks.ts';
import type { Lease, MemoryBook } from './memory-book.ts';

/** Longest message, bytes; receives are as long. */
const MAX_MESSAGE_BYTES = 5000;
const SLOT = 5056;

export interface Inbox {
  /** Receives posted and not completed, as far as a program knows. */
  readonly waiting: number;
  post(): void;
  /** The memory of a receive that completed. @throws Error for one that was not due */
  take(wrId: number): Uint8Array;
}

/** Receives that complete in the order in which they were posted. */
export class OwnInbox implements Inbox {
  readonly #lease: Lease;
  readonly #slots: number;
  readonly #post: (receive: SimReceive) => void;
  readonly #length: number;
  #posted = 0;
  #taken = 0;

  /** @param extra bytes that a receive has room for in addition to the message */
  constructor(book: MemoryBook, slots: number, post: (receive: SimReceive) => void, extra = 0) {
    this.#length = MAX_MESSAGE_BYTES + extra;
    this.#lease = book.lease(slots * SLOT);
    this.#slots = slots;
    this.#post = post;
  }

  get lease(): Lease {
    return this.#lease;
  }

  get waiting(): number {
    return this.#posted - this.#taken;
  }

  post(): void {
    if (this.waiting >= this.#slots) return;
    const wrId = this.#posted++;
    const { region } = this.#lease;
    this.#post({ wrId, region, offset: (wrId % this.#slots) * SLOT, length: this.#length });
  }

  take(wrId: number): Uint8Array {
    require(wrId === this.#taken, 'receives completed out of order', { wrId, expected: this.#taken });
    this.#taken++;
    const at = (wrId % this.#slots) * SLOT;
    return this.#lease.bytes.subarray(at, at + SLOT);
  }
}

/** Receives of an SRQ. A queue pair that goes takes the one along that it was filling: nobody hears of it. */
export class SharedInbox implements Inbox {
  readonly #book: MemoryBook;
  readonly #srq: SimSrq;
  readonly #slots: number;
  readonly #free: Lease[] = [];
  readonly #open = new Map<number, Lease>();
  #posted = 0;

  constructor(book: MemoryBook, slots: number, srq: SimSrq) {
    this.#book = book;
    this.#srq = srq;
    this.#slots = slots;
  }

  get srq(): SimSrq {
    return this.#srq;
  }

  get waiting(): number {
    return this.#srq.waiting;
  }

  post(): void {
    if (this.waiting >= this.#slots) return;
    const wrId = this.#posted++;
    const lease = this.#free.pop() ?? this.#book.lease(MAX_MESSAGE_BYTES);
    this.#open.set(wrId, lease);
    this.#srq.postReceive({ wrId, region: lease.region, offset: 0, length: MAX_MESSAGE_BYTES });
  }

  take(wrId: number): Uint8Array {
    const lease = this.#open.get(wrId);
    require(lease !== undefined, 'a receive completed that is not posted', { wrId });
    this.#open.delete(wrId);
    this.#free.push(lease!);
    return lease!.bytes;
  }
}
