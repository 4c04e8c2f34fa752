import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { classicMicro, concat, hex, ngLittle, parse, samples } from '../testing/captures.ts';
import { CaptureErrorCode, CaptureParser } from './index.ts';

const codes = Object.values(CaptureErrorCode);
const kinds = Object.entries(samples);

test.each([
  ['d4c3b2a1', undefined],
  ['a1b2c3d4', undefined],
  ['4d3cb2a1', undefined],
  ['a1b23c4d', undefined],
  ['0a0d0d0a', undefined],
  ['34cdb2a1', CaptureErrorCode.MODIFIED],
  ['a1b2cd34', CaptureErrorCode.MODIFIED],
  ['1f8b0800', CaptureErrorCode.COMPRESSED],
  ['00000000', CaptureErrorCode.UNKNOWN_FORMAT],
  ['0d0d0a0a', CaptureErrorCode.UNKNOWN_FORMAT],
])('magic %s', (magic, code) => {
  const parser = new CaptureParser();
  parser.push(hex(magic));
  expect(parser.read()).toBeUndefined();
  expect(parser.error?.code).toBe(code);
  if (code !== undefined) expect(parser.error?.offset).toBe(0);
});

test('the reason for an unknown file shows its first word', () => {
  expect(parse(hex('cafebabe 00000000')).error?.message).toContain('0xcafebabe');
});

describe('the end of the input', () => {
  test('nothing at all is an error', () => {
    expect(parse(new Uint8Array(0)).error).toMatchObject({ code: CaptureErrorCode.TRUNCATED, offset: 0 });
  });

  test('the place and the item are named', () => {
    expect(parse(classicMicro.subarray(0, 63)).error?.message).toBe(
      'the input is cut off at byte 63: the packet at byte 44 needs 21 bytes, 19 are there',
    );
    expect(parse(ngLittle.subarray(0, 150)).error?.message).toBe(
      'the input is cut off at byte 150: the enhanced packet block at byte 112 needs 76 bytes, 38 are there',
    );
    expect(parse(ngLittle.subarray(0, 20)).error?.message).toContain('the section header block at byte 0');
  });

  test('end before the last reads, or after them, gives the same', () => {
    const parser = new CaptureParser();
    parser.push(classicMicro.subarray(0, 60));
    parser.end();
    expect(parser.error).toBeUndefined();
    expect([...parser]).toHaveLength(1);
    expect(parser.error?.code).toBe(CaptureErrorCode.TRUNCATED);
    expect(parser.error).toEqual(parse(classicMicro.subarray(0, 60)).error);
  });

  test('push after end is the caller’s mistake', () => {
    const parser = new CaptureParser();
    parser.end();
    expect(() => parser.push(classicMicro)).toThrow(/push after end/);
  });
});

test.each([11, 1.5, Number.NaN])('maxBlockLength %d is refused', (maxBlockLength) => {
  expect(() => new CaptureParser({ maxBlockLength })).toThrow(RangeError);
});

test('after an error there are no more records and input is ignored', () => {
  const parser = new CaptureParser();
  parser.push(hex('cafebabe'));
  expect(parser.read()).toBeUndefined();
  const { error } = parser;
  parser.push(classicMicro);
  expect(parser.read()).toBeUndefined();
  expect(parser.error).toBe(error);
});

test('several chunks may be pushed before any is read', () => {
  const parser = new CaptureParser();
  for (const byte of classicMicro) parser.push(Uint8Array.of(byte));
  expect([...parser]).toHaveLength(2);
  expect(parser.offset).toBe(classicMicro.length);
  expect(parser.packetCount).toBe(2);
});

describe.each(kinds)('%s', (_name, capture) => {
  const whole = parse(capture);

  test('any chunking gives the same records', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 20 }), (sizes) => {
        const chunked = parse(capture, sizes);
        expect(chunked.error).toBeUndefined();
        expect(chunked.records).toEqual(whole.records);
        expect(chunked.parser.section).toEqual(whole.parser.section);
      }),
    );
  });

  test('cut at each byte: whole items are read, the cut is named unless it falls between items', () => {
    for (let length = 0; length < capture.length; length++) {
      for (const sizes of [[length || 1], [1]]) {
        const { records, error, parser } = parse(capture.subarray(0, length), sizes);
        expect(records).toEqual(whole.records.slice(0, records.length));
        if (error === undefined) {
          expect(parser.offset).toBe(length);
        } else {
          expect(error.code).toBe(CaptureErrorCode.TRUNCATED);
          expect(error.offset).toBe(parser.offset);
          expect(error.offset).toBeLessThanOrEqual(length);
          if (length > 0) expect(error.message).toContain(`cut off at byte ${length}:`);
        }
        // No record was held back: the next one to come starts where reading stopped, or later.
        const next = whole.records[records.length];
        if (next !== undefined) expect(next.fileOffset).toBeGreaterThanOrEqual(parser.offset);
      }
    }
  });

  test('each single bit flipped: an error with a code, or records, the same in any chunking', () => {
    for (let bit = 0; bit < capture.length * 8; bit++) {
      const damaged = capture.slice();
      damaged[bit >> 3] ^= 1 << (bit & 7);
      const once = parse(damaged);
      const twice = parse(damaged, [7, 3]);
      expect(twice.records).toEqual(once.records);
      expect(twice.error).toEqual(once.error);
      if (once.error !== undefined) expect(codes).toContain(once.error.code);
      expect(once.parser.offset).toBeLessThanOrEqual(damaged.length);
    }
  });

  test('random bytes after a good beginning', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: capture.length }),
        fc.uint8Array({ maxLength: 300 }),
        fc.integer({ min: 1, max: 64 }),
        (length, noise, size) => {
          const input = concat(capture.subarray(0, length), noise);
          const once = parse(input);
          const chunked = parse(input, [size]);
          expect(chunked.records).toEqual(once.records);
          expect(chunked.error).toEqual(once.error);
        },
      ),
      { numRuns: 300 },
    );
  });
});

test('a length that is only promised reserves no memory', () => {
  const header = hex('0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffffffffffff 1c000000');
  const parsers = [];
  const before = process.memoryUsage().arrayBuffers;
  for (let i = 0; i < 50; i++) {
    const parser = new CaptureParser();
    parser.push(header);
    parser.push(hex('0000ff0b 00000004 00000000'));
    expect(parser.read()).toBeUndefined();
    expect(parser.error).toBeUndefined();
    parsers.push(parser);
  }
  // 50 blocks of 64 MiB are promised; 64 KiB each may be reserved.
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(50 * 200_000);
  expect(parsers).toHaveLength(50);
});

test.each([
  ['28b52ffd', 'ERR_PCAP_COMPRESSED', 'zstd: inflate it first (openCapture of node-roce/pcap/node does)'],
  ['04224d18', 'ERR_PCAP_COMPRESSED', 'lz4 -dc'],
  ['fd377a58', 'ERR_PCAP_COMPRESSED', 'xz -dc'],
  ['425a6839', 'ERR_PCAP_COMPRESSED', 'bzip2 -dc'],
  ['736e6f6f', 'ERR_PCAP_UNKNOWN_FORMAT', 'snoop capture: convert it with editcap'],
  ['474d4255', 'ERR_PCAP_UNKNOWN_FORMAT', 'Network Monitor: convert it with editcap'],
  ['52545353', 'ERR_PCAP_UNKNOWN_FORMAT', 'Network Monitor 1: convert it with editcap'],
  ['00112233', 'ERR_PCAP_UNKNOWN_FORMAT', 'editcap -F pcapng converts'],
])('a file that begins with %s: %s, names the program', (start, code, text) => {
  const { error } = parse(hex(`${start} 00000000 00000000`));
  expect(error).toMatchObject({ code, message: expect.stringContaining(text) });
});
