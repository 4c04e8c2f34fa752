/**
 * ICRCs (IBTA vol 1 annex A17.3.3) of the datagrams of one flow, where a UDP socket shows no header.
 *
 * By zlib's CRC, which is nine times as fast on a full packet as one in JavaScript. Tests compare it with wire's.
 */
import { crc32 } from 'node:zlib';
import { IP_MAY_FRAGMENT, isIpv4Mapped } from '@node-roce/wire';

export interface Flow {
  /** GIDs, 16 bytes each. */
  source: Uint8Array;
  destination: Uint8Array;
  sourcePort: number;
  destinationPort: number;
}

/** Bytes of ones that stand for the local header in front of every packet. */
const ONES = 8;
/** In the seventh byte of an IPv4 header. */
const DONT_FRAGMENT = 0x40;
/** The BTH's first bytes are covered as they are, its fifth as ones. */
const BTH_START = 5;

/** Computes ICRCs of one flow's packets from precomputed header parts. */
export class FlowIcrc {
  /** The ones, the IP and UDP headers and the first bytes of the BTH, with variant fields read as ones. */
  readonly #prefix: Uint8Array;
  readonly #v4: boolean;
  readonly #udp: number;

  constructor({ source, destination, sourcePort, destinationPort }: Flow) {
    this.#v4 = isIpv4Mapped(destination);
    const ip = this.#v4 ? 20 : 40;
    this.#udp = ONES + ip;
    const prefix = new Uint8Array(this.#udp + 8 + BTH_START).fill(0xff);
    if (this.#v4) {
      prefix[ONES] = 0x45;
      prefix[ONES + 7] = 0;
      prefix[ONES + 9] = 17;
      prefix.set(source.subarray(12, 16), ONES + 12);
      prefix.set(destination.subarray(12, 16), ONES + 16);
    } else {
      prefix[ONES] = 0x6f;
      prefix[ONES + 6] = 17;
      prefix.set(source.subarray(0, 16), ONES + 8);
      prefix.set(destination.subarray(0, 16), ONES + 24);
    }
    setU16(prefix, this.#udp, sourcePort);
    setU16(prefix, this.#udp + 2, destinationPort);
    this.#prefix = prefix;
  }

  /**
   * The ICRC of a packet of this flow.
   * @param bytes BTH … pad at `start` … `end` − 1, 12 bytes at least
   * @param id IPv4 Identification, with `IP_MAY_FRAGMENT` for a header without "don't fragment"; means nothing with IPv6
   */
  of(bytes: Uint8Array, start: number, end: number, id: number): number {
    const prefix = this.#prefix;
    const udpLength = 8 + end - start + 4;
    if (this.#v4) {
      setU16(prefix, ONES + 2, 20 + udpLength);
      setU16(prefix, ONES + 4, id);
      prefix[ONES + 6] = (id & IP_MAY_FRAGMENT) === 0 ? DONT_FRAGMENT : 0;
    } else setU16(prefix, ONES + 4, udpLength);
    setU16(prefix, this.#udp + 4, udpLength);
    for (let i = 0; i < BTH_START - 1; i++) prefix[this.#udp + 8 + i] = bytes[start + i];
    return crc32(bytes.subarray(start + BTH_START, end), crc32(prefix));
  }

  /** Covered bytes behind the Identification of such a packet, for `solveIpId`. */
  bytesAfterId(start: number, end: number): number {
    return 14 + 8 + end - start;
  }
}

function setU16(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 8;
  bytes[at + 1] = value;
}
