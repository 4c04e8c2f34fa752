/**
 * The line over a UDP socket: no privilege, and no headers of one's own below the BTH. The kernel writes them as `usualHeaders` has them,
 * and hides those of a packet that came: its identification is solved from the ICRC.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import {
  buildPacket,
  ICRC_BYTES,
  IP_MAY_FRAGMENT,
  icrcV2,
  internetChecksum,
  ROCE_UDP_PORT,
  readIcrc,
  setU16,
  solveIpId,
} from '@node-roce/wire';
import { Untestable } from '../device.ts';
import type { End, Line } from '../line.ts';
import { NEEDS } from '../needs.ts';
import { waitOn } from './wait.ts';

const NO_MAC = '00:00:00:00:00:00';
const IPV4 = 14;
const UDP = IPV4 + 20;
const BTH = UDP + 8;
/** A BTH and the ICRC. */
const SHORTEST = 12 + ICRC_BYTES;
const DONT_FRAGMENT = 0x4000;
/** Fields that differ with the length of a packet, or that the kernel may choose: length, checksum, TTL, both checksums. */
const CHANGING = new Set([16, 17, 22, 24, 25, 38, 39, 40, 41]);

/** Ethernet, IPv4 and UDP of a packet from one end to the other, as a kernel writes them for a UDP socket. */
function usualHeaders(from: End, to: End, sourcePort: number): Uint8Array {
  const frame = buildPacket({
    ethernet: { source: from.mac, destination: to.mac },
    ip: { source: from.ip, destination: to.ip, ttl: 64 } as Parameters<typeof buildPacket>[0]['ip'],
    udp: { sourcePort },
    bth: { opcode: 'RC_SEND_ONLY' },
  });
  return frame.slice(0, BTH);
}

/** The frame of a datagram that came, with the identification that its ICRC has. */
function frameOf(headers: Uint8Array, body: Uint8Array): Uint8Array {
  const frame = new Uint8Array(BTH + body.length);
  frame.set(headers);
  frame.set(body, BTH);
  setU16(frame, IPV4 + 2, frame.length - IPV4);
  setU16(frame, UDP + 4, frame.length - UDP);
  setU16(frame, UDP + 6, 0);
  const end = frame.length - ICRC_BYTES;
  if (body.length >= SHORTEST) {
    const syndrome = (readIcrc(frame, end) ^ icrcV2(frame, IPV4, end)) >>> 0;
    const id = syndrome === 0 ? 0 : solveIpId(syndrome, end - (IPV4 + 6));
    if (id >= 0) {
      setU16(frame, IPV4 + 4, id & 0xffff);
      setU16(frame, IPV4 + 6, (id & IP_MAY_FRAGMENT) === 0 ? DONT_FRAGMENT : 0);
    }
  }
  setU16(frame, IPV4 + 10, 0);
  setU16(frame, IPV4 + 10, internetChecksum(frame, IPV4, UDP));
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
  #in: { time: number; frame: Uint8Array }[] = [];
  #onFrame: () => void = () => {};

  private constructor(tester: End, device: End, socket: Socket) {
    this.tester = tester;
    this.device = device;
    this.#socket = socket;
    this.#usual = usualHeaders(tester, device, ROCE_UDP_PORT);
    socket.on('message', (body, { address, port }) => {
      if (address !== device.ip) return;
      const frame = frameOf(usualHeaders(device, tester, port), body);
      this.#in.push({ time: this.now(), frame });
      this.#onFrame();
    });
    // A port that nobody listens at, on the way back: silence, for a rule.
    socket.on('error', () => {});
  }

  /** @param source address of this machine that leads to the device */
  static async open(host: string, source: string): Promise<UdpLine> {
    const socket = createSocket('udp4');
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
    for (let i = 0; i < BTH; i++) {
      if (frame[i] !== this.#usual[i] && !CHANGING.has(i)) throw new Untestable(`needs ${NEEDS.frames}`);
    }
    this.#socket.send(frame.subarray(BTH), ROCE_UDP_PORT, this.device.ip, () => {});
  }

  take(): { time: number; frame: Uint8Array }[] {
    return this.#in.splice(0);
  }

  wait(done: () => boolean, ms: number): Promise<void> {
    return waitOn(done, ms, (onFrame) => {
      this.#onFrame = onFrame;
    });
  }

  close(): void {
    this.#socket.close();
  }
}
