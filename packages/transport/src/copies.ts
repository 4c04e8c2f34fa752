/** The copies that a batch of packets asks for: payload to memory. */
import { TWO_32 } from '@node-roce/wire';
import { COPY_WORDS, Copy, type CopyBatch, type RegionTable } from './batch.ts';
import type { Own } from './own.ts';

const CAPACITY = 4096;

/** Owns the list, and writes it. */
export class CopyList {
  /** Copies that wait. */
  readonly count: number = 0;
  readonly #copy: CopyBatch;
  readonly #regions: RegionTable;
  /** Shared memory, which can't be taken away: a link looks it up once. */
  readonly #words = new Uint32Array(new SharedArrayBuffer(4 * CAPACITY * COPY_WORDS));

  constructor(copy: CopyBatch, regions: RegionTable) {
    this.#copy = copy;
    this.#regions = regions;
  }

  /** Does the copies, from this slab. */
  flush(slab: Uint8Array): void {
    if (this.count === 0) return;
    this.#copy(slab, this.#regions, this.#words, this.count);
    (this as Own<CopyList>).count = 0;
  }

  /** Makes room for so many; those that wait are done, from this slab, where there is none. */
  makeRoom(count: number, slab: Uint8Array): void {
    if (this.count + count > CAPACITY) this.flush(slab);
  }

  /** Adds a copy, which there is room for; one of nothing has no place in the list. */
  add(source: number, region: number, offset: number, length: number): void {
    const words = this.#words;
    const w = (this as Own<CopyList>).count++ * COPY_WORDS;
    words[w + Copy.SOURCE] = source;
    words[w + Copy.REGION] = region;
    words[w + Copy.OFFSET_LOW] = offset;
    words[w + Copy.OFFSET_HIGH] = offset >= TWO_32 ? Math.floor(offset / TWO_32) : 0;
    words[w + Copy.LENGTH] = length;
  }

  /**
   * Adds `count` copies of equal packets: of `length` bytes each, `step` bytes apart in the slab from `source` on, to one place behind the
   * other from `offset` of a region on.
   */
  addRun(source: number, step: number, region: number, offset: number, length: number, count: number): void {
    for (let i = 0; i < count; i++) this.add(source + i * step, region, offset + i * length, length);
  }
}
