/** The tagged buffers of a tag matching SRQ, in the order in which they were added (ibv_post_srq_ops(3)). */
import type { CompletionQueue } from '../completion-queue.ts';
import type { Ring } from '../rings.ts';
import { recvStride } from '../rings.ts';

/** Words of a key. */
const Key = { TAG_HIGH: 0, TAG_LOW: 1, MASK_HIGH: 2, MASK_LOW: 3, HANDLE: 4 } as const;
const KEY_WORDS = 5;

/**
 * Owns the buffers and the phase: a message that matches none of them is unexpected, and the program handles it. Until it has
 * reported that, a buffer that is added matches nothing: else a later message could get the buffer that the program gives to this one.
 *
 * Invariants: enabled ≤ count ≤ capacity; the first `count` of `order` are the buffers, oldest first, the others are free places.
 */
export class TagList {
  /** Where all receives of the SRQ and operations on the list complete. */
  readonly cq: CompletionQueue;
  readonly maxSge: number;
  readonly #stride: number;
  readonly #keys: Uint32Array;
  /** Receive entries, as in a ring. */
  readonly #entries: Uint32Array;
  readonly #order: Uint32Array;
  #count = 0;
  /** Of the oldest so many, each may match. */
  #enabled = 0;
  #lastHandle = 0;
  /** Unexpected messages that were delivered, and those that the program has reported as handled, modulo 2^32. */
  #unexpected = 0;
  #handled = 0;
  /** Unexpected messages that are still arriving. */
  #arriving = 0;

  constructor(cq: CompletionQueue, capacity: number, maxSge: number) {
    this.cq = cq;
    this.maxSge = maxSge;
    this.#stride = recvStride(maxSge);
    this.#keys = new Uint32Array(capacity * KEY_WORDS);
    this.#entries = new Uint32Array(capacity * this.#stride);
    this.#order = Uint32Array.from({ length: capacity }, (_, i) => i);
  }

  get capacity(): number {
    return this.#order.length;
  }

  /** Buffers in the list. */
  get count(): number {
    return this.#count;
  }

  /** Whether the program has handled all unexpected messages. */
  get inSync(): boolean {
    return this.#handled === this.#unexpected && this.#arriving === 0;
  }

  /**
   * Adds a buffer; there is room.
   *
   * @param write writes its receive entry to a word of the memory
   * @returns its handle, not 0
   */
  add(tag: bigint, mask: bigint, write: (words: Uint32Array, w: number) => void): number {
    const place = this.#order[this.#count++];
    if (this.inSync) this.#enabled = this.#count;
    do this.#lastHandle = (this.#lastHandle + 1) >>> 0;
    while (this.#lastHandle === 0 || this.#indexOf(this.#lastHandle, this.#count - 1) >= 0);
    const k = place * KEY_WORDS;
    this.#keys[k + Key.TAG_HIGH] = Number(tag >> 32n);
    this.#keys[k + Key.TAG_LOW] = Number(tag & 0xffff_ffffn);
    this.#keys[k + Key.MASK_HIGH] = Number(mask >> 32n);
    this.#keys[k + Key.MASK_LOW] = Number(mask & 0xffff_ffffn);
    this.#keys[k + Key.HANDLE] = this.#lastHandle;
    write(this.#entries, place * this.#stride);
    return this.#lastHandle;
  }

  /** Removes a buffer. False where it is not there: a message has consumed it, or there never was one. */
  delete(handle: number): boolean {
    const index = this.#indexOf(handle, this.#count);
    if (index >= 0) this.#remove(index);
    return index >= 0;
  }

  /** The program has handled so many unexpected messages. */
  sync(handled: number): void {
    this.#handled = handled;
    this.#settle();
  }

  /** An unexpected message begins. */
  begin(): void {
    this.#arriving++;
  }

  /** It ends. @param delivered whether the program gets it */
  end(delivered: boolean): void {
    this.#arriving--;
    if (delivered) this.#unexpected = (this.#unexpected + 1) >>> 0;
    this.#settle();
  }

  /** Index of the oldest buffer for a message with this tag; −1 without one. */
  find(high: number, low: number): number {
    const keys = this.#keys;
    for (let i = 0; i < this.#enabled; i++) {
      const k = this.#order[i] * KEY_WORDS;
      const isMatch =
        (high & keys[k + Key.MASK_HIGH]) >>> 0 === keys[k + Key.TAG_HIGH] &&
        (low & keys[k + Key.MASK_LOW]) >>> 0 === keys[k + Key.TAG_LOW];
      if (isMatch) return i;
    }
    return -1;
  }

  /** Moves the buffer at an index into the ring of a queue pair, which has room for it. */
  take(index: number, into: Ring): void {
    const from = this.#order[index] * this.#stride;
    const to = into.wordOf(into.producer);
    for (let i = 0; i < this.#stride; i++) into.words[to + i] = this.#entries[from + i];
    into.publish((into.producer + 1) | 0);
    this.#remove(index);
  }

  #settle(): void {
    if (this.inSync) this.#enabled = this.#count;
  }

  #indexOf(handle: number, count: number): number {
    for (let i = 0; i < count; i++) {
      if (this.#keys[this.#order[i] * KEY_WORDS + Key.HANDLE] === handle) return i;
    }
    return -1;
  }

  #remove(index: number): void {
    const place = this.#order[index];
    this.#order.copyWithin(index, index + 1, this.#count);
    this.#count--;
    this.#order[this.#count] = place;
    if (index < this.#enabled) this.#enabled--;
  }
}
