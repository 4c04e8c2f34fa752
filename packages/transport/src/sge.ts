/** Scatter/gather lists: the check of a whole list, and walking it for one packet at a time. */
import type { Context } from './context.ts';
import type { SendQueue } from './qp/send-queue.ts';
import { SendWqe, SGE_WORDS, Sge } from './rings.ts';
import { scatter } from './scatter.ts';

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
