/** A packet as a frame that may be passed on: without the hosts' addresses, without what programs sent. */
import { LinkType } from '@node-roce/pcap';
import {
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
  writeIcrc,
} from '@node-roce/wire';
import { IcrcVerdict, type RocePacket } from '../read/packet.ts';
import { packetFrame } from '../read/super-packet.ts';
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

const IPV6_BYTES = 40;
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
  const places = placesIn(packet);
  const frame = packetFrame(packet).subarray(0, places.end);
  const { icrc } = places;
  const error =
    icrc >= 0 && packet.icrc === IcrcVerdict.BAD ? (readIcrc(frame, icrc) ^ icrcOf(frame, places)) >>> 0 : 0;
  if (options.zeroPayload) zeroPayload(frame, packet, places);
  if (options.anonymizer !== undefined) rename(frame, packet, places, options.anonymizer);
  if (icrc >= 0) writeIcrc(frame, icrc, (icrcOf(frame, places) ^ error) >>> 0);
  // These cover the ICRC, and are not covered by it.
  setChecksums(frame, places);
  return frame;
}

function placesIn(packet: RocePacket): Places {
  const { bytes, link, version, info, payloadLength, padCount } = packet;
  const ip = packet.ip - link;
  const header = bytes[packet.ip] >> 4 === 4 ? (bytes[packet.ip] & 15) * 4 : IPV6_BYTES;
  const udp = version === 2 ? ip + header : -1;
  const bth = ip + header + (version === 2 ? UDP_BYTES : 0);
  const end = bth + (packet.end - packet.bth);
  const whole = info.headerLength + payloadLength + padCount + ICRC_BYTES;
  return { ip, udp, bth, end, icrc: end - bth === whole ? end - ICRC_BYTES : -1 };
}

const icrcOf = (frame: Uint8Array, { ip, udp, icrc }: Places): number =>
  udp < 0 ? icrcV1(frame, ip, icrc) : icrcV2(frame, ip, icrc);

/** Where a MAD stands that is there as a whole; else −1. */
function madIn({ info, destQp, payloadLength }: RocePacket, { bth, end }: Places): number {
  const at = bth + info.headerLength;
  const isMad = info.transport === Transport.UD && destQp === GSI_QPN && payloadLength === MAD_BYTES;
  return isMad && at + MAD_BYTES <= end ? at : -1;
}

function zeroPayload(frame: Uint8Array, packet: RocePacket, places: Places): void {
  const { info, payloadLength, padCount } = packet;
  const { bth, end } = places;
  for (const [name, from] of DATA_HEADERS) {
    const at = info.offsets[name];
    if (at >= 0)
      frame.fill(0, Math.min(bth + at + from, end), Math.min(bth + at + EXTENSION_BYTES[name], end));
  }
  const mad = madIn(packet, places);
  if (mad >= 0 && zeroPrivateData(frame, mad)) return;
  const at = bth + info.headerLength;
  // The last bytes of a cut capture may be a part of the ICRC, which would not fit any more.
  frame.fill(0, Math.min(at, end), places.icrc >= 0 ? at + payloadLength + padCount : end);
}

function rename(frame: Uint8Array, packet: RocePacket, places: Places, names: Anonymizer): void {
  for (const at of macsOf(packet.linkType)) frame.set(names.mac(frame.slice(at, at + 6)), at);
  const { ip } = places;
  const [source, destination, length] = frame[ip] >> 4 === 4 ? [12, 16, 4] : [8, 24, 16];
  for (const at of [ip + source, ip + destination])
    frame.set(names.address(frame.slice(at, at + length)), at);
  const mad = madIn(packet, places);
  if (mad >= 0) renameHosts(frame, mad, names);
}

/** Offsets of MAC addresses in a frame's first header (pcap's LINKTYPE documents). */
function macsOf(linkType: number): readonly number[] {
  switch (linkType) {
    case LinkType.ETHERNET:
      return [0, 6];
    case LinkType.LINUX_SLL:
      return [6];
    case LinkType.LINUX_SLL2:
      return [12];
    default:
      return [];
  }
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
