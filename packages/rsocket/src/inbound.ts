/** Bytes that the peer writes into our ring, and what it hears of the room there. */
import type { Target } from './wire.ts';

/** Numbers of messages are 16 bits wide. */
const SEQUENCE = 0xffff;

/** An announcement: the limit of the peer's messages, and a buffer where one is free. */
export interface Grant {
  limit: number;
  buffer: Target | undefined;
}

/**
 * The ring has two halves; the last byte of an odd number is not used. The first one is the peer's from the start, the second one is announced with the first grant, and then
 * each in turn once it was read.
 */
export class Inbound {
  readonly #bytes: Uint8Array;
  readonly #addr: bigint;
  readonly #key: number;
  readonly #receives: number;
  /** Lengths of the messages that came and were not read. */
  #messages: number[] = [];
  #head = 0;
  /** Read, and not announced again; the second half from the start. */
  #free: number;
  #freeAt: number;
  /** Messages that were read whole. */
  #sequence = 0;
  /** The next grant is due when `#sequence` has come so far. */
  #due: number;
  /** Bytes that the peer may still write before the next announcement. */
  #announced: number;

  /** @param receives messages that receives are posted for */
  constructor(ring: { bytes: Uint8Array; addr: bigint; rkey: number }, receives: number) {
    this.#bytes = ring.bytes.subarray(0, ring.bytes.length & ~1);
    this.#addr = ring.addr;
    this.#key = ring.rkey;
    this.#receives = receives;
    this.#due = receives >> 1;
    this.#free = this.half;
    this.#freeAt = this.half;
    this.#announced = this.half;
  }

  get half(): number {
    return this.#bytes.length >> 1;
  }

  /** The first half, for the connection data. */
  get first(): Target {
    return { addr: this.#addr, key: this.#key, length: this.half };
  }

  get isEmpty(): boolean {
    return this.#messages.length === 0;
  }

  /** A message of the peer has placed so many bytes. False where it had no room for them, or no credit: the peer breaks the protocol. */
  arrived(length: number): boolean {
    if (length > this.#announced || this.#messages.length >= this.#receives) return false;
    this.#announced -= length;
    this.#messages.push(length);
    return true;
  }

  /** A message without bytes for the ring took a receive, which is posted again, and a number of the peer's. */
  passed(): void {
    this.#sequence = (this.#sequence + 1) & SEQUENCE;
  }

  /** Takes what has come, `most` bytes at most but one message at least, as bytes of the caller's own. */
  take(most: number): Uint8Array {
    let count = 0;
    let length = 0;
    while (count < this.#messages.length && (count === 0 || length + this.#messages[count] <= most))
      length += this.#messages[count++];
    this.#messages.splice(0, count);
    const bytes = new Uint8Array(length);
    const toEnd = Math.min(length, this.#bytes.length - this.#head);
    bytes.set(this.#bytes.subarray(this.#head, this.#head + toEnd));
    bytes.set(this.#bytes.subarray(0, length - toEnd), toEnd);
    this.#head = (this.#head + length) % this.#bytes.length;
    this.#free += length;
    this.#sequence = (this.#sequence + count) & SEQUENCE;
    return bytes;
  }

  /** Whether the peer is to hear of room: half of the ring, or half of the receives. */
  get owesGrant(): boolean {
    return this.#free >= this.half || ((this.#sequence - this.#due) << 16) >> 16 >= 0;
  }

  /** The grant that is owed: it has to be sent. */
  grant(): Grant {
    this.#due = (this.#sequence + (this.#receives >> 1)) & SEQUENCE;
    const limit = (this.#sequence + this.#receives) & SEQUENCE;
    if (this.#free < this.half) return { limit, buffer: undefined };
    const buffer = { addr: this.#addr + BigInt(this.#freeAt), key: this.#key, length: this.half };
    this.#free -= this.half;
    this.#freeAt = (this.#freeAt + this.half) % this.#bytes.length;
    this.#announced += this.half;
    return { limit, buffer };
  }
}
