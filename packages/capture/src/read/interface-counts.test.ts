import { CaptureParser, LinkType, PcapngEncoder } from '@node-roce/pcap';
import { expect, test } from 'vitest';
import { ACK } from '../../testing/frames.ts';
import { PacketReader } from './reader.ts';

test('the counters of all sections, however many they are, also those behind the last packet', () => {
  const encoder = new PcapngEncoder();
  for (let section = 0; section < 1030; section++) {
    if (section > 0) encoder.section();
    const linkType = section === 1029 ? LinkType.RAW : LinkType.ETHERNET;
    const interfaceId = encoder.interface({ linkType });
    const packet = { interfaceId, seconds: 1, nanoseconds: 0, data: ACK, originalLength: ACK.length };
    encoder.packet(packet);
    encoder.statistics(interfaceId, { timestamp: 1n, dropped: 2, osDropped: section % 2 });
  }
  const parser = new CaptureParser();
  parser.push(encoder.take());
  const reader = new PacketReader();
  for (let record = parser.read(); record !== undefined; record = parser.read()) reader.frame(record);
  for (let i = 0; i < 2; i++)
    expect(reader.summary()).toMatchObject({
      format: 'pcapng',
      linkTypes: ['ETHERNET', 'RAW'],
      droppedByCapture: 2060 + 515,
    });
});
