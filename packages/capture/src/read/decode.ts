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
} from '@node-roce/wire';
import type { AddressTable } from './addresses.ts';
import { IcmpError, IcmpProtocol } from './icmp.ts';
import { ErfType, erfContent, erfType, LinkNext, LRH_BYTES, nativeBytes } from './infiniband.ts';
import { ExtensionWalker, isExtension } from './ip6-extensions.ts';
import { NetworkTable } from './networks.ts';
import { fillBth, IcrcVerdict, type RocePacket } from './packet.ts';
import { macAt, PauseFrame } from './pause.ts';
import type { Refusal } from './refusal.ts';
import { isSflow, SFLOW_PORT } from './sflow.ts';
import {
  isIp,
  isSnap,
  PPP_TYPES,
  PPPOE_BYTES,
  pppProtocolAt,
  pppProtocolBytes,
  SNAP_BYTES,
  tagBytes,
} from './tags.ts';
import { IpTunnel, isMpls, type Tunnel, TunnelParser, TunnelType } from './tunnel.ts';
import { UdpPorts } from './udp-ports.ts';

/** Of the byte with the flags (RFC 791 §3.1). */
const MORE_FRAGMENTS = 0x20;
const PPPOE_SESSION = 0x8864;
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
  readonly #extensions = new ExtensionWalker();
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
    packet.tunnel = 'none';
    packet.sampled = false;
    this.#depth = 0;
    return this.#begin(b, o, end, linkType);
  }

  /** The same for a sample within the frame that `decode` refused as `samples`. Samples of samples are other frames. */
  decodeSample(b: Uint8Array, o: number, end: number, linkType: number): boolean {
    const packet = this.#packet;
    packet.frameLength = end - packet.frameOffset;
    packet.tunnel = 'sflow';
    packet.sampled = true;
    this.#depth = 1;
    return this.#begin(b, o, end, linkType);
  }

  #begin(b: Uint8Array, o: number, end: number, linkType: number): boolean {
    const packet = this.#packet;
    packet.part = 0;
    packet.parts = 1;
    packet.vlan = -1;
    packet.pcp = -1;
    packet.vni = -1;
    packet.icrc = IcrcVerdict.NONE;
    packet.flushTwice = false;
    packet.tagged = false;
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
      case LinkType.RAW_BSD:
      case LinkType.RAW_OPENBSD:
      case LinkType.IPV4:
      case LinkType.IPV6:
        if (o + 1 > end) return this.#no('truncated', o, 'an empty frame');
        return this.#network(b, o, end, etherTypeByVersion(b[o]));
      case LinkType.PPP:
      case LinkType.PPP_HDLC:
        return this.#ppp(b, o, end);
      case LinkType.PPP_ETHER:
        return this.#ppp(b, o + PPPOE_BYTES, end);
      case LinkType.C_HDLC:
        if (o + 4 > end) return this.#no('truncated', end, 'in the HDLC header');
        return this.#network(b, o + 4, end, u16(b, o + 2));
      case LinkType.MPLS:
        return this.#inside(b, this.#tunnels.mpls(b, o, end), end);
      case LinkType.ERF:
        return this.#erf(b, o, end);
      case LinkType.INFINIBAND:
        return this.#native(b, o, end);
      default:
        return this.#no('not-roce', o, `link type ${linkTypeName(linkType)}`);
    }
  }

  /** Past tags; `at` is behind the header that had the first type. */
  #tagged(b: Uint8Array, at: number, end: number, firstType: number): boolean {
    let type = firstType;
    let next = at;
    for (let length = 0; !isIp(type); next += length) {
      length = tagBytes(b, next, type);
      if (length === 0) break;
      if (length < 0) return this.#no('not-roce', next, 'MACsec, encrypted');
      const isVlanTag = isVlan(type);
      if (next + length > end) return this.#no('truncated', end, isVlanTag ? 'in a VLAN tag' : 'in a tag');
      if (isVlanTag) {
        const tag = u16(b, next);
        this.#packet.vlan = tag & 0xfff;
        this.#packet.pcp = tag >> 13;
      } else this.#packet.tagged = true;
      type = u16(b, next + length - 2);
    }
    if (isSnap(b, next, end, type)) {
      this.#packet.tagged = true;
      return this.#network(b, next + SNAP_BYTES, end, u16(b, next + SNAP_BYTES - 2));
    }
    return this.#network(b, next, end, type);
  }

  #ppp(b: Uint8Array, o: number, end: number): boolean {
    const at = pppProtocolAt(b, o, end);
    if (at < 0) return this.#no('truncated', end, 'in the PPP header');
    const length = pppProtocolBytes(b, at);
    const protocol = length === 1 ? b[at] : u16(b, at);
    const type = PPP_TYPES.get(protocol);
    if (type === undefined) return this.#no('not-roce', at, `PPP protocol 0x${protocol.toString(16)}`);
    return this.#network(b, at + length, end, type);
  }

  #erf(b: Uint8Array, o: number, end: number): boolean {
    const at = erfContent(b, o, end);
    if (at < 0) return this.#no('truncated', end, 'in the ERF header');
    const type = erfType(b, o);
    // Ethernet stands behind two bytes, so that IP is aligned.
    if (ErfType.ETHERNET.includes(type)) return this.#linkLayer(b, at + 2, end, LinkType.ETHERNET);
    if (ErfType.INFINIBAND.includes(type)) return this.#linkLayer(b, at, end, LinkType.INFINIBAND);
    if (ErfType.IP.includes(type)) return this.#linkLayer(b, at, end, LinkType.RAW);
    return this.#no('not-roce', o + 8, `ERF type ${type}`);
  }

  /** InfiniBand from the LRH on: addresses are GIDs where there is a GRH, else LIDs. */
  #native(b: Uint8Array, o: number, end: number): boolean {
    if (o + LRH_BYTES > end) return this.#no('truncated', end, 'in the LRH');
    const next = b[o + 1] & 3;
    if (next !== LinkNext.BTH && next !== LinkNext.GRH)
      return this.#no('not-roce', o + 1, 'InfiniBand without a BTH');
    const packet = this.#packet;
    const network = o + LRH_BYTES;
    if (next === LinkNext.GRH) {
      if (network + 40 > end) return this.#no('truncated', end, 'in the GRH');
      if (!isGrh(b, network)) return this.#no('malformed', network, 'GRH version or next header');
      this.#ipv6Fields(b, network, network + 24);
      packet.ip = network;
    } else {
      packet.source = this.#addresses.lid(b, o + 6);
      packet.destination = this.#addresses.lid(b, o + 2);
      packet.dscp = 0;
      packet.ecn = 0;
      packet.hopLimit = 0;
      packet.ipId = -1;
      packet.ip = o;
    }
    packet.version = 0;
    packet.udp = 0;
    packet.extended = false;
    packet.routed = false;
    packet.sourcePort = 0;
    packet.destinationPort = 0;
    return this.bth(b, next === LinkNext.GRH ? network + 40 : network, end, o + nativeBytes(b, o));
  }

  #network(b: Uint8Array, o: number, end: number, etherType: number): boolean {
    if (etherType === EtherType.IPV4) return this.#ipv4(b, o, end);
    if (etherType === EtherType.IPV6) return this.#ipv6(b, o, end);
    if (etherType === EtherType.ROCE_V1) return this.#grh(b, o, end);
    if (isMpls(etherType)) return this.#inside(b, this.#tunnels.mpls(b, o, end), end);
    if (etherType === TunnelType.PBB) return this.#inside(b, this.#tunnels.pbb(b, o, end), end);
    if (etherType === TunnelType.NSH) return this.#inside(b, this.#tunnels.nsh(b, o, end), end);
    if (etherType === PPPOE_SESSION) return this.#pppoe(b, o, end);
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
    packet.extended = false;
    packet.routed = false;
    return this.#udp(b, o, udp, end, o + u16(b, o + 2), (b[o + 6] & MORE_FRAGMENTS) !== 0);
  }

  #ipv6(b: Uint8Array, o: number, end: number): boolean {
    if (o + 40 > end) return this.#no('truncated', end, 'in the IPv6 header');
    if (b[o] >> 4 !== 6) return this.#no('malformed', o, 'IPv6 version');
    let nextHeader = b[o + 6];
    let udp = o + 40;
    let destination = o + 24;
    let isFirst = false;
    const extended = isExtension(nextHeader);
    if (extended) {
      const walker = this.#extensions;
      if (!walker.walk(b, o, nextHeader, udp, end))
        return this.#no('truncated', end, 'in an IPv6 extension header');
      if (walker.isLater) return this.#no('not-roce', walker.at, 'a later fragment');
      ({ nextHeader, at: udp, destination, isFirst } = walker);
    }
    if (isTunnel(nextHeader)) return this.#ipTunnel(b, nextHeader, udp, end);
    if (nextHeader === IcmpProtocol.V6 && this.#isIcmp(b, o, udp, end)) return false;
    if (nextHeader !== IpProtocol.UDP) return this.#no('not-roce', o + 6, `next header ${nextHeader}`);
    if (udp + 8 > end) return this.#no('truncated', end, 'in the UDP header');
    const packetEnd = o + 40 + u16(b, o + 4);
    if (!this.#isOurs(b, o, udp, end, packetEnd)) return this.#otherPort(b, udp, end);
    this.#ipv6Fields(b, o, destination);
    this.#packet.extended = extended;
    this.#packet.lastHop = destination;
    this.#packet.routed = extended && this.#extensions.routed;
    return this.#udp(b, o, udp, end, packetEnd, isFirst);
  }

  #ipv6Fields(b: Uint8Array, o: number, destination: number): void {
    const packet = this.#packet;
    packet.source = this.#addresses.ipv6(b, o + 8);
    packet.destination = this.#addresses.ipv6(b, destination);
    const trafficClass = ((b[o] & 15) << 4) | (b[o + 1] >> 4);
    packet.dscp = trafficClass >> 2;
    packet.ecn = trafficClass & ECN_MASK;
    packet.hopLimit = b[o + 7];
    packet.ipId = -1;
  }

  /**
   * @param packetEnd where the IP packet ends, by its own word
   * @param isFirst more fragments follow
   */
  #udp(b: Uint8Array, ip: number, udp: number, end: number, packetEnd: number, isFirst: boolean): boolean {
    const udpEnd = udp + u16(b, udp + 4);
    if (udpEnd > packetEnd && isFirst) return this.#no('fragment', ip + 6, 'a first fragment');
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
    if (!isGrh(b, o)) return this.#no('malformed', o, 'GRH version or next header');
    this.#ipv6Fields(b, o, o + 24);
    this.#packet.extended = false;
    this.#packet.routed = false;
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
    const padCount = (b[o + 1] >> 4) & 3;
    const payloadLength = icrcAt - payload - padCount;
    if (payloadLength < 0) return this.#no('malformed', o, 'shorter than its headers and pad');
    fillBth(this.#packet, b, o, info, Math.min(packetEnd, end), payloadLength);
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
    if (protocol === IpTunnel.ETHERNET || protocol === IpTunnel.ETHERIP)
      return this.#inside(b, tunnels.etherIp(b, o, end, protocol === IpTunnel.ETHERIP), end);
    return this.#enter(b, o, end, LinkType.RAW, 'ipip', -1);
  }

  #isOurs(b: Uint8Array, ip: number, udp: number, end: number, packetEnd: number): boolean {
    const port = u16(b, udp + 2);
    return port === ROCE_UDP_PORT || this.#ports.isRoce(port, b, ip, udp, end, packetEnd);
  }

  #otherPort(b: Uint8Array, udp: number, end: number): boolean {
    if (u16(b, udp + 2) === SFLOW_PORT && this.#depth === 0 && isSflow(b, udp + 8, end))
      return this.#no('samples', udp + 8, 'sFlow');
    return this.#inside(b, this.#tunnels.udp(b, u16(b, udp + 2), udp + 8, end), end);
  }

  #pppoe(b: Uint8Array, o: number, end: number): boolean {
    this.#packet.tagged = true;
    return this.#ppp(b, o + PPPOE_BYTES, end);
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
    packet.tagged = false;
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
  protocol === IpTunnel.ETHERIP ||
  protocol === IpTunnel.ETHERNET ||
  protocol === IpTunnel.MPLS;

const etherTypeByVersion = (byte: number): number => (byte >> 4 === 4 ? EtherType.IPV4 : EtherType.IPV6);

const isGrh = (b: Uint8Array, o: number): boolean => b[o] >> 4 === 6 && b[o + 6] === IpProtocol.IBA;
