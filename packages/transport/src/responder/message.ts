/** The SEND or WRITE that is arriving at a connected queue pair. */
import type { OpcodeInfo } from '@node-roce/wire';
import { type Context, RUN_MAX } from '../context.ts';
import type { Own } from '../own.ts';
import type { MemoryRegion } from '../region.ts';

const NONE = 0;
const SEND = 1;
const WRITE = 2;

/**
 * Owns the kind of the message under way, and where the next byte of a WRITE goes.
 *
 * Invariants: a region is held only while a WRITE is under way, and then more bytes than 0 remain.
 */
export class InboundMessage {
  /** Between its first packet and its last. */
  readonly underWay: boolean = false;
  #kind: number = NONE;
  /** WRITE: its region (none for a WRITE of nothing), offset of the next byte, bytes to come, and in all. */
  #region: MemoryRegion | undefined;
  #offset = 0;
  #remaining = 0;
  #length = 0;

  /** A SEND is under way. */
  get sending(): boolean {
    return this.#kind === SEND;
  }

  /** Bytes of the WRITE under way that are to come. */
  get remaining(): number {
    return this.#remaining;
  }

  /** Bytes of the whole WRITE under way: the length in the RETH of its first packet. */
  get length(): number {
    return this.#length;
  }

  #become(kind: number): void {
    this.#kind = kind;
    (this as Own<InboundMessage>).underWay = kind !== NONE;
  }

  /** Whether a packet that is not the first of its message goes on with the one under way. */
  continues({ isSend }: OpcodeInfo): boolean {
    return this.#kind === (isSend ? SEND : WRITE);
  }

  /** Whether the region of the WRITE under way can still take this many bytes. */
  writable(payload: number): boolean {
    const region = this.#region;
    return region?.valid === true && region.view.length >= this.#offset + payload;
  }

  /** A packet of a SEND was taken. */
  send(last: boolean): void {
    this.#become(last ? NONE : SEND);
  }

  /** The first packet of a WRITE: `length` bytes to `offset` of the region. */
  beginWrite(region: MemoryRegion | undefined, offset: number, length: number): void {
    this.#region = region;
    this.#offset = offset;
    this.#remaining = this.#length = length;
  }

  /** Payload of the WRITE goes to its place. @returns false where its memory is gone */
  write(context: Context, source: number, payload: number, last: boolean): boolean {
    const region = this.#region;
    if (region && !context.place(source, region, this.#offset, payload)) return false;
    this.#offset += payload;
    this.#remaining -= payload;
    this.#become(last ? NONE : WRITE);
    if (last) this.#region = undefined;
    return true;
  }

  /**
   * Payload of up to `most` packets from the middle of the WRITE under way goes to its place; they begin `step` bytes apart in the slab. The last
   * packet of the message is not among them. @returns how many
   */
  writeMiddles(context: Context, source: number, payload: number, most: number, step: number): number {
    const region = this.#region;
    const count = Math.min(most, RUN_MAX, Math.floor((this.#remaining - 1) / payload));
    if (count < 1 || !region?.takesRuns || !this.writable(count * payload)) return 0;
    context.copiesFor(count).addRun(source, step, region.region, this.#offset, payload, count);
    this.#offset += count * payload;
    this.#remaining -= count * payload;
    return count;
  }

  /** No message is under way. */
  end(): void {
    this.#become(NONE);
    this.#region = undefined;
    this.#offset = this.#remaining = this.#length = 0;
  }

  /** The violated invariants of this object's state, if any. */
  get fault(): string | undefined {
    if (this.underWay !== (this.#kind !== NONE)) return 'whether a message is under way is shown wrong';
    if (this.#region && this.#kind !== WRITE) return 'a region is held, and no WRITE is under way';
    if (this.#kind === WRITE && this.#remaining <= 0) return `${this.#remaining} bytes of a WRITE remain`;
    return undefined;
  }
}
