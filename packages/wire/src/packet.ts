/**
 * Whole packets for people: a frame's bytes to plain values of every layer, and back to the same bytes.
 * Parsing never throws: what is not RoCE, or is damaged, comes back with a reason and the place.
 */
import { type AethValue, decodeAeth, encodeAeth } from './headers/aeth.ts';
import {
  type AtomicAckEthValue,
  type AtomicEthValue,
  decodeAtomicAck,
  decodeAtomicEth,
  encodeAtomicAck,
  encodeAtomicEth,
} from './headers/atomic.ts';
import { BTH_BYTES, type BthValue, decodeBth, encodeBth } from './headers/bth.ts';
import {
  type DethValue,
  decodeDeth,
  decodeRdeth,
  decodeXrceth,
  encodeDeth,
  encodeRdeth,
  encodeXrceth,
  type RdethValue,
  type XrcethValue,
} from './headers/datagram.ts';
import { decodeReth, encodeReth, type RethValue } from './headers/reth.ts';
import {
  decodeFeth,
  encodeFeth,
  type FethValue,
  iethRkey,
  immDt,
  writeIeth,
  writeImmDt,
} from './headers/small.ts';
import { ICRC_BYTES, icrcV1, icrcV2, readIcrc, writeIcrc } from './icrc.ts';
import {
  decodeEthernet,
  decodeIpv4,
  decodeIpv6,
  decodeUdp,
  type EthernetValue,
  EtherType,
  encodeEthernet,
  encodeIpv4,
  encodeIpv6,
  encodeUdp,
  IPV6_BYTES,
  IpProtocol,
  type Ipv4Value,
  type Ipv6Value,
  UDP_BYTES,
  type UdpValue,
} from './network.ts';
import { EXTENSION_BYTES, type ExtensionName, type OpcodeInfo, opcodeInfo } from './opcodes.ts';
import { ROCE_UDP_PORT } from './port.ts';

/** Extension headers by the name that the opcode table has for them. */
export interface Extensions {
  rdeth?: RdethValue;
  deth?: DethValue;
  xrceth?: XrcethValue;
  feth?: FethValue;
  reth?: RethValue;
  atomicEth?: AtomicEthValue;
  aeth?: AethValue;
  atomicAckEth?: AtomicAckEthValue;
  /** Immediate data, in the order of the wire. */
  immDt?: number;
  /** The key to invalidate. */
  ieth?: number;
  /** The 16 reserved bytes of a CNP. */
  cnp?: Uint8Array;
}

/** A RoCE packet; what parsing gives and building takes. */
export interface Packet {
  /** RoCE v2 over UDP, or v1 over Ethernet with a GRH. */
  version: 1 | 2;
  /** Absent where the capture starts at IP. */
  ethernet?: EthernetValue;
  /** v2: the IP header; v1: the GRH. */
  ip: Ipv4Value | Ipv6Value;
  /** v2 only. */
  udp?: UdpValue;
  bth: BthValue;
  /** The opcode's row of the table. */
  info: OpcodeInfo;
  extensions: Extensions;
  /** What follows the headers, pad and ICRC left out; shorter than `payloadLength` in a cut capture. */
  payload: Uint8Array;
  /** Bytes that the payload had on the wire. */
  payloadLength: number;
  /** The pad bytes, which should be 0; absent in a cut capture. */
  pad?: Uint8Array;
  /** As the packet has it; computed where it is absent in `buildPacket`. */
  icrc?: number;
  /** `none`: the capture was cut before it. */
  icrcStatus: 'ok' | 'bad' | 'none';
  /** What stands in the frame after the packet (Ethernet's own padding, FCS). */
  trailer: Uint8Array;
  /** Where the BTH stands in the frame. */
  bthOffset: number;
}

export type ParseReason =
  /** No RoCE: another protocol or port, a later fragment. */
  | 'not-roce'
  /** The frame ends before the headers do. */
  | 'truncated'
  /** Lengths or versions contradict each other. */
  | 'malformed'
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

const no = (reason: ParseReason, offset: number, detail: string): ParseResult => ({
  ok: false,
  reason,
  offset,
  detail,
});

/** Parses a captured frame that starts with the given link layer (a `FrameType`). */
export function parseFrame(frame: Uint8Array, linkType: number = FrameType.ETHERNET): ParseResult {
  switch (linkType) {
    case FrameType.ETHERNET: {
      const link = decodeEthernet(frame, 0);
      if (!link) return no('truncated', frame.length, 'in the Ethernet header');
      return parseBelow(frame, link.end, link.value.etherType, link.value);
    }
    case FrameType.LINUX_SLL:
      if (frame.length < 16) return no('truncated', frame.length, 'in the SLL header');
      return parseBelow(frame, 16, (frame[14] << 8) | frame[15]);
    case FrameType.LINUX_SLL2:
      if (frame.length < 20) return no('truncated', frame.length, 'in the SLL2 header');
      return parseBelow(frame, 20, (frame[0] << 8) | frame[1]);
    case FrameType.NULL:
      if (frame.length < 5) return no('truncated', frame.length, 'in the NULL header');
      return parseBelow(frame, 4, frame[4] >> 4 === 4 ? EtherType.IPV4 : EtherType.IPV6);
    case FrameType.RAW:
    case FrameType.IPV4:
    case FrameType.IPV6:
      if (frame.length < 1) return no('truncated', 0, 'an empty frame');
      return parseBelow(frame, 0, frame[0] >> 4 === 4 ? EtherType.IPV4 : EtherType.IPV6);
    default:
      return no('not-roce', 0, `link type ${linkType}`);
  }
}

function parseBelow(b: Uint8Array, o: number, etherType: number, ethernet?: EthernetValue): ParseResult {
  if (etherType === EtherType.IPV4) return parseIpv4(b, o, ethernet);
  if (etherType === EtherType.IPV6) return parseIpv6(b, o, ethernet);
  if (etherType === EtherType.ROCE_V1) return parseGrh(b, o, ethernet);
  return no('not-roce', o, `EtherType 0x${etherType.toString(16)}`);
}

function parseIpv4(b: Uint8Array, o: number, ethernet?: EthernetValue): ParseResult {
  if (o + 20 > b.length) return no('truncated', b.length, 'in the IPv4 header');
  const header = (b[o] & 15) * 4;
  if (b[o] >> 4 !== 4 || header < 20) return no('malformed', o, 'IPv4 version or header length');
  if (o + header > b.length) return no('truncated', b.length, 'in the IPv4 options');
  const ip = decodeIpv4(b, o);
  if (ip.protocol !== IpProtocol.UDP) return no('not-roce', o + 9, `IP protocol ${ip.protocol}`);
  if ((ip.flagsAndOffset & 0x1fff) !== 0) return no('not-roce', o + 6, 'a later fragment');
  return parseUdp(b, o, o + header, o + (ip.totalLength ?? 0), ip, ethernet);
}

function parseIpv6(b: Uint8Array, o: number, ethernet?: EthernetValue): ParseResult {
  if (o + IPV6_BYTES > b.length) return no('truncated', b.length, 'in the IPv6 header');
  if (b[o] >> 4 !== 6) return no('malformed', o, 'IPv6 version');
  const ip = decodeIpv6(b, o);
  const end = o + IPV6_BYTES + (ip.payloadLength ?? 0);
  if (ip.nextHeader !== IpProtocol.UDP) return no('not-roce', o + 6, `next header ${ip.nextHeader}`);
  return parseUdp(b, o, o + IPV6_BYTES, end, ip, ethernet);
}

/** @param end where the IP packet ends, by its own word */
function parseUdp(
  b: Uint8Array,
  start: number,
  o: number,
  end: number,
  ip: Ipv4Value | Ipv6Value,
  ethernet?: EthernetValue,
): ParseResult {
  if (o + UDP_BYTES > b.length) return no('truncated', b.length, 'in the UDP header');
  const udp = decodeUdp(b, o);
  if (udp.destinationPort !== ROCE_UDP_PORT) return no('not-roce', o + 2, `UDP port ${udp.destinationPort}`);
  if (o + (udp.length ?? 0) !== end) return no('malformed', o + 4, 'UDP length and IP length differ');
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
  if (body > b.length) return no('truncated', b.length, 'in the extension headers');
  const extensions: Extensions = {};
  for (const name of info.extensions) decodeExtension(extensions, name, b, o + info.offsets[name]);
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
    trailer: b.subarray(Math.min(end, b.length)),
    bthOffset: o,
  };
  return { ok: true, packet };
}

function decodeExtension(into: Extensions, name: ExtensionName, b: Uint8Array, o: number): void {
  switch (name) {
    case 'rdeth':
      into.rdeth = decodeRdeth(b, o);
      break;
    case 'deth':
      into.deth = decodeDeth(b, o);
      break;
    case 'xrceth':
      into.xrceth = decodeXrceth(b, o);
      break;
    case 'feth':
      into.feth = decodeFeth(b, o);
      break;
    case 'reth':
      into.reth = decodeReth(b, o);
      break;
    case 'atomicEth':
      into.atomicEth = decodeAtomicEth(b, o);
      break;
    case 'aeth':
      into.aeth = decodeAeth(b, o);
      break;
    case 'atomicAckEth':
      into.atomicAckEth = decodeAtomicAck(b, o);
      break;
    case 'immDt':
      into.immDt = immDt(b, o);
      break;
    case 'ieth':
      into.ieth = iethRkey(b, o);
      break;
    case 'cnp':
      into.cnp = b.slice(o, o + EXTENSION_BYTES.cnp);
  }
}

function encodeExtension(from: Extensions, name: ExtensionName, b: Uint8Array, o: number): void {
  const missing = () => new TypeError(`the opcode wants an extension header ${name}`);
  const value = from[name];
  if (value === undefined) throw missing();
  switch (name) {
    case 'rdeth':
      encodeRdeth(b, o, value as RdethValue);
      break;
    case 'deth':
      encodeDeth(b, o, value as DethValue);
      break;
    case 'xrceth':
      encodeXrceth(b, o, value as XrcethValue);
      break;
    case 'feth':
      encodeFeth(b, o, value as FethValue);
      break;
    case 'reth':
      encodeReth(b, o, value as RethValue);
      break;
    case 'atomicEth':
      encodeAtomicEth(b, o, value as AtomicEthValue);
      break;
    case 'aeth':
      encodeAeth(b, o, value as AethValue);
      break;
    case 'atomicAckEth':
      encodeAtomicAck(b, o, value as AtomicAckEthValue);
      break;
    case 'immDt':
      writeImmDt(b, o, value as number);
      break;
    case 'ieth':
      writeIeth(b, o, value as number);
      break;
    case 'cnp':
      b.set(value as Uint8Array, o);
  }
}

/** What `buildPacket` needs; the rest of a `Packet` follows from it. */
export type PacketInput = Pick<Packet, 'version' | 'ip' | 'bth' | 'extensions' | 'payload'> &
  Partial<Pick<Packet, 'ethernet' | 'udp' | 'pad' | 'icrc' | 'trailer'>>;

/**
 * The frame's bytes. Lengths, IPv4 checksum and ICRC are computed where the value leaves them out, so a
 * parsed packet builds back to what it was, mistakes included.
 *
 * @throws TypeError for an unknown opcode or a missing extension header
 */
export function buildPacket(packet: PacketInput): Uint8Array<ArrayBuffer> {
  const info = opcodeInfo(packet.bth.opcode);
  if (!info) throw new TypeError(`no opcode 0x${packet.bth.opcode.toString(16)}`);
  const pad = packet.pad ?? new Uint8Array(packet.bth.pad);
  const roce = info.headerLength + packet.payload.length + pad.length + ICRC_BYTES;
  const udp = packet.version === 2 ? encodeUdp(packet.udp ?? DEFAULT_UDP, roce) : new Uint8Array(0);
  const following = udp.length + roce;
  const ip = packet.ip.version === 4 ? encodeIpv4(packet.ip, following) : encodeIpv6(packet.ip, following);
  const ethernet = packet.ethernet ? encodeEthernet(packet.ethernet) : new Uint8Array(0);
  const trailer = packet.trailer ?? new Uint8Array(0);
  const bytes = new Uint8Array(ethernet.length + ip.length + following + trailer.length);
  bytes.set(ethernet);
  bytes.set(ip, ethernet.length);
  bytes.set(udp, ethernet.length + ip.length);
  const bth = ethernet.length + ip.length + udp.length;
  encodeBth(bytes, bth, packet.bth);
  for (const name of info.extensions)
    encodeExtension(packet.extensions, name, bytes, bth + info.offsets[name]);
  bytes.set(packet.payload, bth + info.headerLength);
  const icrcAt = bth + roce - ICRC_BYTES;
  bytes.set(pad, icrcAt - pad.length);
  const compute = packet.version === 1 ? icrcV1 : icrcV2;
  writeIcrc(bytes, icrcAt, packet.icrc ?? compute(bytes, ethernet.length, icrcAt));
  bytes.set(trailer, bth + roce);
  return bytes;
}

const DEFAULT_UDP: UdpValue = { sourcePort: 0xc000, destinationPort: ROCE_UDP_PORT };
