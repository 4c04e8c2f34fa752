/** Headers below RoCE's own, as plain values: Ethernet with VLAN tags, IPv4, IPv6 (also as GRH), UDP. */
import { checked, setU16, setU32, u16, u32 } from './bytes.ts';

export const EtherType = {
  IPV4: 0x0800,
  IPV6: 0x86dd,
  VLAN: 0x8100,
  /** The outer of two tags (802.1ad), and its value before there was a standard. */
  QINQ: 0x88a8,
  QINQ_OLD: 0x9100,
  /** A GRH follows (IBTA vol 1 annex A16). */
  ROCE_V1: 0x8915,
} as const;

/** Whether a VLAN tag begins with this EtherType. */
export const isVlan = (type: number): boolean =>
  type === EtherType.VLAN || type === EtherType.QINQ || type === EtherType.QINQ_OLD;
export const IpProtocol = { UDP: 17, /** A BTH follows a GRH (IBTA vol 1 §8.3.1). */ IBA: 0x1b } as const;

/** The two ECN bits of a traffic class (RFC 3168 §5): 0 is not capable, `ECN_CE` is congestion experienced. */
export const ECN_MASK = 3;
export const ECN_CE = 3;

export interface EthernetValue {
  /** 6 bytes each. */
  destination: Uint8Array;
  source: Uint8Array;
  /** Tags from the outside in (IEEE 802.1Q). */
  vlans: { tpid: number; tci: number }[];
  etherType: number;
}

export interface Ipv4Value {
  version: 4;
  /** DSCP << 2 | ECN. */
  tos: number;
  /** Bytes of header and all that follows; computed where it is absent. */
  totalLength?: number;
  id: number;
  /** Three flag bits and fragment offset, 16 bits; 0x4000 is DF. */
  flagsAndOffset: number;
  ttl: number;
  protocol: number;
  /** Computed where it is absent. */
  checksum?: number;
  /** 4 bytes each. */
  source: Uint8Array;
  destination: Uint8Array;
  /** Multiple of 4 bytes. */
  options: Uint8Array;
}

export interface Ipv6Value {
  version: 6;
  trafficClass: number;
  flowLabel: number;
  /** Bytes after the header; computed where it is absent. */
  payloadLength?: number;
  nextHeader: number;
  hopLimit: number;
  /** 16 bytes each. */
  source: Uint8Array;
  destination: Uint8Array;
}

export interface UdpValue {
  sourcePort: number;
  destinationPort: number;
  /** Computed where it is absent. */
  length?: number;
  /** 0 where it is absent: RoCE relies on the ICRC. */
  checksum?: number;
}

export const ETHERNET_BYTES = 14;
export const VLAN_BYTES = 4;
export const IPV6_BYTES = 40;
export const UDP_BYTES = 8;

/** The Ethernet header at `o`, or undefined where it is cut. `end` is where the next header starts. */
export function decodeEthernet(b: Uint8Array, o: number): { value: EthernetValue; end: number } | undefined {
  if (o + ETHERNET_BYTES > b.length) return undefined;
  const vlans: EthernetValue['vlans'] = [];
  let at = o + 12;
  let type = u16(b, at);
  while (isVlan(type)) {
    if (at + 6 > b.length) return undefined;
    vlans.push({ tpid: type, tci: u16(b, at + 2) });
    at += VLAN_BYTES;
    type = u16(b, at);
  }
  const value = { destination: b.slice(o, o + 6), source: b.slice(o + 6, o + 12), vlans, etherType: type };
  return { value, end: at + 2 };
}

/** @throws RangeError for a value that does not fit its field, as every `encode…` here */
export function encodeEthernet(value: EthernetValue): Uint8Array {
  const bytes = new Uint8Array(ETHERNET_BYTES + VLAN_BYTES * value.vlans.length);
  bytes.set(sized('Ethernet destination', value.destination, 6));
  bytes.set(sized('Ethernet source', value.source, 6), 6);
  let at = 12;
  for (const { tpid, tci } of value.vlans) {
    setU16(bytes, at, checked('VLAN tpid', tpid, 16));
    setU16(bytes, at + 2, checked('VLAN tci', tci, 16));
    at += VLAN_BYTES;
  }
  setU16(bytes, at, checked('Ethernet etherType', value.etherType, 16));
  return bytes;
}

function sized(field: string, bytes: Uint8Array, length: number): Uint8Array {
  if (bytes.length !== length) throw new RangeError(`${field} of ${bytes.length} bytes: expected ${length}`);
  return bytes;
}

/** The IPv4 header at `o`, which has at least 20 bytes and its own length of them. */
export function decodeIpv4(b: Uint8Array, o: number): Ipv4Value {
  return {
    version: 4,
    tos: b[o + 1],
    totalLength: u16(b, o + 2),
    id: u16(b, o + 4),
    flagsAndOffset: u16(b, o + 6),
    ttl: b[o + 8],
    protocol: b[o + 9],
    checksum: u16(b, o + 10),
    source: b.slice(o + 12, o + 16),
    destination: b.slice(o + 16, o + 20),
    options: b.slice(o + 20, o + (b[o] & 15) * 4),
  };
}

/** @param following bytes after the header, for the length where the value has none */
export function encodeIpv4(value: Ipv4Value, following: number): Uint8Array {
  const length = 20 + value.options.length;
  if (length % 4 !== 0 || length > 60) throw new RangeError(`IPv4 options of ${length - 20} bytes`);
  const bytes = new Uint8Array(length);
  bytes[0] = 0x40 | (length / 4);
  bytes[1] = checked('IPv4 tos', value.tos, 8);
  setU16(bytes, 2, checked('IPv4 totalLength', value.totalLength ?? length + following, 16));
  setU16(bytes, 4, checked('IPv4 id', value.id, 16));
  setU16(bytes, 6, checked('IPv4 flagsAndOffset', value.flagsAndOffset, 16));
  bytes[8] = checked('IPv4 ttl', value.ttl, 8);
  bytes[9] = checked('IPv4 protocol', value.protocol, 8);
  bytes.set(sized('IPv4 source', value.source, 4), 12);
  bytes.set(sized('IPv4 destination', value.destination, 4), 16);
  bytes.set(value.options, 20);
  setU16(bytes, 10, checked('IPv4 checksum', value.checksum ?? internetChecksum(bytes), 16));
  return bytes;
}

/** RFC 1071: of `start` … `end − 1`, onto the sum of what came before. */
export function internetChecksum(bytes: Uint8Array, start = 0, end = bytes.length, before = 0): number {
  let sum = before;
  for (let i = start; i < end; i += 2) sum += (bytes[i] << 8) | (i + 1 < end ? bytes[i + 1] : 0);
  // Divided, not shifted: 64 KiB of 0xffff exceed 31 bits.
  while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x1_0000);
  return ~sum & 0xffff;
}

/**
 * The checksum that belongs into a UDP header, over the pseudo header and the datagram (RFC 768, RFC 8200
 * §8.1). RoCE sends 0 instead; kernels that segment a burst (GSO) fill in a real one.
 * @param ip offset of the IPv4 or IPv6 header in `b`
 * @param udp offset of the UDP header, with the right length in it
 */
export function udpChecksum(b: Uint8Array, ip: number, udp: number): number {
  const length = u16(b, udp + 4);
  const [from, to] = b[ip] >> 4 === 4 ? [ip + 12, ip + 20] : [ip + 8, ip + 40];
  const addresses = ~internetChecksum(b, from, to) & 0xffff;
  const header = ~internetChecksum(b, udp, udp + 6, addresses + IpProtocol.UDP + length) & 0xffff;
  // 0 would mean that there is no checksum.
  return internetChecksum(b, udp + UDP_BYTES, udp + length, header) || 0xffff;
}

export function decodeIpv6(b: Uint8Array, o: number): Ipv6Value {
  const word = u32(b, o);
  return {
    version: 6,
    trafficClass: (word >>> 20) & 0xff,
    flowLabel: word & 0xf_ffff,
    payloadLength: u16(b, o + 4),
    nextHeader: b[o + 6],
    hopLimit: b[o + 7],
    source: b.slice(o + 8, o + 24),
    destination: b.slice(o + 24, o + 40),
  };
}

export function encodeIpv6(value: Ipv6Value, following: number): Uint8Array {
  const bytes = new Uint8Array(IPV6_BYTES);
  const trafficClass = checked('IPv6 trafficClass', value.trafficClass, 8);
  setU32(bytes, 0, 0x6000_0000 | (trafficClass << 20) | checked('IPv6 flowLabel', value.flowLabel, 20));
  setU16(bytes, 4, checked('IPv6 payloadLength', value.payloadLength ?? following, 16));
  bytes[6] = checked('IPv6 nextHeader', value.nextHeader, 8);
  bytes[7] = checked('IPv6 hopLimit', value.hopLimit, 8);
  bytes.set(sized('IPv6 source', value.source, 16), 8);
  bytes.set(sized('IPv6 destination', value.destination, 16), 24);
  return bytes;
}

export const decodeUdp = (b: Uint8Array, o: number): UdpValue => ({
  sourcePort: u16(b, o),
  destinationPort: u16(b, o + 2),
  length: u16(b, o + 4),
  checksum: u16(b, o + 6),
});

export function encodeUdp(value: UdpValue, following: number): Uint8Array {
  const bytes = new Uint8Array(UDP_BYTES);
  setU16(bytes, 0, checked('UDP sourcePort', value.sourcePort, 16));
  setU16(bytes, 2, checked('UDP destinationPort', value.destinationPort, 16));
  setU16(bytes, 4, checked('UDP length', value.length ?? UDP_BYTES + following, 16));
  setU16(bytes, 6, checked('UDP checksum', value.checksum ?? 0, 16));
  return bytes;
}
