/** Lists of send requests that are checked and written once, and posted any number of times. */
import { createRing, Ring, SendFlags, SendWqe } from '@node-roce/transport';

/** Send requests in the form of a queue's entries, for `PostQueues` alone. */
export interface PreparedEntries {
  readonly words: Uint32Array;
  readonly count: number;
  /** Most elements, and most inline bytes, that one of them has. */
  readonly elements: number;
  readonly inlineBytes: number;
}

/** Writes each request of a list by `write`, one entry of `stride` words each. */
export function writeEntries(
  count: number,
  stride: number,
  write: (ring: Ring, index: number) => void,
): PreparedEntries {
  const ring = new Ring(createRing(count, stride, false));
  let elements = 0;
  let inlineBytes = 0;
  for (let i = 0; i < count; i++) {
    write(ring, i);
    const entry = ring.wordOf(i);
    const isInline = ((ring.words[entry + SendWqe.OPCODE_FLAGS] >>> 8) & SendFlags.INLINE) !== 0;
    if (isInline) inlineBytes = Math.max(inlineBytes, ring.words[entry + SendWqe.LENGTH]);
    else elements = Math.max(elements, ring.words[entry + SendWqe.SGE_COUNT]);
  }
  const start = ring.wordOf(0);
  return { words: ring.words.slice(start, start + count * stride), count, elements, inlineBytes };
}

/** Copies the entries into the queue, the first to entry `first`; allocates nothing. */
export function copyEntries(ring: Ring, first: number, { words, count }: PreparedEntries): void {
  const start = ring.wordOf(first);
  if (ring.wordOf((first + count - 1) | 0) >= start) {
    ring.words.set(words, start);
    return;
  }
  // They go around the end of the queue: a view of each part would be an object.
  const { words: target, stride } = ring;
  for (let i = 0, from = 0; i < count; i++) {
    const to = ring.wordOf((first + i) | 0);
    for (let w = 0; w < stride; w++) target[to + w] = words[from++];
  }
}

/** Send requests that were checked and written once. Made by `qp.prepare`. */
export class PreparedSends {
  /** Requests in it. */
  readonly length: number;
  readonly #post: () => void;

  /** @internal */
  constructor(length: number, post: () => void) {
    this.length = length;
    this.#post = post;
  }

  /**
   * Posts all of them, or nothing, as `postBatch`: they may be under way already. Reads no object, and makes none.
   *
   * Throws EINVAL in RESET, INIT or RTR, and once the queues were resized (`qp.modify` with `cap`): then prepare the list
   * again. EBUSY while they are being resized to fewer elements or inline bytes than the list has. ENOMEM where not all of them
   * have room; the error's `index` is that of the first that has none.
   */
  post(): void {
    this.#post();
  }
}
