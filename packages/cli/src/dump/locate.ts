/** Finds the RoCE packet in a captured frame: through link layer, IP and UDP. */
import { LinkType } from '@node-roce/pcap';
import { u16, u32 } from '@node-roce/wire';

/** Where the parts of a RoCE packet are in a frame, as its own lengths say. */
export interface Located {
  /** RoCE v2 over UDP, or v1 over Ethernet. */
  version: 1 | 2;
  /** Offset of the IP header; of the GRH in v1. */
  ip: number;
  /** Offset of the UDP header; −1 in v1. */
  udp: number;
  /** Offset of the BTH. */
  bth: number;
  /** Offset after the ICRC. May lie beyond the frame, where the capture was cut. */
  end: number;
}

const EtherType = { IPV4: 0x0800, IPV6: 0x86dd, VLAN: 0x8100, QINQ: 0x88a8, ROCE_V1: 0x8915 } as const;
const PROTOCOL_UDP = 17;
/** The next header of a GRH that is followed by a BTH (IBTA vol 1 §8.3). */
const NEXT_HEADER_IBA = 0x1b;
const UDP_BYTES = 8;
const IPV6_BYTES = 40;
/** BTH and ICRC. */
const LEAST_ROCE = 16;

/**
 * @param frame the captured bytes
 * @param linkType what the first byte is, a `LinkType`
 * @param port UDP port of RoCE v2
 * @returns undefined for anything else than a RoCE packet whose BTH was captured
 */
export function locate(frame: Uint8Array, linkType: number, port: number): Located | undefined {
  const network = networkLayer(frame, linkType);
  if (network === undefined) return undefined;
  const { etherType, at } = network;
  const located =
    etherType === EtherType.IPV4
      ? inIpv4(frame, at, port)
      : etherType === EtherType.IPV6
        ? inIpv6(frame, at, port)
        : etherType === EtherType.ROCE_V1
          ? inGrh(frame, at)
          : undefined;
  if (located === undefined || located.bth + 12 > frame.length) return undefined;
  return located.end - located.bth < LEAST_ROCE ? undefined : located;
}

interface Network {
  etherType: number;
  at: number;
}

function networkLayer(frame: Uint8Array, linkType: number): Network | undefined {
  switch (linkType) {
    case LinkType.ETHERNET:
      return afterTags(frame, 12);
    case LinkType.LINUX_SLL:
      return afterTags(frame, 14);
    case LinkType.LINUX_SLL2:
      return frame.length < 20 ? undefined : { etherType: u16(frame, 0), at: 20 };
    case LinkType.NULL:
    case LinkType.LOOP:
      return byVersion(frame, 4);
    case LinkType.RAW:
    case LinkType.IPV4:
    case LinkType.IPV6:
      return byVersion(frame, 0);
    default:
      return undefined;
  }
}

/** The EtherType at `o`, or the one behind VLAN tags (IEEE 802.1Q, 802.1ad). */
function afterTags(frame: Uint8Array, o: number): Network | undefined {
  for (; o + 2 <= frame.length; o += 4) {
    const etherType = u16(frame, o);
    if (etherType !== EtherType.VLAN && etherType !== EtherType.QINQ) return { etherType, at: o + 2 };
  }
  return undefined;
}

function byVersion(frame: Uint8Array, at: number): Network | undefined {
  const version = at < frame.length ? frame[at]! >> 4 : 0;
  if (version !== 4 && version !== 6) return undefined;
  return { etherType: version === 4 ? EtherType.IPV4 : EtherType.IPV6, at };
}

function inIpv4(frame: Uint8Array, ip: number, port: number): Located | undefined {
  if (ip + 20 > frame.length || frame[ip]! >> 4 !== 4 || frame[ip + 9] !== PROTOCOL_UDP) return undefined;
  // A fragment holds no whole packet, and no adapter sends any.
  if ((u16(frame, ip + 6) & 0x3fff) !== 0) return undefined;
  return inUdp(frame, ip, ip + (frame[ip]! & 0x0f) * 4, port);
}

function inIpv6(frame: Uint8Array, ip: number, port: number): Located | undefined {
  if (ip + IPV6_BYTES > frame.length || frame[ip]! >> 4 !== 6 || frame[ip + 6] !== PROTOCOL_UDP)
    return undefined;
  return inUdp(frame, ip, ip + IPV6_BYTES, port);
}

function inUdp(frame: Uint8Array, ip: number, udp: number, port: number): Located | undefined {
  if (udp + UDP_BYTES > frame.length || u16(frame, udp + 2) !== port) return undefined;
  return { version: 2, ip, udp, bth: udp + UDP_BYTES, end: udp + u16(frame, udp + 4) };
}

function inGrh(frame: Uint8Array, ip: number): Located | undefined {
  if (ip + IPV6_BYTES > frame.length || u32(frame, ip) >>> 28 !== 6) return undefined;
  if (frame[ip + 6] !== NEXT_HEADER_IBA) return undefined;
  const bth = ip + IPV6_BYTES;
  return { version: 1, ip, udp: -1, bth, end: bth + u16(frame, ip + 4) };
}
