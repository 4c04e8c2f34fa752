/**
 * UDP ports of RoCE beyond 4791: those that were asked for, and those that show themselves: a datagram that starts with a
 * BTH and ends with the right ICRC is RoCE (by chance once in 2^32).
 */
import { BTH_BYTES, ICRC_BYTES, opcodeInfo, u16 } from '@node-roce/wire';
import { type Crc32, isIcrcRight } from './icrc-check.ts';

/** Datagrams to a port that look like RoCE and are not, until it is not looked at any more. */
const MAX_TRIALS = 64;

/** Decides which datagrams are RoCE by their destination port. */
export class UdpPorts {
  readonly #asked: ReadonlySet<number>;
  readonly #crc32: Crc32 | undefined;
  /** Ports that were found, in the order in which they were. */
  readonly found: number[] = [];
  readonly #isFound = new Uint8Array(65_536);
  readonly #trials = new Uint8Array(65_536);

  /** @param asked ports whose datagrams are all taken for RoCE */
  constructor(asked: readonly number[] = [], crc32?: Crc32) {
    this.#asked = new Set(asked);
    this.#crc32 = crc32;
  }

  /** Whether the port was asked for or found. */
  isKnown(port: number): boolean {
    return this.#isFound[port] === 1 || this.#asked.has(port);
  }

  /**
   * Whether a datagram to a port other than 4791 is RoCE; allocates nothing.
   * @param ip the IP header
   * @param end of what was captured
   * @param packetEnd of the packet, by the IP header's word
   */
  isRoce(port: number, b: Uint8Array, ip: number, udp: number, end: number, packetEnd: number): boolean {
    if (this.#isFound[port] === 1) return true;
    if (this.#asked.size > 0 && this.#asked.has(port)) return true;
    if (this.#trials[port] >= MAX_TRIALS) return false;
    const bth = udp + 8;
    if (packetEnd > end || packetEnd !== udp + u16(b, udp + 4)) return false;
    if (packetEnd < bth + BTH_BYTES + ICRC_BYTES) return false;
    const info = opcodeInfo(b[bth]);
    // The header version is 0.
    if (info === undefined || (b[bth + 1] & 0x0f) !== 0) return false;
    if (bth + info.headerLength + ICRC_BYTES > packetEnd) return false;
    this.#trials[port]++;
    if (!isIcrcRight(b, ip, 2, b, bth, packetEnd, this.#crc32)) return false;
    this.#isFound[port] = 1;
    this.found.push(port);
    return true;
  }
}
