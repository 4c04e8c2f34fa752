/** The packets of a case as a capture file, for Wireshark and `roce ladder`. */
import { LinkType, PcapngEncoder } from '@node-roce/pcap';
import type { Result } from './run.ts';

/** The bytes of a pcapng file; times count from the first packet. */
export function captureOfCase({ rule, entries, leftOut, verdict, why }: Result): Uint8Array {
  const comments = [`${rule.id} ${rule.title}`, `${verdict}: ${why.join(' | ')}`];
  if (leftOut !== undefined) comments.push(`${leftOut} packets in the middle are left out`);
  const encoder = new PcapngEncoder({ application: 'roce conform', comments });
  encoder.interface({ linkType: LinkType.ETHERNET, name: 'tester' });
  const start = entries[0]?.time ?? 0;
  for (const { time, frame } of entries) {
    encoder.packet({ data: frame, timestamp: BigInt(Math.round((time - start) * 1e6)) });
  }
  return encoder.take();
}
