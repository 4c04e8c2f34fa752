/** The decoder compared with wire's parser; mirrors, tags and cuts. */
import { LinkType, type PacketRecord } from '@node-roce/pcap';
import { buildPacket, fromHex, type Packet, parseFrame, setU16, toHex, u16 } from '@node-roce/wire';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ACK, ATOMIC_V6, CNP, under, WRITE_V1 } from '../../testing/frames.ts';
import { rawRecord } from '../../testing/records.ts';
import { damagedPackets } from '../flow/findings/damaged-packets.ts';
import type { Capture } from '../flow/findings/rule.ts';
import { AddressTable } from './addresses.ts';
import { FrameDecoder } from './decode.ts';
import { RocePacket, verdictName } from './packet.ts';
import { PacketReader, type RefusedFrame } from './reader.ts';

const frames = [CNP, ACK, WRITE_V1, ATOMIC_V6];

function decode(frame: Uint8Array, linkType: number = LinkType.ETHERNET, at = 0) {
  const addresses = new AddressTable();
  const packet = new RocePacket();
  const decoder = new FrameDecoder(packet, addresses);
  const ok = decoder.decode(frame, at, frame.length, linkType);
  return { ok, packet, decoder, addresses };
}

function expectSame({ packet, addresses }: ReturnType<typeof decode>, theirs: Packet) {
  const { bth, ip, udp, info } = theirs;
  const trafficClass = ip.version === 4 ? ip.tos : ip.trafficClass;
  expect({
    version: packet.version,
    source: toHex(addresses.bytes(packet.source)),
    destination: toHex(addresses.bytes(packet.destination)),
    sourcePort: packet.sourcePort,
    trafficClass: (packet.dscp << 2) | packet.ecn,
    hopLimit: packet.hopLimit,
    ipId: packet.ipId,
    vlan: packet.vlan,
    opcode: packet.opcode,
    info: packet.info,
    destQp: packet.destQp,
    psn: packet.psn,
    ackReq: packet.ackReq,
    solicited: packet.solicited,
    migReq: packet.migReq,
    fecn: packet.fecn,
    becn: packet.becn,
    pkey: packet.pkey,
    pad: packet.padCount,
    payloadLength: packet.payloadLength,
    bth: packet.bth,
    payload: toHex(
      packet.bytes.subarray(packet.payload, Math.min(packet.payload + packet.payloadLength, packet.end)),
    ),
  }).toEqual({
    version: theirs.version,
    source: toHex(ip.source),
    destination: toHex(ip.destination),
    sourcePort: udp?.sourcePort ?? 0,
    trafficClass,
    hopLimit: ip.version === 4 ? ip.ttl : ip.hopLimit,
    ipId: ip.version === 4 ? ip.id : -1,
    vlan: innermostVlan(theirs, packet.linkType),
    opcode: bth.opcode,
    info,
    destQp: bth.destQp,
    psn: bth.psn,
    ackReq: bth.ackReq,
    solicited: bth.solicited,
    migReq: bth.migReq,
    fecn: bth.fecn,
    becn: bth.becn,
    pkey: bth.pkey,
    pad: bth.pad,
    payloadLength: theirs.payloadLength,
    bth: theirs.bthOffset,
    payload: toHex(theirs.payload),
  });
}

/** The innermost tag's id: wire keeps the header of a cooked frame as bytes. */
function innermostVlan({ ethernet, linkHeader }: Packet, linkType: number): number {
  const tci = ethernet
    ? ethernet.vlans.at(-1)?.tci
    : linkHeader && linkHeader.length > (linkType === LinkType.LINUX_SLL ? 16 : 20)
      ? u16(linkHeader, linkHeader.length - 4)
      : undefined;
  return tci === undefined ? -1 : tci & 0xfff;
}

/** IPv6 extension headers, tags other than VLANs, and PPPoE: only this decoder reads them. */
const FURTHER =
  /^next header (0|43|44|51|60|135|139|140)$|^EtherType 0x(8926|893f|8909|892f|88e5|8864|88e7|894f|[0-5]?[0-9a-f]{1,2})$/;

/** Same packet or same refusal, but where this decoder goes further on purpose. */
function expectAgreement(frame: Uint8Array, linkType: number) {
  const ours = decode(frame, linkType);
  const theirs = parseFrame(frame, linkType);
  if (theirs.ok) {
    expect(ours.ok).toBe(true);
    expectSame(ours, theirs.packet);
  } else if (theirs.detail === 'in the extension headers') {
    expect(ours.ok).toBe(true);
    expect(ours.packet.end).toBe(frame.length);
  } else if (FURTHER.test(theirs.detail)) {
    // test/capture/kinds.test.ts has an oracle for these.
    expect(ours.packet.bytes).toBe(frame);
  } else if (
    ours.packet.tunnel === 'none' &&
    !/^(IP protocol|next header) (4|41|47|97|137|143)$/.test(theirs.detail) &&
    !(theirs.reason === 'truncated' && theirs.detail === 'in the Ethernet header')
  ) {
    const { refusal: reason, detail, offset } = ours.decoder;
    // Link types have names here.
    const named = theirs.detail.startsWith('link type') ? detail : theirs.detail;
    expect({ ok: ours.ok, reason, detail, offset }).toEqual({ ...theirs, detail: named });
  } else {
    expect(ours.ok && ours.packet.tunnel === 'none').toBe(false);
  }
}

const linkTypes = [LinkType.ETHERNET, LinkType.LINUX_SLL, LinkType.LINUX_SLL2, LinkType.NULL, LinkType.RAW];

describe('compared with packages/wire', () => {
  test.each(linkTypes)('link type %i: the same fields, the same refusals, at every cut', (linkType) => {
    for (const frame of frames) {
      const framed = under(linkType, frame);
      for (let length = 0; length <= framed.length; length++)
        expectAgreement(framed.slice(0, length), linkType);
    }
  });

  test('after any flips of bits', () => {
    const flips = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), {
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(
        fc.constantFrom(...frames),
        fc.constantFrom(...linkTypes),
        flips,
        fc.nat(),
        (whole, linkType, changes, cut) => {
          const frame = under(linkType, whole).slice();
          for (const [at, mask] of changes) frame[at % frame.length] ^= mask;
          expectAgreement(cut % 4 === 0 ? frame.slice(0, cut % frame.length) : frame, linkType);
        },
      ),
      { numRuns: 5000 },
    );
  });

  test('random bytes', () => {
    const bytes = fc.uint8Array({ maxLength: 200 });
    const all = fc.constantFrom(
      ...linkTypes,
      LinkType.LOOP,
      LinkType.IPV4,
      LinkType.IPV6,
      LinkType.USER0,
      4711,
    );
    fc.assert(
      fc.property(bytes, all, (frame, linkType) => {
        if (linkType === LinkType.LOOP) decode(frame, linkType);
        else expectAgreement(frame, linkType);
      }),
      { numRuns: 5000 },
    );
  });

  test('a frame in the middle of a chunk, as files have it', () => {
    for (const frame of frames) {
      const chunk = new Uint8Array(frame.length + 100).fill(0x45);
      chunk.set(frame, 37);
      const packet = new RocePacket();
      const addresses = new AddressTable();
      expect(
        new FrameDecoder(packet, addresses).decode(chunk, 37, 37 + frame.length, LinkType.ETHERNET),
      ).toBe(true);
      const { ok, packet: alone } = decode(frame);
      expect(ok).toBe(true);
      expect(packet.bth - 37).toBe(alone.bth);
      expect(packet.psn).toBe(alone.psn);
    }
  });
});

test('VLAN tags, also behind a cooked header: the innermost counts', () => {
  for (const linkType of [LinkType.ETHERNET, LinkType.LINUX_SLL, LinkType.LINUX_SLL2]) {
    const { ok, packet } = decode(under(linkType, ATOMIC_V6), linkType);
    expect({ ok, vlan: packet.vlan, pcp: packet.pcp }).toEqual({ ok: true, vlan: 7, pcp: 1 });
  }
});

/** An IPv4 packet of that protocol between two switches, in an Ethernet frame. */
function outer(protocol: number, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(34 + payload.length);
  frame.set([
    2,
    0,
    0,
    0,
    0,
    1,
    2,
    0,
    0,
    0,
    0,
    2,
    8,
    0,
    0x45,
    0,
    0,
    0,
    0,
    0,
    0x40,
    0,
    64,
    protocol,
    0,
    0,
    10,
    9,
    0,
    1,
    10,
    9,
    0,
    2,
  ]);
  setU16(frame, 16, 20 + payload.length);
  frame.set(payload, 34);
  return frame;
}

const bytes = (...parts: (Uint8Array | string)[]) =>
  Uint8Array.from(parts.flatMap((part) => [...(typeof part === 'string' ? fromHex(part) : part)]));

/** Literal headers of mirrors and tunnels: draft-foschiano-erspan-03 §4, RFC 7348 §5. */
const tunnels: [string, RocePacket['tunnel'], (inner: Uint8Array) => Uint8Array][] = [
  ['ERSPAN I', 'erspan', (inner) => outer(47, bytes('0000 88be', inner))],
  ['ERSPAN II', 'erspan', (inner) => outer(47, bytes('1000 88be 00000001', '1001 0064 00000000', inner))],
  [
    'ERSPAN III',
    'erspan',
    (inner) => outer(47, bytes('1000 22eb 00000001', '2001 0064 12345678 0000 0000', inner)),
  ],
  [
    'ERSPAN III with a subheader',
    'erspan',
    (inner) =>
      outer(47, bytes('1000 22eb 00000001', '2001 0064 12345678 0000 0001', '0000000000000000', inner)),
  ],
  [
    'ERSPAN III of IP packets',
    'erspan',
    (inner) => outer(47, bytes('1000 22eb 00000001', '2001 0064 12345678 0000 0800', inner.subarray(14))),
  ],
  [
    'GRE with checksum and key',
    'erspan',
    (inner) => outer(47, bytes('b000 88be', '00000000', '0000002a', '00000001', '1001 0064 00000000', inner)),
  ],
  ['VXLAN', 'vxlan', (inner) => outer(17, bytes('c000 12b5 0000 0000', '08000000 00002a00', inner))],
  [
    'VXLAN on the port of old',
    'vxlan',
    (inner) => outer(17, bytes('c000 2118 0000 0000', '08000000 00002a00', inner)),
  ],
  // RFC 2784, RFC 2890; RFC 8926 §3.4; RFC 3032 §2.1, RFC 4385 §3; RFC 2003.
  ['IP in GRE', 'gre', (inner) => outer(47, bytes('0000 0800', inner.subarray(14)))],
  [
    'IP in GRE with checksum, key and sequence number',
    'gre',
    (inner) => outer(47, bytes('b000 0800', '00000000', '0000002a', '00000001', inner.subarray(14))),
  ],
  ['Ethernet in GRE', 'gre', (inner) => outer(47, bytes('2000 6558', '0000002a', inner))],
  ['Geneve', 'geneve', (inner) => outer(17, bytes('c000 17c1 0000 0000', '0000 6558 00002a00', inner))],
  [
    'Geneve with options',
    'geneve',
    (inner) => outer(17, bytes('c000 17c1 0000 0000', '0240 6558 00002a00', '0102800100000007', inner)),
  ],
  [
    'IP in Geneve',
    'geneve',
    (inner) => outer(17, bytes('c000 17c1 0000 0000', '0000 0800 00002a00', inner.subarray(14))),
  ],
  [
    'MPLS, two labels',
    'mpls',
    (inner) => bytes(inner.subarray(0, 12), '8847', '00064040', '0002a140', inner.subarray(14)),
  ],
  [
    'Ethernet over MPLS with a control word',
    'mpls',
    (inner) => bytes(inner.subarray(0, 12), '8847', '0002a140', '00000000', inner),
  ],
  ['MPLS in GRE', 'mpls', (inner) => outer(47, bytes('0000 8847', '0002a140', inner.subarray(14)))],
  ['MPLS in UDP', 'mpls', (inner) => outer(17, bytes('c000 19eb 0000 0000', '0002a140', inner.subarray(14)))],
  ['IP in IP', 'ipip', (inner) => outer(4, inner.subarray(14))],
];

describe.each(tunnels)('%s', (name, tunnel, wrap) => {
  test('the packet inside, with its own ICRC', () => {
    const seen: RocePacket[] = [];
    const reader = new PacketReader({ onPacket: (packet) => seen.push({ ...packet }) });
    reader.frame(rawRecord(wrap(ACK), { linkType: LinkType.ETHERNET }));
    expect(seen).toMatchObject([{ tunnel, destQp: 0x48, psn: 0, version: 2, vlan: -1 }]);
    expect(verdictName(seen[0].icrc)).toBe('ok');
    expect(reader.addresses.text(seen[0].source)).toBe('192.168.70.4');
  });

  test('cut anywhere it gives a reason, or what there is', () => {
    const frame = wrap(ACK);
    for (let length = 0; length < frame.length; length++) {
      const { ok, packet, decoder } = decode(frame.slice(0, length));
      if (ok) expect(packet.end).toBe(length);
      else expect(['truncated', 'not-roce']).toContain(decoder.refusal);
    }
  });

  // Labels before labels are one stack.
  if (name === 'MPLS, two labels') return;
  test('a tunnel in a tunnel; not without end', () => {
    expect(decode(wrap(wrap(CNP)))).toMatchObject({ ok: true, packet: { opcode: 0x81, destQp: 0x118 } });
    let deep: Uint8Array = CNP;
    for (let i = 0; i < 6; i++) deep = wrap(deep);
    expect(decode(deep).ok).toBe(false);
  });
});

test('a capture cut at 96 bytes: lengths from the IP header, no verdict', () => {
  const parsed = parseFrame(ACK);
  if (!parsed.ok) throw new Error(parsed.detail);
  const { ethernet, ip, udp, bth } = parsed.packet;
  const whole = buildPacket({
    version: 2,
    ethernet: ethernet!,
    ip: { ...ip, totalLength: undefined, checksum: undefined } as typeof ip,
    udp: { ...udp!, length: undefined },
    bth: { ...bth, opcode: 0x07 },
    extensions: {},
    payload: new Uint8Array(1024),
  });
  const seen: RocePacket[] = [];
  const reader = new PacketReader({ onPacket: (packet) => seen.push({ ...packet }) });
  reader.frame(rawRecord(whole.slice(0, 96), { linkType: LinkType.ETHERNET, originalLength: whole.length }));
  expect(seen).toMatchObject([{ payloadLength: 1024, opcode: 7, end: 96 }]);
  expect(verdictName(seen[0].icrc)).toBe('none');
  expect(reader.summary()).toMatchObject({ cutFrames: 1, rocePackets: 1, icrc: { ok: 0, bad: 0, none: 1 } });
});

test('counts and times of the summary', () => {
  const refused: RefusedFrame[] = [];
  const times: number[] = [];
  const reader = new PacketReader({
    onPacket: ({ time }) => times.push(time),
    onRefused: (frame) => refused.push(frame),
  });
  const frame = (bytes: Uint8Array, nanoseconds: number): PacketRecord =>
    rawRecord(bytes, { linkType: LinkType.ETHERNET, nanoseconds });
  const bad = ACK.slice();
  bad[bad.length - 8] ^= 1;
  const unknown = ACK.slice();
  unknown[42] = 0x7f;
  reader.frame(frame(ACK, 500));
  reader.frame(frame(bad, 400));
  reader.frame(frame(Uint8Array.of(...ACK.subarray(0, 12), 8, 6, 0, 0), 900));
  reader.frame(frame(unknown, 950));
  expect(times).toEqual([0, -100]);
  expect(refused).toMatchObject([
    { frame: 3, reason: 'not-roce' },
    { frame: 4, reason: 'unknown-opcode', offset: 42 },
  ]);
  expect(reader.summary('x.pcap')).toEqual({
    file: 'x.pcap',
    format: 'pcap',
    linkTypes: ['RAW'],
    startTime: '1970-01-01T00:00:01.000000500Z',
    duration: 550,
    frames: 4,
    rocePackets: 2,
    otherFrames: 1,
    pauseFrames: 0,
    icmpErrors: 0,
    sampledPackets: 0,
    otherKinds: { 'EtherType 0x806': 1 },
    otherPorts: [],
    damaged: { 'unknown-opcode': 1 },
    cutFrames: 0,
    cutHeaders: 0,
    superPackets: 0,
    neededSnapLength: 64,
    icrc: { ok: 1, bad: 1, none: 0 },
    droppedByCapture: undefined,
    damage: undefined,
  });
});

test('a datagram in two fragments, and a frame cut before its port', () => {
  const first = ACK.slice(0, 14 + 20 + 16);
  setU16(first, 16, 20 + 16);
  first[20] = 0x20;
  expect(parseFrame(first)).toMatchObject({ reason: 'fragment', offset: 20 });
  expectAgreement(first, LinkType.ETHERNET);
  const later = ACK.slice();
  setU16(later, 20, 2);
  const refused: RefusedFrame[] = [];
  const reader = new PacketReader({ onRefused: (frame) => refused.push(frame) });
  for (const bytes of [first, later]) reader.frame(rawRecord(bytes, { linkType: LinkType.ETHERNET }));
  expect(refused).toMatchObject([
    { reason: 'fragment', offset: 20 },
    { reason: 'not-roce', detail: 'a later fragment' },
  ]);
  const texts = () =>
    damagedPackets.findInCapture!({ summary: reader.summary() } as Capture).map(({ text }) => text);
  expect(texts()).toContain('1 RoCE packet could not be read: 1 fragment');
  reader.frame(rawRecord(ACK.slice(0, 24), { linkType: LinkType.ETHERNET }));
  expect(texts()).toContain('2 frames could not be read: 1 fragment, 1 truncated');
});

test('addresses keep their numbers, and beyond the bound share one', () => {
  const table = new AddressTable();
  const address = new Uint8Array(16);
  const view = new DataView(address.buffer);
  const numbers = Array.from({ length: 70_000 }, (_, i) => {
    view.setUint32(8, i);
    return table.ipv6(address, 0);
  });
  expect(new Set(numbers).size).toBe(65_536);
  expect(numbers[0]).toBe(1);
  expect(numbers[69_999]).toBe(0);
  expect(table.text(65_535)).toBe('::fffe:0:0');
  view.setUint32(8, 5);
  expect(table.ipv6(address, 0)).toBe(6);
  const small = new AddressTable();
  expect(small.ipv4(Uint8Array.of(192, 0, 2, 1), 0)).toBe(1);
  // 16 bytes that begin alike are another address.
  expect(small.ipv6(Uint8Array.of(192, 0, 2, 1, ...new Uint8Array(12)), 0)).toBe(2);
  expect(small.text(1)).toBe('192.0.2.1');
  expect(() => small.text(9)).toThrow(RangeError);
});
