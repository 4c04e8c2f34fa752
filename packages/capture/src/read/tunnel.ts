/**
 * Headers of tunnels and mirrors: what they carry, and where it starts. Nothing here allocates: the result is one object,
 * used again for each header.
 */
import { LinkType } from '@node-roce/pcap';
import { EtherType, u16, u24, u32 } from '@node-roce/wire';

/** Tunnels that a packet can be extracted from. `gre` is IP or Ethernet in GRE (TEB), `ipip` is IPv4 or IPv6 in either. */
export const TUNNELS = ['none', 'erspan', 'vxlan', 'gre', 'geneve', 'mpls', 'ipip'] as const;
export type Tunnel = (typeof TUNNELS)[number];

/** `vxlan 42`, `gre`: the tunnel with its VNI, key, session or label. */
export const tunnelName = (tunnel: Tunnel, vni: number): string => (vni < 0 ? tunnel : `${tunnel} ${vni}`);

/** IP protocol numbers of tunnels (IANA). */
export const IpTunnel = { IPV4: 4, IPV6: 41, GRE: 47, MPLS: 137 } as const;

/** UDP ports of tunnels: RFC 7348 §8 and what Linux used before it was assigned; RFC 8926 §3.3; RFC 7510 §3. */
const TunnelPort = { VXLAN: 4789, VXLAN_OLD: 8472, GENEVE: 6081, MPLS: 6635 } as const;

const MPLS_UNICAST = 0x8847;
const MPLS_MULTICAST = 0x8848;
/** GRE protocol types (draft-foschiano-erspan-03): ERSPAN I and II, ERSPAN III. */
const ERSPAN_II = 0x88be;
const ERSPAN_III = 0x22eb;
/** Ethernet in GRE and Geneve (transparent Ethernet bridging). */
const TEB = 0x6558;
const VXLAN_BYTES = 8;
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
  /** VNI of VXLAN and Geneve, key of GRE, session of ERSPAN, innermost label of MPLS; −1: none. */
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
      // RFC 7348 §5: the I flag is set, or the VNI is not valid.
      if (o + VXLAN_BYTES <= end && (b[o] & 0x08) !== 0)
        return this.#yes(o + VXLAN_BYTES, end, LinkType.ETHERNET, 'vxlan', u24(b, o + 4));
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
