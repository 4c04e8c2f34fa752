/** `console.log` of the classes of captures: a line each, without the bytes of a whole file. */
import { join } from 'node:path';
import { inspect } from 'node:util';
import * as capture from 'node-roce/capture/node';
import * as pcap from 'node-roce/pcap';
import * as files from 'node-roce/pcap/node';
import * as wire from 'node-roce/wire';
import { expect, test } from 'vitest';

const file = join(import.meta.dirname, '../fixtures/captures/op_all.pcap');

/** One object of each exported class, by its name. */
async function objects(): Promise<Record<string, unknown>> {
  let packet = '';
  const reader = new capture.PacketReader({
    onPacket: (roce) => {
      packet ||= inspect(roce);
    },
  });
  const opened = files.openCapture(file);
  let record: unknown;
  for await (const batch of opened)
    for (const each of batch) {
      record ??= each;
      reader.frame(each);
    }
  expect(packet).toBe(
    'RocePacket { frame: 1, time: 0, RC Send Only, destQp: 0x5f, psn: 1193046, payloadLength: 13, icrc: ok }',
  );
  return {
    PacketRecord: record,
    CaptureReader: opened,
    CaptureParser: new pcap.CaptureParser(),
    PcapEncoder: new pcap.PcapEncoder({ linkType: 1 }),
    PcapngEncoder: new pcap.PcapngEncoder(),
    PacketReader: reader,
    RocePacket: new capture.RocePacket(),
    IcmpError: new capture.IcmpError(),
    PauseFrame: Object.assign(new capture.PauseFrame(), { enabled: 0b1001 }),
    PauseValue: new wire.PauseValue(),
    AddressTable: new capture.AddressTable(),
    FlowAnalyzer: new capture.FlowAnalyzer(),
    Anonymizer: new capture.Anonymizer('key'),
  };
}

test('each object takes one line of at most 160 characters', async () => {
  for (const [name, object] of Object.entries(await objects())) {
    const text = inspect(object);
    expect(text.startsWith(name), text).toBe(true);
    expect(text.includes('\n') || text.length > 160, text).toBe(false);
  }
});

test('the facts in the lines', async () => {
  const { PacketRecord, PacketReader, IcmpError, PauseFrame } = await objects();
  expect(inspect(PacketRecord)).toBe(
    'PacketRecord { timestamp: 1795180977281450000n, 74 bytes, linkType: 1, interface: 0 }',
  );
  expect(inspect(PacketReader)).toMatch(/^PacketReader \{ frames: 42, rocePackets: 42, otherFrames: 0, /);
  expect(inspect(IcmpError)).toBe('IcmpError { frame: 0, time: 0, ICMPv4: other }');
  expect(inspect(PauseFrame)).toBe('PauseFrame { PFC, quanta by priority: { 0: 0, 3: 0 } }');
});
