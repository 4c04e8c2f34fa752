/**
 * Headers of tunnels and mirrors: what they carry, and where it starts. Nothing here allocates: the result is one object,
 * used again for each header.
 */
import { LinkType } from '@node-roce/pcap';
import { EtherType, u16, u24, u32 } from '@node-roce/wire';

/**
 * Tunnels that a packet can be extracted from. `gre` is IP or Ethernet in GRE (TEB), `ipip` is IPv4 or IPv6 in either, `etherip`
 * Ethernet in IP. `tzsp` is a sniffer's mirror; `sflow` are samples of the traffic (`RocePacket.sampled`).
 */
export const TUNNELS = [
  'none',
  'erspan',
  'vxlan',
  'gre',
  'geneve',
  'mpls',
  'ipip',
  'pbb',
  'nsh',
  'etherip',
  'tzsp',
  'sflow',
] as const;
export type Tunnel = (typeof TUNNELS)[number];

/** `vxlan 42`, `gre`: the tunnel with its VNI, key, session or label. */
export const tunnelName = (tunnel: Tunnel, vni: number): string => (vni < 0 ? tunnel : `${tunnel} ${vni}`);

/** IP protocol numbers of tunnels (IANA). */
export const IpTunnel = {
  IPV4: 4,
  IPV6: 41,
  GRE: 47,
  /** RFC 3378. */
  ETHERIP: 97,
  MPLS: 137,
  /** Ethernet without a header of its own (RFC 8986 §10.1). */
  ETHERNET: 143,
} as const;

/**
 * UDP ports of tunnels: RFC 7348 §8 and what Linux used before it was assigned; draft-ietf-nvo3-vxlan-gpe §8; RFC 8926 §3.3;
 * RFC 7510 §3; TZSP by its first use.
 */
const TunnelPort = {
  VXLAN: 4789,
  VXLAN_OLD: 8472,
  VXLAN_GPE: 4790,
  GENEVE: 6081,
  MPLS: 6635,
  TZSP: 37_008,
} as const;

/** EtherTypes of tunnels between an Ethernet header and the next packet. */
export const TunnelType = {
  /** Provider backbone bridges: I-TAG of IEEE 802.1Q. */
  PBB: 0x88e7,
  /** Network service header (RFC 8300). */
  NSH: 0x894f,
} as const;
/** Next protocols of NSH (RFC 8300 §2.2) and of VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe §3.1): the same numbers. */
const NextProtocol = { IPV4: 1, IPV6: 2, ETHERNET: 3, NSH: 4, MPLS: 5 } as const;

const MPLS_UNICAST = 0x8847;
const MPLS_MULTICAST = 0x8848;
/** GRE protocol types (draft-foschiano-erspan-03): ERSPAN I and II, ERSPAN III. */
const ERSPAN_II = 0x88be;
const ERSPAN_III = 0x22eb;
/** Ethernet in GRE and Geneve (transparent Ethernet bridging). */
const TEB = 0x6558;
const VXLAN_BYTES = 8;
/** VNI valid, next protocol given. */
const VXLAN_I = 0x08;
const VXLAN_P = 0x04;
const PBB_BYTES = 4;
const NSH_BYTES = 8;
const ETHERIP_BYTES = 2;
/** TZSP: a packet received or sent, of Ethernet; tags up to the one that ends them. */
const TZSP_BYTES = 4;
const TZSP_ETHERNET = 1;
const TzspTag = { PADDING: 0, END: 1 } as const;
const GENEVE_BYTES = 8;
const MPLS_BYTES = 4;
const CONTROL_WORD_BYTES = 4;

export const isMpls = (etherType: number): boolean =>
  etherType === MPLS_UNICAST || etherType === MPLS_MULTICAST;

/** Why a header leads nowhere. */
export type TunnelRefusal = 'not-roce' | 'truncated';

/** Parses one tunnel header after the other; the fields are those of the last. */
export class TunnelParser {
  /** Start of the inner packet, and its kind: `ETHERNET` or `RAW`, an IP header. */
  at = 0;
  linkType: number = LinkType.ETHERNET;
  tunnel: Tunnel = 'none';
  /** VNI of VXLAN and Geneve, key of GRE, session of ERSPAN, innermost label of MPLS, I-SID, service path; −1: none. */
  vni = -1;
  refusal: TunnelRefusal = 'not-roce';
  offset = 0;
  detail = '';

  /** GRE (RFC 2784, RFC 2890) with IP, Ethernet, MPLS or ERSPAN (draft-foschiano-erspan-03 §4) in it. */
  gre(b: Uint8Array, o: number, end: number): boolean {
    if (o + 4 > end) return this.#no('truncated', end, 'in the GRE header');
    const flags = u16(b, o);
    const type = u16(b, o + 2);
    const known = isErspan(type) || isMpls(type) || linkTypeOf(type) >= 0;
    // A version other than 0, and routing, which nothing sends any more.
    if (!known || (flags & 0x4007) !== 0)
      return this.#no('not-roce', o + 2, `GRE protocol 0x${type.toString(16)}`);
    let at = o + 4;
    // Checksum with a reserved half word, key, sequence number: four bytes each.
    if (flags & 0x8000) at += 4;
    let key = -1;
    if (flags & 0x2000) {
      if (at + 4 > end) return this.#no('truncated', end, 'in the GRE header');
      key = u32(b, at);
      at += 4;
    }
    const hasSequence = (flags & 0x1000) !== 0;
    if (hasSequence) at += 4;
    if (isErspan(type)) return this.#erspan(b, at, end, type, hasSequence);
    if (isMpls(type)) return this.mpls(b, at, end);
    return this.#yes(at, end, linkTypeOf(type), 'gre', key);
  }

  /** The tunnel of that UDP port; false, with a refusal, for other ports and headers that do not fit. */
  udp(b: Uint8Array, port: number, o: number, end: number): boolean {
    if (port === TunnelPort.VXLAN || port === TunnelPort.VXLAN_OLD) {
      if (o + VXLAN_BYTES <= end) return this.#vxlan(b, o, end, NextProtocol.ETHERNET);
    } else if (port === TunnelPort.VXLAN_GPE) {
      if (o + VXLAN_BYTES <= end && b[o] >> 6 === 0)
        return this.#vxlan(b, o, end, b[o] & VXLAN_P ? b[o + 3] : NextProtocol.ETHERNET);
    } else if (port === TunnelPort.TZSP) {
      if (o + TZSP_BYTES <= end && b[o] === 1) return this.#tzsp(b, o, end);
    } else if (port === TunnelPort.GENEVE) {
      // RFC 8926 §3.4: version 0; options in units of four bytes.
      const linkType = o + GENEVE_BYTES <= end && b[o] >> 6 === 0 ? linkTypeOf(u16(b, o + 2)) : -1;
      if (linkType >= 0)
        return this.#yes(o + GENEVE_BYTES + (b[o] & 63) * 4, end, linkType, 'geneve', u24(b, o + 4));
    } else if (port === TunnelPort.MPLS) return this.mpls(b, o, end);
    return this.#no('not-roce', o - 6, `UDP port ${port}`);
  }

  /**
   * Past a stack of labels (RFC 3032 §2.1). Nothing names the content: IP by its version, after a control word (RFC 4385
   * §3) Ethernet.
   */
  mpls(b: Uint8Array, o: number, end: number): boolean {
    let at = o;
    let label: number;
    do {
      if (at + MPLS_BYTES > end) return this.#no('truncated', end, 'in the MPLS labels');
      label = u32(b, at);
      at += MPLS_BYTES;
    } while ((label & 0x100) === 0);
    if (at >= end) return this.#no('truncated', end, 'in the MPLS labels');
    const first = b[at] >> 4;
    const isIp = first === 4 || first === 6;
    if (first === 0) at += CONTROL_WORD_BYTES;
    return this.#yes(at, end, isIp ? LinkType.RAW : LinkType.ETHERNET, 'mpls', label >>> 12);
  }

  /** I-TAG; the customer's frame follows. */
  pbb(b: Uint8Array, o: number, end: number): boolean {
    if (o + PBB_BYTES > end) return this.#no('truncated', end, 'in the I-TAG');
    return this.#yes(o + PBB_BYTES, end, LinkType.ETHERNET, 'pbb', u24(b, o + 1));
  }

  /** Network service header, of any length. */
  nsh(b: Uint8Array, o: number, end: number): boolean {
    if (o + NSH_BYTES > end) return this.#no('truncated', end, 'in the NSH');
    const length = (b[o + 1] & 63) * 4;
    if (b[o] >> 6 !== 0 || length < NSH_BYTES) return this.#no('not-roce', o, 'NSH version or length');
    return this.#next(b, o + length, end, b[o + 3], 'nsh', u24(b, o + 4));
  }

  /** EtherIP (RFC 3378), or Ethernet right behind the IP header. */
  etherIp(b: Uint8Array, o: number, end: number, hasHeader: boolean): boolean {
    if (hasHeader && (o + ETHERIP_BYTES > end || b[o] >> 4 !== 3))
      return this.#no(o + ETHERIP_BYTES > end ? 'truncated' : 'not-roce', o, 'in the EtherIP header');
    return this.#yes(o + (hasHeader ? ETHERIP_BYTES : 0), end, LinkType.ETHERNET, 'etherip', -1);
  }

  /** Without the I flag (RFC 7348 §5) the VNI is not valid; the frame behind it is. */
  #vxlan(b: Uint8Array, o: number, end: number, next: number): boolean {
    const vni = b[o] & VXLAN_I ? u24(b, o + 4) : -1;
    return this.#next(b, o + VXLAN_BYTES, end, next, 'vxlan', vni);
  }

  /** The content of NSH and VXLAN-GPE. */
  #next(b: Uint8Array, o: number, end: number, next: number, tunnel: Tunnel, id: number): boolean {
    if (next === NextProtocol.NSH && tunnel !== 'nsh') return this.nsh(b, o, end);
    if (next === NextProtocol.MPLS) return this.mpls(b, o, end);
    const isIp = next === NextProtocol.IPV4 || next === NextProtocol.IPV6;
    if (isIp || next === NextProtocol.ETHERNET)
      return this.#yes(o, end, isIp ? LinkType.RAW : LinkType.ETHERNET, tunnel, id);
    return this.#no('not-roce', o, `${tunnel} protocol ${next}`);
  }

  #tzsp(b: Uint8Array, o: number, end: number): boolean {
    if (b[o + 1] > 1 || u16(b, o + 2) !== TZSP_ETHERNET) return this.#no('not-roce', o + 1, 'TZSP type');
    let at = o + TZSP_BYTES;
    while (at < end && b[at] !== TzspTag.END) at += b[at] === TzspTag.PADDING ? 1 : 2 + b[at + 1];
    return this.#yes(at + 1, end, LinkType.ETHERNET, 'tzsp', -1);
  }

  #erspan(b: Uint8Array, o: number, end: number, type: number, hasSequence: boolean): boolean {
    // Without a sequence number it is type I, which has no header of its own.
    if (type === ERSPAN_II && !hasSequence) return this.#yes(o, end, LinkType.ETHERNET, 'erspan', -1);
    const length = type === ERSPAN_III ? 12 : 8;
    if (o + length > end) return this.#no('truncated', end, 'in the ERSPAN header');
    const session = u16(b, o + 2) & 0x3ff;
    if (type === ERSPAN_II) return this.#yes(o + length, end, LinkType.ETHERNET, 'erspan', session);
    const last = u16(b, o + 10);
    // Frame type 2 is an IP packet; the last bit means that eight more bytes follow.
    const linkType = ((last >> 10) & 31) === 2 ? LinkType.RAW : LinkType.ETHERNET;
    return this.#yes(o + (last & 1 ? 20 : 12), end, linkType, 'erspan', session);
  }

  #yes(at: number, end: number, linkType: number, tunnel: Tunnel, vni: number): boolean {
    if (at > end) return this.#no('truncated', end, `in the ${tunnel} header`);
    this.at = at;
    this.linkType = linkType;
    this.tunnel = tunnel;
    this.vni = vni;
    return true;
  }

  #no(refusal: TunnelRefusal, offset: number, detail: string): false {
    this.refusal = refusal;
    this.offset = offset;
    this.detail = detail;
    return false;
  }
}

const isErspan = (type: number): boolean => type === ERSPAN_II || type === ERSPAN_III;

/** The link type inside of GRE and Geneve for this protocol type; −1 for others. */
function linkTypeOf(type: number): number {
  if (type === TEB) return LinkType.ETHERNET;
  return type === EtherType.IPV4 || type === EtherType.IPV6 ? LinkType.RAW : -1;
}
