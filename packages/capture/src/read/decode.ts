/**
 * From a captured frame to the fields of a `RocePacket`: link layers, VLAN tags, tunnels, IP, UDP and BTH, in
 * one pass over the bytes that allocates nothing. It finds the same fields as `parseFrame` of wire
 * (a test compares the two), and more: in tunnels and mirrors, on other UDP ports, and in
 * packets that the capture cut before their extension headers.
 */
import { LinkType, linkTypeName } from '@node-roce/pcap';
import {
  BTH_BYTES,
  ECN_MASK,
  EtherType,
  ICRC_BYTES,
  IpProtocol,
  isVlan,
  MAC_CONTROL,
  opcodeInfo,
  ROCE_UDP_PORT,
  readPause,
  u16,
  u24,
} from '@node-roce/wire';
import type { AddressTable } from './addresses.ts';
import { IcmpError, IcmpProtocol } from './icmp.ts';
import { NetworkTable } from './networks.ts';
import { IcrcVerdict, type RocePacket } from './packet.ts';
import { macAt, PauseFrame } from './pause.ts';
import { IpTunnel, isMpls, type Tunnel, TunnelParser } from './tunnel.ts';
import { UdpPorts } from './udp-ports.ts';

/** Why a frame is no packet. */
export type Refusal =
  /** Another protocol or port, a later fragment, a link type that can't hold RoCE. */
  | 'not-roce'
  /** The frame ends before the BTH does, and perhaps before anything that shows whether it is RoCE. */
  | 'truncated'
  /** Lengths or versions contradict each other. */
  | 'malformed'
  /** The first IP fragment of a datagram to a port of RoCE. */
  | 'fragment'
  /** No such opcode. */
  | 'unknown-opcode'
  /** Several packets in one datagram, and too little of it captured to find where each begins. */
  | 'cut-super-packet'
  /** A pause frame: `FrameDecoder.pause`. */
  | 'pause'
  /** An ICMP error about a RoCE packet: `FrameDecoder.icmp`. */
  | 'icmp';

/** Of the byte with the flags (RFC 791 §3.1). */
const MORE_FRAGMENTS = 0x20;
/** Tunnels in tunnels that are looked into. */
const MAX_DEPTH = 4;

/** Decodes frames into one `RocePacket`, which is used again for each. */
export class FrameDecoder {
  readonly #packet: RocePacket;
  readonly #addresses: AddressTable;
  /** The reason why the last `decode` returned false, the position in `bytes` where it stopped, and the value there. */
  refusal: Refusal = 'not-roce';
  /** The pause frame, if that is why. */
  readonly pause = new PauseFrame();
  /** The ICMP error, if that is why. */
  readonly icmp = new IcmpError();
  offset = 0;
  detail = '';
  #depth = 0;
  readonly #tunnels = new TunnelParser();
  readonly #networks = new NetworkTable();
  readonly #ports: UdpPorts;

  /**
   * @param packet is filled by each `decode`
   * @param ports UDP ports of RoCE: 4791 unless given
   */
  constructor(packet: RocePacket, addresses: AddressTable, ports = new UdpPorts()) {
    this.#packet = packet;
    this.#addresses = addresses;
    this.#ports = ports;
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
    packet.pcp = -1;
    packet.tunnel = 'none';
    packet.vni = -1;
    packet.icrc = IcrcVerdict.NONE;
    packet.flushTwice = false;
    packet.routed = false;
    packet.sampled = false;
    this.#depth = 0;
    if (!this.#linkLayer(b, o, end, linkType)) return false;
    packet.network = this.#networks.number(packet.vlan, packet.tunnel, packet.vni);
    return true;
  }

  #linkLayer(b: Uint8Array, o: number, end: number, linkType: number): boolean {
    this.#packet.link = o;
    this.#packet.linkType = linkType;
    switch (linkType) {
      case LinkType.ETHERNET:
        if (o + 14 > end) return this.#no('truncated', end, 'in the Ethernet header');
        return this.#tagged(b, o + 14, end, u16(b, o + 12));
      case LinkType.LINUX_SLL:
        if (o + 16 > end) return this.#no('truncated', end, 'in the SLL header');
        return this.#tagged(b, o + 16, end, u16(b, o + 14));
      case LinkType.LINUX_SLL2:
        if (o + 20 > end) return this.#no('truncated', end, 'in the SLL2 header');
        // The type stands in front here, and tags follow the header.
        return this.#tagged(b, o + 20, end, u16(b, o));
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
        return this.#no('not-roce', o, `link type ${linkTypeName(linkType)}`);
    }
  }

  /** Past VLAN tags; `at` is behind the header that had the first type. */
  #tagged(b: Uint8Array, at: number, end: number, firstType: number): boolean {
    let type = firstType;
    let next = at;
    while (isVlan(type)) {
      if (next + 4 > end) return this.#no('truncated', end, 'in a VLAN tag');
      const tag = u16(b, next);
      this.#packet.vlan = tag & 0xfff;
      this.#packet.pcp = tag >> 13;
      type = u16(b, next + 2);
      next += 4;
    }
    return this.#network(b, next, end, type);
  }

  #network(b: Uint8Array, o: number, end: number, etherType: number): boolean {
    if (etherType === EtherType.IPV4) return this.#ipv4(b, o, end);
    if (etherType === EtherType.IPV6) return this.#ipv6(b, o, end);
    if (etherType === EtherType.ROCE_V1) return this.#grh(b, o, end);
    if (isMpls(etherType)) return this.#inside(b, this.#tunnels.mpls(b, o, end), end);
    if (etherType === MAC_CONTROL && this.#isPause(b, o, end)) return false;
    return this.#no('not-roce', o, `EtherType 0x${etherType.toString(16)}`);
  }

  #ipv4(b: Uint8Array, o: number, end: number): boolean {
    if (o + 20 > end) return this.#no('truncated', end, 'in the IPv4 header');
    const header = (b[o] & 15) * 4;
    if (b[o] >> 4 !== 4 || header < 20) return this.#no('malformed', o, 'IPv4 version or header length');
    if (o + header > end) return this.#no('truncated', end, 'in the IPv4 options');
    const protocol = b[o + 9];
    const isLater = (u16(b, o + 6) & 0x1fff) !== 0;
    if (protocol !== IpProtocol.UDP) {
      if (!isLater && isTunnel(protocol)) return this.#ipTunnel(b, protocol, o + header, end);
      if (!isLater && protocol === IcmpProtocol.V4 && this.#isIcmp(b, o, o + header, end)) return false;
      return this.#no('not-roce', o + 9, `IP protocol ${protocol}`);
    }
    if (isLater) return this.#no('not-roce', o + 6, 'a later fragment');
    const udp = o + header;
    if (udp + 8 > end) return this.#no('truncated', end, 'in the UDP header');
    if (!this.#isOurs(b, o, udp, end, o + u16(b, o + 2))) return this.#otherPort(b, udp, end);
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
    if (isTunnel(nextHeader)) return this.#ipTunnel(b, nextHeader, udp, end);
    if (nextHeader === IcmpProtocol.V6 && this.#isIcmp(b, o, udp, end)) return false;
    if (nextHeader !== IpProtocol.UDP) return this.#no('not-roce', o + 6, `next header ${nextHeader}`);
    if (udp + 8 > end) return this.#no('truncated', end, 'in the UDP header');
    if (!this.#isOurs(b, o, udp, end, udp + u16(b, o + 4))) return this.#otherPort(b, udp, end);
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
    const udpEnd = udp + u16(b, udp + 4);
    if (udpEnd > packetEnd && b[ip] >> 4 === 4 && (b[ip + 6] & MORE_FRAGMENTS) !== 0)
      return this.#no('fragment', ip + 6, 'a first fragment');
    if (udpEnd !== packetEnd) return this.#no('malformed', udp + 4, 'UDP length and IP length differ');
    this.#packet.version = 2;
    this.#packet.ip = ip;
    this.#packet.udp = udp;
    this.#packet.sourcePort = u16(b, udp);
    this.#packet.destinationPort = u16(b, udp + 2);
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
    this.#packet.udp = 0;
    this.#packet.sourcePort = 0;
    this.#packet.destinationPort = 0;
    return this.bth(b, o + 40, end, o + 40 + u16(b, o + 4));
  }

  /**
   * Fills the fields of the BTH at `o`; also called alone for the parts of a super-packet.
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

  #isPause(b: Uint8Array, o: number, end: number): boolean {
    const { linkType, link } = this.#packet;
    if (linkType !== LinkType.ETHERNET || !readPause(b, o, end, this.pause)) return false;
    this.pause.source = macAt(b, link + 6);
    this.#no('pause', o, 'pause frame');
    return true;
  }

  /** An error about a packet to a port of RoCE. */
  #isIcmp(b: Uint8Array, ip: number, o: number, end: number): boolean {
    const { icmp } = this;
    if (!icmp.read(b, ip, o, end, this.#addresses)) return false;
    if (icmp.destinationPort !== ROCE_UDP_PORT && !this.#ports.isKnown(icmp.destinationPort)) return false;
    const { vlan, tunnel, vni } = this.#packet;
    icmp.network = this.#networks.number(vlan, tunnel, vni);
    this.#no('icmp', o, 'ICMP error');
    return true;
  }

  #ipTunnel(b: Uint8Array, protocol: number, o: number, end: number): boolean {
    const tunnels = this.#tunnels;
    if (protocol === IpTunnel.GRE) return this.#inside(b, tunnels.gre(b, o, end), end);
    if (protocol === IpTunnel.MPLS) return this.#inside(b, tunnels.mpls(b, o, end), end);
    return this.#enter(b, o, end, LinkType.RAW, 'ipip', -1);
  }

  #isOurs(b: Uint8Array, ip: number, udp: number, end: number, packetEnd: number): boolean {
    const port = u16(b, udp + 2);
    return port === ROCE_UDP_PORT || this.#ports.isRoce(port, b, ip, udp, end, packetEnd);
  }

  #otherPort(b: Uint8Array, udp: number, end: number): boolean {
    return this.#inside(b, this.#tunnels.udp(b, u16(b, udp + 2), udp + 8, end), end);
  }

  /** @param found whether the tunnel parser found something inside */
  #inside(b: Uint8Array, found: boolean, end: number): boolean {
    const { at, linkType, tunnel, vni, refusal, offset, detail } = this.#tunnels;
    return found ? this.#enter(b, at, end, linkType, tunnel, vni) : this.#no(refusal, offset, detail);
  }

  #enter(b: Uint8Array, o: number, end: number, linkType: number, tunnel: Tunnel, vni: number): boolean {
    if (++this.#depth > MAX_DEPTH) return this.#no('not-roce', o, 'tunnels in tunnels');
    const packet = this.#packet;
    // A frame inside has tags of its own; an IP packet has those of the frame that it came in.
    if (linkType === LinkType.ETHERNET) {
      packet.vlan = -1;
      packet.pcp = -1;
    }
    packet.tunnel = tunnel;
    packet.vni = vni;
    return this.#linkLayer(b, o, end, linkType);
  }

  #no(refusal: Refusal, offset: number, detail: string): false {
    this.refusal = refusal;
    this.offset = offset;
    this.detail = detail;
    return false;
  }
}

const isTunnel = (protocol: number): boolean =>
  protocol === IpTunnel.GRE ||
  protocol === IpTunnel.IPV4 ||
  protocol === IpTunnel.IPV6 ||
  protocol === IpTunnel.MPLS;

const etherTypeByVersion = (byte: number): number => (byte >> 4 === 4 ? EtherType.IPV4 : EtherType.IPV6);
