/** A packet as a frame that may be passed on: without the hosts' addresses, without what programs sent. */
import { LinkType } from '@node-roce/pcap';
import {
  ETHERNET_BYTES,
  EXTENSION_BYTES,
  type ExtensionName,
  GSI_QPN,
  ICRC_BYTES,
  icrcV1,
  icrcV2,
  internetChecksum,
  MAD_BYTES,
  readIcrc,
  setU16,
  Transport,
  UDP_BYTES,
  u16,
  udpChecksum,
  VLAN_BYTES,
  writeIcrc,
} from '@node-roce/wire';
import { IcrcVerdict, type RocePacket } from '../../read/packet.ts';
import { isPlain, plainFrame, plainLinkType } from '../../read/plain-frame.ts';
import { packetFrame } from '../../read/super-packet.ts';
import type { Anonymizer } from './anonymize.ts';
import { renameHosts, zeroPrivateData } from './cm-privacy.ts';

export interface RewriteOptions {
  /** Renames addresses in link layer, IP and the connection manager's messages. */
  anonymizer?: Anonymizer | undefined;
  /**
   * Zeroes payload, immediate data, and operands and results of atomics. Of the connection manager's messages
   * only the private data.
   */
  zeroPayload?: boolean | undefined;
}

const IPV4_BYTES = 20;
const IPV6_BYTES = 40;
const MAC_BYTES = 6;
const COOKED_ADDRESS_BYTES = 8;
/** Headers that carry data of programs; of an AtomicETH the part behind VA and key. */
const DATA_HEADERS: readonly (readonly [name: ExtensionName, from: number])[] = [
  ['immDt', 0],
  ['atomicEth', 12],
  ['atomicAckEth', 0],
];

/** Where the frame has what. */
interface Places {
  ip: number;
  /** −1 in RoCE v1. */
  udp: number;
  bth: number;
  /** End of the payload and its pad, or of what is there of them. */
  dataEnd: number;
  /** Of what is there of the packet. */
  end: number;
  /** Where the ICRC stands, if the capture has it; else −1. */
  icrc: number;
}

/**
 * The packet in a frame of its own, changed as wanted, with checksums and ICRC that fit. An ICRC that was wrong is wrong
 * by the same difference; of a packet that the capture cut, the UDP checksum becomes 0 (none). The bytes
 * around a packet are removed: the rest of a super-packet, a mirror's headers, padding of Ethernet.
 */
export function rewrittenFrame(packet: RocePacket, options: RewriteOptions): Uint8Array<ArrayBuffer> {
  const whole = isPlain(packet) ? packetFrame(packet) : plainFrame(packet);
  const places = placesIn(packet, whole);
  const frame = whole.subarray(0, places.end);
  const { icrc } = places;
  const error =
    icrc >= 0 && packet.icrc === IcrcVerdict.BAD ? (readIcrc(frame, icrc) ^ icrcOf(frame, places)) >>> 0 : 0;
  if (options.zeroPayload) zeroPayload(frame, packet, places);
  if (options.anonymizer !== undefined) rename(frame, packet, places, options.anonymizer);
  if (icrc >= 0) writeIcrc(frame, icrc, (icrcOf(frame, places) ^ error) >>> 0);
  // A part of an ICRC would not fit any more.
  else frame.fill(0, places.dataEnd);
  // These cover the ICRC, and are not covered by it.
  setChecksums(frame, places);
  return frame;
}

/** The link type of `rewrittenFrame`: tags other than VLANs, and IPv6 extension headers, are left out. */
export const rewrittenLinkType = (packet: RocePacket): number =>
  isPlain(packet) ? packet.linkType : plainLinkType(packet);

/** The IP header's place: what stands between it and the BTH has the same length in the frame as in the packet. */
function placesIn(packet: RocePacket, frame: Uint8Array): Places {
  const { bytes, link, version, info, payloadLength, padCount } = packet;
  const ip = isPlain(packet)
    ? packet.ip - link
    : plainLinkType(packet) === LinkType.ETHERNET
      ? ETHERNET_BYTES + (packet.vlan >= 0 ? VLAN_BYTES : 0)
      : 0;
  const header = bytes[packet.ip] >> 4 === 4 ? (bytes[packet.ip] & 15) * 4 : IPV6_BYTES;
  const udp = version === 2 ? ip + header : -1;
  const bth = ip + header + (version === 2 ? UDP_BYTES : 0);
  const end = Math.min(bth + (packet.end - packet.bth), frame.length);
  const wholeData = bth + info.headerLength + payloadLength + padCount;
  const icrc = end === wholeData + ICRC_BYTES ? wholeData : -1;
  return { ip, udp, bth, dataEnd: Math.min(wholeData, end), end, icrc };
}

const icrcOf = (frame: Uint8Array, { ip, udp, icrc }: Places): number =>
  udp < 0 ? icrcV1(frame, ip, icrc) : icrcV2(frame, ip, icrc);

/**
 * Changes the MAD in a packet, if there is one. Of a MAD that the capture cut, the missing bytes are zeros to
 * `change`, so that an address of which only the first bytes are there is changed as well.
 * @returns the result of `change`; false if the packet carries no MAD
 */
function changeMad(
  frame: Uint8Array,
  { info, destQp, payloadLength }: RocePacket,
  { bth, end }: Places,
  change: (mad: Uint8Array) => boolean,
): boolean {
  const at = bth + info.headerLength;
  if (info.transport !== Transport.UD || destQp !== GSI_QPN || payloadLength !== MAD_BYTES || at >= end)
    return false;
  const mad = new Uint8Array(MAD_BYTES);
  const captured = frame.subarray(at, Math.min(at + MAD_BYTES, end));
  mad.set(captured);
  if (!change(mad)) return false;
  captured.set(mad.subarray(0, captured.length));
  return true;
}

function zeroPayload(frame: Uint8Array, packet: RocePacket, places: Places): void {
  const { info } = packet;
  const { bth, end } = places;
  for (const [name, from] of DATA_HEADERS) {
    const at = info.offsets[name];
    if (at >= 0)
      frame.fill(0, Math.min(bth + at + from, end), Math.min(bth + at + EXTENSION_BYTES[name], end));
  }
  if (changeMad(frame, packet, places, zeroPrivateData)) return;
  frame.fill(0, Math.min(bth + info.headerLength, end), places.dataEnd);
}

function rename(frame: Uint8Array, packet: RocePacket, places: Places, names: Anonymizer): void {
  renameLinkLayer(frame, rewrittenLinkType(packet), names);
  const { ip, udp } = places;
  const isIpv4 = frame[ip] >> 4 === 4;
  const [source, destination, length] = isIpv4 ? [12, 16, 4] : [8, 24, 16];
  for (const at of [ip + source, ip + destination])
    frame.set(names.address(frame.slice(at, at + length)), at);
  // Options can hold addresses (RFC 791 §3.1: record route and source routes); zeros end the list.
  if (isIpv4 && udp >= 0) frame.fill(0, ip + IPV4_BYTES, udp);
  changeMad(frame, packet, places, (mad) => renameHosts(mad, names));
}

/** Renames the MAC addresses in a frame's first header (pcap's LINKTYPE documents). */
function renameLinkLayer(frame: Uint8Array, linkType: number, names: Anonymizer): void {
  const renameMac = (at: number) => frame.set(names.mac(frame.slice(at, at + MAC_BYTES)), at);
  // Cooked headers have 8 bytes for an address of any kind: that of an IP tunnel's interface is its IP address.
  const renameCooked = (at: number, length: number) => {
    const isMac = length === MAC_BYTES;
    if (isMac) renameMac(at);
    frame.fill(0, isMac ? at + MAC_BYTES : at, at + COOKED_ADDRESS_BYTES);
  };
  if (linkType === LinkType.ETHERNET) {
    renameMac(0);
    renameMac(MAC_BYTES);
  } else if (linkType === LinkType.LINUX_SLL) renameCooked(6, u16(frame, 4));
  else if (linkType === LinkType.LINUX_SLL2) renameCooked(12, frame[11]);
}

function setChecksums(frame: Uint8Array, { ip, udp, icrc }: Places): void {
  if (udp < 0) return;
  if (frame[ip] >> 4 === 4) {
    setU16(frame, ip + 10, 0);
    setU16(frame, ip + 10, internetChecksum(frame, ip, udp));
  }
  if (u16(frame, udp + 6) === 0) return;
  setU16(frame, udp + 6, 0);
  if (icrc >= 0) setU16(frame, udp + 6, udpChecksum(frame, ip, udp));
}
