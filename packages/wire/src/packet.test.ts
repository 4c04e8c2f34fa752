import fc from 'fast-check';
import { expect, test } from 'vitest';
import { toHex } from './bytes.ts';
import { formatFields, formatLine } from './format.ts';
import { EXTENSION_BYTES, OPCODES } from './opcodes.ts';
import { buildPacket, type Extensions, FrameType, type PacketInput, parseFrame } from './packet.ts';

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
    vlans: fc.array(fc.record({ tpid: fc.constantFrom(0x8100, 0x88a8), tci: fc.nat(0xffff) }), {
      maxLength: 2,
    }),
    etherType: fc.constant(etherType),
  });

const packets: fc.Arbitrary<PacketInput> = fc.constantFrom(...OPCODES).chain((info) => {
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

test('every opcode over IPv4, IPv6 and RoCE v1: what is built parses to the same values and builds again', () => {
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

test('one flipped bit in what the ICRC covers is found', () => {
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
      if (spoiled.ok) expect(spoiled.packet.icrcStatus).toBe('bad');
    }),
    { numRuns: 500 },
  );
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
        } else expect(['not-roce', 'truncated', 'malformed', 'unknown-opcode']).toContain(result.reason);
      },
    ),
    { numRuns: 2000 },
  );
});
