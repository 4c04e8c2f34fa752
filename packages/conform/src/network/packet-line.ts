/** The line over an interface of this machine: whole frames, through a packet socket (CAP_NET_RAW). */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { FrameSocket, layout } from '@node-roce/dgram-native';
import { ROCE_UDP_PORT } from '@node-roce/wire';
import type { End, Line } from '../line.ts';
import { type Arrival, Arrivals } from './arrivals.ts';
import { splitFrame } from './split.ts';

const { Tx, Fragment, Frame, TX_SLOT_WORDS, FRAGMENT_WORDS, FRAME_SLOT_WORDS } = layout;

/** Frames taken in by one call, and calls in a row: then others have their turn, also while a device floods. */
const FRAMES = 32;
const CALLS = 64;

/** Classic BPF (bpf(4)): IPv4 UDP datagrams of one host to the RoCE port, whole. */
const roceOf = (host: number): readonly (readonly [code: number, jt: number, jf: number, k: number])[] => [
  [0x28, 0, 0, 12], // half word at 12: the EtherType
  [0x15, 0, 8, 0x0800],
  [0x20, 0, 0, 26], // word at 26: the source
  [0x15, 0, 6, host],
  [0x30, 0, 0, 23], // byte at 23: the protocol
  [0x15, 0, 4, 17],
  [0xb1, 0, 0, 14], // length of the IP header
  [0x48, 0, 0, 16], // half word behind it: the destination port
  [0x15, 0, 1, ROCE_UDP_PORT],
  [0x06, 0, 0, 0x4_0000],
  [0x06, 0, 0, 0],
];

function filterFor(ip: string): Uint32Array {
  const host = ip.split('.').reduce((number, part) => number * 256 + Number(part), 0);
  return Uint32Array.from(roceOf(host).flatMap(([code, jt, jf, k]) => [code | (jt << 16) | (jf << 24), k]));
}

/** Attempts to learn the neighbour's address, and ms between two. */
const ARP_TRIES = 20;
const ARP_PAUSE = 100;

/** Port of the datagram that makes the kernel ask for the neighbour: discard. */
const DISCARD = 9;

/** The address that a neighbour of this interface has; undefined if the kernel does not know it. */
function neighbour(ip: string): string | undefined {
  const rows = readFileSync('/proc/net/arp', 'utf8').split('\n');
  const fields = rows.map((row) => row.split(/\s+/)).find(([address]) => address === ip);
  return fields?.[3] === '00:00:00:00:00:00' ? undefined : fields?.[3];
}

async function macOf(ip: string): Promise<string> {
  const socket = createSocket('udp4');
  try {
    for (let i = 0; i < ARP_TRIES; i++) {
      socket.send('x', DISCARD, ip);
      await sleep(ARP_PAUSE);
      const mac = neighbour(ip);
      if (mac !== undefined) return mac;
    }
  } finally {
    socket.close();
  }
  throw new Error(`no neighbour ${ip}: the device has to be on the same network`);
}

/** The interface with an address. */
function interfaceOf(ip: string): { name: string; mac: string; internal: boolean } {
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    const found = addresses?.find(({ address }) => address === ip);
    if (found !== undefined) return { name, mac: found.mac, internal: found.internal };
  }
  throw new Error(`no interface of this machine has the address ${ip}`);
}

const isOwn = (ip: string): boolean =>
  Object.values(networkInterfaces()).some((addresses) => addresses?.some(({ address }) => address === ip));

/** A packet socket, and a UDP socket that owns the port, so that the kernel answers nothing. */
export class PacketLine implements Line {
  readonly offers: ReadonlySet<string> = new Set(['frames', 'spoof']);
  readonly tester: End;
  readonly device: End;
  readonly #frames: FrameSocket;
  readonly #owner: Socket;
  readonly #slab = new Uint8Array(FRAMES * FrameSocket.FRAME_ROOM);
  readonly #slots = new Uint32Array(FRAMES * FRAME_SLOT_WORDS);
  readonly #arrivals = new Arrivals();

  private constructor(tester: End, device: End, name: string, owner: Socket) {
    this.tester = tester;
    this.device = device;
    this.#owner = owner;
    this.#frames = new FrameSocket({ interface: name, onWake: () => this.#read() });
    this.#frames.setFilter(filterFor(device.ip));
    this.#frames.wantRead(true);
  }

  /** @param source address of this machine that leads to the device */
  static async open(host: string, source: string): Promise<PacketLine> {
    const { name, mac, internal } = interfaceOf(source);
    // The kernel drops packets of its own addresses that come from an interface, lo among them.
    if (internal || isOwn(host))
      throw new Error(`${host} is an address of this machine, which whole frames do not reach: --link udp`);
    const device = { ip: host, mac: await macOf(host) };
    const owner = createSocket('udp4');
    try {
      owner.on('message', () => {});
      owner.bind(ROCE_UDP_PORT, source);
      await once(owner, 'listening');
      return new PacketLine({ ip: source, mac }, device, name, owner);
    } catch (error) {
      owner.close();
      throw error;
    }
  }

  now(): number {
    return performance.now();
  }

  #read(): void {
    for (let i = 0; i < CALLS; i++) {
      const count = this.#frames.receive(this.#slab, this.#slots, FRAMES);
      const frames: Uint8Array[] = [];
      for (let at = 0; at < count * FRAME_SLOT_WORDS; at += FRAME_SLOT_WORDS) {
        const offset = this.#slots[at + Frame.OFFSET];
        const length = this.#slots[at + Frame.LENGTH];
        const frame = this.#slab.slice(offset, offset + length);
        frames.push(...splitFrame(frame));
      }
      this.#arrivals.add(this.now(), frames);
      if (count < FRAMES) return;
    }
  }

  send(frame: Uint8Array): void {
    const slots = new Uint32Array(TX_SLOT_WORDS);
    const fragments = new Uint32Array(FRAGMENT_WORDS);
    slots[Tx.FRAGMENT_COUNT] = 1;
    slots[Tx.PAYLOAD_LENGTH] = frame.length;
    fragments[Fragment.LENGTH] = frame.length;
    this.#frames.send(slots, fragments, 0, 1, [frame]);
    const status = slots[Tx.STATUS];
    if (status !== 0) throw new Error(`a frame of ${frame.length} bytes could not be sent: errno ${status}`);
  }

  take(): Arrival[] {
    return this.#arrivals.take();
  }

  wait(done: () => boolean, ms: number): Promise<void> {
    return this.#arrivals.wait(done, ms);
  }

  close(): void {
    this.#frames.close();
    this.#owner.close();
  }
}
