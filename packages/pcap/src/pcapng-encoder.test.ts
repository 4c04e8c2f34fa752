import { expect, test } from 'vitest';
import { hex, ngLittle, parse, toHex } from '../testing/captures.ts';
import { LinkType, PcapngEncoder } from './index.ts';

test('section, interface and packet: the bytes of the sample, up to the order of options', () => {
  const encoder = new PcapngEncoder({ os: 'linux', application: 'tools', comments: ['fil'] });
  const id = encoder.interface({ linkType: LinkType.ETHERNET, name: 'eth0', comments: ['if'] });
  encoder.packet({
    timestamp: 1_700_000_000_123_456_789n,
    data: hex('0102030405'),
    originalLength: 100,
    interfaceId: id,
    comments: ['hello'],
    direction: 'outbound',
    dropCount: 7,
  });
  const bytes = encoder.take();
  const sample = toHex(ngLittle);
  // The encoder puts an interface's comments first; the sample has them last.
  const comment = '0100020069660000';
  const name = '0200040065746830';
  const resolution = '0900010009000000';
  expect(toHex(bytes)).toBe(sample.replace(name + resolution + comment, comment + name + resolution));
});

test('big-endian, a packet without options, and statistics', () => {
  const encoder = new PcapngEncoder({ byteOrder: 'big' });
  encoder.interface({ linkType: LinkType.RAW, snapLength: 0 });
  encoder.packet({ seconds: 1, nanoseconds: 1, data: hex('01') });
  encoder.statistics(0, { timestamp: 2n, received: 5, dropped: 1 });
  expect(toHex(encoder.take())).toBe(
    toHex(
      hex(`
        0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c
        00000001 00000020 0065 0000 00000000 0009 0001 09000000 0000 0000 00000020
        00000006 00000024 00000000 00000000 3b9aca01 00000001 00000001 01000000 00000024
        00000005 00000034 00000000 00000000 00000002
          0004 0008 0000000000000005 0005 0008 0000000000000001 0000 0000
        00000034`),
    ),
  );
});

test('every option of an interface comes back', () => {
  const encoder = new PcapngEncoder({ hardware: 'x86' });
  const options = {
    linkType: LinkType.LINUX_SLL2,
    snapLength: 96,
    fcsLength: 4,
    name: 'mlx5_0',
    description: 'Übertragung',
    filter: 'udp port 4791',
    hardware: 'ConnectX',
    os: 'Linux',
    speed: 100_000_000_000n,
    comments: ['one', 'two'],
  };
  expect(encoder.interface({ linkType: 1 })).toBe(0);
  expect(encoder.interface(options)).toBe(1);
  const statistics = {
    timestamp: 1_700_000_000_000_000_001n,
    startTime: 1n,
    endTime: 1_700_000_000_000_000_000n,
    received: 10,
    dropped: 2 ** 40,
    filterAccepted: 8,
    osDropped: 1,
    delivered: 7,
  };
  encoder.statistics(1, statistics);
  const { parser, error } = parse(encoder.take());
  expect(error).toBeUndefined();
  expect(parser.section?.hardware).toBe('x86');
  expect(parser.section?.interfaces[1]).toEqual({
    ...options,
    id: 1,
    timestampUnitsPerSecond: 1_000_000_000n,
    timestampOffset: 0n,
    statistics,
  });
});

test('a section starts its own interfaces and byte order', () => {
  const encoder = new PcapngEncoder();
  encoder.interface({ linkType: 1 });
  encoder.section({ byteOrder: 'big' });
  expect(() => encoder.packet({ seconds: 0, nanoseconds: 0, data: hex('') })).toThrow(/interface 0/);
  encoder.interface({ linkType: 101 });
  encoder.packet({ seconds: 0, nanoseconds: 0, data: hex('') });
  const { records, parser } = parse(encoder.take());
  expect(records).toMatchObject([{ linkType: 101, section: 1 }]);
  expect(parser.section?.byteOrder).toBe('big');
});

test('direction overrides the low bits of flags', () => {
  const encoder = new PcapngEncoder();
  encoder.interface({ linkType: 1 });
  const packet = { seconds: 0, nanoseconds: 0, data: hex('') };
  encoder.packet({ ...packet, flags: 0x8000_0002, direction: 'inbound' });
  encoder.packet({ ...packet, flags: 0x8000_0002 });
  encoder.packet({ ...packet, flags: 0 });
  expect(parse(encoder.take()).records).toMatchObject([
    { flags: 0x8000_0001, direction: 'inbound' },
    { flags: 0x8000_0002, direction: 'outbound' },
    { flags: 0, direction: undefined },
  ]);
});

test('the buffer is used again, and its old bytes never show in a pad', () => {
  const encoder = new PcapngEncoder();
  encoder.interface({ linkType: 1 });
  encoder.packet({ seconds: 0, nanoseconds: 0, data: new Uint8Array(64).fill(0xff) });
  const first = encoder.take();
  encoder.packet({ seconds: 0, nanoseconds: 0, data: hex('aa'), comments: ['b'] });
  const second = encoder.take();
  expect(second.buffer).toBe(first.buffer);
  expect(toHex(second)).toContain('aa000000');
  expect(toHex(second)).toContain('0100010062000000');
});

test('arguments that do not fit throw and leave nothing behind', () => {
  const encoder = new PcapngEncoder();
  encoder.interface({ linkType: 1 });
  encoder.take();
  const packet = { seconds: 0, nanoseconds: 0, data: hex('01') };
  const long = 'x'.repeat(65_536);
  expect(() => encoder.packet({ ...packet, seconds: 18_446_744_073 })).toThrow(RangeError);
  expect(() => encoder.packet({ ...packet, nanoseconds: -1 })).toThrow(RangeError);
  expect(() => encoder.packet({ ...packet, interfaceId: 1 })).toThrow(/interface 1/);
  expect(() => encoder.packet({ ...packet, comments: ['fits', long] })).toThrow(/65535/);
  expect(() => encoder.packet({ ...packet, flags: -1 })).toThrow(/flags/);
  expect(() => encoder.packet({ ...packet, dropCount: 0.5 })).toThrow(/dropCount/);
  expect(() => encoder.interface({ linkType: -1 })).toThrow(/linkType/);
  expect(() => encoder.interface({ linkType: 1, fcsLength: 256 })).toThrow(RangeError);
  expect(() => encoder.interface({ linkType: 1, speed: -1n })).toThrow(RangeError);
  expect(() => encoder.section({ byteOrder: 'big', comments: [long] })).toThrow(RangeError);
  expect(() => encoder.statistics(1, { timestamp: 0n })).toThrow(/interface 1/);
  expect(() => encoder.statistics(0, { timestamp: -1n })).toThrow(RangeError);
  expect(() => encoder.statistics(0, { timestamp: 0n, dropped: -1 })).toThrow(/dropped/);
  expect(encoder.pending).toBe(0);
  encoder.packet(packet);
  expect(toHex(encoder.take()).slice(0, 8)).toBe('06000000');
});

test('text is kept as it is, a byte order mark in front included', () => {
  const comments = ['\ufefffirst', '', 'line\nline', '→ 日本語 🦀'];
  const encoder = new PcapngEncoder({ comments });
  expect(parse(encoder.take()).parser.section?.comments).toEqual(comments);
});
