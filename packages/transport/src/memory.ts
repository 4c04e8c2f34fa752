/**
 * Protection domains, and the memory regions and windows in them, by their keys.
 *
 * An address is synthetic: each backing buffer gets a random page-aligned 64-bit base, drawn once, so
 * that overlapping regions of one buffer agree about the addresses of the bytes they share.
 */
import type { RegionTable } from './batch.ts';
import { Access } from './constants.ts';
import type { DeviceLimits, MrCreated, MrInit, MwCreated, MwType, NullMrCreated } from './control.ts';
import { invalid, RoceError } from './errors.ts';
import { RecentNumbers } from './recent-numbers.ts';
import { MemoryRegion, MemoryWindow, NULL_BYTES, NullRegion } from './region.ts';

const PAGE = 4096;
const ALL_ACCESS =
  Access.LOCAL_WRITE |
  Access.REMOTE_WRITE |
  Access.REMOTE_READ |
  Access.REMOTE_ATOMIC |
  Access.MW_BIND |
  Access.ZERO_BASED |
  Access.FLUSH_GLOBAL;

/** A buffer that regions are registered over. */
class Backing {
  readonly region: number;
  readonly base: bigint;
  #users = 0;

  constructor(region: number, base: bigint) {
    this.region = region;
    this.base = base;
  }

  /** One region more or less is registered over it; returns how many are. */
  use(by: 1 | -1): number {
    this.#users += by;
    return this.#users;
  }
}

/** All protection domains, regions and keys of an adapter. */
export class Memory {
  readonly #regions: RegionTable;
  readonly #random: () => number;
  readonly #limits: DeviceLimits;
  readonly #backings = new Map<number, Backing>();
  /** By the upper 24 bits of the key, which nothing else has; `null`: taken by a window that is not bound. */
  readonly #byIndex = new Map<number, MemoryRegion | null>();
  readonly #byHandle = new Map<number, MemoryRegion>();
  readonly #windows = new Map<number, MemoryWindow>();
  /** Type 2B windows by the queue pair that they are bound to. */
  readonly #windowsOfQp = new Map<number, Set<MemoryWindow>>();
  readonly #recent = new RecentNumbers();
  /** Objects that hold each PD (regions, windows, queue pairs, …): a PD in use can't go. */
  readonly #pds = new Map<number, number>();
  readonly #onClosed: (closed: MemoryRegion) => void;
  /** Index of the zeros that null regions give; made with the first of them. */
  #nothing: number | undefined;
  #nextHandle = 1;
  /** The region that a work request of this side named last: most name the same ones in turn. */
  #lastLocal: MemoryRegion | undefined;

  /** @param onClosed hears of each key that opens nothing any more */
  constructor(
    regions: RegionTable,
    random: () => number,
    limits: DeviceLimits,
    onClosed: (closed: MemoryRegion) => void = () => {},
  ) {
    this.#onClosed = onClosed;
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

  /** ibv_dealloc_pd(3): EBUSY while anything that was made with it is there. */
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

  /** ibv_reg_mr(3). With ZERO_BASED, peers name the first byte 0. */
  register(init: MrInit): MrCreated {
    this.#check(init);
    this.#checkPlace();
    this.holdPd(init.pd, 1);
    return this.#place(this.#nextHandle++, this.#randomKey(), init);
  }

  /** ibv_alloc_null_mr(3): `deregister` takes it back. Only its lkey means anything. */
  allocNullMr(pd: number): NullMrCreated {
    if (!this.#pds.has(pd)) throw invalid('pd', 'no such protection domain');
    this.#checkPlace();
    this.holdPd(pd, 1);
    this.#nothing ??= this.#regions.add(new Uint8Array(NULL_BYTES));
    const mr = new NullRegion(this.#nextHandle++, this.#randomKey(), pd, this.#nothing, this.#regions);
    this.#byIndex.set(mr.key >>> 8, mr);
    this.#byHandle.set(mr.handle, mr);
    return { handle: mr.handle, lkey: mr.key };
  }

  #checkPlace(): void {
    if (this.#byHandle.size < this.#limits.maxMr) return;
    throw new RoceError('ERR_ROCE_LIMIT', 'no memory region left', { errno: 'ENOMEM' });
  }

  /**
   * ibv_rereg_mr(3): another PD, access or range for a region that stays what it is. Another range is
   * another region to peers, so it has new keys. EBUSY while windows are bound to it; EINVAL for a null region.
   */
  reregister(handle: number, init: MrInit, newKeys: boolean): MrCreated {
    const old = this.#region(handle);
    if (old.isNull) throw invalid('mr', 'a null region has no memory to change', 'a region of memory');
    this.#refuseBound(old);
    this.#check(init);
    this.holdPd(init.pd, 1);
    // A buffer that stays keeps its addresses.
    const backing = this.#backings.get(init.backing);
    backing?.use(1);
    this.#remove(old);
    if (newKeys) this.#recent.add(old.key >>> 8);
    const created = this.#place(handle, newKeys ? this.#randomKey() : old.key, init);
    backing?.use(-1);
    return created;
  }

  /** ibv_dereg_mr(3). Packets that still name the region are refused from now on. */
  deregister(handle: number): void {
    const mr = this.#region(handle);
    this.#refuseBound(mr);
    this.#remove(mr);
    this.#recent.add(mr.key >>> 8);
  }

  #region(handle: number): MemoryRegion {
    const mr = this.#byHandle.get(handle);
    if (!mr) throw invalid('mr', 'no such memory region');
    return mr;
  }

  #refuseBound(mr: MemoryRegion): void {
    if (mr.windows === 0) return;
    throw new RoceError('ERR_ROCE_BUSY', `${mr.windows} memory windows are bound to the region`, {
      errno: 'EBUSY',
    });
  }

  #check({ pd, buffer, offset, length, access, iova }: MrInit): void {
    if (!this.#pds.has(pd)) throw invalid('pd', 'no such protection domain');
    if ((access & Access.FLUSH_PERSISTENT) !== 0) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', 'access: memory of a program does not outlast it', {
        errno: 'EOPNOTSUPP',
        attribute: 'access',
        expected: 'FLUSH_GLOBAL',
      });
    }
    if ((access & ~ALL_ACCESS) !== 0) throw invalid('access', `unknown flags 0x${access.toString(16)}`);
    if ((access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) !== 0 && !(access & Access.LOCAL_WRITE)) {
      throw invalid('access', 'remote write and remote atomic need LOCAL_WRITE (ibv_reg_mr(3))');
    }
    if (isResizable(buffer))
      throw invalid('buffer', 'a resizable buffer can move', 'a buffer of fixed length');
    if (isDetached(buffer))
      throw invalid('buffer', 'it is detached: it was transferred', 'a buffer that this thread still has');
    if (!Number.isSafeInteger(offset) || offset < 0) throw invalid('offset', `${offset} is not an offset`);
    if (!Number.isSafeInteger(length) || length < 0 || length > this.#limits.maxMrSize) {
      throw invalid('length', `${length} is not a length`, `0 … ${this.#limits.maxMrSize}`);
    }
    if (offset + length > buffer.byteLength) throw invalid('length', 'the region ends after its buffer');
    if (iova !== undefined && (iova < 0n || iova + BigInt(length) > 1n << 64n)) {
      throw invalid('iova', 'the region would wrap around the 64-bit address space');
    }
    if (iova && access & Access.ZERO_BASED) throw invalid('iova', 'a zero-based region begins at 0', '0');
  }

  #place(handle: number, key: number, init: MrInit): MrCreated {
    const { buffer, offset, access } = init;
    let backing = this.#backings.get(init.backing);
    if (!backing) {
      const region = this.#regions.add(new Uint8Array(buffer));
      backing = new Backing(region, this.#randomBase(buffer.byteLength));
      this.#backings.set(init.backing, backing);
    }
    backing.use(1);

    const addr = backing.base + BigInt(offset);
    const start = access & Access.ZERO_BASED ? 0n : (init.iova ?? addr);
    const view = this.#regions.views[backing.region] as Uint8Array;
    const mr = new MemoryRegion(handle, key, start, backing.region, view, init);
    this.#byIndex.set(key >>> 8, mr);
    this.#byHandle.set(handle, mr);
    return { handle, lkey: key, rkey: key, addr, iova: start };
  }

  #remove(mr: MemoryRegion): void {
    if (this.#lastLocal === mr) this.#lastLocal = undefined;
    mr.invalidate();
    this.#onClosed(mr);
    this.#byHandle.delete(mr.handle);
    this.#byIndex.delete(mr.key >>> 8);
    this.holdPd(mr.pd, -1);
    if (mr.isNull) return;
    const backing = this.#backings.get(mr.backing)!;
    if (backing.use(-1) === 0) {
      this.#backings.delete(mr.backing);
      this.#regions.remove(backing.region);
    }
  }

  /**
   * The region that a key opens to this side's work requests, whichever PD it belongs to.
   *
   * @param lkey as int32 (`| 0`): V8 boxes a larger number where it does not inline the call
   */
  byLkey(lkey: number): MemoryRegion | undefined {
    const key = lkey >>> 0;
    const last = this.#lastLocal;
    if (last !== undefined && last.key === key && last.valid) return last;
    const mr = this.#byIndex.get(key >>> 8);
    if (!mr || mr.key !== key || mr.window !== undefined) return undefined;
    this.#lastLocal = mr;
    return mr;
  }

  /** The region or window that a key opens to a peer, whichever PD it belongs to. The key's bits may be a signed number. */
  byRkey(key: number): MemoryRegion | undefined {
    const mr = this.#byIndex.get(key >>> 8);
    return mr && mr.key === key >>> 0 && !mr.isNull ? mr : undefined;
  }

  // ---------------------------------------------------------- memory windows

  /** ibv_alloc_mw(3). The window opens nothing until it is bound. */
  allocMw(pd: number, type: MwType): MwCreated {
    if (type !== 1 && type !== 2) throw invalid('type', `no memory windows of type ${type}`, '1 or 2');
    if (!this.#pds.has(pd)) throw invalid('pd', 'no such protection domain');
    if (this.#windows.size >= this.#limits.maxMw) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no memory window left', { errno: 'ENOMEM' });
    }
    const window = new MemoryWindow(this.#nextHandle++, pd, type, this.#randomKey());
    this.#windows.set(window.handle, window);
    this.#byIndex.set(window.key >>> 8, null);
    this.holdPd(pd, 1);
    return { handle: window.handle, rkey: window.key };
  }

  /** ibv_dealloc_mw(3). The range that the window was bound to is closed to peers. */
  deallocMw(handle: number): void {
    const window = this.#windows.get(handle);
    if (!window) throw invalid('mw', 'no such memory window');
    this.unbind(window);
    this.#windows.delete(handle);
    this.#byIndex.delete(window.key >>> 8);
    this.#recent.add(window.key >>> 8);
    this.holdPd(window.pd, -1);
  }

  /** The window with this handle. */
  window(handle: number): MemoryWindow | undefined {
    return this.#windows.get(handle);
  }

  /** Binds a window under a new key of its index; all checks are done. */
  bind(window: MemoryWindow, mr: MemoryRegion, key: number, bind: WindowRange): void {
    this.unbind(window);
    const range = { ...bind, pd: window.pd, backing: mr.backing };
    const qpn = window.type === 2 ? bind.qpn : -1;
    const bound = new MemoryRegion(window.handle, key, bind.start, mr.region, mr.view, range, qpn, window);
    window.bind(bound, mr);
    this.#byIndex.set(key >>> 8, bound);
    if (qpn < 0) return;
    const windows = this.#windowsOfQp.get(qpn);
    if (windows) windows.add(window);
    else this.#windowsOfQp.set(qpn, new Set([window]));
  }

  /** The window opens nothing any more; its key is not valid until it is bound again. */
  unbind(window: MemoryWindow): void {
    const { bound } = window;
    if (!bound) return;
    window.unbind();
    this.#onClosed(bound);
    this.#byIndex.set(window.key >>> 8, null);
    const windows = this.#windowsOfQp.get(bound.qpn);
    if (windows?.delete(window) && windows.size === 0) this.#windowsOfQp.delete(bound.qpn);
  }

  /** Type 2B windows belong to a queue pair, and end with it (IBTA vol 1 §10.6.7.2.4). */
  unbindQp(qpn: number): void {
    for (const window of this.#windowsOfQp.get(qpn) ?? []) this.unbind(window);
  }

  /** Above the user half of the address space that peers' real addresses come from; never near the end. */
  #randomBase(length: number): bigint {
    const pages = (BigInt(this.#random()) << 16n) | BigInt(this.#random() & 0xffff);
    return (
      (BigInt.asUintN(63, pages * BigInt(PAGE)) % ((1n << 63n) - BigInt(length))) & ~0xfffn || BigInt(PAGE)
    );
  }

  /** 32 random bits; the upper 24 are the index, which is never 0 and which nothing else has or had lately. */
  #randomKey(): number {
    for (;;) {
      const key = this.#random() >>> 0;
      const index = key >>> 8;
      if (index !== 0 && !this.#byIndex.has(index) && !this.#recent.has(index)) return key;
    }
  }
}

/** The part of a region that a window is bound to: `start` as peers name it, `offset` in the backing buffer. */
export interface WindowRange {
  start: bigint;
  offset: number;
  length: number;
  access: number;
  qpn: number;
}

function isResizable(buffer: ArrayBufferLike): boolean {
  const b = buffer as { resizable?: boolean; growable?: boolean };
  return b.resizable === true || b.growable === true;
}

/** Whether the buffer was transferred, and has lost its memory. Node 20 has no `detached`. */
function isDetached(buffer: ArrayBufferLike): boolean {
  try {
    return new Uint8Array(buffer).buffer !== buffer;
  } catch {
    return true;
  }
}
