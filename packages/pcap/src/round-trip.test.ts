/** The parser reads back everything that the encoders write, however it is cut. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { concat, parse, toHex } from '../testing/captures.ts';
import { CaptureParser, type PacketInput, PcapEncoder, PcapngEncoder } from './index.ts';

const byteOrder = fc.constantFrom('little' as const, 'big' as const);
const sizes = fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 8 });
const time = (mostSeconds: number) => ({
  seconds: fc.integer({ min: 0, max: mostSeconds }),
  nanoseconds: fc.integer({ min: 0, max: 999_999_999 }),
});
const packet = (mostSeconds: number) =>
  fc.record({
    ...time(mostSeconds),
    data: fc.uint8Array({ maxLength: 500 }),
    originalLength: fc.integer({ min: 0, max: 0xffff_ffff }),
  });

test('records written as classic pcap are read back equal', () => {
  fc.assert(
    fc.property(
      fc.array(packet(0xffff_ffff), { maxLength: 10 }),
      fc.record({
        byteOrder,
        resolution: fc.constantFrom('micro' as const, 'nano' as const),
        linkType: fc.integer({ min: 0, max: 0xffff }),
        snapLength: fc.integer({ min: 1, max: 600 }),
      }),
      sizes,
      (packets, options, chunks) => {
        const encoder = new PcapEncoder(options);
        for (const one of packets) encoder.packet(one);
        const { records, error, parser } = parse(encoder.take(), chunks);
        expect(error).toBeUndefined();
        expect(parser.section).toMatchObject({ format: 'pcap', byteOrder: options.byteOrder });
        expect(parser.section?.interfaces[0]).toMatchObject({
          linkType: options.linkType,
          snapLength: options.snapLength,
          timestampUnitsPerSecond: options.resolution === 'nano' ? 1_000_000_000n : 1_000_000n,
        });
        expect(records).toHaveLength(packets.length);
        const unit = options.resolution === 'nano' ? 1 : 1000;
        for (const [i, record] of records.entries()) {
          const one = packets[i];
          expect(record).toMatchObject({
            data: toHex(one.data.subarray(0, options.snapLength)),
            originalLength: one.originalLength,
            linkType: options.linkType,
            seconds: one.seconds,
            nanoseconds: one.nanoseconds - (one.nanoseconds % unit),
          });
        }
      },
    ),
  );
});

// Unpaired surrogates have no UTF-8, so `grapheme` strings rather than any UTF-16.
const text = fc.string({ unit: 'grapheme', maxLength: 20 });
const section = fc.record({
  options: fc.record({ byteOrder, comments: fc.array(text, { maxLength: 3 }) }),
  interfaces: fc.array(
    fc.record({
      linkType: fc.integer({ min: 0, max: 0xffff }),
      snapLength: fc.constantFrom(0, 1, 100, 262_144),
      name: text,
    }),
    { minLength: 1, maxLength: 4 },
  ),
  packets: fc.array(
    fc.record({
      packet: packet(18_446_744_072),
      on: fc.nat(),
      comments: fc.array(text, { maxLength: 3 }),
      flags: fc.option(fc.integer({ min: 0, max: 0xffff_ffff }), { nil: undefined }),
      dropCount: fc.option(fc.nat(), { nil: undefined }),
    }),
    { maxLength: 6 },
  ),
});

test('sections, interfaces and packets written as pcapng are read back equal', () => {
  fc.assert(
    fc.property(fc.array(section, { minLength: 1, maxLength: 3 }), sizes, (sections, chunks) => {
      const encoder = new PcapngEncoder(sections[0].options);
      const expected: object[] = [];
      for (const [index, { options, interfaces, packets }] of sections.entries()) {
        if (index > 0) encoder.section(options);
        for (const one of interfaces) encoder.interface(one);
        for (const { packet, on, comments, flags, dropCount } of packets) {
          const interfaceId = on % interfaces.length;
          const { linkType, snapLength } = interfaces[interfaceId];
          encoder.packet({ ...packet, interfaceId, comments, flags, dropCount });
          expected.push({
            data: toHex(snapLength === 0 ? packet.data : packet.data.subarray(0, snapLength)),
            originalLength: packet.originalLength,
            timestamp: BigInt(packet.seconds) * 1_000_000_000n + BigInt(packet.nanoseconds),
            ...{ linkType, interfaceId, comments, flags, dropCount, section: index },
          });
        }
      }
      const { records, error, parser } = parse(encoder.take(), chunks);
      expect(error).toBeUndefined();
      expect(records).toHaveLength(expected.length);
      expect(records).toMatchObject(expected);
      const last = sections.at(-1)!;
      expect(parser.section).toMatchObject({ ...last.options, interfaces: last.interfaces });
    }),
  );
});

test('a capture copied record by record is the same capture', () => {
  const encoder = new PcapngEncoder();
  encoder.interface({ linkType: 1 });
  const packets: PacketInput[] = [
    { timestamp: 5n, data: Uint8Array.of(1, 2, 3), comments: ['a'], direction: 'inbound' },
    { seconds: 7, nanoseconds: 8, data: Uint8Array.of(4), originalLength: 9, flags: 0x100, dropCount: 2 },
  ];
  for (const one of packets) encoder.packet(one);
  const original = encoder.take().slice();

  const parser = new CaptureParser();
  const copy = new PcapngEncoder();
  copy.interface({ linkType: 1 });
  parser.push(original);
  for (const record of parser) copy.packet(record);
  expect(toHex(copy.take())).toBe(toHex(original));
});

test('taken in pieces or at once, the bytes are the same', () => {
  const encode = (take: boolean): Uint8Array => {
    const encoder = new PcapngEncoder();
    const parts: Uint8Array[] = [];
    encoder.interface({ linkType: 1 });
    for (let i = 0; i < 100; i++) {
      encoder.packet({ seconds: i, nanoseconds: i, data: new Uint8Array(i * 10).fill(i) });
      if (take) parts.push(encoder.take().slice());
    }
    return concat(...parts, encoder.take());
  };
  expect(toHex(encode(true))).toBe(toHex(encode(false)));
});
