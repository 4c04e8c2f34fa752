/** Frames for tests of this folder. */
import { CaptureParser, LinkType, PacketRecord, PcapEncoder } from '@node-roce/pcap';

const section = (() => {
  const encoder = new PcapEncoder({ linkType: LinkType.RAW });
  const parser = new CaptureParser();
  parser.push(encoder.take().slice());
  parser.read();
  return parser.section!;
})();

/** A record of a frame, as if from a file of that link type. */
export function rawRecord(
  frame: Uint8Array,
  { linkType = LinkType.RAW as number, originalLength = frame.length, nanoseconds = 0 } = {},
): PacketRecord {
  const info = { ...section.interfaces[0], linkType };
  return new PacketRecord(frame, 0, frame.length, originalLength, 1, nanoseconds, true, section, info, 0);
}
