import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { buildPacket } from './build.ts';
import { fromHex, toHex } from './bytes.ts';
import type { Extensions } from './extensions.ts';
import { formatFields, formatLine, packetFields, transportFields } from './format.ts';
import { udpChecksum } from './network.ts';
import { EXTENSION_BYTES, OPCODES } from './opcodes.ts';
import { FrameType, parseFrame } from './packet.ts';

const u24 = fc.nat(0xff_ffff);
const u32 = fc.nat(0xffff_ffff);
const u64 = fc.bigInt(0n, (1n << 64n) - 1n);
const bytes = (n: number) => fc.uint8Array({ minLength: n, maxLength: n });

const extensionOf = {
  rdeth: fc.record({ reserved: fc.nat(255), eeContext: u24 }),
  deth: fc.record({ qkey: u32, reserved: fc.nat(255), srcQp: u24 }),
  xrceth: fc.record({ reserved: fc.nat(255), srq: u24 }),
  feth: fc.record({ reserved: fc.nat(0x3ff_ffff), selectivity: fc.nat(3), placement: fc.nat(15) }),
  reth: fc.record({ va: u64, rkey: u32, length: u32 }),
  atomicEth: fc.record({ va: u64, rkey: u32, swapAdd: u64, compare: u64 }),
  aeth: fc.record({ syndrome: fc.nat(255), msn: u24 }),
  atomicAckEth: fc.record({ original: u64 }),
  immDt: u32,
  ieth: u32,
  cnp: bytes(EXTENSION_BYTES.cnp),
};

const ipv4 = fc.record({
  version: fc.constant(4 as const),
  tos: fc.nat(255),
  id: fc.nat(0xffff),
  flagsAndOffset: fc.constantFrom(0, 0x4000, 0x2000),
  ttl: fc.nat(255),
  protocol: fc.constant(17),
  source: bytes(4),
  destination: bytes(4),
  options: fc.constantFrom(0, 4, 40).chain(bytes),
});
const ipv6 = (nextHeader: number) =>
  fc.record({
    version: fc.constant(6 as const),
    trafficClass: fc.nat(255),
    flowLabel: fc.nat(0xf_ffff),
    nextHeader: fc.constant(nextHeader),
    hopLimit: fc.nat(255),
    source: bytes(16),
    destination: bytes(16),
  });

const ethernet = (etherType: number) =>
  fc.record({
    destination: bytes(6),
    source: bytes(6),
    vlans: fc.array(fc.record({ tpid: fc.constantFrom(0x8100, 0x88a8, 0x9100), tci: fc.nat(0xffff) }), {
      maxLength: 2,
    }),
    etherType: fc.constant(etherType),
  });

const packets = fc.constantFrom(...OPCODES).chain((info) => {
  const extensions = fc.record(
    Object.fromEntries(info.extensions.map((name) => [name, extensionOf[name]])),
  ) as fc.Arbitrary<Extensions>;
  const lower = fc.oneof(
    fc.record({ version: fc.constant(2 as const), ip: ipv4, ethernet: ethernet(0x0800) }),
    fc.record({ version: fc.constant(2 as const), ip: ipv6(17), ethernet: ethernet(0x86dd) }),
    fc.record({ version: fc.constant(1 as const), ip: ipv6(0x1b), ethernet: ethernet(0x8915) }),
  );
  return fc.tuple(lower, extensions, fc.nat(info.hasPayload ? 300 : 0)).chain(([below, headers, length]) =>
    fc.record({
      version: fc.constant(below.version),
      ip: fc.constant(below.ip),
      ethernet: fc.constant(below.ethernet),
      udp: fc.record({
        sourcePort: fc.nat(0xffff),
        destinationPort: fc.constant(4791),
        checksum: fc.nat(0xffff),
      }),
      extensions: fc.constant(headers),
      payload: bytes(length),
      bth: fc.record({
        opcode: fc.constant(info.opcode),
        solicited: fc.boolean(),
        migReq: fc.boolean(),
        pad: fc.constant(-length & 3),
        tver: fc.nat(15),
        pkey: fc.nat(0xffff),
        fecn: fc.boolean(),
        becn: fc.boolean(),
        reserved6: fc.nat(63),
        destQp: u24,
        ackReq: fc.boolean(),
        reserved7: fc.nat(127),
        psn: u24,
      }),
    }),
  );
});

test('every opcode over IPv4, IPv6 and RoCE v1: a built packet parses to the same values and builds again', () => {
  fc.assert(
    fc.property(packets, (input) => {
      const frame = buildPacket(input);
      const result = parseFrame(frame);
      if (!result.ok) throw new Error(`${result.reason}: ${result.detail}`);
      const { packet } = result;
      expect(packet.icrcStatus).toBe('ok');
      expect(packet.bth).toEqual(input.bth);
      expect(packet.extensions).toEqual(input.extensions);
      expect(toHex(packet.payload)).toBe(toHex(input.payload));
      expect(packet.ethernet).toEqual(input.ethernet);
      expect(packet.ip).toMatchObject(input.ip);
      expect(toHex(buildPacket(packet))).toBe(toHex(frame));
      expect(formatLine(packet)).toContain(packet.info.name);
      expect(formatFields(packet).split('\n').length).toBeGreaterThan(20);
    }),
    { numRuns: 500 },
  );
});

test('one flipped bit under the ICRC is found', () => {
  let bad = 0;
  fc.assert(
    fc.property(packets, fc.nat(), (input, at) => {
      const frame = buildPacket(input);
      const result = parseFrame(frame);
      if (!result.ok) throw new Error(result.detail);
      const start = result.packet.bthOffset;
      const bit = at % ((frame.length - start) * 8);
      const byte = start + (bit >> 3);
      if (byte === start + 4) return; // FECN, BECN and the reserved bits are not covered.
      frame[byte] ^= 1 << (bit & 7);
      const spoiled = parseFrame(frame);
      if (!spoiled.ok) return;
      bad++;
      expect(spoiled.packet.icrcStatus).toBe('bad');
    }),
    { numRuns: 500 },
  );
  expect(bad).toBeGreaterThan(100);
});

test('random, cut and spoiled bytes: a result, never an exception', () => {
  const types = fc.constantFrom(...Object.values(FrameType), 9999);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), types, (noise, type) => {
      parseFrame(noise, type);
    }),
    { numRuns: 2000 },
  );
  fc.assert(
    fc.property(
      packets,
      types,
      fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 8 }),
      fc.nat(),
      (input, type, spoil, cut) => {
        const frame = buildPacket(input);
        for (const [at, value] of spoil) frame[at % frame.length] = value;
        const result = parseFrame(frame.subarray(0, cut % (frame.length + 1)), type);
        if (result.ok) {
          formatLine(result.packet);
          formatFields(result.packet);
        } else
          expect(['not-roce', 'truncated', 'malformed', 'fragment', 'unknown-opcode']).toContain(
            result.reason,
          );
      },
    ),
    { numRuns: 2000 },
  );
});

// UC SEND only of real hardware, with a UDP checksum; a ConnectX's RoCE v1 WRITE.
const UC = fromHex(
  '248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3',
);
const V1 = fromHex(
  '7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb',
);

function parsed(frame: Uint8Array, type?: number) {
  const result = parseFrame(frame, type);
  if (!result.ok) throw new Error(`${result.reason}: ${result.detail}`);
  return result.packet;
}

describe('captures', () => {
  test('that are cut anywhere after the headers build back as far as they go', () => {
    for (const [frame, headers] of [
      [UC, 14 + 20 + 8 + 12],
      [V1, 14 + 40 + 28],
    ] as const) {
      for (let length = headers; length < frame.length; length++) {
        const cut = parsed(frame.subarray(0, length));
        expect(cut.icrcStatus).toBe('none');
        expect(cut.payloadLength).toBe(parsed(frame).payloadLength);
        expect(toHex(buildPacket(cut))).toBe(toHex(frame.subarray(0, length)));
        expect(formatFields(cut)).toContain('cut off');
      }
      expect(parseFrame(frame.subarray(0, headers - 1))).toMatchObject({ ok: false, reason: 'truncated' });
    }
  });

  test('without an Ethernet header build back with what they have instead', () => {
    const ip = toHex(UC.subarray(14));
    const cases = [
      [FrameType.LINUX_SLL, '0000030400060000000000000000' + '0800'],
      [FrameType.LINUX_SLL, '0000030400060000000000000000' + '88a80005' + '81000007' + '0800'],
      [FrameType.LINUX_SLL2, '0800' + '0000000000010304000600000000000000ff'],
      [FrameType.LINUX_SLL2, '88a8' + '0000000000010304000600000000000000ff' + '00058100' + '00070800'],
      [FrameType.NULL, '02000000'],
      [FrameType.RAW, ''],
      [FrameType.IPV4, ''],
    ] as const;
    for (const [type, header] of cases) {
      const packet = parsed(fromHex(header + ip), type);
      expect(packet.icrcStatus).toBe('ok');
      expect(packet.ethernet).toBeUndefined();
      expect(toHex(packet.linkHeader ?? new Uint8Array(0))).toBe(header);
      expect(toHex(buildPacket(packet))).toBe(header + ip);
    }
  });

  test('keep the padding and FCS that follow a packet', () => {
    const packet = parsed(Uint8Array.of(...UC, 0, 0, 0xde, 0xad));
    expect([packet.icrcStatus, toHex(packet.trailer)]).toEqual(['ok', '0000dead']);
    expect(toHex(buildPacket(packet))).toBe(`${toHex(UC)}0000dead`);
  });
});

describe('building', () => {
  test('computes the checksums that real hardware wrote', () => {
    expect(udpChecksum(UC, 14, 34)).toBe(0xaca2);
    const packet = parsed(UC);
    const {
      checksum: _ip,
      totalLength: _length,
      ...ip
    } = packet.ip as Extract<typeof packet.ip, { version: 4 }>;
    const { icrc: _icrc, ...rest } = packet;
    const udp = { sourcePort: 0xc000, destinationPort: 4791, checksum: 'compute' as const };
    expect(toHex(buildPacket({ ...rest, ip, udp }))).toBe(toHex(UC));
  });
});

describe('as text', () => {
  test('a line begins as in tshark', () => {
    expect(formatLine(parsed(UC))).toBe(
      '192.168.0.7 → 192.168.0.7 RRoCE 78 UC Send Only QP=0x0000d3 PSN=13571856 (0xcf1710) 18 bytes icrc ok',
    );
    expect(formatLine(parsed(V1))).toBe(
      '::ffff:15.0.0.2 → ::ffff:15.0.0.2 RoCE 94 RC RDMA Write Only QP=0x00010a PSN=10979516 (0xa788bc) AckReq ' +
        'VA=0x55d4c0726000 RKey=0x47b3 DMALen=5 5 bytes icrc ok',
    );
  });

  test('a field stands with its offset and bytes', () => {
    const lines = formatFields(parsed(V1), { offsets: true, hex: true }).split('\n');
    const line = (name: string) => lines.find((text) => text.includes(` ${name} `))?.replace(/ +/g, ' ');
    expect(line('bth.PSN')).toBe(' 003f a7 88 bc bth.PSN 10979516 (0xa788bc)');
    expect(line('reth.R_Key')).toBe(' 004a 00 00 47 b3 reth.R_Key 0x000047b3');
    expect(line('icrc.value')).toBe(' 005a e3 d8 56 bb icrc.value 0xe3d856bb (ok)');
  });

  test('transport fields are those of the whole packet, up to where the bytes end', () => {
    const { bthOffset, info } = parsed(V1);
    const whole = packetFields(parsed(V1)).filter(({ layer }) => layer === 'bth' || layer === 'reth');
    const frame = V1;
    expect(transportFields(frame, bthOffset)).toEqual(whole);
    for (let end = 0; end <= info.headerLength; end++) {
      const fields = transportFields(frame.subarray(bthOffset, bthOffset + end));
      expect(fields.length).toBe(
        end < 12 ? 0 : whole.filter((f) => f.offset + f.bytes.length <= bthOffset + end).length,
      );
    }
    expect(transportFields(new Uint8Array(40).fill(0xff))).toEqual([]);
  });

  test('the fields cover every byte of a frame', () => {
    fc.assert(
      fc.property(packets, (input) => {
        const frame = buildPacket(input);
        const covered = new Uint8Array(frame.length);
        for (const { offset, bytes: b } of packetFields(parsed(frame))) {
          expect(toHex(b)).toBe(toHex(frame.subarray(offset, offset + b.length)));
          covered.fill(1, offset, offset + b.length);
        }
        expect(covered.indexOf(0)).toBe(-1);
      }),
    );
  });
});
