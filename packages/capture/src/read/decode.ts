/**
 * From a captured frame to the fields of a `RocePacket`: link layers, VLAN tags, mirrors, IP, UDP and BTH, in
 * one pass over the bytes that allocates nothing. What it finds is what `parseFrame` of wire finds
 * (a test holds the two together); it goes on where that one stops: into mirrors, and in packets that
 * the capture cut before their extension headers.
 */
import { LinkType } from '@node-roce/pcap';
import {
  BTH_BYTES,
  ECN_MASK,
  EtherType,
  ICRC_BYTES,
  IpProtocol,
  isVlan,
  opcodeInfo,
  ROCE_UDP_PORT,
  u16,
  u24,
} from '@node-roce/wire';
import type { AddressTable } from './addresses.ts';
import { IcrcVerdict, type RocePacket } from './packet.ts';

/** Why a frame is no packet. */
export type Refusal =
  /** Another protocol or port, a later fragment, a link type that can't hold RoCE. */
  | 'not-roce'
  /** The frame ends before the BTH does. */
  | 'truncated'
  /** Lengths or versions contradict each other. */
  | 'malformed'
  /** No such opcode. */
  | 'unknown-opcode'
  /** Several packets in one datagram, and too little of it captured to tell where each begins. */
  | 'cut-super-packet';

/** Mirrors in mirrors that are looked into. */
const MAX_DEPTH = 4;

const IP_PROTOCOL_GRE = 47;
/** GRE protocol types (draft-foschiano-erspan-03): ERSPAN I and II, ERSPAN III. */
const ERSPAN_II = 0x88be;
const ERSPAN_III = 0x22eb;
/** RFC 7348 §8, and what Linux used before that was assigned. */
const VXLAN_PORT = 4789;
const VXLAN_PORT_OLD = 8472;
const VXLAN_BYTES = 8;

/** Decodes frames into one `RocePacket`, which is used again for each. */
export class FrameDecoder {
  readonly #packet: RocePacket;
  readonly #addresses: AddressTable;
  /** Why the last `decode` gave false, where it stopped in `bytes`, and what was there. */
  refusal: Refusal = 'not-roce';
  offset = 0;
  detail = '';
  #depth = 0;

  /** @param packet is filled by each `decode` */
  constructor(packet: RocePacket, addresses: AddressTable) {
    this.#packet = packet;
    this.#addresses = addresses;
  }

  /**
   * Fills the packet from the frame at `o` … `end` (what was captured of it). Frame number, time, interface
   * and the ICRC's verdict are the caller's business.
   * @returns false where the frame is no packet: see `refusal`
   */
  decode(b: Uint8Array, o: number, end: number, linkType: number): boolean {
    const packet = this.#packet;
    packet.bytes = b;
    packet.frameOffset = o;
    packet.frameLength = end - o;
    packet.part = 0;
    packet.parts = 1;
    packet.vlan = -1;
    packet.mirror = 'none';
    packet.icrc = IcrcVerdict.NONE;
    this.#depth = 0;
    return this.#linkLayer(b, o, end, linkType);
  }

  #linkLayer(b: Uint8Array, o: number, end: number, linkType: number): boolean {
    this.#packet.link = o;
    this.#packet.linkType = linkType;
    switch (linkType) {
      case LinkType.ETHERNET:
        if (o + 14 > end) return this.#no('truncated', end, 'in the Ethernet header');
        return this.#tagged(b, o + 12, end);
      case LinkType.LINUX_SLL:
        if (o + 16 > end) return this.#no('truncated', end, 'in the SLL header');
        return this.#tagged(b, o + 14, end);
      case LinkType.LINUX_SLL2:
        if (o + 20 > end) return this.#no('truncated', end, 'in the SLL2 header');
        // The type stands in front here; tags would follow the header.
        return this.#network(b, o + 20, end, u16(b, o));
      case LinkType.NULL:
      case LinkType.LOOP:
        // The family's numbers differ between systems, IP's version does not.
        if (o + 5 > end) return this.#no('truncated', end, 'in the NULL header');
        return this.#network(b, o + 4, end, etherTypeByVersion(b[o + 4]));
      case LinkType.RAW:
      case LinkType.IPV4:
      case LinkType.IPV6:
        if (o + 1 > end) return this.#no('truncated', o, 'an empty frame');
        return this.#network(b, o, end, etherTypeByVersion(b[o]));
      default:
        return this.#no('not-roce', o, `link type ${linkType}`);
    }
  }

  /** Past VLAN tags; `at` is where the first type stands. */
  #tagged(b: Uint8Array, at: number, end: number): boolean {
    let type = u16(b, at);
    let next = at;
    while (isVlan(type)) {
      if (next + 6 > end) return this.#no('truncated', end, 'in a VLAN tag');
      this.#packet.vlan = u16(b, next + 2) & 0xfff;
      next += 4;
      type = u16(b, next);
    }
    return this.#network(b, next + 2, end, type);
  }

  #network(b: Uint8Array, o: number, end: number, etherType: number): boolean {
    if (etherType === EtherType.IPV4) return this.#ipv4(b, o, end);
    if (etherType === EtherType.IPV6) return this.#ipv6(b, o, end);
    if (etherType === EtherType.ROCE_V1) return this.#grh(b, o, end);
    return this.#no('not-roce', o, `EtherType 0x${etherType.toString(16)}`);
  }

  #ipv4(b: Uint8Array, o: number, end: number): boolean {
    if (o + 20 > end) return this.#no('truncated', end, 'in the IPv4 header');
    const header = (b[o] & 15) * 4;
    if (b[o] >> 4 !== 4 || header < 20) return this.#no('malformed', o, 'IPv4 version or header length');
    if (o + header > end) return this.#no('truncated', end, 'in the IPv4 options');
    const protocol = b[o + 9];
    if (protocol === IP_PROTOCOL_GRE) return this.#gre(b, o + header, end);
    if (protocol !== IpProtocol.UDP) return this.#no('not-roce', o + 9, `IP protocol ${protocol}`);
    if ((u16(b, o + 6) & 0x1fff) !== 0) return this.#no('not-roce', o + 6, 'a later fragment');
    const udp = o + header;
    if (udp + 8 > end) return this.#no('truncated', end, 'in the UDP header');
    if (u16(b, udp + 2) !== ROCE_UDP_PORT) return this.#otherPort(b, udp, end);
    const packet = this.#packet;
    packet.source = this.#addresses.ipv4(b, o + 12);
    packet.destination = this.#addresses.ipv4(b, o + 16);
    packet.dscp = b[o + 1] >> 2;
    packet.ecn = b[o + 1] & ECN_MASK;
    packet.hopLimit = b[o + 8];
    packet.ipId = u16(b, o + 4);
    return this.#udp(b, o, udp, end, o + u16(b, o + 2));
  }

  #ipv6(b: Uint8Array, o: number, end: number): boolean {
    if (o + 40 > end) return this.#no('truncated', end, 'in the IPv6 header');
    if (b[o] >> 4 !== 6) return this.#no('malformed', o, 'IPv6 version');
    const nextHeader = b[o + 6];
    const udp = o + 40;
    if (nextHeader === IP_PROTOCOL_GRE) return this.#gre(b, udp, end);
    if (nextHeader !== IpProtocol.UDP) return this.#no('not-roce', o + 6, `next header ${nextHeader}`);
    if (udp + 8 > end) return this.#no('truncated', end, 'in the UDP header');
    if (u16(b, udp + 2) !== ROCE_UDP_PORT) return this.#otherPort(b, udp, end);
    this.#ipv6Fields(b, o);
    return this.#udp(b, o, udp, end, udp + u16(b, o + 4));
  }

  #ipv6Fields(b: Uint8Array, o: number): void {
    const packet = this.#packet;
    packet.source = this.#addresses.ipv6(b, o + 8);
    packet.destination = this.#addresses.ipv6(b, o + 24);
    const trafficClass = ((b[o] & 15) << 4) | (b[o + 1] >> 4);
    packet.dscp = trafficClass >> 2;
    packet.ecn = trafficClass & ECN_MASK;
    packet.hopLimit = b[o + 7];
    packet.ipId = -1;
  }

  /** @param packetEnd where the IP packet ends, by its own word */
  #udp(b: Uint8Array, ip: number, udp: number, end: number, packetEnd: number): boolean {
    if (udp + u16(b, udp + 4) !== packetEnd) {
      return this.#no('malformed', udp + 4, 'UDP length and IP length differ');
    }
    this.#packet.version = 2;
    this.#packet.ip = ip;
    this.#packet.sourcePort = u16(b, udp);
    return this.bth(b, udp + 8, end, packetEnd);
  }

  #grh(b: Uint8Array, o: number, end: number): boolean {
    if (o + 40 > end) return this.#no('truncated', end, 'in the GRH');
    if (b[o] >> 4 !== 6 || b[o + 6] !== IpProtocol.IBA) {
      return this.#no('malformed', o, 'GRH version or next header');
    }
    this.#ipv6Fields(b, o);
    this.#packet.version = 1;
    this.#packet.ip = o;
    this.#packet.sourcePort = 0;
    return this.bth(b, o + 40, end, o + 40 + u16(b, o + 4));
  }

  /**
   * Fills what the BTH at `o` says; for the parts of a super-packet also called on its own.
   * @param end of what was captured
   * @param packetEnd of the packet as it was sent, ICRC included
   */
  bth(b: Uint8Array, o: number, end: number, packetEnd: number): boolean {
    const icrcAt = packetEnd - ICRC_BYTES;
    if (icrcAt < o + BTH_BYTES) return this.#no('malformed', o, 'no room for a BTH and an ICRC');
    if (o + BTH_BYTES > end) return this.#no('truncated', end, 'in the BTH');
    const info = opcodeInfo(b[o]);
    if (info === undefined) return this.#no('unknown-opcode', o, `opcode 0x${b[o].toString(16)}`);
    const payload = o + info.headerLength;
    const flags = b[o + 1];
    const padCount = (flags >> 4) & 3;
    const payloadLength = icrcAt - payload - padCount;
    if (payloadLength < 0) return this.#no('malformed', o, 'shorter than its headers and pad');
    const packet = this.#packet;
    packet.bth = o;
    packet.extensions = o + BTH_BYTES;
    packet.payload = payload;
    packet.end = Math.min(packetEnd, end);
    packet.payloadLength = payloadLength;
    packet.info = info;
    packet.opcode = info.opcode;
    packet.solicited = (flags & 0x80) !== 0;
    packet.migReq = (flags & 0x40) !== 0;
    packet.padCount = padCount;
    packet.pkey = u16(b, o + 2);
    packet.fecn = (b[o + 4] & 0x80) !== 0;
    packet.becn = (b[o + 4] & 0x40) !== 0;
    packet.destQp = u24(b, o + 5);
    packet.ackReq = (b[o + 8] & 0x80) !== 0;
    packet.psn = u24(b, o + 9);
    return true;
  }

  /** ERSPAN in GRE (RFC 2784, RFC 2890; draft-foschiano-erspan-03 §4). */
  #gre(b: Uint8Array, o: number, end: number): boolean {
    if (o + 4 > end) return this.#no('truncated', end, 'in the GRE header');
    const flags = u16(b, o);
    const type = u16(b, o + 2);
    if ((type !== ERSPAN_II && type !== ERSPAN_III) || (flags & 7) !== 0) {
      return this.#no('not-roce', o + 2, `GRE protocol 0x${type.toString(16)}`);
    }
    const hasSequence = (flags & 0x1000) !== 0;
    // Checksum with a reserved half word, key, sequence number: four bytes each.
    const optional = ((flags >> 15) & 1) + ((flags >> 13) & 1) + (hasSequence ? 1 : 0);
    let at = o + 4 + 4 * optional;
    let linkType: number = LinkType.ETHERNET;
    // Without a sequence number it is type I, which has no header of its own.
    if (type === ERSPAN_III) {
      if (at + 12 > end) return this.#no('truncated', end, 'in the ERSPAN header');
      const last = u16(b, at + 10);
      // Frame type 2 is an IP packet; the last bit says that eight more bytes follow.
      if (((last >> 10) & 31) === 2) linkType = LinkType.RAW;
      at += last & 1 ? 20 : 12;
    } else if (hasSequence) {
      at += 8;
    }
    return this.#mirrored(b, at, end, linkType, 'erspan');
  }

  #otherPort(b: Uint8Array, udp: number, end: number): boolean {
    const port = u16(b, udp + 2);
    if (port !== VXLAN_PORT && port !== VXLAN_PORT_OLD)
      return this.#no('not-roce', udp + 2, `UDP port ${port}`);
    const at = udp + 8;
    // RFC 7348 §5: the I flag is set, or the VNI is not valid.
    if (at + VXLAN_BYTES > end || (b[at] & 0x08) === 0)
      return this.#no('not-roce', udp + 2, `UDP port ${port}`);
    return this.#mirrored(b, at + VXLAN_BYTES, end, LinkType.ETHERNET, 'vxlan');
  }

  #mirrored(b: Uint8Array, o: number, end: number, linkType: number, mirror: RocePacket['mirror']): boolean {
    if (++this.#depth > MAX_DEPTH) return this.#no('not-roce', o, 'mirrors in mirrors');
    if (o > end) return this.#no('truncated', end, `in the ${mirror} header`);
    this.#packet.vlan = -1;
    this.#packet.mirror = mirror;
    return this.#linkLayer(b, o, end, linkType);
  }

  #no(refusal: Refusal, offset: number, detail: string): false {
    this.refusal = refusal;
    this.offset = offset;
    this.detail = detail;
    return false;
  }
}

const etherTypeByVersion = (byte: number): number => (byte >> 4 === 4 ? EtherType.IPV4 : EtherType.IPV6);
