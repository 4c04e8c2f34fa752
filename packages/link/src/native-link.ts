/** Shared by the links on the native addon: the copy into regions, and the clock. */
import { copier, copyBatch } from '@node-roce/dgram-native';
import {
  Copy,
  type CopyBatch,
  type RegionTable,
  RoceBug,
  storePayload,
  type WordViews,
  wordViews,
} from '@node-roce/transport';
import { TWO_32 } from '@node-roce/wire';

/** A copy this short is done before a call of the addon would be. */
const SHORT_COPY = 128;

/** The copies of a link: in half the time from the slab of the first one, which is that of the run loop, with the same list. */
export function copies(): CopyBatch {
  let bound: { slab: Uint8Array; list: Uint32Array; copy: (count: number) => number } | undefined;
  let short: { slab: Uint8Array; words: WordViews } | undefined;
  return (slab, regions, list, count) => {
    if (count === 1 && list[Copy.LENGTH] <= SHORT_COPY) {
      // A slab of the link's own might be taken away; one that is shared can't.
      if (short === undefined && isShared(slab)) short = { slab, words: wordViews(slab) };
      return copyShort(slab, regions, list, slab === short?.slab ? short.words : undefined);
    }
    const { views } = regions;
    if (bound === undefined && isShared(slab) && isShared(list))
      bound = { slab, list, copy: copier(slab, views, list) };
    const isBound = slab === bound?.slab && list === bound.list;
    const copied = isBound ? bound!.copy(count) : copyBatch(slab, views, list, count);
    if (copied !== count) throw new RoceBug('a checked copy was refused');
  };
}

const isShared = ({ buffer }: Uint8Array | Uint32Array): boolean => buffer instanceof SharedArrayBuffer;

function copyShort(slab: Uint8Array, regions: RegionTable, list: Uint32Array, words?: WordViews): void {
  const region = list[Copy.REGION];
  const view = regions.views[region];
  const length = list[Copy.LENGTH];
  const from = list[Copy.SOURCE];
  const to = list[Copy.OFFSET_HIGH] * TWO_32 + list[Copy.OFFSET_LOW];
  if (view === undefined || to + length > view.length) throw new RoceBug('a checked copy was refused');
  storePayload(view, regions.words(region), to, slab, from, length, words);
}

/**
 * The time at which `performance.now()` was 0, µs of CLOCK_MONOTONIC. The largest of some: a thread that loses the processor between the two readings
 * gets a smaller one, and the clock of the run loop, which the link and `performance.now()` set in turn, would go back and forth.
 */
export function timeOrigin(): number {
  const origins = Array.from({ length: 5 }, () => {
    const [seconds, nanoseconds] = process.hrtime();
    return seconds * 1e6 + nanoseconds / 1e3 - performance.now() * 1e3;
  });
  return Math.max(...origins);
}
