/**
 * Stores of payload into memory that another thread or process may poll. The last bytes are stored last: programs wait for the last
 * byte of an RDMA WRITE. An aligned word of 4 or 8 bytes at the end is stored in one piece. In memory that is not shared, nobody looks meanwhile.
 */

/** A buffer in words: another thread sees a word that was stored through these whole, or not at all. */
export interface WordViews {
  /** Another thread or process may look while bytes are stored. */
  readonly shared: boolean;
  readonly eights: BigUint64Array;
  readonly fours: Uint32Array;
}

export function wordViews({ buffer }: Uint8Array): WordViews {
  return {
    shared: buffer instanceof SharedArrayBuffer,
    eights: new BigUint64Array(buffer, 0, Math.floor(buffer.byteLength / 8)),
    fours: new Uint32Array(buffer, 0, Math.floor(buffer.byteLength / 4)),
  };
}

const LAST = new Uint8Array(8);
const LAST_FOUR = new Uint32Array(LAST.buffer, 0, 1);
/** Of no value: a store and a load of it, in the one order that all threads agree on, keep the stores before from those behind. */
const FENCE = new Int32Array(new SharedArrayBuffer(4));

/** Up to so many bytes, a loop costs less than a call of `set`. */
const LOOP_BYTES = 128;

/**
 * Copies `length` bytes of `slab`, at least one, to `offset` of a view; `words` are those of the view's buffer. With those of the slab's buffer,
 * short copies go word by word.
 */
export function storePayload(
  view: Uint8Array,
  words: WordViews,
  offset: number,
  slab: Uint8Array,
  source: number,
  length: number,
  slabWords?: WordViews,
): void {
  const end = view.byteOffset + offset + length;
  const last = lastBytes(words.shared, end, length);
  const head = length - last;
  if (head > LOOP_BYTES) view.set(slab.subarray(source, source + head), offset);
  else {
    let i = slabWords === undefined ? 0 : storeWords(view, words, offset, slab, slabWords, source, head);
    for (; i < head; i++) view[offset + i] = slab[source + i];
  }
  if (last === 0) return;
  if (last === 1) {
    Atomics.store(view, offset + head, slab[source + head]);
    return;
  }
  for (let i = 0; i < last; i++) LAST[i] = slab[source + head + i];
  if (last === 8) {
    // Copied as one aligned word. `Atomics.store` would take a BigInt, one on the heap for each packet.
    Atomics.store(FENCE, 0, 0);
    Atomics.load(FENCE, 0);
    view.set(LAST, offset + head);
  } else Atomics.store(words.fours, end / 4 - 1, LAST_FOUR[0]);
}

/** Bytes at the end that are stored by themselves; none in memory of one thread. */
function lastBytes(shared: boolean, end: number, length: number): number {
  if (!shared) return 0;
  if ((end & 7) === 0 && length >= 8) return 8;
  return (end & 3) === 0 && length >= 4 ? 4 : 1;
}

/** Copies whole words, where both places begin with one. @returns how many bytes */
function storeWords(
  view: Uint8Array,
  { fours }: WordViews,
  offset: number,
  slab: Uint8Array,
  slabWords: WordViews,
  source: number,
  length: number,
): number {
  const to = view.byteOffset + offset;
  const from = slab.byteOffset + source;
  if (((to | from) & 3) !== 0) return 0;
  const target = to / 4;
  const origin = from >>> 2;
  const count = length >> 2;
  const words = slabWords.fours;
  for (let i = 0; i < count; i++) fours[target + i] = words[origin + i];
  return count * 4;
}
