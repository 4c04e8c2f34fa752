/**
 * The line over a UDP socket: no privilege, and no headers of one's own below the BTH. The kernel writes them as `headersBelow` has them,
 * and hides those of a packet that came: IPv4's identification is solved from the ICRC.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv6 as isIpv6Address } from 'node:net';
import { performance } from 'node:perf_hooks';
import {
  ICRC_BYTES,
  IP_MAY_FRAGMENT,
  icrcV2,
  ROCE_UDP_PORT,
  readIcrc,
  setU16,
  solveIpId,
} from '@node-roce/wire';
import { Untestable } from '../device.ts';
import { ETHERNET_BYTES, headersBelow, isIpv6, setIpv4Checksum, setLengths } from '../headers.ts';
import type { End, Line } from '../line.ts';
import { NEEDS } from '../needs.ts';
import { type Arrival, Arrivals } from './arrivals.ts';

const NO_MAC = '00:00:00:00:00:00';
/** A BTH and the ICRC. */
const SHORTEST = 12 + ICRC_BYTES;
const DONT_FRAGMENT = 0x4000;
const IP = ETHERNET_BYTES;

/**
 * Bytes that differ with the length of a packet, or that the kernel chooses as it likes: lengths, checksums, hop limit, and IPv6's flow label,
 * which it may take from the ports.
 */
const CHANGING = {
  4: new Set([16, 17, 22, 24, 25, 38, 39, 40, 41]),
  6: new Set([18, 19, 21, 58, 59, 60, 61]),
} as const;

/** The frame of a datagram that came; with IPv4, it has the identification that its ICRC covers. */
function frameOf(headers: Uint8Array, body: Uint8Array): Uint8Array {
  const bth = headers.length;
  const frame = new Uint8Array(bth + body.length);
  frame.set(headers);
  frame.set(body, bth);
  setLengths(frame, bth);
  if (isIpv6(frame) || body.length < SHORTEST) return frame;
  const end = frame.length - ICRC_BYTES;
  const syndrome = (readIcrc(frame, end) ^ icrcV2(frame, IP, end)) >>> 0;
  const id = syndrome === 0 ? 0 : solveIpId(syndrome, end - (IP + 6));
  if (id >= 0) {
    setU16(frame, IP + 4, id & 0xffff);
    setU16(frame, IP + 6, (id & IP_MAY_FRAGMENT) === 0 ? DONT_FRAGMENT : 0);
    setIpv4Checksum(frame, bth);
  }
  return frame;
}

/** A UDP socket at the RoCE port. */
export class UdpLine implements Line {
  readonly offers: ReadonlySet<string> = new Set();
  readonly sourcePort = ROCE_UDP_PORT;
  readonly tester: End;
  readonly device: End;
  readonly #socket: Socket;
  readonly #usual: Uint8Array;
  readonly #arrivals = new Arrivals();

  private constructor(tester: End, device: End, socket: Socket) {
    this.tester = tester;
    this.device = device;
    this.#socket = socket;
    this.#usual = headersBelow(tester, device, ROCE_UDP_PORT);
    socket.on('message', (body, { address, port }) => {
      if (address !== device.ip) return;
      this.#arrivals.add(this.now(), [frameOf(headersBelow(device, tester, port), body)]);
    });
    // A port that nobody listens at, on the way back: silence, for a rule.
    socket.on('error', () => {});
  }

  /** @param source address of this machine that leads to the device */
  static async open(host: string, source: string): Promise<UdpLine> {
    const socket = createSocket(isIpv6Address(source) ? 'udp6' : 'udp4');
    try {
      socket.bind({ port: ROCE_UDP_PORT, address: source, exclusive: true });
      await once(socket, 'listening');
      return new UdpLine({ ip: source, mac: NO_MAC }, { ip: host, mac: NO_MAC }, socket);
    } catch (error) {
      socket.close();
      throw error;
    }
  }

  now(): number {
    return performance.now();
  }

  send(frame: Uint8Array): void {
    const bth = this.#usual.length;
    const changing = CHANGING[isIpv6(frame) ? 6 : 4];
    for (let i = 0; i < bth; i++) {
      if (frame[i] !== this.#usual[i] && !changing.has(i)) throw new Untestable(`needs ${NEEDS.frames}`);
    }
    this.#socket.send(frame.subarray(bth), ROCE_UDP_PORT, this.device.ip, () => {});
  }

  take(): Arrival[] {
    return this.#arrivals.take();
  }

  wait(done: () => boolean, ms: number): Promise<void> {
    return this.#arrivals.wait(done, ms);
  }

  close(): void {
    this.#socket.close();
  }
}
