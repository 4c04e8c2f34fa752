import { expect, test } from 'vitest';
import { classicMicro, hex, parse, toHex } from '../testing/captures.ts';
import { LinkType, PcapEncoder } from './index.ts';

const packet = { seconds: 1, nanoseconds: 2_003, data: hex('aabbcc') };

test('microseconds, little-endian: the bytes of the sample', () => {
  const encoder = new PcapEncoder({ linkType: LinkType.ETHERNET, snapLength: 65_535, resolution: 'micro' });
  encoder.packet({ timestamp: 123456789_123456999n, data: hex('deadbeef') });
  encoder.packet({
    seconds: 123456790,
    nanoseconds: 999_999_000,
    data: hex('0102030405'),
    originalLength: 100,
  });
  expect(encoder.pending).toBe(classicMicro.length);
  expect(toHex(encoder.take())).toBe(toHex(classicMicro));
  expect(encoder.pending).toBe(0);
});

test('nanoseconds, big-endian', () => {
  const encoder = new PcapEncoder({ linkType: LinkType.RAW, byteOrder: 'big' });
  encoder.packet(packet);
  expect(toHex(encoder.take())).toBe(
    'a1b23c4d0002000400000000000000000004000000000065' + '00000001000007d30000000300000003aabbcc',
  );
  encoder.packet(packet);
  expect(toHex(encoder.take())).toBe('00000001000007d30000000300000003aabbcc');
});

test('longer packets are cut to the snapshot length, their true length kept', () => {
  const encoder = new PcapEncoder({ linkType: 1, snapLength: 2 });
  encoder.packet(packet);
  expect(parse(encoder.take()).records[0]).toMatchObject({ data: 'aabb', originalLength: 3 });
});

test('arguments that do not fit throw and leave nothing behind', () => {
  expect(() => new PcapEncoder({ linkType: 65_536 })).toThrow(/linkType/);
  expect(() => new PcapEncoder({ linkType: 1, snapLength: 0 })).toThrow(/snapLength/);
  const encoder = new PcapEncoder({ linkType: 1 });
  encoder.take();
  for (const wrong of [
    { ...packet, seconds: 2 ** 32 },
    { ...packet, seconds: -1 },
    { ...packet, seconds: 0.5 },
    { ...packet, nanoseconds: 1e9 },
    { ...packet, originalLength: -1 },
    { ...packet, interfaceId: 1 },
    { data: packet.data, timestamp: -1n },
  ]) {
    expect(() => encoder.packet(wrong)).toThrow(RangeError);
  }
  expect(encoder.pending).toBe(0);
});
