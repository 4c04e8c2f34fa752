/** Shared by the tests of this package: captures written out in hex, and a parser run to the end. */
import {
  type CaptureError,
  CaptureParser,
  type CaptureParserOptions,
  type PacketRecord,
} from '../src/index.ts';

/** Hex with free white space and `#` comments to the end of the line. */
export function hex(text: string): Uint8Array {
  const digits = text.replace(/#.*$/gm, '').replace(/\s+/g, '');
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error(`no hex: ${digits}`);
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function concat(...parts: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The fields of a record, as a plain value to compare. Interfaces and sections by their numbers. */
export function plain(record: PacketRecord) {
  const { seconds, nanoseconds, timestamp, hasTimestamp, capturedLength, originalLength } = record;
  const { linkType, interfaceId, fileOffset, comments, flags, direction, dropCount } = record;
  return {
    data: toHex(record.data),
    ...{ seconds, nanoseconds, timestamp, hasTimestamp, capturedLength, originalLength },
    ...{ linkType, interfaceId, fileOffset, comments, flags, direction, dropCount },
    section: record.section.index,
  };
}

type PlainRecord = ReturnType<typeof plain>;

export interface ParseResult {
  records: PlainRecord[];
  error: CaptureError | undefined;
  parser: CaptureParser;
}

/** Parses all of `input`, cut into chunks whose sizes are taken from `sizes` in turn. */
export function parse(
  input: Uint8Array,
  sizes: readonly number[] = [input.length || 1],
  options?: CaptureParserOptions,
): ParseResult {
  const parser = new CaptureParser(options);
  const records: PlainRecord[] = [];
  for (let at = 0, turn = 0; at < input.length; turn++) {
    const size = Math.max(1, sizes[turn % sizes.length]);
    // A copy that is overwritten afterwards: nothing may still refer to it but records already read.
    const chunk = input.slice(at, at + size);
    parser.push(chunk);
    for (const record of parser) records.push(plain(record));
    chunk.fill(0xee);
    at += size;
  }
  parser.end();
  return { records, error: parser.error, parser };
}

/** Classic, little-endian, µs: two packets, the second cut from 100 to 5 bytes. */
export const classicMicro = hex(`
  d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000
  15cd5b07 40e20100 04000000 04000000 deadbeef
  16cd5b07 3f420f00 05000000 64000000 0102030405`);

/** Classic, big-endian, ns, link type RAW with an FCS length of 4 bytes. */
export const classicNanoBig = hex(`
  a1b23c4d 0002 0004 00000000 00000000 00040000 24000065
  075bcd15 3b9ac9ff 00000003 00000003 aabbcc
  075bcd16 00000001 00000000 0000003c`);

/** pcapng, little-endian, ns: comments everywhere, flags and drops on the packet. */
export const ngLittle = hex(`
  0a0d0d0a 40000000 4d3c2b1a 0100 0000 ffffffffffffffff      # section header, 64 bytes
    0100 0300 66696c00                                        # comment "fil"
    0300 0500 6c696e7578000000                                # os "linux"
    0400 0500 746f6f6c73000000                                # application "tools"
    0000 0000
  40000000
  01000000 30000000 0100 0000 00000400                        # interface 0: Ethernet, 262144
    0200 0400 65746830                                        # name "eth0"
    0900 0100 09000000                                        # resolution 10^-9
    0100 0200 69660000                                        # comment "if"
    0000 0000
  30000000
  06000000 4c000000 00000000 fe9c9717 15cd853d                # enhanced packet, 1700000000.123456789
    05000000 64000000 0102030405 000000
    0100 0500 68656c6c6f000000                                # comment "hello"
    0200 0400 02000000                                        # outbound
    0400 0800 0700000000000000                                # 7 lost before
    0000 0000
  4c000000`);

/**
 * pcapng of two sections: big-endian with an interface in µs shifted by an hour, a simple packet, an
 * obsolete packet block, name resolution, a block of unknown type and statistics; then little-endian
 * with two interfaces, the second counting in 2^-20 s.
 */
export const ngSections = hex(`
  0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c
  00000001 00000028 0065 0000 00000004                        # interface 0: RAW, 4 bytes kept
    0009 0001 06000000
    000e 0008 0000000000000e10                                # 3600 s to add
  00000028
  00000003 00000014 00000009 aabbccdd 00000014                # simple packet, 9 bytes cut to 4
  00000004 00000010 0000 0000 00000010                        # name resolution, empty
  0badf00d 00000010 12345678 00000010                         # unknown
  00000002 00000028 0000 0003 00060a24 18202240 00000002 00000002 eeff 0000 00000000
  00000028
  00000005 00000034 00000000 00060a24 18202240                # statistics
    0004 0008 0000000000000064                                # 100 received
    0005 0008 0000000000000003                                # 3 dropped
    0000 0000
  00000034
  0a0d0d0a 1c000000 4d3c2b1a 0100 0200 ffffffffffffffff 1c000000
  01000000 14000000 0100 0000 00000000 14000000
  01000000 20000000 1401 0000 00000000 0900 0100 94000000 0000 0000 20000000
  06000000 24000000 01000000 3f550600 00000810 01000000 01000000 99 000000 24000000`);

/** One of each kind, by name. */
export const samples = { classicMicro, classicNanoBig, ngLittle, ngSections };
