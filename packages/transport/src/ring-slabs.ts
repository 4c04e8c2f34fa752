/**
 * Memory of work queues whose producer and consumer share a thread: many queues of one size in one buffer. A queue pair that
 * was not posted to has touched its control words alone; the pages of its entries are made by the kernel when first written.
 */
import type { RegionTable } from './batch.ts';
import { CONTROL_WORDS, Control, type NewRing, powerOfTwo, Ring, type RingPlace } from './rings.ts';

/**
 * Rings in the first slab of a size, and at most: each slab has room for twice as many as the one before. Of a large block that was never in
 * use, malloc clears little, so that its pages stay untouched; of many small ones it clears most.
 */
const RINGS_FIRST = 16;
const RINGS_MAX = 1024;
/** Bytes of a slab, at most. */
const SLAB_MAX = 4 * 1024 * 1024;
/** Control words of so many rings fill one page: each takes every fourth group of `GROUP` words (`Control`). */
const INTERLEAVED = 4;
const GROUP = 4;
/** Words of a ring's entries; a larger one has a buffer of its own. */
const MAX_WORDS = 16 * 1024;

/**
 * Owns which of its places are free.
 *
 * Promise: the control words of a free place are 0, as in new memory.
 */
class Slab {
  readonly words: Uint32Array;
  /** Index in the region table. */
  readonly region: number;
  /** Words of a ring's entries. */
  readonly size: number;
  readonly #rings: number;
  readonly #free: number[] = [];
  /** Places that were never taken: from this one on. */
  #fresh = 0;

  constructor(size: number, rings: number, regions: RegionTable) {
    this.size = size;
    this.#rings = rings;
    this.words = new Uint32Array((rings / INTERLEAVED) * CONTROL_WORDS + rings * size);
    this.region = regions.add(new Uint8Array(this.words.buffer));
  }

  get full(): boolean {
    return this.#free.length === 0 && this.#fresh === this.#rings;
  }

  get empty(): boolean {
    return this.#free.length === this.#fresh;
  }

  take(): Place {
    const index = this.#free.pop() ?? this.#fresh++;
    return new Place(this, index, (this.#rings / INTERLEAVED) * CONTROL_WORDS + index * this.size);
  }

  give({ index, control }: Place): void {
    for (const word of Object.values(Control)) this.words[control + word] = 0;
    this.#free.push(index);
  }
}

/** A ring's place in a slab. */
class Place implements RingPlace {
  readonly slab: Slab;
  readonly index: number;
  readonly control: number;
  readonly entries: number;

  constructor(slab: Slab, index: number, entries: number) {
    this.slab = slab;
    this.index = index;
    this.control = Math.floor(index / INTERLEAVED) * CONTROL_WORDS + (index % INTERLEAVED) * GROUP;
    this.entries = entries;
  }

  get words(): Uint32Array {
    return this.slab.words;
  }
}

/**
 * All slabs of an adapter, by the size of their rings.
 *
 * Promises: a place is taken again only when the link has looked at every packet that may be read from it; of a size there is at most
 * one slab without a ring.
 */
export class RingSlabs {
  readonly #regions: RegionTable;
  /** Slabs with a free place, by words of a ring's entries; and rings that the next slab has. */
  readonly #open = new Map<number, Slab[]>();
  readonly #nextRings = new Map<number, number>();

  constructor(regions: RegionTable) {
    this.#regions = regions;
  }

  /** Makes a ring with room for at least `entries`, for one thread. */
  readonly newRing: NewRing = (entries, stride) => {
    const capacity = powerOfTwo(entries);
    const size = capacity * stride;
    if (size > MAX_WORDS) {
      return new Ring({ buffer: new ArrayBuffer((CONTROL_WORDS + size) * 4), capacity, stride });
    }
    const open = this.#openOf(size);
    if (open.length === 0) open.push(this.#newSlab(size));
    const slab = open[open.length - 1];
    const place = slab.take();
    if (slab.full) open.pop();
    return new Ring({ buffer: slab.words.buffer, capacity, stride, slab: place });
  };

  /** Index of a ring's slab in the region table; undefined where the ring is in none. */
  regionOf({ slab }: Ring): number | undefined {
    return slab instanceof Place ? slab.slab.region : undefined;
  }

  /** Neither side uses the ring any more. False where it is in no slab. */
  free(ring: Ring): boolean {
    const { slab } = ring;
    if (!(slab instanceof Place)) return false;
    ring.leaveSlab();
    this.#regions.batches.afterwards(() => this.#release(slab));
    return true;
  }

  #newSlab(size: number): Slab {
    const rings = this.#nextRings.get(size) ?? RINGS_FIRST;
    const isLargest = rings === RINGS_MAX || 2 * rings * size * 4 > SLAB_MAX;
    this.#nextRings.set(size, isLargest ? rings : 2 * rings);
    return new Slab(size, rings, this.#regions);
  }

  #openOf(size: number): Slab[] {
    const open = this.#open.get(size) ?? [];
    if (open.length === 0) this.#open.set(size, open);
    return open;
  }

  #release(place: Place): void {
    const { slab } = place;
    const open = this.#openOf(slab.size);
    if (slab.full) open.push(slab);
    slab.give(place);
    if (!slab.empty || open.length === 1) return;
    open.splice(open.indexOf(slab), 1);
    this.#regions.remove(slab.region);
  }
}
