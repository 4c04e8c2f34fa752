/**
 * Packets as frames that any tool reads: Ethernet or IP, VLAN, IP, UDP, BTH, without what stands between these, and without
 * InfiniBand's own headers.
 */
import { LinkType } from '@node-roce/pcap';
import { EtherType, IpProtocol, setU16, u16 } from '@node-roce/wire';
import { LRH_BYTES } from './infiniband.ts';
import type { RocePacket } from './packet.ts';

const GRH_BYTES = 40;
const MAC_HEADER_BYTES = 12;

/** Whether the frame has no headers but those that every tool knows. */
export const isPlain = ({ version, extended, tagged }: RocePacket): boolean =>
  version !== 0 && !extended && !tagged;

/** The link type of `plainFrame`: Ethernet where the packet has such a header, and of native InfiniBand; else raw IP. */
export const plainLinkType = ({ version, linkType }: RocePacket): number =>
  version !== 2 || linkType === LinkType.ETHERNET ? LinkType.ETHERNET : LinkType.RAW;

/**
 * The packet without tags but the innermost VLAN, without IPv6 extension headers, and with a native one's GRH as in RoCE v1 (zeros
 * where it has none). Its ICRC stays as it is, and need not fit. For a packet that is no part of a super-packet.
 */
export function plainFrame(packet: RocePacket): Uint8Array<ArrayBuffer> {
  const { version } = packet;
  const network = version === 0 ? nativeNetwork(packet) : ipNetwork(packet);
  if (plainLinkType(packet) !== LinkType.ETHERNET) return network;
  const hasTag = packet.vlan >= 0;
  const frame = new Uint8Array(MAC_HEADER_BYTES + (hasTag ? 4 : 0) + 2 + network.length);
  if (version !== 0) frame.set(packet.bytes.subarray(packet.link, packet.link + MAC_HEADER_BYTES));
  let at = MAC_HEADER_BYTES;
  if (hasTag) {
    setU16(frame, at, EtherType.VLAN);
    setU16(frame, at + 2, (Math.max(packet.pcp, 0) << 13) | packet.vlan);
    at += 4;
  }
  const isIpv4 = network[0] >> 4 === 4;
  setU16(frame, at, version !== 2 ? EtherType.ROCE_V1 : isIpv4 ? EtherType.IPV4 : EtherType.IPV6);
  frame.set(network, at + 2);
  return frame;
}

/** From the IP header or GRH on. */
function ipNetwork({ bytes, ip, udp, end, extended, lastHop }: RocePacket): Uint8Array<ArrayBuffer> {
  if (!extended) return bytes.slice(ip, end) as Uint8Array<ArrayBuffer>;
  const made = new Uint8Array(40 + (end - udp));
  made.set(bytes.subarray(ip, ip + 40));
  made.set(bytes.subarray(udp, end), 40);
  setU16(made, 4, u16(bytes, udp + 4));
  made[6] = IpProtocol.UDP;
  made.set(bytes.subarray(lastHop, lastHop + 16), 24);
  return made;
}

function nativeNetwork(packet: RocePacket): Uint8Array<ArrayBuffer> {
  const { bytes, link, bth, end, info, payloadLength, padCount } = packet;
  const made = new Uint8Array(GRH_BYTES + (end - bth));
  if (bth > link + LRH_BYTES) made.set(bytes.subarray(bth - GRH_BYTES, bth));
  else {
    made[0] = 0x60;
    made[6] = IpProtocol.IBA;
  }
  setU16(made, 4, info.headerLength + payloadLength + padCount + 4);
  made.set(bytes.subarray(bth, end), GRH_BYTES);
  return made;
}
