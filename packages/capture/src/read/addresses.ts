/** Addresses by number: packets name theirs with two small integers instead of texts. */
import { formatIpAddress, u16 } from '@node-roce/wire';
import type { Addresses } from './packet.ts';

/** Distinct addresses; later ones share number 0. */
export const MAX_ADDRESSES = 65_536;

/** Entry 0 stands for addresses that found no room. */
const NO_ROOM = 0;
/** Words of an entry: four of address, and its length in bytes. */
const WORDS = 5;

/**
 * Numbers addresses in the order in which they are seen, from 1 on. Open addressing with linear probing in
 * two typed arrays that grow with the number of addresses, so that a lookup allocates nothing.
 */
export class AddressTable implements Addresses {
  #entries = new Uint32Array(64 * WORDS);
  #count = 1;
  /** Entry numbers, 0 for a free place; at most half full. */
  #places = new Uint16Array(128);
  readonly #texts: (string | undefined)[] = ['(more addresses)'];

  /** Numbers given, number 0 included. */
  get size(): number {
    return this.#count;
  }

  text(index: number): string {
    if (!(index >= 0 && index < this.#count))
      throw new RangeError(`no address ${index}: ${this.#count} are known`);
    this.#texts[index] ??= textOf(this.bytes(index));
    return this.#texts[index];
  }

  /** 4 bytes of IPv4, 16 of IPv6 or a GID, 2 of a LID; a new array. Number 0 gives none. */
  bytes(index: number): Uint8Array {
    const at = index * WORDS;
    const all = new Uint8Array(16);
    const view = new DataView(all.buffer);
    for (let i = 0; i < 4; i++) view.setUint32(4 * i, this.#entries[at + i]);
    return all.subarray(0, this.#entries[at + 4]);
  }

  /** The number of the IPv4 address at `o`. */
  ipv4(b: Uint8Array, o: number): number {
    return this.#find(word(b, o), 0, 0, 0, 4);
  }

  /** The number of the LID at `o`, InfiniBand's local identifier of a port. */
  lid(b: Uint8Array, o: number): number {
    return this.#find(((b[o] << 24) | (b[o + 1] << 16)) >>> 0, 0, 0, 0, 2);
  }

  /** The number of the IPv6 address or GID at `o`. */
  ipv6(b: Uint8Array, o: number): number {
    return this.#find(word(b, o), word(b, o + 4), word(b, o + 8), word(b, o + 12), 16);
  }

  #find(w0: number, w1: number, w2: number, w3: number, length: number): number {
    const entries = this.#entries;
    const places = this.#places;
    const mask = places.length - 1;
    let place = hash(w0, w1, w2, w3, length) & mask;
    for (let index = places[place]; index !== 0; index = places[place]) {
      const at = index * WORDS;
      if (
        entries[at] === w0 &&
        entries[at + 1] === w1 &&
        entries[at + 2] === w2 &&
        entries[at + 3] === w3 &&
        entries[at + 4] === length
      ) {
        return index;
      }
      place = (place + 1) & mask;
    }
    return this.#add(place, w0, w1, w2, w3, length);
  }

  #add(place: number, w0: number, w1: number, w2: number, w3: number, length: number): number {
    if (this.#count >= MAX_ADDRESSES) return NO_ROOM;
    const index = this.#count++;
    if ((index + 1) * WORDS > this.#entries.length) {
      const grown = new Uint32Array(this.#entries.length * 2);
      grown.set(this.#entries);
      this.#entries = grown;
    }
    this.#entries.set([w0, w1, w2, w3, length], index * WORDS);
    this.#places[place] = index;
    if (this.#count * 2 > this.#places.length) this.#rehash(this.#places.length * 2);
    return index;
  }

  #rehash(size: number): void {
    const places = new Uint16Array(size);
    const e = this.#entries;
    for (let index = 1; index < this.#count; index++) {
      const at = index * WORDS;
      let place = hash(e[at], e[at + 1], e[at + 2], e[at + 3], e[at + 4]) & (size - 1);
      while (places[place] !== 0) place = (place + 1) & (size - 1);
      places[place] = index;
    }
    this.#places = places;
  }
}

/** The host of an address in text: an IPv4 address in the form of IPv6, as GIDs of RoCE v1 have it, is the IPv4 address. */
export const hostOf = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/, '');

const textOf = (bytes: Uint8Array): string =>
  bytes.length === 2 ? `LID ${u16(bytes, 0)}` : formatIpAddress(bytes);

const word = (b: Uint8Array, o: number): number =>
  ((b[o] << 24) | (b[o + 1] << 16) | (b[o + 2] << 8) | b[o + 3]) >>> 0;

// Multiplicative: the golden ratio's odd neighbour spreads neighbouring addresses.
function hash(w0: number, w1: number, w2: number, w3: number, length: number): number {
  let h = Math.imul(w0 ^ length, 0x9e37_79b1);
  h = Math.imul(h ^ (h >>> 15) ^ w1, 0x85eb_ca6b);
  h = Math.imul(h ^ (h >>> 13) ^ w2, 0xc2b2_ae35);
  h = Math.imul(h ^ (h >>> 16) ^ w3, 0x9e37_79b1);
  return (h ^ (h >>> 15)) >>> 0;
}
