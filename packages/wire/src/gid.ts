/**
 * GIDs and the IP addresses they stand for. A GID is a `Uint8Array` of 16 bytes, laid out as an IPv6
 * address; on RoCEv2 an IPv4 address is the GID `::ffff:a.b.c.d` (IBTA annex A17, RFC 4291 §2.5.5.2).
 */
import { hexByte } from './bytes.ts';

export const GID_BYTES = 16;

/**
 * An IP address in text to bytes: 4 for dotted IPv4, 16 for IPv6 (RFC 4291 §2.2, with `::` and a dotted
 * tail). A zone (`%eth0`) is no part of a GID and is not taken.
 * @returns `undefined` when the text is no address
 */
export function parseIpAddress(text: string): Uint8Array<ArrayBuffer> | undefined {
  const words = text.includes(':') ? parseIpv6(text) : parseIpv4(text);
  return words && Uint8Array.from(words);
}

function parseIpv4(text: string): number[] | undefined {
  const parts = text.split('.');
  // A leading 0 is octal to some programs and decimal to others: refused, as inet_pton does.
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part))) return undefined;
  const bytes = parts.map(Number);
  return bytes.every((byte) => byte <= 255) ? bytes : undefined;
}

function parseIpv6(text: string): number[] | undefined {
  const halves = text.split('::');
  if (halves.length > 2) return undefined;
  const head = parseGroups(halves[0], halves.length === 1);
  if (halves.length === 1) return head?.length === 16 ? head : undefined;
  const tail = parseGroups(halves[1], true);
  if (!head || !tail || head.length + tail.length > 14) return undefined;
  return [...head, ...Array<number>(16 - head.length - tail.length).fill(0), ...tail];
}

function parseGroups(text: string, mayEndDotted: boolean): number[] | undefined {
  if (text === '') return [];
  const groups = text.split(':');
  const bytes: number[] = [];
  for (let i = 0; i < groups.length; i++) {
    const group = groups[i];
    if (/^[0-9a-fA-F]{1,4}$/.test(group)) {
      const word = Number.parseInt(group, 16);
      bytes.push(word >> 8, word & 0xff);
    } else {
      const dotted = mayEndDotted && i === groups.length - 1 ? parseIpv4(group) : undefined;
      if (!dotted) return undefined;
      bytes.push(...dotted);
    }
  }
  return bytes;
}

/** `length` 4 or 16 bytes at `offset` as an address: dotted IPv4, or IPv6 in the form of RFC 5952. */
export function formatIpAddress(bytes: Uint8Array, offset = 0, length = bytes.length - offset): string {
  if (length === 4) return bytes.subarray(offset, offset + 4).join('.');
  const b = bytes.subarray(offset, offset + 16);
  if (isIpv4Mapped(b)) return `::ffff:${b.subarray(12).join('.')}`;
  const groups: number[] = [];
  for (let i = 0; i < 16; i += 2) groups.push((b[i] << 8) | b[i + 1]);
  // RFC 5952 §4.2: `::` for the longest run of zeros, the first of equals, never for a single group.
  let best = -1;
  let bestLength = 1;
  for (let i = 0; i < 8; i++) {
    let run = 0;
    while (i + run < 8 && groups[i + run] === 0) run++;
    if (run > bestLength) {
      best = i;
      bestLength = run;
    }
  }
  const text = (part: number[]) => part.map((group) => group.toString(16)).join(':');
  if (best < 0) return text(groups);
  return `${text(groups.slice(0, best))}::${text(groups.slice(best + bestLength))}`;
}

/** Bytes as `xx:xx:…`, as MAC addresses are written. */
export function formatMac(bytes: Uint8Array): string {
  return Array.from(bytes, hexByte).join(':');
}

/** `::ffff:a.b.c.d`: a GID that stands for an IPv4 address. */
export function isIpv4Mapped(gid: Uint8Array): boolean {
  for (let i = 0; i < 10; i++) if (gid[i] !== 0) return false;
  return gid[10] === 0xff && gid[11] === 0xff;
}

/** `fe80::/10`. */
export const isLinkLocal = (gid: Uint8Array): boolean => gid[0] === 0xfe && (gid[1] & 0xc0) === 0x80;

/** A group: `ff00::/8`, or a mapped IPv4 address of 224.0.0.0/4. */
export const isMulticast = (gid: Uint8Array): boolean =>
  gid[0] === 0xff || (isIpv4Mapped(gid) && (gid[12] & 0xf0) === 0xe0);

export function gidEquals(a: Uint8Array, b: Uint8Array): boolean {
  for (let i = 0; i < GID_BYTES; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** The GID of an IP address in 4 or 16 bytes; a new array. */
export function gidFromIpBytes(address: Uint8Array): Uint8Array<ArrayBuffer> {
  if (address.length === 16) return Uint8Array.from(address);
  if (address.length !== 4) throw new RangeError(`IP address of ${address.length} bytes: expected 4 or 16`);
  const gid = new Uint8Array(GID_BYTES);
  gid[10] = 0xff;
  gid[11] = 0xff;
  gid.set(address, 12);
  return gid;
}

/**
 * The GID of an address in text, IPv4 (mapped) or IPv6.
 * @throws RangeError when the text is no address
 */
export function gidFromText(text: string): Uint8Array<ArrayBuffer> {
  const address = parseIpAddress(text);
  if (!address) throw new RangeError(`not an IPv4 or IPv6 address: ${text}`);
  return gidFromIpBytes(address);
}

/** A GID in text: `::ffff:10.0.0.1` or IPv6. */
export const gidToText = (gid: Uint8Array): string => formatIpAddress(gid, 0, GID_BYTES);

/** The IP address a GID stands for in text: `10.0.0.1` for a mapped one, else IPv6. */
export const gidToIpText = (gid: Uint8Array): string =>
  isIpv4Mapped(gid) ? formatIpAddress(gid, 12, 4) : formatIpAddress(gid, 0, GID_BYTES);

/** The IP address a GID stands for: its last 4 bytes when it is mapped, else all 16 (a view, not a copy). */
export const gidToIpBytes = (gid: Uint8Array): Uint8Array =>
  isIpv4Mapped(gid) ? gid.subarray(12, 16) : gid.subarray(0, 16);

/** The default GID of a MAC address: `fe80::` and the modified EUI-64 (RFC 4291 appendix A). */
export function linkLocalGidFromMac(mac: Uint8Array): Uint8Array<ArrayBuffer> {
  const gid = new Uint8Array(GID_BYTES);
  gid.set([0xfe, 0x80]);
  gid.set([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]], 8);
  return gid;
}

/**
 * The group GID of an IP multicast address in text. IPv6 groups are their own GID. An IPv4 group is mapped
 * on RoCEv2 (`::ffff:239.1.1.1`) and `ff0e::ffff:239.1.1.1` on RoCE v1, as the RDMA CM has it.
 * @throws RangeError when the text is no multicast address
 */
export function multicastGid(text: string, version: 1 | 2 = 2): Uint8Array<ArrayBuffer> {
  const gid = gidFromText(text);
  if (!isMulticast(gid)) throw new RangeError(`not a multicast address: ${text}`);
  if (version === 1 && isIpv4Mapped(gid)) gid.set([0xff, 0x0e]);
  return gid;
}

/**
 * The Ethernet address of a multicast GID: `01:00:5e` and 23 bits for a mapped IPv4 group (RFC 1112
 * §6.4), `33:33` and the last 32 bits for the others (RFC 2464 §7).
 * @throws RangeError when the GID is not a group's
 */
export function macFromMulticastGid(gid: Uint8Array): Uint8Array<ArrayBuffer> {
  if (!isMulticast(gid)) throw new RangeError(`not a multicast GID: ${gidToText(gid)}`);
  if (isIpv4Mapped(gid)) return Uint8Array.of(0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]);
  return Uint8Array.of(0x33, 0x33, gid[12], gid[13], gid[14], gid[15]);
}
