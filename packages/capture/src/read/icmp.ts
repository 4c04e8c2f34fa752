/**
 * ICMP errors about RoCE packets: a router or host names the reason why it dropped a packet, and quotes its first bytes
 * (RFC 792, RFC 4443 §2.4).
 */
import { BTH_BYTES, IpProtocol, u16, u24, u32 } from '@node-roce/wire';
import type { AddressTable } from './addresses.ts';
import { inspect } from './inspect.ts';

/** Protocol numbers of ICMP in IPv4 and of ICMPv6 (IANA). */
export const IcmpProtocol = { V4: 1, V6: 58 } as const;

/** The meaning of an ICMP error, for both versions of IP. */
export type IcmpMeaning =
  /** The packet is longer than the MTU of the next link: `mtu`. */
  | 'too-big'
  /** The host has no socket at that UDP port. */
  | 'port-unreachable'
  | 'host-unreachable'
  | 'net-unreachable'
  /** A filter or policy forbids the packet. */
  | 'prohibited'
  /** The TTL or hop limit became 0. */
  | 'ttl-exceeded'
  /** All others: `type` and `code`. */
  | 'other';

/** IPv4 and IPv6 codes of "destination unreachable" (RFC 792, RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1; RFC 4443 §3.1). */
const UNREACHABLE_V4: readonly IcmpMeaning[] = [
  'net-unreachable',
  'host-unreachable',
  'other',
  'port-unreachable',
  'too-big',
  'other',
  'net-unreachable',
  'host-unreachable',
  'host-unreachable',
  'prohibited',
  'prohibited',
  'net-unreachable',
  'host-unreachable',
  'prohibited',
];
const UNREACHABLE_V6: readonly IcmpMeaning[] = [
  'net-unreachable',
  'prohibited',
  'other',
  'host-unreachable',
  'port-unreachable',
  'prohibited',
  'prohibited',
];

const HEADER_BYTES = 8;
const UDP_BYTES = 8;

/** An ICMP error about a RoCE packet. One object is used again for each: copy what has to outlive the callback. */
export class IcmpError {
  /** Frame number from 1. */
  frame = 0;
  /** Nanoseconds since the first frame of the capture. */
  time = 0;
  version: 4 | 6 = 4;
  type = 0;
  code = 0;
  /** MTU of the next link in bytes, IP header included; 0: the error names none. */
  mtu = 0;
  /** Indices into the reader's addresses: the router or host that sent the error, and its receiver. */
  source = 0;
  destination = 0;
  /** Number of the VLAN, tunnel and VNI that the error came in: `RocePacket.network`. */
  network = 0;
  /** The quoted packet: addresses by index, UDP ports, length of its IP packet in bytes. */
  quotedSource = 0;
  quotedDestination = 0;
  sourcePort = 0;
  destinationPort = 0;
  quotedLength = 0;
  /** BTH of the quoted packet; −1: the error quotes too little of it. */
  opcode = -1;
  destQp = -1;
  psn = -1;

  get meaning(): IcmpMeaning {
    const { version, type, code } = this;
    if (version === 6) {
      if (type === 1) return UNREACHABLE_V6[code] ?? 'other';
      if (type === 2) return 'too-big';
      return type === 3 ? 'ttl-exceeded' : 'other';
    }
    if (type === 3) return UNREACHABLE_V4[code] ?? 'other';
    return type === 11 && code === 0 ? 'ttl-exceeded' : 'other';
  }

  /**
   * Reads the ICMP message at `o`; false for what is no error, or quotes no UDP packet.
   * @param ip the IP header in front of it
   */
  read(b: Uint8Array, ip: number, o: number, end: number, addresses: AddressTable): boolean {
    const quoted = o + HEADER_BYTES;
    if (quoted + 20 + UDP_BYTES > end) return false;
    const version = b[ip] >> 4 === 6 ? 6 : 4;
    const type = b[o];
    const isError = version === 6 ? type >= 1 && type <= 4 : [3, 4, 5, 11, 12].includes(type);
    if (!isError || b[quoted] >> 4 !== version) return false;
    const udp = quoted + (version === 6 ? 40 : (b[quoted] & 15) * 4);
    const protocol = b[quoted + (version === 6 ? 6 : 9)];
    if (protocol !== IpProtocol.UDP || udp < quoted + 20 || udp + UDP_BYTES > end) return false;
    // A later fragment has no UDP header.
    if (version === 4 && (u16(b, quoted + 6) & 0x1fff) !== 0) return false;
    this.version = version;
    this.type = type;
    this.code = b[o + 1];
    this.mtu = 0;
    if (this.meaning === 'too-big') this.mtu = version === 6 ? u32(b, o + 4) : u16(b, o + 6);
    if (version === 6) {
      this.source = addresses.ipv6(b, ip + 8);
      this.destination = addresses.ipv6(b, ip + 24);
      this.quotedSource = addresses.ipv6(b, quoted + 8);
      this.quotedDestination = addresses.ipv6(b, quoted + 24);
      this.quotedLength = 40 + u16(b, quoted + 4);
    } else {
      this.source = addresses.ipv4(b, ip + 12);
      this.destination = addresses.ipv4(b, ip + 16);
      this.quotedSource = addresses.ipv4(b, quoted + 12);
      this.quotedDestination = addresses.ipv4(b, quoted + 16);
      this.quotedLength = u16(b, quoted + 2);
    }
    this.sourcePort = u16(b, udp);
    this.destinationPort = u16(b, udp + 2);
    const bth = udp + UDP_BYTES;
    const hasBth = bth + BTH_BYTES <= end;
    this.opcode = hasBth ? b[bth] : -1;
    this.destQp = hasBth ? u24(b, bth + 5) : -1;
    this.psn = hasBth ? u24(b, bth + 9) : -1;
    return true;
  }
}

/** One line for console.log. Not declared in the class: a copy of an error is an `IcmpError`, too. */
Object.defineProperty(IcmpError.prototype, inspect, {
  value(this: IcmpError): string {
    const { frame, time, version, meaning, mtu, destQp, psn } = this;
    const quoted = psn < 0 ? '' : `, destQp: 0x${destQp.toString(16)}, psn: ${psn}`;
    return `IcmpError { frame: ${frame}, time: ${time}, ICMPv${version}: ${meaning}${mtu > 0 ? `, mtu: ${mtu}` : ''}${quoted} }`;
  },
});
