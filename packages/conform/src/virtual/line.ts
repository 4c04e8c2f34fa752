/** The line in virtual time: the tester is a host of a simulated network, and nothing ever waits. */
import { frameOf, Network, type SimHost, type SimPacket } from '@node-roce/sim';
import {
  decodeIpv4,
  gidFromText,
  gidToIpText,
  icrcV2,
  ROCE_UDP_PORT,
  readIcrc,
  u16,
  udpChecksum,
} from '@node-roce/wire';
import type { End, Line } from '../line.ts';

const ETHERNET = 14;
const IPV4 = 20;
const UDP = 8;
const ICRC = 4;
/** Of the simulated ends. */
export const TESTER: End = { ip: '10.77.0.1', mac: '02:00:00:00:00:01' };
export const DEVICE: End = { ip: '10.77.0.9', mac: '02:00:00:00:00:09' };

/** Takes a frame off the wire: Ethernet, IP, UDP, the ICRC. */
export type AcceptFrame = (frame: Uint8Array) => SimPacket | undefined;

/** The tester as a host of the simulated network. */
export class VirtualLine implements Line, SimHost {
  readonly tester = TESTER;
  readonly device = DEVICE;
  readonly gid = gidFromText(TESTER.ip);
  readonly offers: ReadonlySet<string>;
  readonly #accept: AcceptFrame | undefined;
  readonly #delay: number;
  readonly #network = new Network();
  #out: SimPacket[] = [];
  #in: { time: number; frame: Uint8Array }[] = [];

  /**
   * @param accept the headers below the BTH as the device takes them; without it the kernel's part is done for the device,
   *   and rules about those headers are not for it
   * @param delay µs of a packet on its way. The least by default: shorter than every wait of the specification, so that each can be judged
   */
  constructor(accept?: AcceptFrame, delay = 1) {
    this.#delay = delay;
    this.#accept = accept;
    this.offers = new Set(accept === undefined ? ['spoof'] : ['spoof', 'frames']);
    this.#network.record = false;
    this.#network.add(this);
  }

  /** Puts a device on the network. */
  add(host: SimHost): void {
    this.#network.add(host);
    this.#network.link(this, host, { delay: this.#delay });
    this.#network.link(host, this, { delay: this.#delay });
  }

  now(): number {
    return this.#network.now / 1000;
  }

  send(frame: Uint8Array): void {
    const packet = (this.#accept ?? acceptFrame)(frame);
    if (packet !== undefined) this.#out.push(packet);
  }

  take(): { time: number; frame: Uint8Array }[] {
    return this.#in.splice(0);
  }

  async wait(done: () => boolean, ms: number): Promise<void> {
    const end = this.#network.now + ms * 1000;
    if (this.#network.run(done, end)) return;
    this.#network.now = end;
    // A window may have been bound, which takes no packet.
    done();
  }

  receive(packets: SimPacket[], now: number): void {
    this.#in.push(...packets.map((packet) => ({ time: now / 1000, frame: ethernetFrame(packet) })));
  }

  advance(): void {}

  transmit(): SimPacket[] {
    return this.#out.splice(0);
  }

  nextDeadline(): number {
    return Number.POSITIVE_INFINITY;
  }
}

/** The packet that a frame brings to an adapter; undefined for one that is dropped below it. */
export function acceptFrame(frame: Uint8Array): SimPacket | undefined {
  const ip = decodeIpv4(frame, ETHERNET);
  const udp = ETHERNET + IPV4 + ip.options.length;
  const end = ETHERNET + (ip.totalLength ?? 0);
  const body = udp + UDP;
  if (u16(frame, udp + 2) !== ROCE_UDP_PORT || end > frame.length || end - body < ICRC) return undefined;
  if (u16(frame, udp + 4) !== end - udp) return undefined;
  const checksum = u16(frame, udp + 6);
  if (checksum !== 0 && checksum !== checksumOf(frame.slice(0, end), udp)) return undefined;
  const corrupt = readIcrc(frame, end - ICRC) !== icrcV2(frame, ETHERNET, end - ICRC);
  return {
    bytes: frame.slice(body, end - ICRC),
    source: gidFromText(ip.source.join('.')),
    destination: gidFromText(ip.destination.join('.')),
    trafficClass: ip.tos,
    sourcePort: u16(frame, udp),
    corrupt,
  };
}

function checksumOf(frame: Uint8Array, udp: number): number {
  frame.fill(0, udp + 6, udp + 8);
  return udpChecksum(frame, ETHERNET, udp);
}

function ethernetFrame(packet: SimPacket): Uint8Array {
  const ip = frameOf(packet);
  const frame = new Uint8Array(ETHERNET + ip.length);
  const from = gidToIpText(packet.source) === DEVICE.ip ? DEVICE : TESTER;
  frame.set(macBytes(TESTER.mac));
  frame.set(macBytes(from.mac), 6);
  frame.set([0x08, 0x00], 12);
  frame.set(ip, ETHERNET);
  return frame;
}

const macBytes = (mac: string): number[] => mac.split(':').map((byte) => Number.parseInt(byte, 16));
