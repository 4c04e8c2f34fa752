/** Headers below RoCE's own, as plain values: Ethernet with VLAN tags, IPv4, IPv6 (also as GRH), UDP. */
import { setU16, setU32, u16, u32 } from './bytes.ts';

export const EtherType = { IPV4: 0x0800, IPV6: 0x86dd, VLAN: 0x8100, QINQ: 0x88a8, ROCE_V1: 0x8915 } as const;
export const IpProtocol = { UDP: 17, /** A BTH follows a GRH (IBTA vol 1 §8.3.1). */ IBA: 0x1b } as const;

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
  while (type === EtherType.VLAN || type === EtherType.QINQ) {
    if (at + 6 > b.length) return undefined;
    vlans.push({ tpid: type, tci: u16(b, at + 2) });
    at += VLAN_BYTES;
    type = u16(b, at);
  }
  const value = { destination: b.slice(o, o + 6), source: b.slice(o + 6, o + 12), vlans, etherType: type };
  return { value, end: at + 2 };
}

export function encodeEthernet(value: EthernetValue): Uint8Array {
  const bytes = new Uint8Array(ETHERNET_BYTES + VLAN_BYTES * value.vlans.length);
  bytes.set(value.destination);
  bytes.set(value.source, 6);
  let at = 12;
  for (const { tpid, tci } of value.vlans) {
    setU16(bytes, at, tpid);
    setU16(bytes, at + 2, tci);
    at += VLAN_BYTES;
  }
  setU16(bytes, at, value.etherType);
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
  const bytes = new Uint8Array(length);
  bytes[0] = 0x40 | (length / 4);
  bytes[1] = value.tos;
  setU16(bytes, 2, value.totalLength ?? length + following);
  setU16(bytes, 4, value.id);
  setU16(bytes, 6, value.flagsAndOffset);
  bytes[8] = value.ttl;
  bytes[9] = value.protocol;
  bytes.set(value.source, 12);
  bytes.set(value.destination, 16);
  bytes.set(value.options, 20);
  setU16(bytes, 10, value.checksum ?? internetChecksum(bytes));
  return bytes;
}

/** RFC 1071. */
export function internetChecksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += (bytes[i] << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
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
  setU32(bytes, 0, (0x6000_0000 | (value.trafficClass << 20) | value.flowLabel) >>> 0);
  setU16(bytes, 4, value.payloadLength ?? following);
  bytes[6] = value.nextHeader;
  bytes[7] = value.hopLimit;
  bytes.set(value.source, 8);
  bytes.set(value.destination, 24);
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
  setU16(bytes, 0, value.sourcePort);
  setU16(bytes, 2, value.destinationPort);
  setU16(bytes, 4, value.length ?? UDP_BYTES + following);
  setU16(bytes, 6, value.checksum ?? 0);
  return bytes;
}
