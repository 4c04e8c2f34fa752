/** Request packets that came before one that is missing: copies, which are executed when their turn comes. */
import { bthPad, type OpcodeInfo, psnAdd, psnDiff } from '@node-roce/wire';
import { InboundPacket, inboundInfo } from '../inbound.ts';
import type { Own } from '../own.ts';
import { type EarlyPages, PAGE_BYTES } from './early-pages.ts';

/** PSNs beyond the expected one that are kept; a power of two. */
const EARLY_RANGE = 1024;
const MASK = EARLY_RANGE - 1;
/** Pages that one connection takes: a packet of 4 KiB for each PSN of the range, and some more. */
const PAGES = 80;
const NONE = -1;
const NO_PLACES = new Int32Array(0);
const NO_LENGTHS = new Uint16Array(0);

/**
 * Owns the copies by PSN, and pages while there are any. Most connections never have one: the tables are made with the first gap.
 *
 * Invariants: without a copy there is no page; each copy is of a PSN of its own within `EARLY_RANGE` of the expected one.
 */
export class EarlyPackets {
  readonly count: number = 0;
  readonly #pages: EarlyPages;
  /** By PSN: page and offset, or `NONE`; and bytes. */
  #places = NO_PLACES;
  #lengths = NO_LENGTHS;
  #taken: (Uint8Array | undefined)[] = [];
  /** Copies in each page. */
  #live = NO_LENGTHS;
  /** The page that is being filled, and its next free byte. */
  #page = NONE;
  #next = 0;
  #highest = 0;
  #packet: InboundPacket | undefined;

  constructor(pages: EarlyPages) {
    this.#pages = pages;
  }

  /** The last PSN that was kept since nothing was. */
  get highest(): number {
    return this.#highest;
  }

  has(psn: number): boolean {
    return this.count > 0 && this.#places[psn & MASK] !== NONE;
  }

  /** Keeps a copy of a packet beyond `expectedPsn` of which none is kept. False where there is no room for it. */
  keep({ psn, slab, at, info, payload }: InboundPacket, expectedPsn: number): boolean {
    if (psnDiff(psn, expectedPsn) >= EARLY_RANGE) return false;
    if (this.#places === NO_PLACES) this.#makeTables();
    const length = info.headerLength + payload + bthPad(slab, at);
    if (!this.#makeRoom(length)) return false;
    (this.#taken[this.#page] as Uint8Array).set(slab.subarray(at, at + length), this.#next);
    this.#places[psn & MASK] = (this.#page << 16) | this.#next;
    this.#lengths[psn & MASK] = length;
    this.#live[this.#page]++;
    this.#next += (length + 3) & ~3;
    if ((this as Own<EarlyPackets>).count++ === 0 || psnDiff(psn, this.#highest) > 0) this.#highest = psn;
    return true;
  }

  /** The copy of a packet that is kept: good until it is forgotten. */
  packet(psn: number): InboundPacket {
    const place = this.#places[psn & MASK];
    const slab = this.#taken[place >>> 16] as Uint8Array;
    const at = place & 0xffff;
    const info = inboundInfo(slab[at]) as OpcodeInfo;
    const payload = this.#lengths[psn & MASK] - info.headerLength - bthPad(slab, at);
    this.#packet ??= new InboundPacket();
    this.#packet.refill(slab, at, info, payload);
    return this.#packet;
  }

  /** Forgets the copy of one PSN, if there is one. */
  forget(psn: number): void {
    if (!this.has(psn)) return;
    const page = this.#places[psn & MASK] >>> 16;
    this.#places[psn & MASK] = NONE;
    (this as Own<EarlyPackets>).count--;
    if (--this.#live[page] === 0) this.#give(page);
  }

  /** Forgets the packets before `psn`, of `count` PSNs. */
  forgetBefore(psn: number, count: number): void {
    if (this.count === 0) return;
    for (let i = 1; i <= Math.min(count, EARLY_RANGE); i++) this.forget(psnAdd(psn, -i));
  }

  /** Forgets all. */
  clear(): void {
    if (this.count === 0) return;
    this.#places.fill(NONE);
    (this as Own<EarlyPackets>).count = 0;
    for (let page = 0; page < PAGES; page++) if (this.#taken[page] !== undefined) this.#give(page);
  }

  /** The broken invariant, if there is one. */
  fault(expectedPsn: number): string | undefined {
    if (this.count === 0 && this.#page === NONE) return undefined;
    let count = 0;
    for (let i = 0; i < this.#places.length; i++) if (this.#places[i] !== NONE) count++;
    if (count !== this.count) return `${count} early packets are kept, ${this.count} counted`;
    const pages = this.#taken.filter((page) => page !== undefined).length;
    if (count === 0 && pages > 0) return `${pages} pages are held for no early packet`;
    if (this.has(expectedPsn) && count > EARLY_RANGE) return 'more early packets than PSNs';
    return undefined;
  }

  #makeTables(): void {
    this.#places = new Int32Array(EARLY_RANGE).fill(NONE);
    this.#lengths = new Uint16Array(EARLY_RANGE);
    this.#taken = new Array(PAGES).fill(undefined);
    this.#live = new Uint16Array(PAGES);
  }

  /** Finds room for so many bytes: in the page at hand, or in a new one. */
  #makeRoom(length: number): boolean {
    if (this.#page !== NONE && this.#next + length <= PAGE_BYTES) return true;
    const free = this.#taken.indexOf(undefined);
    if (free < 0) return false;
    const page = this.#pages.take();
    if (page === undefined) return false;
    this.#taken[free] = page;
    this.#page = free;
    this.#next = 0;
    return true;
  }

  #give(page: number): void {
    this.#pages.give(this.#taken[page] as Uint8Array);
    this.#taken[page] = undefined;
    this.#live[page] = 0;
    if (page === this.#page) this.#page = NONE;
  }
}
