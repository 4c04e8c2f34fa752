/**
 * Splits GSO super-packets into their packets.
 *
 * With UDP segmentation offload a sender hands the kernel many equal-sized datagrams as one; on lo and
 * veth they are never taken apart, so a capture there holds one IP packet of up to 64 KB with many BTH
 * packets back to back. Only the ICRC shows where one ends: it covers the lengths that the segment's own
 * IP and UDP headers would have had. Sizes are tried, the likely ones first; the first segment's ICRC
 * confirms one (a wrong size passes once in 2^32).
 */
import {
  BTH_BYTES,
  ICRC_BYTES,
  internetChecksum,
  opcodeInfo,
  PATH_MTUS,
  setU16,
  UDP_BYTES,
  u24,
} from '@node-roce/wire';
import { type Crc32, isIcrcRight } from './icrc-check.ts';
import { IcrcVerdict, type RocePacket } from './packet.ts';

/** The shortest RoCE datagram: BTH and ICRC. */
const MIN_SEGMENT = BTH_BYTES + ICRC_BYTES;
/** The longest one that is a single packet: path MTU 4096 under the longest run of headers. */
export const MAX_PACKET_BYTES = 4096 + 80;
/**
 * All sizes of a datagram that may be one damaged packet are tried until so many such searches in a row found nothing, and then of
 * one datagram in `RARELY`: a search takes up to a thousand CRCs.
 */
const MAX_VAIN_SEARCHES = 64;
const RARELY = 16;

/**
 * Whether a datagram is one packet by its opcode alone: a FIRST or MIDDLE carries just the path MTU, and
 * what has no payload ends after its headers. Others need the ICRC's word.
 */
export function isSurelySingle({ info, payloadLength }: RocePacket): boolean {
  if (!info.hasPayload) return payloadLength === 0;
  return !info.last && isPathMtu(payloadLength);
}

/** Finds where segments begin, and remembers the size that was right last: flows rarely change theirs. */
export class SuperPacketSplitter {
  #lastSize = 0;
  /** Searches of all sizes in a row, skipped ones included, that found nothing. */
  #vain = 0;
  readonly #crc32: Crc32 | undefined;
  /** IP and UDP headers as a segment's own would be. */
  readonly #headers = new Uint8Array(60 + UDP_BYTES);

  constructor(crc32?: Crc32) {
    this.#crc32 = crc32;
  }

  /**
   * Bytes of UDP payload of each segment but the last; 0 where nothing confirms that there are several.
   * @param whole a RoCE v2 packet, decoded as if it were one
   * @param length of the datagram's payload, by its own word
   * @param end of what was captured
   */
  segmentSize(whole: RocePacket, length: number, end: number): number {
    const first = whole.bth;
    for (const size of this.#candidates(whole, length, end)) {
      if (first + size <= end && this.#isRight(whole, first, size, whole.ipId)) {
        this.#lastSize = size;
        this.#vain = 0;
        return size;
      }
    }
    return 0;
  }

  /**
   * The verdict on a segment, decoded into `part`; sets its Identification. Senders that expect segmentation
   * count it up from the super-packet's, others repeat that: the one whose ICRC is right is taken.
   * @param id the super-packet's
   */
  verdict(part: RocePacket, size: number, id: number, end: number): number {
    part.ipId = id;
    if (part.bth + size > end) return IcrcVerdict.NONE;
    if (id >= 0 && part.part > 0) {
      const counted = (id + part.part) & 0xffff;
      if (this.#isRight(part, part.bth, size, counted)) {
        part.ipId = counted;
        return IcrcVerdict.OK;
      }
    }
    return this.#isRight(part, part.bth, size, id) ? IcrcVerdict.OK : IcrcVerdict.BAD;
  }

  #isRight({ bytes, ip }: RocePacket, bth: number, size: number, id: number): boolean {
    const headers = this.#headers;
    const length = headerBytes(bytes, ip);
    for (let i = 0; i < length; i++) headers[i] = bytes[ip + i];
    setLengths(headers, 0, length, size, id);
    return isIcrcRight(headers, 0, 2, bytes, bth, bth + size, this.#crc32);
  }

  *#candidates({ bytes, bth, info }: RocePacket, length: number, end: number): Generator<number> {
    const fits = (size: number) =>
      size >= MIN_SEGMENT && size < length && canFollow(bytes, bth, bth + size, bth + length, end);
    if (fits(this.#lastSize)) yield this.#lastSize;
    if (!info.hasPayload) {
      if (fits(info.headerLength + ICRC_BYTES)) yield info.headerLength + ICRC_BYTES;
      return;
    }
    for (const mtu of PATH_MTUS) {
      const size = info.headerLength + mtu + ICRC_BYTES;
      if (fits(size)) yield size;
    }
    // A FIRST or MIDDLE carries just the path MTU. The others can have any size; the pad makes it a multiple of four.
    if (!info.last || (length <= MAX_PACKET_BYTES && !this.#isWorthSearch())) return;
    for (let size = MIN_SEGMENT; size < Math.min(length, MAX_PACKET_BYTES); size += 4) {
      if (fits(size)) yield size;
    }
  }

  #isWorthSearch(): boolean {
    this.#vain++;
    return this.#vain <= MAX_VAIN_SEARCHES || this.#vain % RARELY === 0;
  }
}

const pathMtus: ReadonlySet<number> = new Set(PATH_MTUS);
const isPathMtu = (bytes: number): boolean => pathMtus.has(bytes);

/** IP and UDP headers at `ip`, in bytes. */
const headerBytes = (b: Uint8Array, ip: number): number =>
  (b[ip] >> 4 === 4 ? (b[ip] & 15) * 4 : 40) + UDP_BYTES;

/** Writes into IP and UDP headers (`length` bytes at `ip`) what a datagram of `size` bytes has. */
function setLengths(b: Uint8Array, ip: number, length: number, size: number, id: number): void {
  const udp = ip + length - UDP_BYTES;
  setU16(b, udp + 4, UDP_BYTES + size);
  if (b[ip] >> 4 === 4) {
    setU16(b, ip + 2, length + size);
    setU16(b, ip + 4, id);
  } else {
    setU16(b, ip + 4, UDP_BYTES + size);
  }
}

// A cheap look before the CRC: does what would be the second segment start like a BTH of the same service?
function canFollow(b: Uint8Array, first: number, second: number, sent: number, end: number): boolean {
  if (sent - second < MIN_SEGMENT) return false;
  if (second + 4 > end) return true;
  const opcode = b[second];
  if (opcodeInfo(opcode) === undefined || opcode >> 5 !== b[first] >> 5 || (b[second + 1] & 0x0f) !== 0)
    return false;
  // RoCE has no queue pair 0 (IBTA annex A16): bytes of zeros are no BTH.
  return second + 8 > end || u24(b, second + 5) !== 0;
}

/**
 * The packet as a frame of its own, a copy: of a part of a super-packet, with the lengths, Identification and
 * checksums in IP and UDP that it would have had; of others the frame as it stands. The UDP checksum
 * of a part becomes 0, as RoCE sends it. Starts with the headers of `linkType` at `link`: what
 * was around a mirrored frame stays behind.
 */
export function packetFrame(packet: RocePacket): Uint8Array<ArrayBuffer> {
  const { bytes, link, ip, bth, end, parts, info, payloadLength, padCount, ipId } = packet;
  if (parts === 1)
    return bytes.slice(link, packet.frameOffset + packet.frameLength) as Uint8Array<ArrayBuffer>;
  const length = headerBytes(bytes, ip);
  const made = new Uint8Array(ip - link + length + (end - bth));
  made.set(bytes.subarray(link, ip + length));
  made.set(bytes.subarray(bth, end), ip - link + length);
  const at = ip - link;
  setLengths(made, at, length, info.headerLength + payloadLength + padCount + ICRC_BYTES, ipId);
  setU16(made, at + length - 2, 0);
  if (made[at] >> 4 === 4) {
    setU16(made, at + 10, 0);
    setU16(made, at + 10, internetChecksum(made, at, at + length - UDP_BYTES));
  }
  return made;
}
