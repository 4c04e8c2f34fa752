/** ICMP errors about RoCE packets: routers and hosts that refused one (RFC 792, RFC 4443). Decoded no further than that. */
import { LinkType } from '@node-roce/pcap';
import { EtherType, formatIpAddress, isVlan, ROCE_UDP_PORT, u16 } from '@node-roce/wire';

/** Errors that are kept; of later ones only those that are like a kept one count. */
const MAX_ERRORS = 200;
const ICMP = 1;
const UDP = 17;
const ICMPV6 = 58;

/** The reason of an ICMP error. */
export type IcmpReason =
  | 'packet-too-big'
  | 'port-unreachable'
  | 'unreachable'
  | 'prohibited'
  | 'ttl-exceeded';

/** The same error about packets from one address to another, by one sender. */
export interface IcmpError {
  reason: IcmpReason;
  /** The sender: a router or the host itself. */
  by: string;
  /** Of the packet that it refuses. */
  source: string;
  destination: string;
  /** Of `packet-too-big`; 0: not stated. */
  mtu: number;
  /** The first of them, and how many there are. */
  frame: number;
  count: number;
}

/** ICMP errors of a capture by their contents; its size is bounded. */
export class IcmpErrors {
  readonly #errors = new Map<string, IcmpError>();

  get all(): IcmpError[] {
    return [...this.#errors.values()];
  }

  /** Takes a frame that is not RoCE. @returns whether it is an ICMP error about a RoCE packet */
  take(bytes: Uint8Array, start: number, end: number, linkType: number, frame: number): boolean {
    const ip = networkAt(bytes, start, end, linkType);
    if (ip < 0 || ip + 28 > end) return false;
    const found = bytes[ip] >> 4 === 4 ? readIcmp(bytes, ip, end) : readIcmp6(bytes, ip, end);
    if (found === undefined) return false;
    const key = `${found.reason} ${found.by} ${found.source} ${found.destination} ${found.mtu}`;
    const known = this.#errors.get(key);
    if (known !== undefined) known.count++;
    else if (this.#errors.size < MAX_ERRORS) this.#errors.set(key, { ...found, frame, count: 1 });
    return true;
  }
}

type Found = Omit<IcmpError, 'frame' | 'count'>;

/** Where the IP header stands; −1: it is no IP packet, or in a tunnel. */
function networkAt(b: Uint8Array, o: number, end: number, linkType: number): number {
  let at = o;
  let type: number;
  if (linkType === LinkType.ETHERNET) [at, type] = [o + 14, o + 14 <= end ? u16(b, o + 12) : 0];
  else if (linkType === LinkType.LINUX_SLL) [at, type] = [o + 16, o + 16 <= end ? u16(b, o + 14) : 0];
  else if (linkType === LinkType.LINUX_SLL2) [at, type] = [o + 20, o + 20 <= end ? u16(b, o) : 0];
  else if (linkType === LinkType.RAW || linkType === LinkType.IPV4 || linkType === LinkType.IPV6)
    return o < end ? o : -1;
  else return -1;
  while (isVlan(type) && at + 4 <= end) {
    type = u16(b, at + 2);
    at += 4;
  }
  return type === EtherType.IPV4 || type === EtherType.IPV6 ? at : -1;
}

function readIcmp(b: Uint8Array, ip: number, end: number): Found | undefined {
  const icmp = ip + (b[ip] & 15) * 4;
  if (b[ip + 9] !== ICMP || icmp + 8 + 28 > end) return undefined;
  const reason = reasonOf(b[icmp], b[icmp + 1]);
  const inner = icmp + 8;
  const udp = inner + (b[inner] & 15) * 4;
  if (reason === undefined || b[inner] >> 4 !== 4 || b[inner + 9] !== UDP) return undefined;
  if (udp + 4 > end || u16(b, udp + 2) !== ROCE_UDP_PORT) return undefined;
  return {
    reason,
    by: formatIpAddress(b.subarray(ip + 12, ip + 12 + 4)),
    source: formatIpAddress(b.subarray(inner + 12, inner + 12 + 4)),
    destination: formatIpAddress(b.subarray(inner + 16, inner + 16 + 4)),
    mtu: reason === 'packet-too-big' ? u16(b, icmp + 6) : 0,
  };
}

function reasonOf(type: number, code: number): IcmpReason | undefined {
  if (type === 11) return 'ttl-exceeded';
  if (type !== 3) return undefined;
  if (code === 4) return 'packet-too-big';
  if (code === 3) return 'port-unreachable';
  return code === 9 || code === 10 || code === 13 ? 'prohibited' : 'unreachable';
}

function readIcmp6(b: Uint8Array, ip: number, end: number): Found | undefined {
  const icmp = ip + 40;
  const inner = icmp + 8;
  const udp = inner + 40;
  if (b[ip] >> 4 !== 6 || b[ip + 6] !== ICMPV6 || udp + 4 > end) return undefined;
  const reason = reasonOf6(b[icmp], b[icmp + 1]);
  if (reason === undefined || b[inner + 6] !== UDP || u16(b, udp + 2) !== ROCE_UDP_PORT) return undefined;
  return {
    reason,
    by: formatIpAddress(b.subarray(ip + 8, ip + 8 + 16)),
    source: formatIpAddress(b.subarray(inner + 8, inner + 8 + 16)),
    destination: formatIpAddress(b.subarray(inner + 24, inner + 24 + 16)),
    mtu: reason === 'packet-too-big' ? u16(b, icmp + 4) * 0x1_0000 + u16(b, icmp + 6) : 0,
  };
}

function reasonOf6(type: number, code: number): IcmpReason | undefined {
  if (type === 2) return 'packet-too-big';
  if (type === 3) return 'ttl-exceeded';
  if (type !== 1) return undefined;
  if (code === 4) return 'port-unreachable';
  return code === 1 ? 'prohibited' : 'unreachable';
}
