/** The wire package against real traffic: captures of rxe, and frames of ConnectX and Huawei adapters. */
import { readdirSync, readFileSync } from 'node:fs';
import {
  buildPacket,
  FrameType,
  fromHex,
  icrcV2,
  type Packet,
  type PacketInput,
  parseFrame,
  solveIpId,
  toHex,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';

const directory = new URL('../fixtures/captures/', import.meta.url);
const files = readdirSync(directory).filter((name) => name.endsWith('.pcap'));

/** Records of a classic little-endian pcap file: what tcpdump wrote here. */
function* frames(bytes: Uint8Array): Generator<Uint8Array> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  expect(view.getUint32(0, true)).toBe(0xa1b2c3d4);
  for (let at = 24; at + 16 <= bytes.length; ) {
    const length = view.getUint32(at + 8, true);
    yield bytes.subarray(at + 16, at + 16 + length);
    at += 16 + length;
  }
}

/** The packet without all that `buildPacket` computes: lengths, the IPv4 checksum, the ICRC. */
function withoutComputed(packet: Packet): PacketInput {
  const { icrc: _icrc, udp, ip, ...rest } = packet;
  if (ip.version === 6) {
    const { payloadLength: _length, ...bare } = ip;
    return { ...rest, ip: bare, udp: udp && { ...udp, length: undefined } };
  }
  const { totalLength: _length, checksum: _checksum, ...bare } = ip;
  return { ...rest, ip: bare, udp: udp && { ...udp, length: undefined } };
}

/** As a UDP socket sees it: the Identification is unknown, and the ICRC reveals it. */
function expectIpIdSolved({ ip, icrc }: Packet, frame: Uint8Array): void {
  if (ip.version !== 4 || icrc === undefined) return;
  const unseen = Uint8Array.from(frame);
  unseen.fill(0, 18, 20);
  const at = frame.length - 4;
  expect(solveIpId((icrc ^ icrcV2(unseen, 14, at)) >>> 0, at - 20)).toBe(ip.id);
}

const counts = { packets: 0, v4: 0, v6: 0, bad: 0 };

describe.each(files)('%s', (file) => {
  test('parses and builds back to the same bytes; the ICRC is right unless it was spoiled on purpose', () => {
    let bad = 0;
    for (const frame of frames(readFileSync(new URL(file, directory)))) {
      const result = parseFrame(frame);
      if (!result.ok) {
        expect(result.reason, result.detail).toBe('not-roce');
        continue;
      }
      const { packet } = result;
      counts.packets++;
      counts[packet.ip.version === 4 ? 'v4' : 'v6']++;
      if (toHex(buildPacket(packet)) !== toHex(frame)) expect(toHex(buildPacket(packet))).toBe(toHex(frame));
      if (packet.icrcStatus === 'bad') bad++;
      else {
        expect(toHex(buildPacket(withoutComputed(packet)))).toBe(toHex(frame));
        expectIpIdSolved(packet, frame);
      }
    }
    counts.bad += bad;
    expect(bad > 0).toBe(file === 'corrupt_A.pcap');
  });
});

test('that was all of them: 2468 good packets over IPv4, 125 over IPv6, 20 spoiled', () => {
  expect(counts).toEqual({ packets: 2613, v4: 2488, v6: 125, bad: 20 });
});

const vectors: [what: string, frame: string, icrc: string, check: (p: Packet) => void][] = [
  [
    'CNP of a ConnectX-4 Lx, IPv4 Identification 0x718c, source port 0',
    'e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a',
    '82fd002a',
    (p) => {
      expect(p.info.name).toBe('CNP');
      expect(p.bth).toMatchObject({ destQp: 0x118, becn: true, migReq: false });
      expect(p.udp?.sourcePort).toBe(0);
    },
  ],
  [
    'RC ACK of a ConnectX-4 Lx with zero credits',
    '005056af39dc005056af0dec0800450200303631400040118e50c0a8fa72c0a8fa75cf2112b7001c00001140ffff00000d1e00466f1e000e6f028d64383d',
    '8d64383d',
    (p) => expect([p.bth.psn, p.extensions.aeth]).toEqual([0x466f1e, { syndrome: 0, msn: 0xe6f02 }]),
  ],
  [
    'RC ACK of a Huawei adapter, credit code 6',
    '183d5ebf5192183d5ebf43710800450200300000400040112d60c0a84604c0a84606004512b7001c00001140ffff00000048000000000600000090d7755d',
    '90d7755d',
    (p) => expect(p.extensions.aeth).toEqual({ syndrome: 6, msn: 0 }),
  ],
  [
    'RC SEND only with immediate of a Huawei adapter, a reserved byte of 0x10',
    '183d5ebf4371183d5ebf51920800450200340000400040112d5cc0a84606c0a84604004812b7002000000540ffff100000458000004200000000000000013716801d',
    '3716801d',
    (p) => {
      expect(p.bth).toMatchObject({ reserved6: 0x10, ackReq: true, psn: 0x42 });
      expect(p.payloadLength).toBe(4);
    },
  ],
  [
    'UC SEND only, pad 2, with a UDP checksum',
    '248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3',
    '78f353f3',
    (p) => expect([p.bth.pad, p.udp?.checksum]).toEqual([2, 0xaca2]),
  ],
  [
    'RoCE v1 RC WRITE only of a ConnectX, pad 3',
    '7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb',
    'e3d856bb',
    (p) => {
      expect(p.version).toBe(1);
      expect(p.extensions.reth).toEqual({ va: 0x55d4c0726000n, rkey: 0x47b3, length: 5 });
    },
  ],
];

test.each(vectors)('%s', (_what, text, icrc, check) => {
  const frame = fromHex(text);
  const result = parseFrame(frame);
  if (!result.ok) throw new Error(result.detail);
  expect(result.packet.icrcStatus).toBe('ok');
  expect(toHex(frame.subarray(-4))).toBe(icrc);
  check(result.packet);
  expect(toHex(buildPacket(result.packet))).toBe(text);
});

test('frames cut at every length, and of every link type: a reason, never an exception', () => {
  for (const [, text] of vectors) {
    const frame = fromHex(text);
    for (let length = 0; length < frame.length; length++) {
      for (const type of Object.values(FrameType)) {
        const result = parseFrame(frame.subarray(0, length), type);
        if (result.ok) expect(result.packet.icrcStatus).toBe('none');
        else expect(result.offset).toBeLessThanOrEqual(frame.length);
      }
    }
  }
});
