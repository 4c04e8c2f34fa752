/** Takes GSO super-packets apart, which interfaces such as veth and lo deliver whole. */
import { PacketReader, packetFrame } from '@node-roce/capture';
import { type InterfaceInfo, LinkType, PacketRecord, type SectionInfo } from '@node-roce/pcap';
import { parseFrame } from '@node-roce/wire';

const ETHERNET: InterfaceInfo = {
  id: 0,
  linkType: LinkType.ETHERNET,
  snapLength: 0,
  timestampUnitsPerSecond: 1_000_000_000n,
  timestampOffset: 0n,
  comments: [],
};

const SECTION: SectionInfo = {
  index: 0,
  format: 'pcapng',
  byteOrder: 'little',
  versionMajor: 1,
  versionMinor: 0,
  interfaces: [ETHERNET],
  comments: [],
};

/** The frames of the packets in a frame: itself, unless it holds several. */
export function splitFrame(frame: Uint8Array): Uint8Array[] {
  const parsed = parseFrame(frame);
  if (parsed.ok && parsed.packet.icrcStatus === 'ok') return [frame];
  const parts: Uint8Array[] = [];
  const reader = new PacketReader({ onPacket: (packet) => parts.push(packetFrame(packet)) });
  reader.frame(new PacketRecord(frame, 0, frame.length, frame.length, 0, 0, false, SECTION, ETHERNET, 0));
  return parts.length > 1 ? parts : [frame];
}
