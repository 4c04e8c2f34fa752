/** Ethernet, IP and UDP headers of frames, IPv4 or IPv6 by the addresses of the ends. */
import {
  buildPacket,
  formatIpAddress,
  internetChecksum,
  type PacketInput,
  setU16,
  u16,
} from '@node-roce/wire';
import type { End } from './line.ts';

export const ETHERNET_BYTES = 14;
const UDP_BYTES = 8;
const ETHERTYPE = { ipv4: 0x0800, ipv6: 0x86dd } as const;
/** Offset and length of the source address, from the IP header on. */
const SOURCE = { ipv4: [12, 4], ipv6: [8, 16] } as const;

/** The headers below the BTH of a packet from one end to the other, as a kernel writes them for a UDP socket. */
export function headersBelow(from: End, to: End, sourcePort: number): Uint8Array {
  const bth = { opcode: 'RC_SEND_ONLY' } as const;
  const frame = buildPacket({
    ethernet: { source: from.mac, destination: to.mac },
    ip: { source: from.ip, destination: to.ip } as PacketInput['ip'],
    udp: { sourcePort },
    bth,
  });
  return frame.slice(0, isIpv6(frame) ? 62 : 42);
}

export const isIpv6 = (frame: Uint8Array): boolean => u16(frame, ETHERNET_BYTES - 2) === ETHERTYPE.ipv6;

/** Writes the lengths of a frame whose BTH stands at `bth`, and the checksum of its IPv4 header. */
export function setLengths(frame: Uint8Array, bth: number): void {
  const datagram = frame.length - bth + UDP_BYTES;
  setU16(frame, bth - 4, datagram);
  if (isIpv6(frame)) setU16(frame, ETHERNET_BYTES + 4, datagram);
  else {
    setU16(frame, ETHERNET_BYTES + 2, frame.length - ETHERNET_BYTES);
    setIpv4Checksum(frame, bth);
  }
}

/** For a header that was changed. */
export function setIpv4Checksum(frame: Uint8Array, bth: number): void {
  setU16(frame, ETHERNET_BYTES + 10, 0);
  setU16(frame, ETHERNET_BYTES + 10, internetChecksum(frame, ETHERNET_BYTES, bth - UDP_BYTES));
}

/** The source address of a frame, which need not be whole; undefined for one that is no IP. */
export function sourceOfFrame(frame: Uint8Array): string | undefined {
  if (frame.length < ETHERNET_BYTES) return undefined;
  const type = u16(frame, ETHERNET_BYTES - 2);
  const place = type === ETHERTYPE.ipv4 ? SOURCE.ipv4 : type === ETHERTYPE.ipv6 ? SOURCE.ipv6 : undefined;
  if (place === undefined) return undefined;
  const [at, length] = place;
  const end = ETHERNET_BYTES + at + length;
  return end <= frame.length ? formatIpAddress(frame.subarray(end - length, end)) : undefined;
}
