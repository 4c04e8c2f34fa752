/** Memory regions, and the search for the one that a view lies in. */
import { Access, invalid, type MrCreated, RoceError } from '@node-roce/transport';
import type { Engine } from './engine.ts';

/** What peers and the device may do with a region; LOCAL_WRITE is implied by what needs it. */
export interface AccessInit {
  /** The device may write it: receives, READs, atomics. Default true. */
  localWrite?: boolean;
  remoteWrite?: boolean;
  remoteRead?: boolean;
  remoteAtomic?: boolean;
}

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
    (access.remoteAtomic ? Access.REMOTE_ATOMIC : 0)
  );
}

/** Numbers for backing buffers, the same for every region over the same buffer (docs/memory.md). */
const backings = new WeakMap<ArrayBufferLike, number>();
let nextBacking = 1;

export function backingOf(buffer: ArrayBufferLike): number {
  let number = backings.get(buffer);
  if (number === undefined) {
    number = nextBacking++;
    backings.set(buffer, number);
  }
  return number;
}

/** A registered memory region (`struct ibv_mr`). */
export class MemoryRegion implements AsyncDisposable {
  readonly lkey: number;
  readonly rkey: number;
  /** Address of the first byte. Synthetic: random, page-aligned, the same for all who name the byte. */
  readonly addr: bigint;
  /** The address of the first byte as peers name it; `addr` unless chosen otherwise. */
  readonly iova: bigint;
  /** Bytes. */
  readonly length: number;
  readonly buffer: ArrayBufferLike;
  /** Where the region starts in its buffer. */
  readonly bufferOffset: number;
  /** The same address in two words. */
  readonly startHigh: number;
  readonly startLow: number;
  readonly #handle: number;
  readonly #engine: Engine;
  readonly #onDeregister: (mr: MemoryRegion) => void;
  #gone = false;

  constructor(
    engine: Engine,
    created: MrCreated,
    buffer: ArrayBufferLike,
    offset: number,
    length: number,
    onDeregister: (mr: MemoryRegion) => void,
  ) {
    this.#engine = engine;
    this.#handle = created.handle;
    this.lkey = created.lkey;
    this.rkey = created.rkey;
    this.addr = created.addr;
    this.iova = created.iova;
    this.buffer = buffer;
    this.bufferOffset = offset;
    this.length = length;
    this.startHigh = Number(created.iova >> 32n);
    this.startLow = Number(created.iova & 0xffff_ffffn);
    this.#onDeregister = onDeregister;
  }

  /** The region's bytes, or a part of them. */
  bytes(offset = 0, length = this.length - offset): Uint8Array {
    if (offset < 0 || length < 0 || offset + length > this.length)
      throw invalid('offset', 'not in the region');
    return new Uint8Array(this.buffer, this.bufferOffset + offset, length);
  }

  /** What a peer needs for READ, WRITE or an atomic at `offset`. */
  remote(offset = 0): { addr: bigint; rkey: number } {
    return { addr: this.iova + BigInt(offset), rkey: this.rkey };
  }

  /** ibv_dereg_mr(3). Work that still names it fails. */
  async deregister(): Promise<void> {
    if (this.#gone || this.#engine.closed) return;
    this.#gone = true;
    this.#onDeregister(this);
    await this.#engine.call('deregisterMr', this.#handle);
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

/** Checks what a region can be over, and says why not (docs/memory.md). */
export function checkBuffer(engine: Engine, buffer: ArrayBufferLike): void {
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
}
