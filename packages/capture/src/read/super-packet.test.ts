import { crc32 } from 'node:zlib';
import {
  ICRC_BYTES,
  icrcV2,
  Opcode,
  opcodeInfo,
  type Packet,
  parseFrame,
  setU16,
  verifyIcrc,
  writeBth,
  writeIcrc,
  writeReth,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { rawRecord } from '../../testing/records.ts';
import { verdictName } from './packet.ts';
import { PacketReader } from './reader.ts';
import { packetFrame } from './super-packet.ts';

const PORT = 4791;

interface Segment {
  opcode: number;
  psn: number;
  payload: number;
}

/** The datagrams of a run, each with the ICRC that a packet of its own would have, as a super-packet. */
function superPacket(
  segments: readonly Segment[],
  { ipv6 = false, id = 0, counted = true } = {},
): Uint8Array {
  const ip = ipv6 ? 40 : 20;
  const datagrams = segments.map(({ opcode, psn, payload }, i) => {
    const { headerLength, offsets } = opcodeInfo(opcode)!;
    const pad = -payload & 3;
    const length = headerLength + payload + pad + ICRC_BYTES;
    const packet = ipPacket(ip, length, counted ? id + i : id);
    const bth = ip + 8;
    writeBth(packet, bth, opcode, pad << 4, 0xffff, 0x11, psn);
    if (offsets.reth >= 0) writeReth(packet, bth + offsets.reth, 0, 4096, 7, 70_000);
    for (let n = 0; n < payload; n++) packet[bth + headerLength + n] = (n * 13 + psn) & 0xff;
    const at = packet.length - ICRC_BYTES;
    writeIcrc(packet, at, icrcV2(packet, 0, at));
    return packet.subarray(bth);
  });
  const length = datagrams.reduce((sum, d) => sum + d.length, 0);
  const whole = ipPacket(ip, length, id);
  let o = ip + 8;
  for (const datagram of datagrams) {
    whole.set(datagram, o);
    o += datagram.length;
  }
  return whole;
}

function ipPacket(ip: number, udpPayload: number, id: number): Uint8Array {
  const packet = new Uint8Array(ip + 8 + udpPayload);
  if (ip === 20) {
    packet.set([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    setU16(packet, 2, packet.length);
    setU16(packet, 4, id);
  } else {
    packet[0] = 0x60;
    setU16(packet, 4, 8 + udpPayload);
    packet.set([17, 64], 6);
    packet.set([0xfd, 1], 8);
    packet.set([0xfd, 2], 24);
  }
  setU16(packet, ip, 0xc123);
  setU16(packet, ip + 2, PORT);
  setU16(packet, ip + 4, 8 + udpPayload);
  setU16(packet, ip + 6, 0xbeef);
  return packet;
}

/** The packets that the reader finds in a frame, as frames of their own. */
function split(frame: Uint8Array): Packet[] {
  const packets: Packet[] = [];
  const reader = new PacketReader({
    onPacket: (packet) => {
      const parsed = parseFrame(packetFrame(packet), packet.linkType);
      if (!parsed.ok) throw new Error(parsed.detail);
      expect(verdictName(packet.icrc)).toBe(parsed.packet.icrcStatus);
      expect(packet.payloadLength).toBe(parsed.packet.payloadLength);
      packets.push(parsed.packet);
    },
  });
  reader.frame(rawRecord(frame));
  return packets;
}

const middles = (count: number, payload: number, last: number): Segment[] => [
  ...Array.from({ length: count }, (_, i) => ({
    opcode: Opcode.RC_RDMA_WRITE_MIDDLE,
    psn: 100 + i,
    payload,
  })),
  { opcode: Opcode.RC_RDMA_WRITE_LAST, psn: 100 + count, payload: last },
];

const summary = (segments: readonly Segment[]) =>
  segments.map(({ opcode, psn, payload }) => ({ opcode, psn, payload, icrc: 'ok' }));
const seen = (packets: readonly Packet[]) =>
  packets.map(({ bth, payloadLength, icrcStatus }) => ({
    opcode: bth.opcode,
    psn: bth.psn,
    payload: payloadLength,
    icrc: icrcStatus,
  }));

test.each([256, 512, 1024, 2048, 4096])('a run of path MTU %i, its last packet shorter', (mtu) => {
  const run = middles(7, mtu, 5);
  expect(seen(split(superPacket(run)))).toEqual(summary(run));
  expect(seen(split(superPacket(run, { ipv6: true })))).toEqual(summary(run));
});

test('Identifications may count from the first one or stay, and wrap', () => {
  const run = middles(3, 1024, 1024);
  for (const counted of [true, false]) {
    for (const id of [0, 0xfffe]) {
      expect(seen(split(superPacket(run, { id, counted }))), `${id} ${counted}`).toEqual(summary(run));
    }
  }
});

test('messages of one packet each, of any size', () => {
  for (const payload of [0, 1, 64, 1000, 3001]) {
    const run = Array.from({ length: 12 }, (_, i) => ({ opcode: Opcode.RC_SEND_ONLY, psn: i, payload }));
    expect(seen(split(superPacket(run))), `${payload}`).toEqual(summary(run));
  }
});

test('two packets that fit in the length of one', () => {
  const run = [
    { opcode: Opcode.RC_ACKNOWLEDGE, psn: 1, payload: 0 },
    { opcode: Opcode.RC_ACKNOWLEDGE, psn: 2, payload: 0 },
  ];
  expect(seen(split(superPacket(run)))).toEqual(summary(run));
});

test('a segment is a whole IP packet: its own lengths and checksum', () => {
  const frame = superPacket(middles(2, 1024, 100));
  const frames: Uint8Array[] = [];
  new PacketReader({ onPacket: (packet) => frames.push(packetFrame(packet)) }).frame(rawRecord(frame));
  const second = frames[1];
  expect(second.length).toBe(20 + 8 + 12 + 1024 + 4);
  let sum = 0;
  for (let o = 0; o < 20; o += 2) sum += (second[o] << 8) | second[o + 1];
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  expect(sum).toBe(0xffff);
  expect(verifyIcrc(second, 0, second.length)).toBe(true);
});

test('a corrupt segment after the first is shown as bad, the others as good', () => {
  const frame = superPacket(middles(4, 1024, 1024));
  frame[28 + 2 * 1040 + 500] ^= 1;
  expect(split(frame).map((packet) => packet.icrcStatus)).toEqual(['ok', 'ok', 'bad', 'ok', 'ok']);
});

test('a super-packet that the capture cut: packets up to the cut', () => {
  const frame = superPacket(middles(4, 1024, 1024)).subarray(0, 28 + 2 * 1040 + 300);
  const packets = split(frame);
  expect(packets.map((packet) => packet.icrcStatus)).toEqual(['ok', 'ok', 'none']);
  expect(packets[2]?.payloadLength).toBe(1024);
});

test('one packet stays one, whether its ICRC is right or not', () => {
  const frame = superPacket([{ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 1, payload: 4096 }]);
  expect(split(frame)).toHaveLength(1);
  frame[100] ^= 4;
  expect(seen(split(frame))).toMatchObject([{ icrc: 'bad', payload: 4096 }]);
});

describe('damaged packets that could be super-packets', () => {
  /** The CRCs of a reading of `count` equal frames. */
  function crcs(frame: Uint8Array, count: number): number {
    let calls = 0;
    const reader = new PacketReader({
      crc32: (bytes, before, start, end) => {
        calls++;
        return crc32(bytes.subarray(start, end), before);
      },
    });
    for (let i = 0; i < count; i++) reader.frame(rawRecord(frame));
    expect(reader.summary().icrc).toMatchObject({ ok: 0, bad: count });
    return calls;
  }
  /** A packet whose payload, and so whose ICRC, is another one than the sender's. */
  function filled(opcode: number, byte: number): Uint8Array {
    const frame = superPacket([{ opcode, psn: 1, payload: 1024 }]);
    return frame.fill(byte, 20 + 8 + 12, frame.length - ICRC_BYTES);
  }

  test('zeros are no second BTH', () => {
    expect(crcs(filled(Opcode.RC_SEND_ONLY, 0), 1)).toBe(1);
  });

  test('a MIDDLE carries just a path MTU', () => {
    expect(crcs(filled(Opcode.RC_SEND_MIDDLE, 0x10), 1)).toBeLessThan(6);
  });

  test('not every one is searched, until a super-packet is found', () => {
    const search = crcs(filled(Opcode.RC_SEND_ONLY, 0x10), 1);
    expect(search).toBeGreaterThan(200);
    expect(crcs(filled(Opcode.RC_SEND_ONLY, 0x10), 264)).toBeLessThan(80 * search);
  });
});
