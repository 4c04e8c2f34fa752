/**
 * tshark and its companions agree with @node-roce/pcap: on captures that Wireshark's tools write in every
 * variant of the two formats, and on what our encoders write. No guest is needed, only tshark.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type ByteOrder,
  type CaptureEncoder,
  CaptureErrorCode,
  CaptureParser,
  LinkType,
  PcapEncoder,
  PcapngEncoder,
} from '@node-roce/pcap';
import { afterAll, describe, expect, test } from 'vitest';

const captures = join(import.meta.dirname, '../../fixtures/captures');
const folder = mkdtempSync(join(tmpdir(), 'pcap-tshark-'));
afterAll(() => rmSync(folder, { recursive: true }));

interface Packet {
  time: bigint;
  length: number;
  capturedLength: number;
  interfaceId: number;
  section: number;
  comments: string[];
  /** 0 unknown, 1 inbound, 2 outbound. */
  direction: number;
  data: string;
}

function run(tool: string, ...args: string[]): string {
  return execFileSync(tool, args, {
    encoding: 'utf8',
    maxBuffer: 256 * 1024 * 1024,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

const FIELDS = [
  'frame.time_epoch',
  'frame.len',
  'frame.cap_len',
  'frame.interface_id',
  'frame.section_number',
  'frame.comment',
  'frame.packet_flags_direction',
];

function asTshark(path: string): Packet[] {
  const fields = FIELDS.flatMap((field) => ['-e', field]);
  const rows = run('tshark', '-r', path, '-T', 'fields', '-E', 'aggregator=|', ...fields)
    .split('\n')
    .slice(0, -1)
    .map((row) => row.split('\t'));
  const frames = JSON.parse(run('tshark', '-r', path, '-T', 'jsonraw', '-J', 'frame')) as {
    _source: { layers: { frame_raw: [string] } };
  }[];
  expect(frames).toHaveLength(rows.length);
  return rows.map(([time, length, capturedLength, interfaceId, section, comments, direction], i) => {
    const [seconds, fraction] = time!.split('.');
    return {
      time: BigInt(seconds!) * 1_000_000_000n + BigInt(fraction!.padEnd(9, '0')),
      length: Number(length),
      capturedLength: Number(capturedLength),
      // Classic pcap has neither, so tshark leaves them out, or calls the section 1.
      interfaceId: Number(interfaceId || 0),
      section: Number(section || 1) - 1,
      comments: comments ? comments.split('|') : [],
      direction: Number(direction || 0) & 3,
      data: frames[i]._source.layers.frame_raw[0],
    };
  });
}

/** Our reading, in the form of tshark's output. Throws on damage. */
function asWe(path: string): { packets: Packet[]; parser: CaptureParser } {
  const parser = new CaptureParser();
  const packets: Packet[] = [];
  const input = readFileSync(path);
  for (let at = 0; at < input.length; at += 1000) {
    parser.push(input.subarray(at, at + 1000));
    for (const record of parser) {
      packets.push({
        time: record.timestamp,
        length: record.originalLength,
        capturedLength: record.capturedLength,
        interfaceId: record.interfaceId,
        section: record.section.index,
        comments: [...record.comments],
        direction: record.direction === 'inbound' ? 1 : record.direction === 'outbound' ? 2 : 0,
        data: Buffer.from(record.data).toString('hex'),
      });
    }
  }
  parser.end();
  if (parser.error !== undefined) throw parser.error;
  return { packets, parser };
}

function agree(path: string): { packets: Packet[]; parser: CaptureParser } {
  const ours = asWe(path);
  expect(ours.packets.length).toBeGreaterThan(0);
  expect(ours.packets).toEqual(asTshark(path));
  return ours;
}

const names = readdirSync(captures).filter((name) => name.endsWith('.pcap'));

describe('files of other writers', () => {
  // Some of the many: one tshark run takes half a second.
  const some = ['op_all.pcap', 'cm_rping_ipv6.pcap', 'corrupt_A.pcap', 'pp_ud_default.pcap'];

  test('the captures chosen are there', () => {
    expect(names).toEqual(expect.arrayContaining(some));
  });

  test.each(some)('%s, as it is and in the formats editcap makes of it', (name) => {
    const path = join(captures, name);
    const { packets } = agree(path);
    for (const format of ['pcap', 'nsecpcap', 'pcapng']) {
      const converted = join(folder, `${name}.${format}`);
      run('editcap', '-F', format, path, converted);
      expect(agree(converted).packets).toEqual(packets);
    }
  });

  test('packets cut short', () => {
    const cut = join(folder, 'cut.pcapng');
    run('editcap', '-F', 'pcapng', '-s', '50', join(captures, 'op_all.pcap'), cut);
    expect(agree(cut).packets.some((packet) => packet.capturedLength < packet.length)).toBe(true);
  });

  test('comments on packets and on the file', () => {
    const commented = join(folder, 'commented.pcapng');
    const comments = ['-a', '1:first packet', '-a', '3:Größe → 3', '--capture-comment', 'of the file'];
    run('editcap', '-F', 'pcapng', ...comments, join(captures, 'op_all.pcap'), commented);
    const { packets, parser } = agree(commented);
    expect(packets[0]?.comments).toEqual(['first packet']);
    expect(packets[2]?.comments).toEqual(['Größe → 3']);
    expect(parser.section?.comments).toEqual(['of the file']);
  });

  test('several interfaces', () => {
    const merged = join(folder, 'merged.pcapng');
    const inputs = ['op_all.pcap', 'pp_ud_default.pcap'].map((name) => join(captures, name));
    run('mergecap', '-F', 'pcapng', '-I', 'none', '-w', merged, ...inputs);
    const { packets, parser } = agree(merged);
    expect(parser.section?.interfaces).toHaveLength(2);
    expect(new Set(packets.map((packet) => packet.interfaceId))).toEqual(new Set([0, 1]));
  });

  test('modified pcap is refused, and the hint to convert it works', () => {
    const modified = join(folder, 'modified.pcap');
    run('editcap', '-F', 'modpcap', join(captures, 'op_all.pcap'), modified);
    expect(() => asWe(modified)).toThrow(expect.objectContaining({ code: CaptureErrorCode.MODIFIED }));
    const converted = join(folder, 'converted.pcap');
    run('editcap', '-F', 'pcap', modified, converted);
    expect(asWe(converted).packets).toEqual(asWe(join(captures, 'op_all.pcap')).packets);
  });
});

describe('files of ours', () => {
  const second = 1_700_000_000;

  test.each<[ByteOrder, 'micro' | 'nano']>([
    ['little', 'micro'],
    ['little', 'nano'],
    ['big', 'micro'],
    ['big', 'nano'],
  ])('pcap, %s-endian, %sseconds', (byteOrder, resolution) => {
    const encoder = new PcapEncoder({ linkType: LinkType.RAW, snapLength: 64, byteOrder, resolution });
    for (let i = 0; i < 40; i++) {
      const data = new Uint8Array(i * 3).fill(0x40 + i);
      encoder.packet({ seconds: second + i, nanoseconds: 999_999_999 - i * 1001, data });
    }
    const path = join(folder, `ours-${byteOrder}-${resolution}.pcap`);
    writeFileSync(path, encoder.take());
    expect(agree(path).packets).toHaveLength(40);
  });

  test('pcapng with all options', () => {
    const encoder = new PcapngEncoder({
      hardware: 'a machine',
      os: 'an OS',
      application: 'node-roce',
      comments: ['about the file', 'and more'],
    });
    encoder.interface({
      linkType: LinkType.ETHERNET,
      name: 'eth0',
      description: 'the first',
      filter: 'udp port 4791',
      os: 'Linux',
      hardware: 'ConnectX',
      speed: 100_000_000_000n,
      comments: ['about eth0'],
    });
    encoder.interface({ linkType: LinkType.RAW, name: 'tun0', snapLength: 60 });
    for (let i = 0; i < 60; i++) {
      encoder.packet({
        timestamp: BigInt(second) * 1_000_000_000n + BigInt(i) * 16_777_213n,
        data: new Uint8Array(i * 2 + 1).fill(0x60 + i),
        interfaceId: i % 2,
        comments: i % 5 === 0 ? [`packet ${i}`, 'Größe →'] : [],
        direction: i % 3 === 0 ? 'inbound' : i % 3 === 1 ? 'outbound' : undefined,
        dropCount: i % 7 === 0 ? i : undefined,
      });
    }
    encoder.statistics(0, {
      timestamp: BigInt(second + 60) * 1_000_000_000n,
      startTime: BigInt(second) * 1_000_000_000n,
      received: 100,
      dropped: 40,
      osDropped: 2,
    });
    const path = join(folder, 'ours.pcapng');
    writeFileSync(path, encoder.take());
    agree(path);

    const interfaceNames = run('tshark', '-r', path, '-T', 'fields', '-e', 'frame.interface_name');
    expect(interfaceNames.split('\n').slice(0, 2)).toEqual(['eth0', 'tun0']);
    const about = run('capinfos', path);
    for (const line of [
      /Capture comment: +about the file/,
      /Capture comment: +and more/,
      /Capture hardware: +a machine/,
      /Capture oper-sys: +an OS/,
      /Capture application: +node-roce/,
      /Name = eth0/,
      /Description = the first/,
      /Filter string = udp port 4791/,
      /Speed = 100000000000/,
      /Comment = about eth0/,
      /Hardware = ConnectX/,
      /Operating system = Linux/,
      /Number of stat entries = 1/,
      /Name = tun0/,
      /Capture length = 60/,
    ]) {
      expect(about).toMatch(line);
    }
  });

  test('pcapng sections of either byte order', () => {
    const encoder = new PcapngEncoder({ byteOrder: 'big' });
    for (let section = 0; section < 3; section++) {
      if (section > 0) encoder.section({ byteOrder: section === 1 ? 'little' : 'big' });
      for (let id = 0; id <= section; id++) {
        encoder.interface({ linkType: LinkType.ETHERNET });
        encoder.packet({
          seconds: second + section,
          nanoseconds: id,
          data: new Uint8Array(20).fill(section * 16 + id),
          interfaceId: id,
          comments: [`section ${section}`],
        });
      }
    }
    const path = join(folder, 'sections.pcapng');
    writeFileSync(path, encoder.take());
    expect(agree(path).packets.map((packet) => packet.section)).toEqual([0, 1, 1, 2, 2, 2]);
  });

  test('a real capture, copied record by record into the other format and back', () => {
    const source = join(captures, 'op_all.pcap');
    const asPcapng = join(folder, 'copy.pcapng');
    const asPcap = join(folder, 'copy.pcap');

    const pcapng = new PcapngEncoder();
    pcapng.interface({ linkType: LinkType.ETHERNET });
    copy(source, asPcapng, pcapng);
    copy(asPcapng, asPcap, new PcapEncoder({ linkType: LinkType.ETHERNET, resolution: 'micro' }));

    expect(agree(asPcapng).packets).toEqual(asWe(source).packets);
    expect(agree(asPcap).packets).toEqual(asWe(source).packets);
  });
});

function copy(from: string, to: string, encoder: CaptureEncoder): void {
  const parser = new CaptureParser();
  parser.push(readFileSync(from));
  for (const record of parser) encoder.packet(record);
  writeFileSync(to, encoder.take());
}
