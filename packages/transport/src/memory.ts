/**
 * Protection domains, memory regions and their keys, and the one check that every access passes.
 *
 * An address is synthetic: each backing buffer gets a random page-aligned 64-bit base, drawn once, so
 * that overlapping regions of one buffer agree about the addresses of the bytes they share.
 */
import type { RegionTable } from './batch.ts';
import { Access } from './constants.ts';
import type { DeviceLimits, MrCreated, MrInit } from './control.ts';
import { invalid, RoceError } from './errors.ts';

const TWO_32 = 0x1_0000_0000;
const PAGE = 4096;
const ALL_ACCESS =
  Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.MW_BIND;

interface Backing {
  readonly region: number;
  readonly base: bigint;
  /** Regions registered over it. */
  users: number;
}

/** A registered region. `valid` falls when it is deregistered: whoever still holds it must look. */
export class MemoryRegion {
  readonly handle: number;
  readonly pd: number;
  readonly key: number;
  readonly access: number;
  /** First address, in two words. */
  readonly startHigh: number;
  readonly startLow: number;
  /** Bytes. */
  readonly length: number;
  /** Index in the region table, and where the region starts in that backing buffer. */
  readonly region: number;
  readonly offset: number;
  readonly view: Uint8Array;
  readonly backing: number;
  valid = true;

  constructor(
    handle: number,
    key: number,
    start: bigint,
    region: number,
    view: Uint8Array,
    { pd, access, length, offset, backing }: MrInit,
  ) {
    this.handle = handle;
    this.key = key;
    this.startHigh = Number(start >> 32n);
    this.startLow = Number(start & 0xffff_ffffn);
    this.region = region;
    this.view = view;
    this.pd = pd;
    this.access = access;
    this.length = length;
    this.offset = offset;
    this.backing = backing;
  }

  /**
   * Where an address lies in the backing buffer, or −1 where `length` bytes from it are not all in the
   * region. A detached buffer has no bytes left, so nothing lies in it.
   */
  locate(addressHigh: number, addressLow: number, length: number): number {
    // Exact wherever it can be in range: a difference too large for a double is too large for a region.
    const delta = (addressHigh - this.startHigh) * TWO_32 + (addressLow - this.startLow);
    if (delta < 0 || delta + length > this.length) return -1;
    if (this.view.byteLength < this.offset + this.length) return -1;
    return this.offset + delta;
  }
}

/** All protection domains, regions and keys of an adapter. */
export class Memory {
  readonly #regions: RegionTable;
  readonly #random: () => number;
  readonly #limits: DeviceLimits;
  readonly #backings = new Map<number, Backing>();
  readonly #byKey = new Map<number, MemoryRegion>();
  readonly #byHandle = new Map<number, MemoryRegion>();
  /** Objects that hold each PD (regions, queue pairs): a PD in use can't go. */
  readonly #pds = new Map<number, number>();
  #nextHandle = 1;

  constructor(regions: RegionTable, random: () => number, limits: DeviceLimits) {
    this.#regions = regions;
    this.#random = random;
    this.#limits = limits;
  }

  /** ibv_alloc_pd(3). */
  allocPd(): number {
    if (this.#pds.size >= this.#limits.maxPd) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no protection domain left', { errno: 'ENOMEM' });
    }
    const pd = this.#nextHandle++;
    this.#pds.set(pd, 0);
    return pd;
  }

  /** ibv_dealloc_pd(3): EBUSY while a region or a queue pair uses it. */
  deallocPd(pd: number): void {
    const users = this.#pds.get(pd);
    if (users === undefined) throw invalid('pd', 'no such protection domain');
    if (users > 0) {
      throw new RoceError('ERR_ROCE_BUSY', `the protection domain is in use by ${users} objects`, {
        errno: 'EBUSY',
      });
    }
    this.#pds.delete(pd);
  }

  /** Takes (+1) or gives back (−1) a hold on a PD. */
  holdPd(pd: number, by: 1 | -1): void {
    const users = this.#pds.get(pd);
    if (users === undefined) throw invalid('pd', 'no such protection domain');
    this.#pds.set(pd, users + by);
  }

  /** ibv_reg_mr(3). */
  register(init: MrInit): MrCreated {
    const { buffer, offset, length, access } = init;
    if (!this.#pds.has(init.pd)) throw invalid('pd', 'no such protection domain');
    if ((access & ~ALL_ACCESS) !== 0) throw invalid('access', `unknown flags 0x${access.toString(16)}`);
    if ((access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) !== 0 && !(access & Access.LOCAL_WRITE)) {
      throw invalid('access', 'remote write and remote atomic need LOCAL_WRITE (ibv_reg_mr(3))');
    }
    if (isResizable(buffer))
      throw invalid('buffer', 'a resizable buffer can move', 'a buffer of fixed length');
    if (!Number.isSafeInteger(offset) || offset < 0) throw invalid('offset', `${offset} is not an offset`);
    if (!Number.isSafeInteger(length) || length < 0 || length > this.#limits.maxMrSize) {
      throw invalid('length', `${length} is not a length`, `0 … ${this.#limits.maxMrSize}`);
    }
    if (offset + length > buffer.byteLength) throw invalid('length', 'the region ends after its buffer');
    if (this.#byHandle.size >= this.#limits.maxMr) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no memory region left', { errno: 'ENOMEM' });
    }
    if (init.iova !== undefined && (init.iova < 0n || init.iova + BigInt(length) > 1n << 64n)) {
      throw invalid('iova', 'the region would wrap around the 64-bit address space');
    }

    let backing = this.#backings.get(init.backing);
    if (!backing) {
      backing = {
        region: this.#regions.add(new Uint8Array(buffer)),
        base: this.#randomBase(buffer.byteLength),
        users: 0,
      };
      this.#backings.set(init.backing, backing);
    }
    backing.users++;

    const addr = backing.base + BigInt(offset);
    const start = init.iova ?? addr;
    const view = this.#regions.views[backing.region]!;
    const key = this.#randomKey();
    const mr = new MemoryRegion(this.#nextHandle++, key, start, backing.region, view, init);
    this.#byKey.set(key, mr);
    this.#byHandle.set(mr.handle, mr);
    this.holdPd(init.pd, 1);
    return { handle: mr.handle, lkey: key, rkey: key, addr, iova: start };
  }

  /** ibv_dereg_mr(3). Packets that still name the region are refused from now on. */
  deregister(handle: number): void {
    const mr = this.#byHandle.get(handle);
    if (!mr) throw invalid('mr', 'no such memory region');
    mr.valid = false;
    this.#byHandle.delete(handle);
    this.#byKey.delete(mr.key);
    this.holdPd(mr.pd, -1);
    const backing = this.#backings.get(mr.backing)!;
    if (--backing.users === 0) {
      this.#backings.delete(mr.backing);
      this.#regions.remove(backing.region);
    }
  }

  /** The region that a key names, whichever PD it belongs to. */
  byKey(key: number): MemoryRegion | undefined {
    return this.#byKey.get(key);
  }

  /** Above the user half of the address space that peers' real addresses come from; never near the end. */
  #randomBase(length: number): bigint {
    const pages = (BigInt(this.#random()) << 16n) | BigInt(this.#random() & 0xffff);
    return (
      (BigInt.asUintN(63, pages * BigInt(PAGE)) % ((1n << 63n) - BigInt(length))) & ~0xfffn || BigInt(PAGE)
    );
  }

  /** 32 random bits that no region has, and never 0. */
  #randomKey(): number {
    for (;;) {
      const key = this.#random() >>> 0;
      if (key !== 0 && !this.#byKey.has(key)) return key;
    }
  }
}

function isResizable(buffer: ArrayBufferLike): boolean {
  const b = buffer as { resizable?: boolean; growable?: boolean };
  return b.resizable === true || b.growable === true;
}
