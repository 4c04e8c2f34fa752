import { expect, test } from 'vitest';
import { classicMicro, classicNanoBig, concat, hex, parse, plain } from '../testing/captures.ts';
import { CaptureErrorCode, CaptureParser } from './index.ts';

test('little-endian microseconds', () => {
  const { records, error, parser } = parse(classicMicro);
  expect(error).toBeUndefined();
  expect(parser.section).toEqual({
    index: 0,
    format: 'pcap',
    byteOrder: 'little',
    versionMajor: 2,
    versionMinor: 4,
    comments: [],
    interfaces: [
      {
        id: 0,
        linkType: 1,
        snapLength: 65535,
        timestampUnitsPerSecond: 1_000_000n,
        timestampOffset: 0n,
        comments: [],
      },
    ],
  });
  expect(records).toEqual([
    {
      data: 'deadbeef',
      seconds: 123456789,
      nanoseconds: 123456000,
      timestamp: 123456789_123456000n,
      hasTimestamp: true,
      capturedLength: 4,
      originalLength: 4,
      linkType: 1,
      interfaceId: 0,
      fileOffset: 24,
      comments: [],
      flags: undefined,
      direction: undefined,
      dropCount: undefined,
      section: 0,
    },
    expect.objectContaining({
      data: '0102030405',
      timestamp: 123456790_999999000n,
      capturedLength: 5,
      originalLength: 100,
      fileOffset: 44,
    }),
  ]);
});

test('big-endian nanoseconds, with the FCS length next to the link type', () => {
  const { records, error, parser } = parse(classicNanoBig);
  expect(error).toBeUndefined();
  expect(parser.section?.byteOrder).toBe('big');
  expect(parser.section?.interfaces[0]).toMatchObject({
    linkType: 101,
    fcsLength: 4,
    snapLength: 262144,
    timestampUnitsPerSecond: 1_000_000_000n,
  });
  expect(records.map((record) => record.timestamp)).toEqual([123456789_999999999n, 123456790_000000001n]);
  expect(records.map((record) => record.data)).toEqual(['aabbcc', '']);
  expect(records[1].originalLength).toBe(60);
});

test('a fraction of a second or more is carried', () => {
  const input = classicMicro.slice();
  input.set(hex('80841e00'), 28); // 2,000,000 µs
  expect(parse(input).records[0]).toMatchObject({ seconds: 123456791, nanoseconds: 0 });
});

test('a file of nothing but its header is a capture without packets', () => {
  const { records, error, parser } = parse(classicMicro.subarray(0, 24));
  expect(records).toEqual([]);
  expect(error).toBeUndefined();
  expect(parser.format).toBe('pcap');
});

test('other versions are refused', () => {
  const input = classicMicro.slice();
  input[6] = 3;
  const { records, error } = parse(input);
  expect(records).toEqual([]);
  expect(error).toMatchObject({ code: CaptureErrorCode.VERSION, offset: 0 });
  expect(error?.message).toContain('2.3');
});

test('a packet larger than allowed stops the reader where it stands', () => {
  const huge = concat(classicMicro, hex('00000000 00000000 01000004 01000004'));
  const { records, error } = parse(huge);
  expect(records).toHaveLength(2);
  expect(error).toMatchObject({ code: CaptureErrorCode.TOO_LARGE, offset: 65 });
  expect(error?.message).toContain('67108865');
  expect(parse(classicMicro, undefined, { maxBlockLength: 12 }).error).toBeUndefined();
});

test('data is a view of the chunk when the packet lies within it, and its own memory when not', () => {
  const parser = new CaptureParser();
  const chunk = Buffer.from(classicMicro);
  parser.push(chunk.subarray(0, 50));
  const first = parser.read()!;
  expect(first.data.buffer).toBe(chunk.buffer);
  expect(first.data.constructor).toBe(Uint8Array);
  expect(parser.read()).toBeUndefined();
  parser.push(chunk.subarray(50));
  const second = parser.read()!;
  expect(second.data.buffer).not.toBe(chunk.buffer);
  chunk.fill(0);
  expect(plain(first).data).toBe('00000000');
  expect(plain(second).data).toBe('0102030405');
});
