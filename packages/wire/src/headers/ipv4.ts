/** IPv4 (RFC 791 §3.1). */

import { checked, setU16, u16 } from '../bytes.ts';
import { onesComplementSum } from '../checksum.ts';
import { formatIpAddress, parseIpAddress } from '../gid.ts';

export const IPV4_BYTES = 20;
export const IpProtocol = { UDP: 17, /** The BTH follows: a GRH's next header. */ IBA: 0x1b } as const;
export const Ipv4 = {
  VERSION_IHL: 0,
  TOS: 1,
  TOTAL_LENGTH: 2,
  IDENTIFICATION: 4,
  FLAGS_FRAGMENT: 6,
  TTL: 8,
  PROTOCOL: 9,
  CHECKSUM: 10,
  SOURCE: 12,
  DESTINATION: 16,
} as const;

/** Header length in bytes by its IHL field: 20 … 60 when right. */
export const ipv4HeaderBytes = (b: Uint8Array, o: number): number => (b[o] & 0x0f) * 4;
export const ipv4Tos = (b: Uint8Array, o: number): number => b[o + 1];
export const ipv4TotalLength = (b: Uint8Array, o: number): number => u16(b, o + 2);
export const ipv4Identification = (b: Uint8Array, o: number): number => u16(b, o + 4);
/** Whether it is a part of a larger datagram (MF, or an offset). */
export const ipv4IsFragment = (b: Uint8Array, o: number): boolean => (u16(b, o + 6) & 0x3fff) !== 0;
export const ipv4Ttl = (b: Uint8Array, o: number): number => b[o + 8];
export const ipv4Protocol = (b: Uint8Array, o: number): number => b[o + 9];

/** The header checksum that belongs into these bytes, whatever stands there now. */
export function ipv4HeaderChecksum(b: Uint8Array, o: number): number {
  const sum = onesComplementSum(b, o, o + 10) + onesComplementSum(b, o + 12, o + ipv4HeaderBytes(b, o));
  return ~((sum & 0xffff) + (sum >>> 16)) & 0xffff;
}

/** An IPv4 header for people. */
export interface Ipv4Value {
  version: 4;
  /** The TOS byte: DSCP in the high six bits, ECN in the low two. */
  trafficClass: number;
  totalLength: number;
  identification: number;
  /** The bit that must be 0. */
  reservedFlag: boolean;
  dontFragment: boolean;
  moreFragments: boolean;
  /** In units of 8 bytes. */
  fragmentOffset: number;
  /** TTL. */
  hopLimit: number;
  protocol: number;
  checksum: number;
  /** Dotted. */
  source: string;
  destination: string;
  /** 0 … 40 bytes, a multiple of 4. */
  options: Uint8Array;
}

/** Reads a header at `o`; the caller has checked that its bytes are there, by its IHL field. */
export function decodeIpv4(b: Uint8Array, o: number): Ipv4Value {
  return {
    version: 4,
    trafficClass: ipv4Tos(b, o),
    totalLength: ipv4TotalLength(b, o),
    identification: ipv4Identification(b, o),
    reservedFlag: (b[o + 6] & 0x80) !== 0,
    dontFragment: (b[o + 6] & 0x40) !== 0,
    moreFragments: (b[o + 6] & 0x20) !== 0,
    fragmentOffset: u16(b, o + 6) & 0x1fff,
    hopLimit: ipv4Ttl(b, o),
    protocol: ipv4Protocol(b, o),
    checksum: u16(b, o + 10),
    source: formatIpAddress(b, o + 12, 4),
    destination: formatIpAddress(b, o + 16, 4),
    options: b.subarray(o + IPV4_BYTES, o + ipv4HeaderBytes(b, o)),
  };
}

export function encodeIpv4(b: Uint8Array, o: number, value: Ipv4Value): void {
  const { length } = value.options;
  if (length % 4 !== 0 || length > 40) throw new RangeError(`IPv4 options of ${length} bytes`);
  b[o] = 0x40 | (5 + length / 4);
  b[o + 1] = checked('IPv4 trafficClass', value.trafficClass, 8);
  setU16(b, o + 2, checked('IPv4 totalLength', value.totalLength, 16));
  setU16(b, o + 4, checked('IPv4 identification', value.identification, 16));
  setU16(b, o + 6, checked('IPv4 fragmentOffset', value.fragmentOffset, 13));
  b[o + 6] |=
    (value.reservedFlag ? 0x80 : 0) | (value.dontFragment ? 0x40 : 0) | (value.moreFragments ? 0x20 : 0);
  b[o + 8] = checked('IPv4 hopLimit', value.hopLimit, 8);
  b[o + 9] = checked('IPv4 protocol', value.protocol, 8);
  setU16(b, o + 10, checked('IPv4 checksum', value.checksum, 16));
  b.set(addressBytes(value.source, 4), o + 12);
  b.set(addressBytes(value.destination, 4), o + 16);
  b.set(value.options, o + IPV4_BYTES);
}

/** An address in text as 4 or 16 bytes. @throws RangeError when it is not one of that length */
export function addressBytes(text: string, length: 4 | 16): Uint8Array {
  const bytes = parseIpAddress(text);
  if (bytes?.length !== length) throw new RangeError(`not an IPv${length === 4 ? 4 : 6} address: ${text}`);
  return bytes;
}
