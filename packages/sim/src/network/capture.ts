/** A simulated network as a capture: what a failing seed leaves for Wireshark and `roce dump`. */

import { LinkType, PcapngEncoder } from '@node-roce/pcap';
import { frameOf } from './frames.ts';
import type { TracedPacket } from './network.ts';

const EVENTS: readonly TracedPacket['event'][] = ['sent', 'arrived', 'passed'];

/**
 * The bytes of a pcapng file: every packet of the trace as an IP packet, at its virtual time, as it was sent,
 * as it passed and as it arrived, each on an interface of that name.
 *
 * @param comment goes into the section header: how to run it again, say
 */
export function captureOf(trace: readonly TracedPacket[], comment: string): Uint8Array {
  const encoder = new PcapngEncoder({ application: 'node-roce simulator', comments: [comment] });
  for (const name of EVENTS) encoder.interface({ linkType: LinkType.RAW, name });
  for (const packet of trace) {
    encoder.packet({
      data: frameOf(packet),
      timestamp: BigInt(Math.round(packet.time * 1000)),
      interfaceId: EVENTS.indexOf(packet.event),
    });
  }
  return encoder.take();
}
