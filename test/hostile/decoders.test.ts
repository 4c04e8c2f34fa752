/**
 * Frames for each decoder of captures, mutated: the reader, the analysis and the texts of `roce dump` take them all, and
 * nothing throws.
 *
 *   ROCE_HOSTILE_DECODERS=1000000 npx vitest run test/hostile/decoders
 */
import { FlowAnalyzer, PacketReader } from '@node-roce/capture';
import { type InterfaceInfo, LinkType, PacketRecord, type SectionInfo } from '@node-roce/pcap';
import { createRandom, type Random } from '@node-roce/sim';
import {
  buildPacket,
  buildPfc,
  type CmInput,
  describePause,
  encodeCm,
  formatFields,
  formatLine,
  fromHex,
  MAC_CONTROL,
  Opcode,
  type OpcodeName,
  parseFrame,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';

const FRAMES = Number(process.env.ROCE_HOSTILE_DECODERS ?? 1000);
/** Frames of one capture: each begins with an empty analysis. */
const CAPTURE = 500;

const MACS = '020000000001 020000000002'.replace(' ', '');
const bytes = (...parts: (Uint8Array | string)[]): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(
    parts.flatMap((part) => [...(typeof part === 'string' ? fromHex(part.replaceAll(' ', '')) : part)]),
  );

function roce(opcode: OpcodeName, payload = 64): Uint8Array<ArrayBuffer> {
  return buildPacket({
    version: 2,
    ethernet: { source: '020000000001', destination: '020000000002' },
    ip: { version: 4, source: '10.0.0.1', destination: '10.0.0.2' },
    bth: { opcode: Opcode[opcode], destQp: 0x11, psn: 7 },
    payload: new Uint8Array(payload),
  });
}

/** To another UDP port, with the ICRC of that. */
function toPort(destinationPort: number): Uint8Array<ArrayBuffer> {
  return buildPacket({
    version: 2,
    ethernet: { source: '020000000001', destination: '020000000002' },
    ip: { version: 4, source: '10.0.0.1', destination: '10.0.0.2' },
    udp: { destinationPort },
    bth: { opcode: Opcode.RC_SEND_ONLY, destQp: 0x11, psn: 7 },
    payload: new Uint8Array(64),
  });
}

function ipv4(protocol: number, content: Uint8Array): Uint8Array<ArrayBuffer> {
  const frame = bytes(MACS, '0800 4500 0000 0000 4000 4000 0000 0a090001 0a090002', content);
  frame[16] = (frame.length - 14) >> 8;
  frame[17] = frame.length - 14;
  frame[23] = protocol;
  return frame;
}

const udp = (port: string, content: Uint8Array) => ipv4(17, bytes('c000', port, '0000 0000', content));

function cm(message: CmInput): Uint8Array<ArrayBuffer> {
  return buildPacket({
    version: 2,
    ethernet: { source: '020000000001', destination: '020000000002' },
    ip: { version: 4, source: '10.0.0.1', destination: '10.0.0.2' },
    bth: { opcode: Opcode.UD_SEND_ONLY, destQp: 1, psn: 3 },
    extensions: { deth: { qkey: 0x8001_0000, srcQp: 1 } },
    payload: encodeCm(message),
  });
}

const inner = roce('RC_SEND_ONLY');
const ip = inner.subarray(14);

/** Frames by the decoder that they are for. */
const DECODERS: Readonly<Record<string, readonly Uint8Array[]>> = {
  gre: [
    ipv4(47, bytes('0000 0800', ip)),
    ipv4(47, bytes('b000 6558 00000000 0000002a 00000001', inner)),
    ipv4(47, bytes('1000 88be 00000001 1001 0064 00000000', inner)),
  ],
  geneve: [udp('17c1', bytes('0240 6558 00002a00 0102800100000007', inner))],
  mpls: [
    bytes(MACS, '8847 00064040 0002a140', ip),
    bytes(MACS, '8847 0002a140 00000000', inner),
    udp('19eb', bytes('0002a140', ip)),
  ],
  'IP in IP': [ipv4(4, ip), ipv4(41, ip)],
  'UDP ports': [toPort(0x4853), roce('RC_RDMA_WRITE_ONLY')],
  pause: [
    buildPfc(fromHex('020000000001'), { 3: 0xffff, 4: 0 }),
    bytes(MACS, MAC_CONTROL.toString(16), '0001 ffff', new Uint8Array(40)),
  ],
  cm: [
    cm({ name: 'REQ', localCommId: 1, serviceId: 0x0106_1c06n, localQpn: 0x11, startingPsn: 9 }),
    cm({ name: 'REP', localCommId: 2, remoteCommId: 1, localQpn: 0x12 }),
    cm({ name: 'RTU', localCommId: 1, remoteCommId: 2 }),
    cm({ name: 'REJ', remoteCommId: 1, reason: 8 }),
    cm({ name: 'DREQ', localCommId: 1, remoteCommId: 2 }),
    cm({ name: 'SIDR_REQ', requestId: 4 }),
    cm({ name: 'SIDR_REP', requestId: 4, status: 1 }),
  ],
  'FLUSH and ATOMIC WRITE': [
    roce('RC_FLUSH', 0),
    roce('RC_ATOMIC_WRITE', 8),
    roce('RC_RDMA_READ_RESPONSE_ONLY', 0),
  ],
  XRC: [
    roce('XRC_SEND_ONLY'),
    roce('XRC_FLUSH', 0),
    roce('XRC_ATOMIC_WRITE', 8),
    roce('XRC_RDMA_READ_REQUEST', 0),
    roce('XRC_ACKNOWLEDGE', 0),
  ],
};

const info: InterfaceInfo = {
  id: 0,
  linkType: LinkType.ETHERNET,
  snapLength: 0,
  timestampUnitsPerSecond: 1_000_000n,
  timestampOffset: 0n,
  comments: [],
};
const section: SectionInfo = {
  index: 0,
  format: 'pcap',
  byteOrder: 'little',
  versionMajor: 2,
  versionMinor: 4,
  interfaces: [info],
  comments: [],
};

function mutated(frame: Uint8Array, random: Random): Uint8Array {
  const copy = Uint8Array.from(frame);
  for (let changes = random.between(1, 6); changes > 0; changes--) {
    // Most of them in headers.
    const at = random.between(0, (random.chance(0.8) ? Math.min(120, copy.length) : copy.length) - 1);
    copy[at] = random.chance(0.5) ? random.next() : random.pick([0, 1, 0x7f, 0x80, 0xff]);
  }
  return random.chance(0.2) ? copy.subarray(0, random.between(0, copy.length)) : copy;
}

/** Throws if one of them is empty. `expect` takes longer than the decoder that is tested. */
function texts(...list: string[]): void {
  for (const text of list) if (text === '') throw new Error('an empty text');
}

describe.each(Object.entries(DECODERS))('%s', (_, frames) => {
  test('decodes them as they are', () => {
    let decoded = 0;
    const reader = new PacketReader({ onPacket: () => decoded++, onPause: () => decoded++, ports: [0x4853] });
    for (const frame of frames) {
      reader.frame(new PacketRecord(frame, 0, frame.length, frame.length, 1, 0, true, section, info, 0));
    }
    // IPv4 under the protocol number of IPv6 in IP is decoded by its version.
    expect(decoded).toBe(frames.length);
  });

  test('nothing throws', { timeout: 300_000 + FRAMES }, () => {
    const random = createRandom(frames.length);
    let packets = 0;
    for (let done = 0; done < FRAMES; done += CAPTURE) {
      const analyzer = new FlowAnalyzer();
      const reader = new PacketReader({
        onPacket: (packet) => {
          packets++;
          analyzer.add(packet);
          const cut = { allowCut: true, port: packet.destinationPort };
          const parsed = parseFrame(packet.bytes.slice(packet.link), packet.linkType, cut);
          if (!parsed.ok) return;
          texts(formatLine(parsed.packet), formatFields(parsed.packet, { offsets: true, hex: true }));
        },
        onPause: (pause) => {
          packets++;
          analyzer.addPause(pause);
          texts(describePause(pause));
        },
      });
      for (let i = 0; i < CAPTURE; i++) {
        const frame = mutated(random.pick(frames), random);
        const record = new PacketRecord(
          frame,
          0,
          frame.length,
          frame.length + 4,
          i,
          0,
          true,
          section,
          info,
          0,
        );
        reader.frame(record);
      }
      analyzer.finish(reader.summary(), reader.addresses);
    }
    // Enough of them are still decoded that they get to the analysis.
    expect(packets).toBeGreaterThan(FRAMES / 20);
  });
});
