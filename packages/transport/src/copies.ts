/** Copies of a run: payload of equal packets, which goes to one stretch of memory. */
import { TWO_32 } from '@node-roce/wire';
import { COPY_WORDS, Copy } from './batch.ts';

/**
 * Writes `count` copies into the list, from word `first` on: of `length` bytes each, `step` bytes apart in the slab from `source` on, to one
 * place behind the other from `offset` of a region on.
 */
export function writeCopies(
  list: Uint32Array,
  first: number,
  source: number,
  step: number,
  region: number,
  offset: number,
  length: number,
  count: number,
): void {
  let to = offset;
  let from = source;
  for (let i = 0, w = first; i < count; i++, w += COPY_WORDS, from += step, to += length) {
    list[w + Copy.SOURCE] = from;
    list[w + Copy.REGION] = region;
    list[w + Copy.OFFSET_LOW] = to;
    list[w + Copy.OFFSET_HIGH] = to >= TWO_32 ? Math.floor(to / TWO_32) : 0;
    list[w + Copy.LENGTH] = length;
  }
}
