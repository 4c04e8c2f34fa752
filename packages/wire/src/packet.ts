/**
 * Parses whole packets: a frame's bytes to plain values of every layer (`buildPacket` is the way back). Parsing never
 * throws: a frame that is not RoCE, or is damaged, gives a reason and an offset.
 */
import { u16 } from './bytes.ts';
import { decodeExtension, type Extensions } from './extensions.ts';
import { BTH_BYTES, type BthValue, decodeBth } from './headers/bth.ts';
import { ICRC_BYTES, icrcOfRxeFlush, icrcV1, icrcV2, readIcrc } from './icrc.ts';
import {
  decodeEthernet,
  decodeIpv4,
  decodeIpv6,
  decodeUdp,
  type EthernetValue,
  EtherType,
  IPV6_BYTES,
  IpProtocol,
  type Ipv4Value,
  type Ipv6Value,
  isVlan,
  UDP_BYTES,
  type UdpValue,
  VLAN_BYTES,
} from './network.ts';
import { EXTENSION_BYTES, type OpcodeInfo, opcodeInfo } from './opcodes.ts';
import { ROCE_UDP_PORT } from './port.ts';

/** A parsed RoCE packet; `buildPacket` takes it, too. */
export interface Packet {
  /** RoCE v2 over UDP, or v1 over Ethernet with a GRH. */
  version: 1 | 2;
  /** Absent where the capture starts at IP or with a `linkHeader`. */
  ethernet?: EthernetValue;
  /** The bytes before IP that are no Ethernet header: Linux cooked, BSD loopback. */
  linkHeader?: Uint8Array;
  /** v2: the IP header; v1: the GRH. */
  ip: Ipv4Value | Ipv6Value;
  /** v2 only. */
  udp?: UdpValue;
  bth: BthValue;
  /** The opcode's row of the table. */
  info: OpcodeInfo;
  extensions: Extensions;
  /** Bytes between the headers and the pad; shorter than `payloadLength` in a cut capture. */
  payload: Uint8Array;
  /** Bytes that the payload had on the wire. */
  payloadLength: number;
  /** The pad bytes, which should be 0; absent where the capture was cut before their end. */
  pad?: Uint8Array;
  /** The ICRC that the packet carries. */
  icrc?: number;
  /** `none`: the capture was cut before it. */
  icrcStatus: 'ok' | 'bad' | 'none';
  /** An ICRC that is `bad`, and yet the usual one of this sender for a whole packet: rxe's of a FLUSH covers BTH to RETH twice. */
  icrcQuirk?: 'flush-covered-twice';
  /**
   * Bytes of the frame after the packet (Ethernet padding, FCS); in a cut capture, the rest of a cut pad or ICRC.
   */
  trailer: Uint8Array;
  /** Offset of the BTH in the frame. */
  bthOffset: number;
  /**
   * The bytes from the BTH on of a packet that the capture cut in its extension headers: `extensions` has those that are
   * whole, and there is no payload.
   */
  cut?: Uint8Array;
}

export type ParseReason =
  /** No RoCE: another protocol or port, a later fragment. */
  | 'not-roce'
  /** The frame ends before the headers do. */
  | 'truncated'
  /** Lengths or versions contradict each other. */
  | 'malformed'
  /** The first IP fragment of a datagram. */
  | 'fragment'
  /** No such opcode. */
  | 'unknown-opcode';

export type ParseResult =
  | { ok: true; packet: Packet }
  | { ok: false; reason: ParseReason /** Where parsing stopped. */; offset: number; detail: string };

/** Link-layer types of captures that can be parsed (tcpdump.org/linktypes). */
export const FrameType = {
  NULL: 0,
  ETHERNET: 1,
  RAW: 101,
  LINUX_SLL: 113,
  IPV4: 228,
  IPV6: 229,
  LINUX_SLL2: 276,
} as const;

/** RFC 791 §3.1. */
const MORE_FRAGMENTS = 0x2000;

const no = (reason: ParseReason, offset: number, detail: string): ParseResult => ({
  ok: false,
  reason,
  offset,
  detail,
});

export interface ParseOptions {
  /** The UDP port of RoCE; 4791 unless given. */
  port?: number;
  /** Also parses packets that the capture cut in their extension headers: `Packet.cut`. */
  allowCut?: boolean;
}

/** Parses a captured frame that starts with the given link layer (a `FrameType`). */
export function parseFrame(
  frame: Uint8Array,
  linkType: number = FrameType.ETHERNET,
  { port = ROCE_UDP_PORT, allowCut = false }: ParseOptions = {},
): ParseResult {
  const result = parseLink(frame, linkType, port);
  if (result.ok && result.packet.cut !== undefined && !allowCut)
    return no('truncated', frame.length, 'in the extension headers');
  return result;
}

function parseLink(frame: Uint8Array, linkType: number, port: number): ParseResult {
  switch (linkType) {
    case FrameType.ETHERNET: {
      const link = decodeEthernet(frame, 0);
      if (!link) return no('truncated', frame.length, 'in the Ethernet header');
      return parseBelow(frame, link.end, link.value.etherType, port, link.value);
    }
    case FrameType.LINUX_SLL:
      if (frame.length < 16) return no('truncated', frame.length, 'in the SLL header');
      return parseCooked(frame, 16, u16(frame, 14), port);
    case FrameType.LINUX_SLL2:
      if (frame.length < 20) return no('truncated', frame.length, 'in the SLL2 header');
      return parseCooked(frame, 20, u16(frame, 0), port);
    case FrameType.NULL:
      if (frame.length < 5) return no('truncated', frame.length, 'in the NULL header');
      return withLinkHeader(frame, 4, parseBelow(frame, 4, etherTypeByVersion(frame[4]), port));
    case FrameType.RAW:
    case FrameType.IPV4:
    case FrameType.IPV6:
      if (frame.length < 1) return no('truncated', 0, 'an empty frame');
      return parseBelow(frame, 0, etherTypeByVersion(frame[0]), port);
    default:
      return no('not-roce', 0, `link type ${linkType}`);
  }
}

const etherTypeByVersion = (byte: number): number => (byte >> 4 === 4 ? EtherType.IPV4 : EtherType.IPV6);

/** A cooked frame with a header of `length` bytes: the tags that a capture puts back follow it, each with the type of what comes next. */
function parseCooked(frame: Uint8Array, length: number, firstType: number, port: number): ParseResult {
  let at = length;
  let type = firstType;
  while (isVlan(type)) {
    if (at + VLAN_BYTES > frame.length) return no('truncated', frame.length, 'in a VLAN tag');
    type = u16(frame, at + 2);
    at += VLAN_BYTES;
  }
  return withLinkHeader(frame, at, parseBelow(frame, at, type, port));
}

function withLinkHeader(frame: Uint8Array, length: number, result: ParseResult): ParseResult {
  if (result.ok) result.packet.linkHeader = frame.subarray(0, length);
  return result;
}

function parseBelow(
  b: Uint8Array,
  o: number,
  etherType: number,
  port: number,
  ethernet?: EthernetValue,
): ParseResult {
  if (etherType === EtherType.IPV4) return parseIpv4(b, o, port, ethernet);
  if (etherType === EtherType.IPV6) return parseIpv6(b, o, port, ethernet);
  if (etherType === EtherType.ROCE_V1) return parseGrh(b, o, ethernet);
  return no('not-roce', o, `EtherType 0x${etherType.toString(16)}`);
}

function parseIpv4(b: Uint8Array, o: number, port: number, ethernet?: EthernetValue): ParseResult {
  if (o + 20 > b.length) return no('truncated', b.length, 'in the IPv4 header');
  const header = (b[o] & 15) * 4;
  if (b[o] >> 4 !== 4 || header < 20) return no('malformed', o, 'IPv4 version or header length');
  if (o + header > b.length) return no('truncated', b.length, 'in the IPv4 options');
  const ip = decodeIpv4(b, o);
  if (ip.protocol !== IpProtocol.UDP) return no('not-roce', o + 9, `IP protocol ${ip.protocol}`);
  if ((ip.flagsAndOffset & 0x1fff) !== 0) return no('not-roce', o + 6, 'a later fragment');
  return parseUdp(b, o, o + header, o + (ip.totalLength ?? 0), port, ip, ethernet);
}

function parseIpv6(b: Uint8Array, o: number, port: number, ethernet?: EthernetValue): ParseResult {
  if (o + IPV6_BYTES > b.length) return no('truncated', b.length, 'in the IPv6 header');
  if (b[o] >> 4 !== 6) return no('malformed', o, 'IPv6 version');
  const ip = decodeIpv6(b, o);
  const end = o + IPV6_BYTES + (ip.payloadLength ?? 0);
  if (ip.nextHeader !== IpProtocol.UDP) return no('not-roce', o + 6, `next header ${ip.nextHeader}`);
  return parseUdp(b, o, o + IPV6_BYTES, end, port, ip, ethernet);
}

/** @param end where the IP packet ends, by its own word */
function parseUdp(
  b: Uint8Array,
  start: number,
  o: number,
  end: number,
  port: number,
  ip: Ipv4Value | Ipv6Value,
  ethernet?: EthernetValue,
): ParseResult {
  if (o + UDP_BYTES > b.length) return no('truncated', b.length, 'in the UDP header');
  const udp = decodeUdp(b, o);
  if (udp.destinationPort !== port) return no('not-roce', o + 2, `UDP port ${udp.destinationPort}`);
  const udpEnd = o + (udp.length ?? 0);
  if (udpEnd > end && ip.version === 4 && (ip.flagsAndOffset & MORE_FRAGMENTS) !== 0)
    return no('fragment', start + 6, 'a first fragment');
  if (udpEnd !== end) return no('malformed', o + 4, 'UDP length and IP length differ');
  return parseBth(b, start, o + UDP_BYTES, end, { version: 2, ip, udp, ...(ethernet ? { ethernet } : {}) });
}

function parseGrh(b: Uint8Array, o: number, ethernet?: EthernetValue): ParseResult {
  if (o + IPV6_BYTES > b.length) return no('truncated', b.length, 'in the GRH');
  if (b[o] >> 4 !== 6 || b[o + 6] !== IpProtocol.IBA) return no('malformed', o, 'GRH version or next header');
  const ip = decodeIpv6(b, o);
  const end = o + IPV6_BYTES + (ip.payloadLength ?? 0);
  return parseBth(b, o, o + IPV6_BYTES, end, { version: 1, ip, ...(ethernet ? { ethernet } : {}) });
}

type Lower = Pick<Packet, 'version' | 'ethernet' | 'ip' | 'udp'>;

function parseBth(b: Uint8Array, start: number, o: number, end: number, lower: Lower): ParseResult {
  const icrcAt = end - ICRC_BYTES;
  if (icrcAt < o + BTH_BYTES) return no('malformed', o, 'no room for a BTH and an ICRC');
  if (o + BTH_BYTES > b.length) return no('truncated', b.length, 'in the BTH');
  const bth = decodeBth(b, o);
  const info = opcodeInfo(bth.opcode);
  if (!info) return no('unknown-opcode', o, `opcode 0x${bth.opcode.toString(16)}`);
  const body = o + info.headerLength;
  const payloadLength = icrcAt - body - bth.pad;
  if (payloadLength < 0) return no('malformed', o, 'shorter than its headers and pad');
  const extensions: Extensions = {};
  for (const name of info.extensions) {
    const at = o + info.offsets[name];
    if (at + EXTENSION_BYTES[name] <= b.length) decodeExtension(extensions, name, b, at);
  }
  if (body > b.length) {
    const cut = b.subarray(o);
    const nothing = b.subarray(b.length);
    const rest = { payload: nothing, payloadLength, trailer: nothing, bthOffset: o, cut };
    return { ok: true, packet: { ...lower, bth, info, extensions, icrcStatus: 'none', ...rest } };
  }
  const padAt = body + payloadLength;
  const whole = end <= b.length;
  const icrc = whole ? readIcrc(b, icrcAt) : undefined;
  const computed = whole ? (lower.version === 1 ? icrcV1 : icrcV2)(b, start, icrcAt) : undefined;
  const packet: Packet = {
    ...lower,
    bth,
    info,
    extensions,
    payload: b.subarray(body, Math.min(padAt, b.length)),
    payloadLength,
    ...(icrcAt <= b.length ? { pad: b.subarray(padAt, icrcAt) } : {}),
    ...(icrc === undefined ? {} : { icrc }),
    icrcStatus: icrc === undefined ? 'none' : icrc === computed ? 'ok' : 'bad',
    ...(computed !== icrc && info.isFlush && icrc === icrcOfRxeFlush(computed ?? 0, b, o, icrcAt)
      ? { icrcQuirk: 'flush-covered-twice' }
      : {}),
    trailer: b.subarray(whole ? end : icrcAt <= b.length ? icrcAt : Math.min(padAt, b.length)),
    bthOffset: o,
  };
  return { ok: true, packet };
}
