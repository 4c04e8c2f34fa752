/**
 * The invariant CRC that ends every RoCE packet (IBTA vol 1 §7.8.1 and annex A17; on RoCE v1 annex A16).
 *
 * A CRC-32 over what no router changes: eight bytes of ones in the place of InfiniBand's local header, then
 * IP (or GRH), UDP, BTH, extension headers, payload and pad, with the fields that may change on the way
 * read as ones:
 *
 *     IPv4   TOS · TTL · header checksum              UDP   checksum
 *     IPv6   traffic class · flow label · hop limit   BTH   the fifth byte (FECN, BECN, reserved)
 *
 * It stands after the pad, least significant byte first. Nothing here copies or allocates. Link code that
 * has a packet in pieces goes `icrcIpUdp` → `icrcBth` → `crc32Update` per fragment → `icrcFinish`.
 */
import { setU32le, u32le } from './bytes.ts';
import { CRC32_START, crc32Byte, crc32Finish, crc32Shift, crc32Update } from './crc32.ts';

export const ICRC_BYTES = 4;

/** The register after the eight bytes of ones that every ICRC begins with. */
export const ICRC_START = crc32Update(CRC32_START, new Uint8Array(8).fill(0xff));

const zeros = new Uint8Array(4);

/** The register after an IPv4 header (of `(b[o] & 15) * 4` bytes, options included). */
function overIpv4(b: Uint8Array, o: number): number {
  const end = o + (b[o] & 0x0f) * 4;
  let c = crc32Byte(ICRC_START, b[o]);
  c = crc32Byte(c, 0xff); // TOS
  c = crc32Update(c, b, o + 2, o + 8);
  c = crc32Byte(c, 0xff); // TTL
  c = crc32Byte(c, b[o + 9]);
  c = crc32Byte(crc32Byte(c, 0xff), 0xff); // header checksum
  return crc32Update(c, b, o + 12, end);
}

/** The register after an IPv6 header or GRH, 40 bytes. */
function overIpv6(b: Uint8Array, o: number): number {
  // Version stays, traffic class and flow label are the other 28 bits of the word.
  let c = crc32Byte(ICRC_START, b[o] | 0x0f);
  for (let i = 0; i < 3; i++) c = crc32Byte(c, 0xff);
  c = crc32Update(c, b, o + 4, o + 7);
  c = crc32Byte(c, 0xff); // hop limit
  return crc32Update(c, b, o + 8, o + 40);
}

function overUdp(c: number, b: Uint8Array, o: number): number {
  return crc32Byte(crc32Byte(crc32Update(c, b, o, o + 6), 0xff), 0xff);
}

/**
 * The register after IP and UDP headers that stand together at `o`. IPv4 or IPv6 by the version; every
 * field that is not masked has to be as on the wire, the lengths and the Identification too.
 */
export function icrcIpUdp(b: Uint8Array, o: number): number {
  if (b[o] >> 4 === 4) return overUdp(overIpv4(b, o), b, o + (b[o] & 0x0f) * 4);
  return overUdp(overIpv6(b, o), b, o + 40);
}

/** The register after a RoCE v1 GRH at `o`. */
export const icrcGrh = (b: Uint8Array, o: number): number => overIpv6(b, o);

/**
 * Takes the register over a BTH at `o` and all that follows it up to `end`: extension headers and
 * whatever of payload and pad stands with them.
 */
export function icrcBth(register: number, b: Uint8Array, o: number, end: number): number {
  const c = crc32Byte(crc32Update(register, b, o, o + 4), 0xff);
  return crc32Update(c, b, o + 5, end);
}

/** The ICRC of a register, after `pad` zero bytes (0 … 3). */
export const icrcFinish = (register: number, pad = 0): number =>
  crc32Finish(pad === 0 ? register : crc32Update(register, zeros, 0, pad));

/**
 * ICRC of a RoCEv2 packet in one piece.
 * @param o offset of the IPv4 or IPv6 header
 * @param end offset at which the ICRC stands (the end of the pad)
 */
export function icrcV2(b: Uint8Array, o: number, end: number): number {
  const bth = o + (b[o] >> 4 === 4 ? (b[o] & 0x0f) * 4 : 40) + 8;
  return icrcFinish(icrcBth(icrcIpUdp(b, o), b, bth, end));
}

/**
 * ICRC of a RoCE v1 packet in one piece.
 * @param o offset of the GRH
 * @param end offset at which the ICRC stands
 */
export const icrcV1 = (b: Uint8Array, o: number, end: number): number =>
  icrcFinish(icrcBth(icrcGrh(b, o), b, o + 40, end));

/**
 * ICRC of a RoCEv2 packet in pieces.
 * @param ipUdp IP and UDP headers, from its first byte
 * @param headers BTH and extension headers
 * @param fragments the payload in order
 * @param pad zero bytes after it, 0 … 3
 */
export function icrcScatter(
  ipUdp: Uint8Array,
  headers: Uint8Array,
  fragments: readonly Uint8Array[],
  pad: number,
): number {
  let c = icrcBth(icrcIpUdp(ipUdp, 0), headers, 0, headers.length);
  for (const fragment of fragments) c = crc32Update(c, fragment);
  return icrcFinish(c, pad);
}

/**
 * The ICRC that rxe of Linux 6.12 gives a FLUSH: over its bytes from the BTH to the RETH a second time.
 * @param icrc the right one
 * @param bth offset of the BTH
 * @param end offset at which the ICRC stands
 */
export const icrcOfRxeFlush = (icrc: number, b: Uint8Array, bth: number, end: number): number =>
  crc32Finish(crc32Update(crc32Finish(icrc), b, bth, end));

/** The ICRC that stands at `o`. */
export const readIcrc = (b: Uint8Array, o: number): number => u32le(b, o);
export const writeIcrc = (b: Uint8Array, o: number, icrc: number): void => setU32le(b, o, icrc);

/**
 * Whether a packet in one piece carries the right ICRC.
 * @param o offset of the IPv4 or IPv6 header, or of the GRH (an IPv6 header whose next header is 0x1b)
 * @param end end of the packet, after the ICRC
 */
export function verifyIcrc(b: Uint8Array, o: number, end: number): boolean {
  const at = end - ICRC_BYTES;
  const isGrh = b[o] >> 4 === 6 && b[o + 6] === 0x1b;
  return (isGrh ? icrcV1(b, o, at) : icrcV2(b, o, at)) === readIcrc(b, at);
}

/**
 * The IPv4 Identification's part of an ICRC: the ICRC with this ID, xor the ICRC with ID 0.
 * @param bytesAfterId covered bytes after the ID field, from IP byte 6 up to the ICRC
 */
export function icrcOfIpId(id: number, bytesAfterId: number): number {
  // The ID is the only difference, and the CRC of a difference is the difference of the CRCs. A byte
  // enters at the bottom of the register, the first one lowest.
  return crc32Shift(((id & 0xff) << 8) | (id >>> 8), bytesAfterId + 2);
}

/** Added to an IPv4 Identification: the header has no "don't fragment". */
export const IP_MAY_FRAGMENT = 0x1_0000;
/** "Don't fragment", in the third byte that enters the register. */
const DF_ENTERED = 0x40_0000;

/**
 * The IPv4 Identification that a packet was sent with, where a UDP socket does not show it.
 *
 * The 2^16 IDs, with and without "don't fragment", give 2^17 of the 2^32 differences, each another: so an intact packet has one
 * answer, and a corrupt one gets an (arbitrary) answer once in 32,768 times. Check it against the flow's last ID.
 *
 * @param syndrome the received ICRC, xor the ICRC computed with ID 0 and "don't fragment"
 * @param bytesAfterId covered bytes after the ID field: header bytes from IP byte 6 on, through the pad
 * @returns the ID, with `IP_MAY_FRAGMENT` where the header has no "don't fragment", or −1 when none explains the ICRC
 */
export function solveIpId(syndrome: number, bytesAfterId: number): number {
  const entered = crc32Shift(syndrome, -(bytesAfterId + 2));
  const flags = entered >>> 16 === DF_ENTERED >>> 16 ? IP_MAY_FRAGMENT : 0;
  if (flags === 0 && entered > 0xffff) return -1;
  return flags | ((entered & 0xff) << 8) | ((entered >>> 8) & 0xff);
}
