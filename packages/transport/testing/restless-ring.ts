/** Rings whose entries another thread of the program rewrites while the engine reads them: at moments that a seed chooses, or after each read. */
import type { Random } from '@node-roce/wire';
import { vi } from 'vitest';
import { CONTROL_WORDS, createRing, type NewRing, Ring } from '../src/rings.ts';

/** The new value of a word, by its place in the entry. */
export type Rewrite = (place: number, value: number) => number;

/** The moments of a rewriting thread; quiet at first. */
export class Restless {
  readonly #random: Random;
  readonly #rewrite: Rewrite;
  /** Of so many words that the engine reads, one is followed by a rewritten one; 0: none. */
  oneIn = 0;
  /** Words that were rewritten so far. */
  rewritten = 0;

  constructor(random: Random, rewrite: Rewrite) {
    this.#random = random;
    this.#rewrite = rewrite;
  }

  /** Makes rings; all words that the engine reads of their entries go through here. */
  readonly newRing: NewRing = (entries, stride) => {
    return watchedRing(entries, stride, (words, index) => {
      const value = words[index];
      if (this.oneIn > 0 && this.#random.between(1, this.oneIn) === 1)
        this.change(words, index - ((index - CONTROL_WORDS) % stride), stride);
      return value;
    });
  };

  /** Rewrites one word of the entry at word `first`. */
  change(words: Uint32Array, first: number, stride: number): void {
    const place = this.#random.between(0, stride - 1);
    words[first + place] = this.#rewrite(place, words[first + place]);
    this.rewritten++;
  }
}

/** Makes a ring; `read` gives the engine the words of entries, by their index. */
export function watchedRing(
  entries: number,
  stride: number,
  read: (words: Uint32Array, index: number) => number,
): Ring {
  const ring = new Ring(createRing(entries, stride, false));
  const { words } = ring;
  const watched = new Proxy(words, {
    get(target, name) {
      const index = typeof name === 'string' ? Number(name) : Number.NaN;
      if (Number.isInteger(index)) return index < CONTROL_WORDS ? target[index] : read(target, index);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
  Object.defineProperty(ring, 'words', { get: () => watched });
  return ring;
}

/**
 * Of a ring's memory, however many rings look at it: each word from `first` on has another value as soon as it was read, a length, an address or a key that
 * would not pass. Until `vi.restoreAllMocks()`.
 * @returns how often each of them was read, by its index
 */
export function rewriteOnceRead(ring: Ring, first: number): ReadonlyMap<number, number> {
  const { words } = ring;
  const reads = new Map<number, number>();
  const hostile = new Proxy(words, {
    get(target, name) {
      const index = typeof name === 'string' ? Number(name) : Number.NaN;
      if (!(index >= first)) return Reflect.get(target, name, target);
      const count = reads.get(index) ?? 0;
      reads.set(index, count + 1);
      return count === 0 ? target[index] : 0xffff_fff0;
    },
  });
  const real = Object.getOwnPropertyDescriptor(Ring.prototype, 'words')!.get!;
  vi.spyOn(Ring.prototype, 'words', 'get').mockImplementation(function (this: Ring) {
    return words.buffer === this.buffer ? hostile : real.call(this);
  });
  return reads;
}
