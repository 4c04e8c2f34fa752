/** A simulated network's packets as a capture, for Wireshark and `roce dump`. */
import { LinkType, PcapngEncoder } from '@node-roce/pcap';
import { frameOf } from './frames.ts';
import type { TracedPacket } from './network.ts';

/** Options of `captureOf`. */
export interface NetworkCaptureOptions {
  /**
   * Which events of the trace become packets, each on an interface of that name. Default `sent` only: with more of
   * them a packet stands in the file several times, and tools count it so.
   */
  events?: readonly TracedPacket['event'][];
}

/**
 * Writes a trace as the bytes of a pcapng file: IP packets at their virtual times.
 *
 * @param comment for the section header, such as how to repeat the run
 */
export function captureOf(
  trace: readonly TracedPacket[],
  comment: string,
  { events = ['sent'] }: NetworkCaptureOptions = {},
): Uint8Array {
  const encoder = new PcapngEncoder({ application: 'node-roce simulator', comments: [comment] });
  for (const name of events) encoder.interface({ linkType: LinkType.RAW, name });
  for (const packet of trace) {
    const interfaceId = events.indexOf(packet.event);
    if (interfaceId < 0) continue;
    encoder.packet({
      data: frameOf(packet),
      timestamp: BigInt(Math.round(packet.time * 1000)),
      interfaceId,
    });
  }
  return encoder.take();
}
