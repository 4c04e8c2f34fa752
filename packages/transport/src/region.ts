/** Memory behind keys: memory regions, regions without memory, and memory windows. */
import { TWO_32 } from '@node-roce/wire';
import type { RegionTable } from './batch.ts';
import { Access } from './constants.ts';
import type { MrInit, MwType } from './control.ts';
import { type Reach, reachOf } from './reach.ts';

const TWO_31 = 0x8000_0000;

/**
 * The memory behind a key: a registered region, or the part of one that a memory window is bound to. A region that was
 * deregistered or invalidated is not `valid` any more, which those who still hold it look at.
 *
 * Owns whether it is valid, and how many windows are bound to it: none once it is not valid.
 */
export class MemoryRegion {
  readonly handle: number;
  readonly pd: number;
  readonly key: number;
  readonly access: number;
  /** The only queue pair that may use the key (type 2B window); −1: every one of the PD. */
  readonly qpn: number;
  /** The window it belongs to; its key is no lkey. */
  readonly window: MemoryWindow | undefined;
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
  /** Its addresses have one high word, and its places in memory 31 bits: integers are enough to find one from the other. */
  readonly isNear: boolean;
  /** How its bytes are fetched and stored; undefined where they are in the view. */
  readonly reach: Reach | undefined;
  #valid = true;
  #windows = 0;

  constructor(
    handle: number,
    key: number,
    start: bigint,
    region: number,
    view: Uint8Array,
    { pd, access, length, offset, backing }: Omit<MrInit, 'buffer' | 'iova'>,
    qpn = -1,
    window?: MemoryWindow,
  ) {
    this.handle = handle;
    this.key = key;
    this.startHigh = Number(start >> 32n);
    this.startLow = Number(start & 0xffff_ffffn);
    this.region = region;
    this.view = view;
    this.reach = reachOf(view.buffer);
    this.pd = pd;
    this.access = access;
    this.length = length;
    this.offset = offset;
    this.isNear = this.startLow + length <= TWO_32 && offset + length < TWO_31;
    this.backing = backing;
    this.qpn = qpn;
    this.window = window;
  }

  get valid(): boolean {
    return this.#valid;
  }

  /** Reads give zeros, and what is written is discarded (`NullRegion`). */
  get isNull(): boolean {
    return false;
  }

  /** Whether a run of packets may be stored at once: where stores are calls, one may fail by itself. */
  get takesRuns(): boolean {
    return this.reach === undefined;
  }

  /** It opens nothing any more. */
  invalidate(): void {
    this.#valid = false;
  }

  /** Windows bound to it: a region in use can't go. */
  get windows(): number {
    return this.#windows;
  }

  /** One more window is bound to it, or one less. */
  useForWindow(by: 1 | -1): void {
    this.#windows += by;
  }

  /**
   * Where an address lies in the backing buffer, or −1 where `length` bytes from it are not all in the
   * region. A detached buffer has no bytes left, so nothing lies in it. The words may be signed: such a call boxes none.
   */
  locate(addressHigh: number, addressLow: number, length: number): number {
    // Exact wherever it can be in range: a difference too large for a double is too large for a region.
    const delta = ((addressHigh >>> 0) - this.startHigh) * TWO_32 + ((addressLow >>> 0) - this.startLow);
    if (delta < 0 || delta + length > this.length) return -1;
    // `length` of bytes: V8 of Node 20 calls a function for `byteLength`.
    if (this.view.length < this.offset + this.length) return -1;
    return this.offset + delta;
  }
}

/** Zeros of a null region: more than a packet or a frame holds, which takes them from offset 0. */
export const NULL_BYTES = 128 * 1024;

/**
 * A region without memory (ibv_alloc_null_mr(3)): every address lies in it, for work requests of this side alone. Gathering takes
 * the zeros at offset 0, scattering leaves its bytes out.
 */
export class NullRegion extends MemoryRegion {
  constructor(handle: number, key: number, pd: number, region: number, { views }: RegionTable) {
    const place = { pd, access: Access.LOCAL_WRITE, length: 0, offset: 0, backing: -1 };
    super(handle, key, 0n, region, views[region] as Uint8Array, place);
  }

  override get isNull(): boolean {
    return true;
  }

  override get takesRuns(): boolean {
    return false;
  }

  override locate(): number {
    return 0;
  }
}

/**
 * A memory window (IBTA vol 1 §10.6.7): a key of its own for a part of a region.
 *
 * Owns its key and its binding. Invariant: while it is bound, what it opens is valid and its region counts it.
 */
export class MemoryWindow {
  readonly handle: number;
  readonly pd: number;
  /** Type 1: bound by ibv_bind_mw(3). Type 2 (2B): by a work request, to one queue pair. */
  readonly type: MwType;
  #key: number;
  #bound: MemoryRegion | undefined;
  /** The region that `#bound` is a part of. */
  #mr: MemoryRegion | undefined;

  constructor(handle: number, pd: number, type: MwType, key: number) {
    this.handle = handle;
    this.pd = pd;
    this.type = type;
    this.#key = key;
  }

  /** The rkey now; the program picks the low 8 bits when it binds a type 2 window. */
  get key(): number {
    return this.#key;
  }

  /** The range that it opens; undefined while it is not bound. */
  get bound(): MemoryRegion | undefined {
    return this.#bound;
  }

  /** Another key of its index, while it is not bound. */
  rekey(key: number): void {
    this.#key = key;
  }

  /** Opens a part of a region. */
  bind(bound: MemoryRegion, mr: MemoryRegion): void {
    this.#key = bound.key;
    this.#bound = bound;
    this.#mr = mr;
    mr.useForWindow(1);
  }

  unbind(): void {
    this.#bound?.invalidate();
    this.#mr?.useForWindow(-1);
    this.#bound = this.#mr = undefined;
  }
}
