/** The same addresses and queue pairs in several VLANs and tunnels: connections of their own. */
import { readFileSync } from 'node:fs';
import { CaptureParser, LinkType } from '@node-roce/pcap';
import { describe, expect, test } from 'vitest';
import { rawRecord } from '../../testing/records.ts';
import { PacketReader } from '../read/reader.ts';
import type { Analysis } from './analysis.ts';
import { FlowAnalyzer } from './analyzer.ts';

function framesOf(name: string): Buffer[] {
  const parser = new CaptureParser();
  parser.push(readFileSync(new URL(`../../../../test/fixtures/captures/${name}`, import.meta.url)));
  parser.end();
  return [...parser].map(({ data }) => Buffer.from(data));
}

function analyze(frames: readonly Buffer[]): Analysis {
  const analyzer = new FlowAnalyzer();
  const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
  frames.forEach((frame, i) => {
    reader.frame(rawRecord(frame, { linkType: LinkType.ETHERNET, nanoseconds: i * 1000 }));
  });
  return analyzer.finish(reader.summary(), reader.addresses);
}

const vlan = (id: number) => (frame: Buffer) =>
  Buffer.concat([frame.subarray(0, 12), Buffer.of(0x81, 0, id >> 8, id & 0xff), frame.subarray(12)]);

/** In VXLAN between two switches. */
const vni = (id: number) => (frame: Buffer) => {
  const headers = Buffer.from(
    '0200000000010200000000020800450000000000400040110000 0a090001 0a090002 c00012b5000000000800000000000000'.replaceAll(
      ' ',
      '',
    ),
    'hex',
  );
  headers.writeUInt16BE(36 + frame.length, 16);
  headers.writeUInt32BE(id * 256, 46);
  return Buffer.concat([headers, frame]);
};

/** The parts that are equal for a connection alone and among others. */
const essence = ({ connections, findings }: Analysis) => ({
  connections: connections.map(({ a, b, transport, aToB, bToA, messagesFromA, messagesFromB, pairing }) => ({
    a,
    b,
    transport,
    pairing,
    counts: [aToB, bToA].map(({ packets, retransmitted, goBacks, repeatedFrames }) => ({
      packets,
      retransmitted,
      goBacks,
      repeatedFrames,
    })),
    messages: [messagesFromA, messagesFromB],
  })),
  findings: findings.map(({ kind }) => kind),
});

describe.each(['op_all.pcap', 'cm_rping.pcap', 'pf_send_bw_ud.pcap'])('%s', (name) => {
  const frames = framesOf(name);
  const alone = essence(analyze(frames));
  const isFrom10 = (frame: Buffer) => frame.subarray(26, 30).equals(Buffer.of(10, 77, 0, 2));

  test.each([
    ['two VNIs', vni(1), vni(2)],
    ['two VLANs', vlan(10), vlan(20)],
    ['a tunnel and none', vni(1), (frame: Buffer) => frame],
  ])('%s: twice the same', (_, one, other) => {
    const both = essence(analyze(frames.flatMap((frame) => [one(frame), other(frame)])));
    const twice = (connection: (typeof alone.connections)[number]) => [connection, connection];
    const byName = (x: object, y: object) => (JSON.stringify(x) < JSON.stringify(y) ? -1 : 1);
    expect(both.connections.toSorted(byName)).toEqual(alone.connections.flatMap(twice).toSorted(byName));
    expect(new Set(both.findings)).toEqual(new Set(alone.findings));
  });

  test('a VLAN for each direction, as the mirror of a router shows: as if there were none', () => {
    const tagged = frames.map((frame) => vlan(isFrom10(frame) ? 10 : 20)(frame));
    expect(essence(analyze(tagged))).toEqual(alone);
  });

  test('a VNI for each direction, that of its receiver (asymmetric routing, RFC 9135): as if there were none', () => {
    const tunnelled = frames.map((frame) => vni(isFrom10(frame) ? 10 : 20)(frame));
    expect(essence(analyze(tunnelled))).toEqual(alone);
  });

  test('VLAN 0, a tag for its priority: as if there were none', () => {
    const tagged = frames.map((frame) => (isFrom10(frame) ? vlan(0)(frame) : frame));
    expect(essence(analyze(tagged))).toEqual(alone);
  });
});
