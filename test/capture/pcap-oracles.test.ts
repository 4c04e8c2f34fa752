/**
 * An independent reader, `pcap-parser` from npm, agrees with ours on every classic capture of the real
 * rxe in test/fixtures/captures, and on the output of our encoder. It knows neither nanoseconds nor
 * pcapng, stops silently at a cut, and copies each packet; so it is an oracle and not the reader.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type ByteOrder, CaptureParser, LinkType, PcapEncoder } from '@node-roce/pcap';
import { openCapture } from '@node-roce/pcap/node';
import { expect, test } from 'vitest';

interface OraclePacket {
  header: {
    timestampSeconds: number;
    timestampMicroseconds: number;
    capturedLength: number;
    originalLength: number;
  };
  data: Buffer;
}

// It has no types, and is CommonJS. Its use of `new Buffer` is the reason for Node's deprecation notice.
const { default: oracle } = (await import('pcap-parser' as string)) as {
  default: { parse(stream: Readable): NodeJS.EventEmitter };
};

interface Packet {
  seconds: number;
  microseconds: number;
  originalLength: number;
  data: string;
}

/** The packets that the oracle reads, and the file header it saw. */
function askOracle(bytes: Uint8Array, chunkSize: number) {
  return new Promise<{ header: Record<string, number>; packets: Packet[] }>((resolve, reject) => {
    const chunks: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += chunkSize) {
      chunks.push(Buffer.from(bytes.subarray(at, at + chunkSize)));
    }
    let header: Record<string, number> = {};
    const packets: Packet[] = [];
    oracle
      .parse(Readable.from(chunks))
      .on('globalHeader', (seen) => {
        header = seen;
      })
      .on('packet', ({ header: h, data }: OraclePacket) => {
        expect(data.length).toBe(h.capturedLength);
        packets.push({
          seconds: h.timestampSeconds,
          microseconds: h.timestampMicroseconds,
          originalLength: h.originalLength,
          data: data.toString('hex'),
        });
      })
      .on('error', reject)
      .on('end', () => resolve({ header, packets }));
  });
}

function readOurs(bytes: Uint8Array): { parser: CaptureParser; packets: Packet[] } {
  const parser = new CaptureParser();
  const packets: Packet[] = [];
  parser.push(bytes);
  for (const record of parser) {
    expect(record.nanoseconds % 1000).toBe(0);
    packets.push({
      seconds: record.seconds,
      microseconds: record.nanoseconds / 1000,
      originalLength: record.originalLength,
      data: Buffer.from(record.data).toString('hex'),
    });
  }
  parser.end();
  return { parser, packets };
}

const folder = join(import.meta.dirname, '../fixtures', 'captures');
const captures = readdirSync(folder).filter((name) => name.endsWith('.pcap'));

test('there are captures to compare', () => {
  expect(captures.length).toBeGreaterThan(20);
});

test.each(captures)('%s', async (name) => {
  const bytes = readFileSync(join(folder, name));
  const { header, packets } = await askOracle(bytes, 4000);
  const ours = readOurs(bytes);
  expect(ours.parser.error).toBeUndefined();
  expect(ours.packets.length).toBeGreaterThan(0);
  expect(ours.packets).toEqual(packets);
  const { section } = ours.parser;
  expect([section?.versionMajor, section?.versionMinor]).toEqual([header.majorVersion, header.minorVersion]);
  expect(section?.interfaces[0]).toMatchObject({
    linkType: header.linkLayerType,
    snapLength: header.snapshotLength,
  });

  // The file helper gives the same packets as the parser.
  let count = 0;
  for await (const batch of openCapture(join(folder, name))) {
    for (const record of batch) {
      expect(Buffer.from(record.data).toString('hex')).toBe(packets[count++]?.data);
    }
  }
  expect(count).toBe(packets.length);
});

test.each<ByteOrder>(['little', 'big'])('the oracle reads our files, %s-endian', async (byteOrder) => {
  const encoder = new PcapEncoder({
    linkType: LinkType.LINUX_SLL2,
    snapLength: 300,
    resolution: 'micro',
    byteOrder,
  });
  const expected: Packet[] = [];
  for (let i = 0; i < 50; i++) {
    const data = new Uint8Array(i * 10).fill(i);
    encoder.packet({ seconds: 1_700_000_000 + i, nanoseconds: i * 1000 + 999, data });
    expected.push({
      seconds: 1_700_000_000 + i,
      microseconds: i,
      originalLength: data.length,
      data: Buffer.from(data.subarray(0, 300)).toString('hex'),
    });
  }
  const { header, packets } = await askOracle(encoder.take(), 100);
  expect(packets).toEqual(expected);
  expect(header).toMatchObject({ majorVersion: 2, minorVersion: 4, snapshotLength: 300, linkLayerType: 276 });
});
