/** Shared by the links on the native addon: the copy into regions, and the clock. */
import { copyBatch as nativeCopy } from '@node-roce/dgram-native';
import { Copy, type CopyBatch, RoceBug } from '@node-roce/transport';
import { TWO_32 } from '@node-roce/wire';

/** A copy this short is done before a call of the addon would be. */
const SHORT_COPY = 128;

export const copy: CopyBatch = (slab, regions, list, count) => {
  if (count === 1 && list[Copy.LENGTH] <= SHORT_COPY) {
    const view = regions.views[list[Copy.REGION]];
    const length = list[Copy.LENGTH];
    const from = list[Copy.SOURCE];
    const to = list[Copy.OFFSET_HIGH] * TWO_32 + list[Copy.OFFSET_LOW];
    if (view === undefined || to + length > view.length) throw new RoceBug('a checked copy was refused');
    for (let i = 0; i < length; i++) view[to + i] = slab[from + i];
    return;
  }
  if (nativeCopy(slab, regions.views, list, count) !== count) throw new RoceBug('a checked copy was refused');
};

/** The time at which `performance.now()` was 0, µs of CLOCK_MONOTONIC. */
export function timeOrigin(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e6 + nanoseconds / 1e3 - performance.now() * 1e3;
}
