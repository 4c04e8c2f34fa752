/** IPv6 extension headers (RFC 8200 §4): what follows them, and where a routed packet goes in the end. */
import { u16 } from '@node-roce/wire';

/** Next header values (IANA). */
const Extension = {
  HOP_BY_HOP: 0,
  ROUTING: 43,
  FRAGMENT: 44,
  /** Authentication header (RFC 4302), which leaves the content readable. */
  AUTHENTICATION: 51,
  DESTINATION: 60,
  MOBILITY: 135,
  HIP: 139,
  SHIM6: 140,
} as const;

const EXTENSIONS: ReadonlySet<number> = new Set(Object.values(Extension));

/** Routing types with whole addresses: the source route of RFC 2460, mobility (RFC 6275), segments (RFC 8754). */
const RoutingType = { SOURCE: 0, MOBILITY: 2, SEGMENTS: 4 } as const;

const ADDRESS_BYTES = 16;

export const isExtension = (nextHeader: number): boolean => EXTENSIONS.has(nextHeader);

/** Walks past extension headers; the fields are those of the last walk. */
export class ExtensionWalker {
  /** The first header that is no extension, and where it stands. */
  nextHeader = 0;
  at = 0;
  /** Where the address of the last hop stands: the header's destination, or the end of a route with segments left. */
  destination = 0;
  routed = false;
  /** The first of several fragments, and one behind it. */
  isFirst = false;
  isLater = false;

  /**
   * Walks from the extension header `nextHeader` at `o` on.
   * @param ip the IPv6 header
   * @returns false where the frame ends before the last extension header does
   */
  walk(b: Uint8Array, ip: number, nextHeader: number, o: number, end: number): boolean {
    this.destination = ip + 24;
    this.routed = false;
    this.isFirst = false;
    this.isLater = false;
    let next = nextHeader;
    let at = o;
    while (EXTENSIONS.has(next) && !this.isLater) {
      if (at + 8 > end) return false;
      const length = lengthOf(next, b[at + 1]);
      if (at + length > end) return false;
      if (next === Extension.ROUTING) this.#route(b, at, length);
      else if (next === Extension.FRAGMENT) {
        const word = u16(b, at + 2);
        this.isLater = word >> 3 !== 0;
        this.isFirst = word >> 3 === 0 && (word & 1) !== 0;
      }
      next = b[at];
      at += length;
    }
    this.nextHeader = next;
    this.at = at;
    return true;
  }

  /** Segments are listed from the last to the first, addresses of the other types from the first to the last. */
  #route(b: Uint8Array, o: number, length: number): void {
    const type = b[o + 2];
    const left = b[o + 3];
    if (left === 0 || length < 8 + ADDRESS_BYTES) return;
    if (type === RoutingType.SEGMENTS) this.destination = o + 8;
    else if (type === RoutingType.SOURCE || type === RoutingType.MOBILITY)
      this.destination = o + 8 + (Math.floor((length - 8) / ADDRESS_BYTES) - 1) * ADDRESS_BYTES;
    else return;
    this.routed = true;
  }
}

/** @param words the header's own word: eights of bytes behind the first eight; of AH fours behind the first eight bytes */
function lengthOf(header: number, words: number): number {
  if (header === Extension.FRAGMENT) return 8;
  return header === Extension.AUTHENTICATION ? (words + 2) * 4 : (words + 1) * 8;
}
