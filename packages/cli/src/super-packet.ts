/**
 * Splits GSO super-packets.
 *
 * With UDP segmentation offload a sender hands the kernel many equal-sized datagrams as one; on lo and
 * veth they are never taken apart, so a capture there holds one IP packet of up to 64 KB with many BTH
 * packets back to back. Only the ICRC tells where one ends: it covers the lengths that the segment's own
 * IP and UDP headers would have had. Sizes are tried, the likely ones first; the first segment's ICRC
 * confirms one (a wrong size passes once in 2^32).
 */
import { opcodeInfo, PATH_MTUS, verifyIcrc } from '@node-roce/wire';

const UDP_BYTES = 8;
const BTH_BYTES = 12;
const ICRC_BYTES = 4;
/** The shortest RoCE datagram: BTH and ICRC. */
const LEAST_SEGMENT = BTH_BYTES + ICRC_BYTES;
/** The longest one that is a single packet: path MTU 4096 under the longest run of headers. */
const LONGEST_PACKET = 4096 + 80;

/** Where in a frame a RoCEv2 packet lies. */
export interface Located {
  /** Offset of the IP header. */
  ip: number;
  /** Offset of the UDP header. */
  udp: number;
}

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
    const isIpv4 = frame[at.ip]! >> 4 === 4;
    const payload = at.udp + UDP_BYTES;
    const length = udpLength(frame, at.udp) - UDP_BYTES;
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

const udpLength = (frame: Uint8Array, udp: number) => (frame[udp + 4]! << 8) | frame[udp + 5]!;

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
  const view = new DataView(made.buffer);
  view.setUint16(udp + 4, UDP_BYTES + size);
  // The checksum of the super-packet is not the segment's; 0 says that there is none.
  view.setUint16(udp + 6, 0);
  if (!isIpv4) {
    view.setUint16(ip + 4, payload + size - (ip + 40));
    return made;
  }
  view.setUint16(ip + 2, payload + size - ip);
  if (i > 0 && made.length >= payload + size) {
    const base = view.getUint16(ip + 4);
    view.setUint16(ip + 4, (base + i) & 0xffff);
    if (!verifyIcrc(made, ip, payload + size)) view.setUint16(ip + 4, base);
  }
  setIpv4Checksum(view, ip, (made[ip]! & 0x0f) * 4);
  return made;
}

// RFC 1071: the ones' complement of the ones' complement sum of the header's words.
function setIpv4Checksum(view: DataView, ip: number, headerLength: number): void {
  view.setUint16(ip + 10, 0);
  let sum = 0;
  for (let o = ip; o < ip + headerLength; o += 2) sum += view.getUint16(o);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(ip + 10, ~sum & 0xffff);
}
