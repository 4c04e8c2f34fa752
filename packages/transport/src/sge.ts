/** Scatter/gather lists: the check of a whole list, and the payload of one packet at a time into the memory that it names. */
import { Access } from './constants.ts';
import type { Context } from './context.ts';
import { SendWqe, SGE_WORDS, Sge } from './entry-words.ts';
import type { SendQueue } from './qp/send-queue.ts';

/**
 * The bytes of a list, or −1 where an element is not wholly in a valid region of the PD
 * with the access asked for. An element of length 0 needs no key (ibv_post_send(3)).
 */
export function checkList(
  context: Context,
  pd: number,
  ring: { readonly words: Uint32Array },
  first: number,
  count: number,
  access: number,
): number {
  let total = 0;
  for (let i = 0, w = first; i < count; i++, w += SGE_WORDS) {
    const words = ring.words;
    const length = words[w + Sge.LENGTH];
    if (length === 0) continue;
    const mr = context.memory.byLkey(words[w + Sge.LKEY] | 0);
    if (!mr || mr.pd !== pd || (mr.access & access) !== access) return -1;
    if (mr.locate(words[w + Sge.ADDRESS_HIGH], words[w + Sge.ADDRESS_LOW], length) < 0) return -1;
    total += length;
  }
  return total;
}

/** Outcome of a scatter: bytes that did not fit, or an element whose region or memory is gone. */
export const Scattered = { OK: 0, TOO_LONG: 1, PROTECTION: 2 } as const;

/**
 * Copies `length` bytes of the slab, or of `own`, to byte `offset` of the list of `count` elements at word
 * `first`. Each element is checked again: its region may have gone since the whole list was checked.
 */
export function scatter(
  context: Context,
  pd: number,
  words: Uint32Array,
  first: number,
  count: number,
  offset: number,
  source: number,
  length: number,
  own?: Uint8Array,
): number {
  for (let i = 0, w = first; length > 0; i++, w += SGE_WORDS) {
    if (i >= count) return Scattered.TOO_LONG;
    const size = words[w + Sge.LENGTH];
    if (offset >= size) {
      offset -= size;
      continue;
    }
    const take = Math.min(size - offset, length);
    const mr = context.memory.byLkey(words[w + Sge.LKEY] | 0);
    if (!mr || mr.pd !== pd || (mr.access & Access.LOCAL_WRITE) === 0) return Scattered.PROTECTION;
    const at = mr.locate(words[w + Sge.ADDRESS_HIGH], words[w + Sge.ADDRESS_LOW], size);
    if (at < 0) return Scattered.PROTECTION;
    if (!mr.isNull) {
      const placed = own
        ? context.write(own, source, mr, at + offset, take)
        : context.place(source, mr, at + offset, take);
      if (!placed) return Scattered.PROTECTION;
    }
    source += take;
    length -= take;
    offset = 0;
  }
  return Scattered.OK;
}

/** A response's payload into the list of a send entry, at byte `offset`. */
export function scatterResponse(
  context: Context,
  pd: number,
  queue: SendQueue,
  entry: number,
  offset: number,
  source: number,
  length: number,
): number {
  const w = queue.wordOf(entry);
  const { words } = queue;
  const count = Math.min(words[w + SendWqe.SGE_COUNT], queue.maxElements);
  return scatter(context, pd, words, w + SendWqe.SGE, count, offset, source, length);
}
