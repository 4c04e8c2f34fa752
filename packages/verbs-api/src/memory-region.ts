/** Memory regions, and the search for the one that a view lies in. */
import { constants } from 'node:buffer';
import { Access, invalid, type MrCreated, type MrInit, RoceError } from '@node-roce/transport';
import { Ending } from './ending.ts';
import type { Engine } from './engine/engine.ts';
import { custom, hex, line } from './inspect.ts';
import { checkRegisterOptions } from './option-types.ts';
import { ANY, checkArgument, described, INTEGER, OBJECT } from './options.ts';

/** Bytes of the largest typed array: 4 GiB before Node 22. The engine sees memory through these. */
export const LARGEST_VIEW = constants.MAX_LENGTH;

/** The rights of peers and the device on a region; LOCAL_WRITE is implied by rights that need it. */
export interface AccessInit {
  /** The device may write it: receives, READs, atomics. Default true. */
  localWrite?: boolean;
  /** Peers may write it: WRITE. */
  remoteWrite?: boolean;
  /** Peers may read it: READ. */
  remoteRead?: boolean;
  /** Peers may do atomics on it. */
  remoteAtomic?: boolean;
  /** Memory windows may be bound to it. */
  mwBind?: boolean;
  /** Its first byte has the address 0, for peers and in scatter/gather lists. */
  zeroBased?: boolean;
  /** Peers may flush the data that they wrote, so that all readers here see it. */
  flushGlobal?: boolean;
  /** Of queue pairs: peers may ask for persistence, which no region here grants. */
  flushPersistent?: boolean;
}

/** Options of `pd.registerMr`, without the memory. */
export interface RegisterOptions {
  /** `Access` bits, or flags by name. Default: local write only. */
  access?: number | AccessInit;
  /** The address that peers name its first byte by; without it, `addr`. */
  iova?: bigint;
}

/** `Access` bits of flags by name. */
export function accessBits(access: number | AccessInit = {}): number {
  if (typeof access === 'number') return access;
  return (
    (access.localWrite === false ? 0 : Access.LOCAL_WRITE) |
    (access.remoteWrite ? Access.REMOTE_WRITE : 0) |
    (access.remoteRead ? Access.REMOTE_READ : 0) |
    (access.remoteAtomic ? Access.REMOTE_ATOMIC : 0) |
    (access.mwBind ? Access.MW_BIND : 0) |
    (access.zeroBased ? Access.ZERO_BASED : 0) |
    (access.flushGlobal ? Access.FLUSH_GLOBAL : 0) |
    (access.flushPersistent ? Access.FLUSH_PERSISTENT : 0)
  );
}

/** Numbers for backing buffers, the same for every region over the same buffer (docs/memory.md). */
const backings = new WeakMap<ArrayBufferLike, number>();
let nextBacking = 1;

function backingOf(buffer: ArrayBufferLike): number {
  let number = backings.get(buffer);
  if (number === undefined) {
    number = nextBacking++;
    backings.set(buffer, number);
  }
  return number;
}

/** The parts of its protection domain that a region needs. */
export interface RegionOwner {
  /** The engine's number for it. */
  readonly handle: number;
  /** @internal */
  readonly regions: RegionIndex;
}

/** Changes of `reregister`; absent ones leave the value. */
export interface ReregisterOptions<Domain extends RegionOwner = RegionOwner> extends RegisterOptions {
  /** IBV_REREG_MR_CHANGE_PD. */
  pd?: Domain;
  /** IBV_REREG_MR_CHANGE_TRANSLATION, as is a new `iova`: peers need the new `rkey`. */
  memory?: ArrayBufferLike | ArrayBufferView;
}

/** A registered memory region (`struct ibv_mr`). Made by `pd.registerMr`. */
export class MemoryRegion<Domain extends RegionOwner = RegionOwner> implements AsyncDisposable {
  /** The key for work requests of this side. */
  lkey!: number;
  /** The key for peers. */
  rkey!: number;
  /** Address of the first byte. Synthetic: random, page-aligned, the same for all who name the byte. */
  addr!: bigint;
  /** The address of the first byte as peers name it; `addr` unless chosen otherwise, 0 if zero-based. */
  iova!: bigint;
  /** Bytes. */
  length!: number;
  /** The memory that it covers. */
  buffer!: ArrayBufferLike;
  /** Where the region starts in its buffer. */
  bufferOffset!: number;
  /** `Access` bits. */
  access!: number;
  /** The same address as `iova` in two words. @internal */
  startHigh!: number;
  /** @internal */
  startLow!: number;
  /** Where it is registered. */
  pd: Domain;
  readonly #handle: number;
  readonly #engine: Engine;
  readonly #ending = new Ending();
  #gone = false;

  constructor(engine: Engine, created: MrCreated, init: MrInit, pd: Domain) {
    this.#engine = engine;
    this.#handle = created.handle;
    this.pd = pd;
    this.#become(created, init);
  }

  #become(created: MrCreated, init: MrInit): void {
    this.lkey = created.lkey;
    this.rkey = created.rkey;
    this.addr = created.addr;
    this.iova = created.iova;
    this.buffer = init.buffer;
    this.bufferOffset = init.offset;
    this.length = init.length;
    this.access = init.access;
    this.startHigh = Number(created.iova >> 32n);
    this.startLow = Number(created.iova & 0xffff_ffffn);
    this.pd.regions.add(this);
  }

  /** The region's bytes, or `length` of them from `offset` on; the same memory. Throws EINVAL beyond the region. */
  bytes(offset = 0, length?: number): Uint8Array {
    checkArgument('offset', offset, INTEGER);
    const bytes = length ?? this.length - offset;
    if (!(INTEGER.is(bytes) && offset + bytes <= this.length))
      throw invalid(
        'offset',
        `${offset} with length ${described(bytes)}`,
        `a part of the region's ${this.length} bytes`,
      );
    return new Uint8Array(this.buffer, this.bufferOffset + offset, bytes);
  }

  /** The address and key that a peer needs for READ, WRITE or an atomic `offset` bytes from the start. */
  remote(offset = 0): { addr: bigint; rkey: number } {
    checkArgument('offset', offset, INTEGER);
    return { addr: this.iova + BigInt(offset), rkey: this.rkey };
  }

  /**
   * ibv_rereg_mr(3): other memory, protection domain or rights, in one step. The keys stay unless the memory
   * or its addresses change. EBUSY while windows are bound to it; when it fails, nothing has changed.
   */
  async reregister(change: ReregisterOptions<Domain>): Promise<void> {
    if (this.#gone) throw invalid('mr', 'it is deregistered');
    checkRegisterOptions(change, { pd: OBJECT, memory: ANY });
    const { pd = this.pd, memory, access, iova } = change;
    const place = checkMemory(
      this.#engine,
      memory ?? new Uint8Array(this.buffer, this.bufferOffset, this.length),
    );
    const bits = access === undefined ? this.access : accessBits(access);
    const moved =
      memory !== undefined || iova !== undefined || ((bits ^ this.access) & Access.ZERO_BASED) !== 0;
    // Where nothing moves the address stays, one of the program's own choice as well, 0 among them.
    const start = moved ? iova : this.iova;
    const init: MrInit = {
      pd: pd.handle,
      ...place,
      access: bits,
      ...(start === undefined ? {} : { iova: start }),
    };
    const created = await this.#engine.call('reregisterMr', this.#handle, init, moved);
    this.pd.regions.remove(this);
    this.pd = pd;
    this.#become(created, init);
  }

  /** ibv_dereg_mr(3). Work that still names it fails. EBUSY while memory windows are bound to it. */
  deregister(): Promise<void> {
    return this.#ending.once(this.#engine, async () => {
      await this.#engine.call('deregisterMr', this.#handle);
      this.#gone = true;
      this.pd.regions.remove(this);
    });
  }

  /** @internal */
  [custom](): string {
    return line('MemoryRegion', {
      addr: `0x${this.addr.toString(16)}`,
      length: this.length,
      lkey: hex(this.lkey),
      rkey: hex(this.rkey),
      access: hex(this.access),
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.deregister();
  }
}

/** The regions of a protection domain by buffer, to find the one that a view lies in. */
export class RegionIndex {
  readonly #byBuffer = new Map<ArrayBufferLike, MemoryRegion[]>();

  add(mr: MemoryRegion): void {
    const list = this.#byBuffer.get(mr.buffer);
    if (list) list.push(mr);
    else this.#byBuffer.set(mr.buffer, [mr]);
  }

  remove(mr: MemoryRegion): void {
    const list = this.#byBuffer.get(mr.buffer)?.filter((other) => other !== mr) ?? [];
    if (list.length > 0) this.#byBuffer.set(mr.buffer, list);
    else this.#byBuffer.delete(mr.buffer);
  }

  /** Throws EINVAL where no region holds all of the view. */
  readonly find = (view: Uint8Array): MemoryRegion => {
    const list = this.#byBuffer.get(view.buffer);
    if (list) {
      const start = view.byteOffset;
      for (const mr of list) {
        if (start >= mr.bufferOffset && start + view.byteLength <= mr.bufferOffset + mr.length) return mr;
      }
    }
    throw invalid(
      'sgList',
      'a view that lies in no region of the protection domain',
      'registered memory, or inline',
    );
  };
}

/** Buffer and range of the memory to register; throws the reason where it can't be registered (docs/memory.md). */
export function checkMemory(
  engine: Engine,
  memory: ArrayBufferLike | ArrayBufferView,
): Pick<MrInit, 'backing' | 'buffer' | 'offset' | 'length'> {
  if (
    !ArrayBuffer.isView(memory) &&
    !(memory instanceof ArrayBuffer) &&
    !(memory instanceof SharedArrayBuffer)
  ) {
    throw invalid('memory', described(memory), 'a buffer, or a view of one');
  }
  const whole = ArrayBuffer.isView(memory) ? memory.buffer : memory;
  if (whole.byteLength > LARGEST_VIEW)
    throw invalid(
      'memory',
      `its buffer has ${whole.byteLength} bytes`,
      `at most ${LARGEST_VIEW}, the largest view of this version of Node`,
    );
  const view = ArrayBuffer.isView(memory) ? memory : new Uint8Array(memory);
  const { buffer, byteOffset: offset, byteLength: length } = view;
  if (!engine.inline && !(buffer instanceof SharedArrayBuffer)) {
    throw new RoceError(
      'ERR_ROCE_NOT_SHARED',
      'the engine runs in another thread, which can not see an ArrayBuffer',
      {
        errno: 'EINVAL',
        attribute: 'buffer',
        expected: 'memory over a SharedArrayBuffer, or { engine: "inline" }',
      },
    );
  }
  return { backing: backingOf(buffer), buffer, offset, length };
}
