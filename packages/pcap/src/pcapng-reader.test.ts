import { describe, expect, test } from 'vitest';
import { concat, hex, ngLittle, ngSections, parse } from '../testing/captures.ts';
import { CaptureErrorCode, CaptureParser } from './index.ts';

/** A little-endian section header, and an Ethernet interface in µs. */
const section = hex('0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffffffffffff 1c000000');
const ethernet = hex('01000000 14000000 01000000 00000400 14000000');
const start = concat(section, ethernet);

test('section, interface and packet with all their options', () => {
  const { records, error, parser } = parse(ngLittle);
  expect(error).toBeUndefined();
  expect(parser.section).toEqual({
    index: 0,
    format: 'pcapng',
    byteOrder: 'little',
    versionMajor: 1,
    versionMinor: 0,
    os: 'linux',
    application: 'tools',
    comments: ['fil'],
    interfaces: [
      {
        id: 0,
        linkType: 1,
        snapLength: 262144,
        timestampUnitsPerSecond: 1_000_000_000n,
        timestampOffset: 0n,
        name: 'eth0',
        comments: ['if'],
      },
    ],
  });
  expect(records).toEqual([
    {
      data: '0102030405',
      seconds: 1_700_000_000,
      nanoseconds: 123_456_789,
      timestamp: 1_700_000_000_123_456_789n,
      hasTimestamp: true,
      capturedLength: 5,
      originalLength: 100,
      linkType: 1,
      interfaceId: 0,
      fileOffset: 112,
      comments: ['hello'],
      flags: 2,
      direction: 'outbound',
      dropCount: 7,
      section: 0,
    },
  ]);
});

test('sections of both byte orders, all kinds of packet block, blocks that are passed over', () => {
  const parser = new CaptureParser();
  parser.push(ngSections);
  const records = [...parser];
  parser.end();
  expect(parser.error).toBeUndefined();
  expect(records.map((record) => record.section.byteOrder)).toEqual(['big', 'big', 'little']);
  expect(records.map((record) => record.section.index)).toEqual([0, 0, 1]);
  expect(records.map((record) => record.linkType)).toEqual([101, 101, 276]);
  expect(records.map((record) => record.interfaceId)).toEqual([0, 0, 1]);

  const [simple, obsolete, binary] = records;
  expect(simple).toMatchObject({ hasTimestamp: false, capturedLength: 4, originalLength: 9, seconds: 0 });
  expect(simple!.data).toEqual(hex('aabbccdd'));
  expect(obsolete).toMatchObject({ capturedLength: 2, dropCount: 3 });
  expect(obsolete!.timestamp).toBe(1_700_003_600_123_456_000n);
  expect(binary!.timestamp).toBe(1_700_000_000_500_000_000n);
  expect(binary!.interface.timestampUnitsPerSecond).toBe(1n << 20n);
  expect(records[0].interface.statistics).toEqual({
    timestamp: 1_700_003_600_123_456_000n,
    received: 100,
    dropped: 3,
  });
  expect(parser.section).toBe(binary!.section);
});

test('the remaining options of an interface and of statistics', () => {
  const input = concat(
    section,
    hex(`01000000 60000000 01000000 00000000
      0300 0200 6e690000  0800 0800 00e8764817000000  0b00 0400 00 746370
      0c00 0100 6f000000  0d00 0100 04000000           0f00 0200 68770000
      0b00 0300 01 0203 00  0000 0000`),
  );
  // The length is not counted by hand: fill it in, front and back.
  const length = input.length - section.length + 4;
  const block = concat(input, new Uint8Array(4));
  const view = new DataView(block.buffer);
  view.setUint32(section.length + 4, length, true);
  view.setUint32(block.length - 4, length, true);
  const { error, parser } = parse(block);
  expect(error).toBeUndefined();
  expect(parser.section?.interfaces[0]).toMatchObject({
    description: 'ni',
    speed: 100_000_000_000n,
    filter: 'tcp',
    os: 'o',
    fcsLength: 4,
    hardware: 'hw',
  });
});

test('an empty section is a capture without packets', () => {
  const { records, error, parser } = parse(section);
  expect(records).toEqual([]);
  expect(error).toBeUndefined();
  expect(parser.section?.interfaces).toEqual([]);
});

describe('damage', () => {
  const packet = hex('06000000 24000000 00000000 00000000 01000000 01000000 01000000 99000000 24000000');
  const at = start.length;

  const cases: [string, Uint8Array, CaptureErrorCode, RegExp][] = [
    ['a length below 12', hex('06000000 08000000 00000000'), CaptureErrorCode.BAD_BLOCK, /8 bytes/],
    ['a length of no multiple of 4', hex('06000000 22000000 00000000'), CaptureErrorCode.BAD_BLOCK, /34/],
    ['a length over 64 MiB', hex('06000000 04000004 00000000'), CaptureErrorCode.TOO_LARGE, /67108868/],
    [
      'lengths that differ',
      concat(packet.subarray(0, 32), hex('20000000')),
      CaptureErrorCode.BAD_BLOCK,
      /36 in front and 32 behind/,
    ],
    [
      'a packet longer than its block',
      concat(packet.subarray(0, 20), hex('05000000'), packet.subarray(24)),
      CaptureErrorCode.BAD_BLOCK,
      /5 captured bytes, has room for 4/,
    ],
    [
      'an interface that is not described',
      concat(packet.subarray(0, 8), hex('01000000'), packet.subarray(12)),
      CaptureErrorCode.UNKNOWN_INTERFACE,
      /interface 1, 1 are described/,
    ],
    [
      'a packet block without its fields',
      hex('06000000 10000000 00000000 10000000'),
      CaptureErrorCode.BAD_BLOCK,
      /body of 4 bytes, its fields need 20/,
    ],
    [
      'a simple packet longer than its block',
      hex('03000000 14000000 05000000 01020304 14000000'),
      CaptureErrorCode.BAD_BLOCK,
      /must hold 5 bytes, has room for 4/,
    ],
    [
      'an option that runs over the end',
      hex('05000000 1c000000 00000000 0000000000000000 0400 0800 1c000000'),
      CaptureErrorCode.BAD_OPTION,
      /option 4 claims 8 bytes, 0 are left/,
    ],
    [
      'an option with a length its type forbids',
      hex('01000000 1c000000 01000000 00000000 0900 0200 09000000 1c000000'),
      CaptureErrorCode.BAD_OPTION,
      /option 9 with 2 bytes, expected 1/,
    ],
    [
      'statistics of an unknown interface',
      hex('05000000 18000000 07000000 0000000000000000 18000000'),
      CaptureErrorCode.UNKNOWN_INTERFACE,
      /interface 7/,
    ],
    [
      'a section header without byte order',
      hex('0a0d0d0a 1c000000 4d3c2b1b 01000000 ffffffffffffffff 1c000000'),
      CaptureErrorCode.BAD_BLOCK,
      /byte-order magic/,
    ],
    [
      'a version that is not known',
      hex('0a0d0d0a 1c000000 4d3c2b1a 02000000 ffffffffffffffff 1c000000'),
      CaptureErrorCode.VERSION,
      /2\.0/,
    ],
  ];
  test.each(cases)('%s', (_name, block, code, message) => {
    const { records, error } = parse(concat(start, packet, block, packet));
    expect(records).toHaveLength(1);
    expect(error).toMatchObject({ code, offset: at + packet.length });
    expect(error?.message).toMatch(message);
    expect(error?.message).toContain(`at byte ${at + packet.length}`);
  });

  test('a packet before any interface', () => {
    const { error } = parse(concat(section, packet));
    expect(error).toMatchObject({ code: CaptureErrorCode.UNKNOWN_INTERFACE, offset: section.length });
  });

  test('an interface of the section before does not count', () => {
    const { records, error } = parse(concat(start, packet, section, packet));
    expect(records).toHaveLength(1);
    expect(error?.code).toBe(CaptureErrorCode.UNKNOWN_INTERFACE);
  });

  /** A block with its lengths, of these bytes of body. */
  function block(type: number, body: Uint8Array): Uint8Array {
    const bytes = new Uint8Array(body.length + 12);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, type, true);
    view.setUint32(4, bytes.length, true);
    bytes.set(body, 8);
    view.setUint32(bytes.length - 4, bytes.length, true);
    return bytes;
  }

  test('names and comments of a section: 4 MiB are kept', () => {
    // An Interface Description Block, all but full of comments of 60,000 bytes.
    const comment = concat(hex('0100 60ea'), new Uint8Array(60_000).fill(0x61));
    const one = block(1, concat(hex('0100 0000 00000000'), ...Array.from({ length: 15 }, () => comment)));
    const repeated = (n: number) => concat(section, ...Array.from({ length: n }, () => one));
    expect(parse(repeated(4)).error).toBeUndefined();
    expect(parse(repeated(5)).error).toMatchObject({
      code: CaptureErrorCode.TOO_LARGE,
      offset: section.length + 4 * one.length,
      message: expect.stringContaining('4194304'),
    });
    // Each section has its own.
    expect(parse(concat(repeated(4), repeated(4))).error).toBeUndefined();
  });

  test('more options in a block than any has', () => {
    const empty = new Uint8Array(8 + 4 * 65_537);
    for (let at = 8; at < empty.length; at += 4) empty[at] = 1; // a comment of no bytes
    expect(parse(concat(section, block(1, empty.subarray(0, 8 + 4 * 65_536)))).error).toBeUndefined();
    expect(parse(concat(section, block(1, empty))).error).toMatchObject({
      code: CaptureErrorCode.BAD_OPTION,
    });
  });

  test('more interfaces than are kept', () => {
    const input = new Uint8Array(section.length + 65_537 * ethernet.length);
    input.set(section);
    for (let offset = section.length; offset < input.length; offset += ethernet.length) {
      input.set(ethernet, offset);
    }
    expect(parse(input).error).toMatchObject({
      code: CaptureErrorCode.TOO_MANY_INTERFACES,
      offset: section.length + 65_536 * ethernet.length,
    });
  });
});
