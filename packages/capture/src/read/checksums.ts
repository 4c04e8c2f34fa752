/**
 * Verdicts on the checksums of IP and UDP. Computed when asked for: hosts drop packets with wrong ones, the ICRC leaves
 * both out.
 */
import { internetChecksum, udpChecksum as rightUdpChecksum, u16 } from '@node-roce/wire';
import type { RocePacket } from './packet.ts';

/** A verdict on a checksum. */
export type ChecksumVerdict =
  | 'ok'
  | 'bad'
  /** The field is 0: of IPv4 left to the adapter, of UDP the sender's choice (over IPv6 hosts drop it: RFC 8200 §8.1). */
  | 'zero'
  /** UDP: the sum of the pseudo header alone. The capture was taken before the adapter completes it. */
  | 'offloaded'
  /** There is none (IPv6, v1), or not enough was captured. */
  | 'none';

/** Of the IPv4 header. */
export function ipChecksum({ bytes, ip, version }: RocePacket): ChecksumVerdict {
  if (version === 1 || bytes[ip] >> 4 !== 4) return 'none';
  const end = ip + (bytes[ip] & 15) * 4;
  if (internetChecksum(bytes, ip, end) === 0) return 'ok';
  return u16(bytes, ip + 10) === 0 ? 'zero' : 'bad';
}

/** Of the UDP header. Of a super-packet that of the whole datagram, which its parts share. */
export function udpChecksum(packet: RocePacket): ChecksumVerdict {
  const { bytes, ip, udp, version, frameOffset, frameLength, routed } = packet;
  if (version === 1) return 'none';
  const stated = u16(bytes, udp + 6);
  if (stated === 0) return 'zero';
  const length = u16(bytes, udp + 4);
  // The pseudo header has the last address of the route (RFC 8200 §8.1), which the packet does not carry in its header.
  if (routed || udp + length > frameOffset + frameLength) return 'none';
  if (rightUdpChecksum(bytes, ip, udp) === stated) return 'ok';
  return pseudoSum(bytes, ip, length) === stated ? 'offloaded' : 'bad';
}

/** The sum of the pseudo header, not inverted: Linux leaves it to the adapter (CHECKSUM_PARTIAL). */
function pseudoSum(b: Uint8Array, ip: number, length: number): number {
  const isIpv4 = b[ip] >> 4 === 4;
  const [from, to] = isIpv4 ? [ip + 12, ip + 20] : [ip + 8, ip + 40];
  return ~internetChecksum(b, from, to, 17 + length) & 0xffff;
}
