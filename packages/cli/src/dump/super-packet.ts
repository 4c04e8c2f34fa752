/**
 * Splits GSO super-packets.
 *
 * With UDP segmentation offload a sender hands the kernel many equal-sized datagrams as one; on lo and
 * veth they are never taken apart, so a capture there holds one IP packet of up to 64 KB with many BTH
 * packets back to back. Only the ICRC tells where one ends: it covers the lengths that the segment's own
 * IP and UDP headers would have had. Sizes are tried, the likely ones first; the first segment's ICRC
 * confirms one (a wrong size passes once in 2^32).
 */
import { BTH_BYTES, ICRC_BYTES, opcodeInfo, PATH_MTUS, setU16, u16, verifyIcrc } from '@node-roce/wire';
import type { Located } from './locate.ts';

const UDP_BYTES = 8;
/** The shortest RoCE datagram: BTH and ICRC. */
const LEAST_SEGMENT = BTH_BYTES + ICRC_BYTES;
/** The longest one that is a single packet: path MTU 4096 under the longest run of headers. */
const LONGEST_PACKET = 4096 + 80;

/** Tells where segments begin, and remembers the size that was right last: flows rarely change theirs. */
export class SuperPacketSplitter {
  #lastSize = 0;

  /**
   * The packets of one frame.
   *
   * @param frame link header, IP, UDP, …; may be cut off by the capture's snap length
   * @param at where its IP and UDP headers are
   * @returns the frame itself when it is one packet (or nothing confirms that it is more), else new
   *   frames, each with a copy of the link header and with IP and UDP headers of its own. The last ones
   *   are shorter than their headers say where the capture was cut.
   */
  split(frame: Uint8Array, at: Located): readonly Uint8Array[] {
    const whole = [frame];
    if (at.version === 1) return whole;
    const isIpv4 = frame[at.ip]! >> 4 === 4;
    const payload = at.udp + UDP_BYTES;
    const length = u16(frame, at.udp + 4) - UDP_BYTES;
    if (length < 2 * LEAST_SEGMENT || frame.length < payload + LEAST_SEGMENT) return whole;
    const end = payload + length;
    // One packet that is what it says needs no search, and nothing of more than one packet's length is one.
    if (length <= LONGEST_PACKET && (frame.length < end || verifyIcrc(frame, at.ip, end))) return whole;
    const size = this.#segmentSize(frame, at, length, isIpv4);
    if (size === undefined) return whole;
    this.#lastSize = size;
    const segments: Uint8Array[] = [];
    for (let offset = 0, i = 0; offset < length && payload + offset < frame.length; offset += size, i++) {
      segments.push(segment(frame, at, isIpv4, offset, Math.min(size, length - offset), i));
    }
    return segments;
  }

  #segmentSize(frame: Uint8Array, at: Located, length: number, isIpv4: boolean): number | undefined {
    for (const size of this.#candidates(frame, at.udp + UDP_BYTES, length)) {
      const first = segment(frame, at, isIpv4, 0, size, 0);
      const end = at.udp + UDP_BYTES + size;
      if (first.length >= end && verifyIcrc(first, at.ip, end)) return size;
    }
    return undefined;
  }

  *#candidates(frame: Uint8Array, payload: number, length: number): Generator<number> {
    const fits = (size: number) =>
      size >= LEAST_SEGMENT && size < length && canFollow(frame, payload, payload + size, payload + length);
    if (fits(this.#lastSize)) yield this.#lastSize;
    const headerLength = opcodeInfo(frame[payload]!)?.headerLength ?? BTH_BYTES;
    for (const mtu of PATH_MTUS) {
      const size = headerLength + mtu + ICRC_BYTES;
      if (fits(size)) yield size;
    }
    // Messages of one packet each can have any size; the pad makes it a multiple of four.
    for (let size = LEAST_SEGMENT; size < Math.min(length, LONGEST_PACKET); size += 4) {
      if (fits(size)) yield size;
    }
  }
}

// A cheap look before the CRC: does what would be the second segment start like a BTH of the same service?
function canFollow(frame: Uint8Array, first: number, second: number, end: number): boolean {
  if (end - second < LEAST_SEGMENT) return false;
  if (second + 4 > frame.length) return true;
  const opcode = frame[second]!;
  return (
    opcodeInfo(opcode) !== undefined &&
    opcode >> 5 === frame[first]! >> 5 &&
    (frame[second + 1]! & 0x0f) === 0
  );
}

/**
 * Segment i as a frame of its own. Its Identification is the super-packet's, or that + i: senders that
 * expect segmentation compute ICRCs with a counter. The one whose ICRC is right is taken.
 */
function segment(
  frame: Uint8Array,
  { ip, udp }: Located,
  isIpv4: boolean,
  offset: number,
  size: number,
  i: number,
): Uint8Array {
  const payload = udp + UDP_BYTES;
  const from = payload + offset;
  const made = new Uint8Array(payload + Math.min(size, frame.length - from));
  made.set(frame.subarray(0, payload));
  made.set(frame.subarray(from, from + size), payload);
  setU16(made, udp + 4, UDP_BYTES + size);
  // The checksum of the super-packet is not the segment's; 0 says that there is none.
  setU16(made, udp + 6, 0);
  if (!isIpv4) {
    setU16(made, ip + 4, UDP_BYTES + size);
    return made;
  }
  setU16(made, ip + 2, payload + size - ip);
  if (i > 0 && made.length >= payload + size) {
    const base = u16(made, ip + 4);
    setU16(made, ip + 4, (base + i) & 0xffff);
    if (!verifyIcrc(made, ip, payload + size)) setU16(made, ip + 4, base);
  }
  setIpv4Checksum(made, ip, udp);
  return made;
}

// RFC 1071: the ones' complement of the ones' complement sum of the header's words.
function setIpv4Checksum(b: Uint8Array, ip: number, end: number): void {
  setU16(b, ip + 10, 0);
  let sum = 0;
  for (let o = ip; o < end; o += 2) sum += u16(b, o);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  setU16(b, ip + 10, ~sum & 0xffff);
}
