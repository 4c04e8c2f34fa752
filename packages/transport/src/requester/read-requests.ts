/** READs and atomics in flight, one by one: which PSNs answer each, and what was asked for again. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { OutOfOrder } from './out-of-order.ts';

/** Words of a request in the ring. */
const FIRST = 0;
const LAST = 1;
/** When it was sent, and when a part of it was asked for again last: a count of requests. */
const SENT = 2;
const AGAIN = 3;
/** One past the last PSN of that part; −1: nothing is awaited. */
const AGAIN_END = 4;
const WORDS = 5;
/** Requests that there is room for at first; it doubles up to the device's limit of `max_rd_atomic`. */
const ROOM_FIRST = 16;
const NONE = -1;

/** Those of a queue pair that has asked for nothing yet: many never do. */
const NO_WORDS = new Int32Array(0);

/**
 * The responder answers requests in the order in which they were sent. So a response to one shows that the responses to earlier
 * requests that have not come are lost. Each request is repeated from its first missing response on, and no other part of it is
 * asked for until that is answered or lost: rxe forgets the part before the one that it is asked for again (docs/quirks.md).
 */
export class ReadRequests {
  /** A ring, oldest first; its size is a power of two. */
  #words = NO_WORDS;
  #mask = -1;
  #oldest = 0;
  #count = 0;
  /** Requests sent so far, those that repeat one among them, modulo 2^32. */
  #sent = 0;
  /** PSNs that `findGap` found. */
  #gap = 0;
  #gapEnd = 0;

  get count(): number {
    return this.#count;
  }

  /** The first PSN that the oldest request is answered with. */
  get oldestFirst(): number {
    return this.#words[this.#at(0) + FIRST];
  }

  /** The last PSN that the oldest request is answered with. */
  get oldestLast(): number {
    return this.#words[this.#at(0) + LAST];
  }

  /** The first PSN that the newest request is answered with. */
  get newestFirst(): number {
    return this.#words[this.#at(this.#count - 1) + FIRST];
  }

  /** The last PSN that the newest request is answered with. */
  get newestLast(): number {
    return this.#words[this.#at(this.#count - 1) + LAST];
  }

  #at(index: number): number {
    return ((this.#oldest + index) & this.#mask) * WORDS;
  }

  /** A request leaves that is answered with the PSNs from `first` to `last`. */
  add(first: number, last: number): void {
    if (this.#count > this.#mask) this.#grow();
    const words = this.#words;
    const w = this.#at(this.#count++);
    this.#sent = (this.#sent + 1) | 0;
    words[w + FIRST] = first;
    words[w + LAST] = last;
    words[w + SENT] = this.#sent;
    words[w + AGAIN_END] = NONE;
  }

  #grow(): void {
    const words = new Int32Array(Math.max(ROOM_FIRST * WORDS, 2 * this.#words.length));
    for (let i = 0; i < this.#count; i++) {
      const w = this.#at(i);
      words.set(this.#words.subarray(w, w + WORDS), i * WORDS);
    }
    this.#words = words;
    this.#mask = words.length / WORDS - 1;
    this.#oldest = 0;
  }

  /** The PSNs from `psn` up to `end`, all of one request, are asked for again. */
  repeated(psn: number, end: number): void {
    this.#sent = (this.#sent + 1) | 0;
    const w = this.#find(psn);
    if (w < 0) return;
    this.#words[w + AGAIN] = this.#sent;
    this.#words[w + AGAIN_END] = end;
  }

  /** Everything before `psn` is answered. @returns whether a request is done with that */
  retire(psn: number): boolean {
    const { count } = this;
    while (this.#count > 0 && psnDiff(psn, this.oldestLast) > 0) {
      this.#oldest = (this.#oldest + 1) & this.#mask;
      this.#count--;
    }
    return this.#count < count;
  }

  clear(): void {
    this.#count = 0;
  }

  /** The response at `psn` came, and is among the early ones or the next: requests sent before the one that it answers are over. */
  answered(psn: number, early: OutOfOrder): void {
    const words = this.#words;
    const own = this.#find(psn);
    if (own < 0) return;
    const end = words[own + AGAIN_END];
    const isRepeat = end !== NONE && psnDiff(psn, end) < 0;
    const sent = words[own + (isRepeat ? AGAIN : SENT)];
    for (let i = 0; i < this.#count; i++) {
      const w = this.#at(i);
      if (words[w + AGAIN_END] !== NONE && ((words[w + AGAIN] - sent) | 0) < 0) words[w + AGAIN_END] = NONE;
    }
    if (isRepeat && early.missing(psnAdd(psn, 1), end) === NONE) words[own + AGAIN_END] = NONE;
  }

  /**
   * Finds the first missing response before an early one that no request under way asks for: `gap` to `gapEnd`.
   *
   * @param unackedPsn the oldest that is missing
   * @returns whether there is one
   */
  findGap(early: OutOfOrder, unackedPsn: number): boolean {
    if (early.count === 0) return false;
    const words = this.#words;
    const { highest } = early;
    for (let i = 0; i < this.#count; i++) {
      const w = this.#at(i);
      const first = psnDiff(words[w + FIRST], unackedPsn) < 0 ? unackedPsn : words[w + FIRST];
      if (psnDiff(first, highest) >= 0) return false;
      if (words[w + AGAIN_END] !== NONE) continue;
      const last = words[w + LAST];
      const end = psnDiff(highest, last) <= 0 ? highest : psnAdd(last, 1);
      const gap = early.missing(first, end);
      if (gap === NONE) continue;
      this.#gap = gap;
      this.#gapEnd = psnAdd(gap, early.span(gap, psnDiff(end, gap)));
      return true;
    }
    return false;
  }

  get gap(): number {
    return this.#gap;
  }

  get gapEnd(): number {
    return this.#gapEnd;
  }

  /** Where the request is that the response at `psn` answers; negative: there is none. */
  #find(psn: number): number {
    const words = this.#words;
    for (let i = 0; i < this.#count; i++) {
      const w = this.#at(i);
      if (psnDiff(psn, words[w + LAST]) > 0) continue;
      return psnDiff(psn, words[w + FIRST]) >= 0 ? w : NONE;
    }
    return NONE;
  }
}
