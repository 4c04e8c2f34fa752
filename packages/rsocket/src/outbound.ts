/** Where the next bytes to the peer go: its buffers, its credits, and our own memory that the WRITEs read from. */
import {
  type ConnectionData,
  decodeTarget,
  encodeTarget,
  SGE_BYTES,
  SGL_ENTRIES,
  type Target,
} from './wire.ts';

const SEQUENCE = 0xffff;
/** Bytes of the largest message; rsend goes up to it, too. */
const MAX_MESSAGE = 65_536;
const NONE: Target = { addr: 0n, key: 0, length: 0 };

/** A WRITE to the peer: ranges of our memory, and the place of the first byte. */
export interface Piece {
  ranges: { offset: number; length: number }[];
  length: number;
  addr: bigint;
  rkey: number;
}

/** The state of one direction. The peer announces its buffers by WRITEs into `sgl`, little-endian. */
export class Outbound {
  readonly #sgl: DataView;
  readonly #buffer: Uint8Array;
  #target: Target;
  #entry = 0;
  /** Number of the next message, and the first one that has no receive there. */
  #sequence = 0;
  #limit: number;
  #tail = 0;
  #used = 0;

  constructor(sgl: Uint8Array, buffer: Uint8Array, { credits, buffer: first }: ConnectionData) {
    this.#sgl = new DataView(sgl.buffer, sgl.byteOffset, sgl.byteLength);
    this.#buffer = buffer;
    this.#target = { ...first };
    this.#limit = credits;
  }

  /** The peer has receives for messages up to this number. */
  granted(limit: number): void {
    this.#limit = limit & SEQUENCE;
  }

  /** Whether the peer has a receive for one more message. */
  get hasCredit(): boolean {
    return this.#sequence !== this.#limit;
  }

  /** Bytes of our own memory that may be written now, in one WRITE. */
  get free(): number {
    return Math.min(this.#buffer.length - this.#used, MAX_MESSAGE);
  }

  /** Bytes that may go now in one message; 0: wait for the peer, or for WRITEs to complete. */
  get room(): number {
    if (this.#target.length === 0) this.#next();
    return this.hasCredit ? Math.min(this.#target.length, this.free) : 0;
  }

  /** The next buffer, where the peer has announced it. */
  #next(): void {
    const entry = (this.#entry + 1) % SGL_ENTRIES;
    const target = decodeTarget(this.#sgl, entry * SGE_BYTES, true);
    if (target.length === 0) return;
    encodeTarget(this.#sgl, entry * SGE_BYTES, NONE, true); // It is ours, until the peer announces another one there.
    this.#entry = entry;
    this.#target = target;
  }

  /** Copies bytes, `room` at most, for a WRITE that has to be posted. */
  place(bytes: Uint8Array): Piece {
    const { length } = bytes;
    const { addr, key } = this.#target;
    this.#target.addr += BigInt(length);
    this.#target.length -= length;
    return this.placeMessage(bytes, addr, key);
  }

  /** Copies bytes, `free` at most, for a message to another place of the peer's memory. It takes a credit. */
  placeMessage(bytes: Uint8Array, addr: bigint, key: number): Piece {
    this.#sequence = (this.#sequence + 1) & SEQUENCE;
    return this.placeAt(bytes, addr, key);
  }

  /** Copies bytes, `free` at most, for a WRITE that is no message: it takes no receive of the peer. */
  placeAt(bytes: Uint8Array, addr: bigint, rkey: number): Piece {
    const { length } = bytes;
    const offset = this.#tail;
    const toEnd = Math.min(length, this.#buffer.length - offset);
    this.#buffer.set(bytes.subarray(0, toEnd), offset);
    this.#buffer.set(bytes.subarray(toEnd), 0);
    const ranges = [{ offset, length: toEnd }];
    if (toEnd < length) ranges.push({ offset: 0, length: length - toEnd });
    this.#tail = (offset + length) % this.#buffer.length;
    this.#used += length;
    return { ranges, length, addr, rkey };
  }

  /** A WRITE has completed: its bytes are no longer needed. They complete in order. */
  completed(length: number): void {
    this.#used -= length;
  }
}
