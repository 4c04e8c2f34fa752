/** Scatters payload into the memory that a scatter/gather list names. */
import { Access } from './constants.ts';
import type { Context } from './context.ts';
import { SGE_WORDS, Sge } from './rings.ts';

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
