/**
 * Splits GSO super-packets.
 *
 * With UDP segmentation offload a sender hands the kernel many equal-sized datagrams as one; on lo and
 * veth they are never taken apart, so a capture there holds one IP packet of up to 64 KB with many BTH
 * packets back to back. Only the ICRC tells where one ends: it covers the lengths that the segment's own
 * IP and UDP headers would have had. Sizes are tried, the likely ones first; the first segment's ICRC
 * confirms one (a wrong size passes once in 2^32).
 */
import {
  BTH_BYTES,
  ICRC_BYTES,
  internetChecksum,
  opcodeInfo,
  PATH_MTUS,
  type Packet,
  setU16,
  UDP_BYTES,
  u16,
  verifyIcrc,
} from '@node-roce/wire';

/** The shortest RoCE datagram: BTH and ICRC. */
const LEAST_SEGMENT = BTH_BYTES + ICRC_BYTES;
/** The longest one that is a single packet: path MTU 4096 under the longest run of headers. */
const LONGEST_PACKET = 4096 + 80;

/** Where in a frame the headers of a RoCEv2 packet are. */
interface Place {
  ip: number;
  udp: number;
}

/** Tells where segments begin, and remembers the size that was right last: flows rarely change theirs. */
export class SuperPacketSplitter {
  #lastSize = 0;

  /**
   * The packets of a frame.
   *
   * @param frame link header, IP, UDP, …; may be cut off by the capture's snap length
   * @param packet what it is parsed as, taken for one packet
   * @returns undefined when it is one packet, or nothing confirms that it is more; else new frames, each
   *   with a copy of the link header and with IP and UDP headers of its own. The last ones are shorter
   *   than their headers say where the capture was cut.
   */
  split(frame: Uint8Array, packet: Packet): readonly Uint8Array[] | undefined {
    if (packet.version === 1 || packet.icrcStatus === 'ok') return undefined;
    const udp = packet.bthOffset - UDP_BYTES;
    const at = { ip: udp - (packet.ip.version === 4 ? 20 + packet.ip.options.length : 40), udp };
    const payload = packet.bthOffset;
    const length = u16(frame, udp + 4) - UDP_BYTES;
    if (length < 2 * LEAST_SEGMENT || frame.length < payload + LEAST_SEGMENT) return undefined;
    // A frame that was cut, and is no longer than a packet can be, is taken for one packet.
    if (packet.icrcStatus === 'none' && length <= LONGEST_PACKET) return undefined;
    const isIpv4 = packet.ip.version === 4;
    const size = this.#segmentSize(frame, at, length, isIpv4);
    if (size === undefined) return undefined;
    this.#lastSize = size;
    const segments: Uint8Array[] = [];
    for (let offset = 0, i = 0; offset < length && payload + offset < frame.length; offset += size, i++) {
      segments.push(segment(frame, at, isIpv4, offset, Math.min(size, length - offset), i));
    }
    return segments;
  }

  #segmentSize(frame: Uint8Array, at: Place, length: number, isIpv4: boolean): number | undefined {
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
  { ip, udp }: Place,
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
  setU16(made, ip + 10, 0);
  setU16(made, ip + 10, internetChecksum(made, ip, udp));
  return made;
}
