/**
 * Taps: what a capture taken at one place of a simulated network shows, together with what is known of each packet
 * in it: whether its sender had sent it before, and why.
 */
import { LinkType, PcapngEncoder } from '@node-roce/pcap';
import { createRandom, gidEquals } from '@node-roce/wire';
import { frameOf } from './frames.ts';
import type { Network, SimHost, TracedPacket } from './network.ts';

/** At a host: what it sends, and what reaches it. In the middle: what passes between the segments of all ways. */
export type TapPlace = 'middle' | Pick<SimHost, 'gid' | 'groups'>;

/** Defects of the capture, not of the network. Chances are 0 … 1. */
export interface TapFaults {
  /** A packet is not in the capture. */
  miss?: number;
  /** A packet is in the capture twice, a µs apart: what a mirror of both directions of a port does. */
  repeat?: number;
  seed?: number;
}

/** A packet in a capture: the first has frame number 1. */
export interface TappedPacket extends TracedPacket {
  /** A frame before showed this very packet. */
  repeated: boolean;
}

/** The packets that pass the tap, in order of time. */
export function tap({ trace }: Network, place: TapPlace, faults: TapFaults = {}): TappedPacket[] {
  const { miss = 0, repeat = 0, seed = 1 } = faults;
  const random = createRandom(seed);
  const seen: TappedPacket[] = [];
  for (const packet of trace) {
    if (!isSeen(packet, place) || random.chance(miss)) continue;
    seen.push({ ...packet, repeated: false });
    if (random.chance(repeat)) seen.push({ ...packet, time: packet.time + 1, repeated: true });
  }
  return seen.sort((a, b) => a.time - b.time);
}

function isSeen({ event, source, destination }: TracedPacket, place: TapPlace): boolean {
  if (place === 'middle') return event === 'passed';
  const { gid, groups = [] } = place;
  if (event === 'sent') return gidEquals(source, gid);
  return event === 'arrived' && [gid, ...groups].some((own) => gidEquals(destination, own));
}

export interface TapCaptureOptions {
  /** Bytes kept of a frame; all by default. */
  snapLength?: number;
  /** A comment in the file, for example the command that repeats the run. */
  comment?: string;
}

/** The bytes of a pcapng file with Ethernet frames, in the order of the packets. */
export function tapCapture(
  packets: readonly TracedPacket[],
  { snapLength, comment }: TapCaptureOptions = {},
): Uint8Array {
  const encoder = new PcapngEncoder({
    application: 'node-roce simulator',
    ...(comment === undefined ? {} : { comments: [comment] }),
  });
  encoder.interface({
    linkType: LinkType.ETHERNET,
    name: 'tap',
    ...(snapLength === undefined ? {} : { snapLength }),
  });
  for (const packet of packets) {
    encoder.packet({ data: ethernetFrameOf(packet), timestamp: BigInt(Math.round(packet.time * 1000)) });
  }
  return encoder.take().slice();
}

const ETHERNET_BYTES = 14;

function ethernetFrameOf(packet: TracedPacket): Uint8Array {
  const ip = frameOf(packet);
  const frame = new Uint8Array(ETHERNET_BYTES + ip.length);
  // Locally administered addresses that end as the GIDs do.
  frame.set([2, ...packet.destination.subarray(11)]);
  frame.set([2, ...packet.source.subarray(11)], 6);
  frame.set(ip[0] >> 4 === 4 ? [0x08, 0x00] : [0x86, 0xdd], 12);
  frame.set(ip, ETHERNET_BYTES);
  return frame;
}
