/** UDP (RFC 768). RoCE sends the checksum as 0, over IPv6 too; one that is there is masked in the ICRC. */

import { checked, setU16, u16 } from '../bytes.ts';
import { onesComplementSum } from '../checksum.ts';

export const UDP_BYTES = 8;
export const Udp = { SOURCE_PORT: 0, DESTINATION_PORT: 2, LENGTH: 4, CHECKSUM: 6 } as const;

export const udpSourcePort = (b: Uint8Array, o: number): number => u16(b, o);
export const udpDestinationPort = (b: Uint8Array, o: number): number => u16(b, o + 2);
/** Bytes of header and data. */
export const udpLength = (b: Uint8Array, o: number): number => u16(b, o + 4);
export const udpChecksum = (b: Uint8Array, o: number): number => u16(b, o + 6);

/**
 * The checksum that belongs into a datagram, over the pseudo header (RFC 768, RFC 8200 §8.1) and all of
 * it but the checksum's own bytes.
 * @param ip offset of the IP header
 * @param udp offset of the UDP header; its length field is right and the bytes are there
 */
export function udpChecksumFor(b: Uint8Array, ip: number, udp: number): number {
  const length = udpLength(b, udp);
  const [from, to] = b[ip] >> 4 === 4 ? [ip + 12, ip + 20] : [ip + 8, ip + 40];
  const sum =
    onesComplementSum(b, from, to) +
    17 +
    length +
    onesComplementSum(b, udp, udp + 6) +
    onesComplementSum(b, udp + 8, udp + length);
  const folded = (sum & 0xffff) + (sum >>> 16);
  const checksum = ~((folded & 0xffff) + (folded >>> 16)) & 0xffff;
  // 0 would say that there is none.
  return checksum === 0 ? 0xffff : checksum;
}

/** A UDP header for people. */
export interface UdpValue {
  sourcePort: number;
  destinationPort: number;
  length: number;
  checksum: number;
}

export function decodeUdp(b: Uint8Array, o: number): UdpValue {
  return {
    sourcePort: udpSourcePort(b, o),
    destinationPort: udpDestinationPort(b, o),
    length: udpLength(b, o),
    checksum: udpChecksum(b, o),
  };
}

export function encodeUdp(b: Uint8Array, o: number, value: UdpValue): void {
  setU16(b, o, checked('UDP sourcePort', value.sourcePort, 16));
  setU16(b, o + 2, checked('UDP destinationPort', value.destinationPort, 16));
  setU16(b, o + 4, checked('UDP length', value.length, 16));
  setU16(b, o + 6, checked('UDP checksum', value.checksum, 16));
}
