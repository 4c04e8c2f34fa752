/**
 * One RoCE packet of a capture, as the analysis sees it: flat numbers, no object per layer, one instance
 * used again for each packet. Fields that few packets need (RETH, AETH, DETH, atomics) are read from
 * `bytes` at `extensions` with wire's accessors.
 */
import { LinkType } from '@node-roce/pcap';
import { BTH_BYTES, type OpcodeInfo, u16, u24 } from '@node-roce/wire';
import { inspect } from './inspect.ts';
import { macAt } from './pause.ts';
import type { Tunnel } from './tunnel.ts';

/** Verdicts on the ICRC. `NONE`: the capture was cut before it, or the reader was asked not to check. */
export const IcrcVerdict = { OK: 0, BAD: 1, NONE: 2 } as const;

/** A verdict as a word. */
export const verdictName = (verdict: number): 'ok' | 'bad' | 'none' =>
  verdict === IcrcVerdict.OK ? 'ok' : verdict === IcrcVerdict.BAD ? 'bad' : 'none';

/** A RoCE packet of a capture. One object is used again for each packet: copy what has to outlive the callback. */
export class RocePacket {
  /** Frame number in the capture from 1, as tcpdump and Wireshark count. */
  frame = 0;
  /** 0, or the place of the packet in its GSO super-packet. */
  part = 0;
  /** Packets that the frame holds: 1, or those of a GSO super-packet. */
  parts = 1;
  interfaceId = 0;
  /** Nanoseconds since the first frame of the capture. Negative where a frame is older than the first. */
  time = 0;

  /** RoCE v1 or v2; 0 is native InfiniBand. */
  version: 0 | 1 | 2 = 2;
  /** VLAN id and priority (PCP) of the innermost tag, in a tunnel of the inner frame; −1: no tag. */
  vlan = -1;
  pcp = -1;
  /** The innermost tunnel or mirror that the packet was extracted from. */
  tunnel: Tunnel = 'none';
  /** VNI of VXLAN and Geneve, key of GRE, session of ERSPAN, innermost label of MPLS, I-SID of PBB, path of NSH; −1: none. */
  vni = -1;
  /** Number of VLAN, tunnel and VNI together (`NetworkTable`): flows of different ones are apart. 0: none of them. */
  network = 0;
  /** Indices into the reader's table of addresses (`Addresses`): IPv4, IPv6 or, in v1, GIDs; in InfiniBand without a GRH, LIDs. */
  source = 0;
  destination = 0;
  /** UDP ports; 0 in v1. The destination is 4791, or one that the reader was asked for or found. */
  sourcePort = 0;
  destinationPort = 0;
  /** IPv4 Identification that the ICRC was computed with (in super-packets not the header's); −1 in IPv6 and v1. */
  ipId = -1;
  /** Upper six bits of the traffic class, and ECN (0 … 3; 3 is CE). */
  dscp = 0;
  ecn = 0;
  hopLimit = 0;
  /** An IPv6 routing header has segments left: `destination` is the last of them, not the address in the header. */
  routed = false;
  /** IPv6 extension headers stand between IP and UDP. */
  extended = false;
  /** Where in `bytes` the address of the last hop stands, of a packet that is `extended`. */
  lastHop = 0;
  /** Between `link` and `ip` there are tags other than VLANs. */
  tagged = false;
  /** A sample of the traffic (sFlow, TZSP), not all of it: gaps between packets mean nothing. */
  sampled = false;

  opcode = 0;
  /** The opcode's row of the table. */
  info!: OpcodeInfo;
  destQp = 0;
  psn = 0;
  ackReq = false;
  solicited = false;
  migReq = false;
  fecn = false;
  becn = false;
  pkey = 0;
  padCount = 0;
  /** Bytes of payload on the wire, from the lengths of IP and UDP; in a cut capture more than there are. */
  payloadLength = 0;
  /** `IcrcVerdict`. */
  icrc: number = IcrcVerdict.NONE;
  /** Of a FLUSH that is taken for whole: its ICRC covers BTH to RETH twice, as rxe of Linux 6.12 makes it. */
  flushTwice = false;

  /** The frame stands here, at `frameOffset` … `frameOffset + frameLength`; valid until the next packet. */
  bytes: Uint8Array = new Uint8Array(0);
  frameOffset = 0;
  frameLength = 0;
  /** Link type of the headers at `link`, where the innermost frame starts: not the outer one's in a tunnel. */
  linkType = 1;
  link = 0;
  /**
   * In `bytes`: the IP header (v1: GRH; InfiniBand: GRH, or the LRH where there is none), the UDP header (v1: 0), the BTH, the first extension header, the payload. In a
   * super-packet all parts share one IP and UDP header, whose lengths are the whole's.
   */
  ip = 0;
  udp = 0;
  bth = 0;
  extensions = 0;
  payload = 0;
  /** End of the captured bytes of this packet, ICRC included: extension headers may be cut. */
  end = 0;
}

/**
 * One line for console.log: the fields that each packet has. Not in the class: copies by `{ ...packet }`
 * are packets, too.
 */
Object.defineProperty(RocePacket.prototype, inspect, {
  configurable: true,
  writable: true,
  value(this: RocePacket): string {
    const { frame, part, time, opcode, destQp, psn, payloadLength, icrc } = this;
    const name = (this.info as OpcodeInfo | undefined)?.name ?? `opcode 0x${opcode.toString(16)}`;
    const place = part === 0 ? `${frame}` : `${frame}.${part}`;
    return `RocePacket { frame: ${place}, time: ${time}, ${name}, destQp: 0x${destQp.toString(16)}, psn: ${psn}, payloadLength: ${payloadLength}, icrc: ${verdictName(icrc)} }`;
  },
});

/** MAC addresses of the innermost Ethernet header as numbers of 48 bits; −1: the packet has no such header. */
export const sourceMac = ({ bytes, link, linkType }: RocePacket): number =>
  linkType === LinkType.ETHERNET ? macAt(bytes, link + 6) : -1;
export const destinationMac = ({ bytes, link, linkType }: RocePacket): number =>
  linkType === LinkType.ETHERNET ? macAt(bytes, link) : -1;

/** Addresses as text, by the numbers that packets name them with. */
export interface Addresses {
  /** `192.0.2.1`, `2001:db8::1` (RFC 5952). */
  text(index: number): string;
  readonly size: number;
}

/** BTH and the longest extension headers: RDETH, DETH and AtomicETH (IBTA vol 1 §9.2). */
export const LONGEST_HEADER_BYTES = BTH_BYTES + 4 + 8 + 28;

/**
 * Fills the fields that stand in the base transport header (IBTA vol 1 §9.2), which is at `o`.
 * @param end of the packet as it was captured, ICRC included
 */
export function fillBth(
  packet: RocePacket,
  b: Uint8Array,
  o: number,
  info: OpcodeInfo,
  end: number,
  payloadLength: number,
): void {
  const flags = b[o + 1];
  packet.bth = o;
  packet.extensions = o + BTH_BYTES;
  packet.payload = o + info.headerLength;
  packet.end = end;
  packet.payloadLength = payloadLength;
  packet.info = info;
  packet.opcode = info.opcode;
  packet.solicited = (flags & 0x80) !== 0;
  packet.migReq = (flags & 0x40) !== 0;
  packet.padCount = (flags >> 4) & 3;
  packet.pkey = u16(b, o + 2);
  packet.fecn = (b[o + 4] & 0x80) !== 0;
  packet.becn = (b[o + 4] & 0x40) !== 0;
  packet.destQp = u24(b, o + 5);
  packet.ackReq = (b[o + 8] & 0x80) !== 0;
  packet.psn = u24(b, o + 9);
}
