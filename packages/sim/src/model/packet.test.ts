import {
  decodeAeth,
  decodeAtomicAck,
  decodeAtomicEth,
  decodeBth,
  decodeDeth,
  decodeFeth,
  decodeReth,
  decodeXrceth,
  iethRkey,
  immDt,
  OPCODES,
  Opcode,
  Transport,
} from '@node-roce/wire';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { placesOf } from './headers.ts';
import { decodePacket, encodePacket, type ModelPacket } from './packet.ts';

const services: number[] = [Transport.RC, Transport.UC, Transport.UD];
const rows = OPCODES.filter(({ transport, offsets }) => services.includes(transport) && offsets.feth < 0);
const u24 = fc.nat(0xffffff);
const u32 = fc.nat(0xffffffff);
const u64 = fc.bigInt({ min: 0n, max: (1n << 64n) - 1n });

const packets: fc.Arbitrary<ModelPacket> = fc.constantFrom(...rows).chain((row) => {
  const has = (offset: number, arbitrary: fc.Arbitrary<unknown>) =>
    offset < 0 ? fc.constant(undefined) : arbitrary;
  return fc
    .record({
      opcode: fc.constant(row.opcode),
      destQpn: u24,
      psn: u24,
      ackReq: fc.boolean(),
      solicited: fc.boolean(),
      pkey: fc.nat(0xffff),
      deth: has(row.offsets.deth, fc.record({ qkey: u32, srcQpn: u24 })),
      reth: has(row.offsets.reth, fc.record({ va: u64, rkey: u32, length: u32 })),
      atomicEth: has(row.offsets.atomicEth, fc.record({ va: u64, rkey: u32, swapAdd: u64, compare: u64 })),
      aeth: has(row.offsets.aeth, fc.record({ syndrome: fc.nat(255), msn: u24 })),
      original: has(row.offsets.atomicAckEth, u64),
      immediate: has(row.offsets.immDt, u32),
      invalidateRkey: has(row.offsets.ieth, u32),
      payload: row.hasPayload ? fc.uint8Array({ maxLength: 300 }) : fc.constant(new Uint8Array(0)),
    })
    .map((packet) => packet as ModelPacket);
});

test('an encoded packet decodes to the same packet', () => {
  fc.assert(
    fc.property(packets, (packet) => {
      expect(decodePacket(encodePacket(packet))).toEqual({ ok: true, packet });
    }),
  );
});

test('any bytes give one of the reasons, or a packet that decodes to itself again', () => {
  const reasons =
    /^(\d+ bytes are no BTH|header version \d+|opcode 0x[0-9a-f]+ does not belong to|\d+ bytes end inside)/;
  let decodes = 0;
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 80, size: 'max' }),
      fc.constantFrom(0x04, 0x0a, 0x24, 0x64, undefined),
      (bytes, opcode) => {
        // Some with an opcode and a header version of ours: else next to none would decode.
        if (opcode !== undefined && bytes.length > 1) {
          bytes[0] = opcode;
          bytes[1] &= 0xf0;
        }
        const decoded = decodePacket(bytes);
        if (!decoded.ok) {
          expect(decoded.reason).toMatch(reasons);
          return;
        }
        decodes++;
        expect(decodePacket(encodePacket(decoded.packet))).toEqual(decoded);
      },
    ),
    { numRuns: 500 },
  );
  expect(decodes).toBeGreaterThan(20);
});

test('the tables of headers and those of wire agree, opcode by opcode', () => {
  const known = new Set<number>([Transport.RC, Transport.UC, Transport.UD, Transport.XRC]);
  const own = OPCODES.filter(({ transport }) => known.has(transport));
  expect(own.length).toBeGreaterThan(60);
  for (const { opcode, offsets, headerLength, name } of own) {
    const { at, length } = placesOf(opcode);
    expect(length, name).toBe(headerLength);
    for (const [header, offset] of Object.entries(offsets))
      expect((at as Record<string, number>)[header] ?? -1, `${name} ${header}`).toBe(offset);
  }
});

test('each field is where wire reads it', () => {
  const common = { destQpn: 0xa1b2c3, psn: 0xd4e5f6, ackReq: true, solicited: true, pkey: 0x8765 };
  const payload = Uint8Array.of(1, 2, 3);
  const reth = { va: 0x1122_3344_5566_7788n, rkey: 0x99aa_bbcc, length: 0xddee_ff01 };
  const encode = (key: keyof typeof Opcode, more: Partial<ModelPacket>) =>
    encodePacket({ opcode: Opcode[key], ...common, payload, ...more });
  const write = encode('RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE', { reth, immediate: 0x0102_0304 });
  expect(decodeBth(write, 0)).toEqual({
    opcode: 0x0b,
    solicited: true,
    migReq: true,
    pad: 1,
    tver: 0,
    pkey: 0x8765,
    fecn: false,
    becn: false,
    reserved6: 0,
    destQp: 0xa1b2c3,
    ackReq: true,
    reserved7: 0,
    psn: 0xd4e5f6,
  });
  expect(decodeReth(write, 12)).toEqual(reth);
  expect(immDt(write, 28)).toBe(0x0102_0304);
  const atomicEth = {
    va: reth.va,
    rkey: reth.rkey,
    swapAdd: 0x0a0b_0c0d_0e0f_1011n,
    compare: 2n ** 64n - 2n,
  };
  const swap = encode('XRC_COMPARE_SWAP', { atomicEth, srqn: 0x765432 });
  expect(decodeXrceth(swap, 12)).toEqual({ reserved: 0, srq: 0x765432 });
  expect(decodeAtomicEth(swap, 16)).toEqual(atomicEth);
  const answer = encode('RC_ATOMIC_ACKNOWLEDGE', {
    aeth: { syndrome: 0x1f, msn: 0x123456 },
    original: reth.va,
  });
  expect(decodeAeth(answer, 12)).toEqual({ syndrome: 0x1f, msn: 0x123456 });
  expect(decodeAtomicAck(answer, 16)).toEqual({ original: reth.va });
  const datagram = encode('UD_SEND_ONLY', { deth: { qkey: 0x8001_0000, srcQpn: 0x13579b } });
  expect(decodeDeth(datagram, 12)).toEqual({ qkey: 0x8001_0000, reserved: 0, srcQp: 0x13579b });
  const flush = encode('RC_FLUSH', { feth: { placement: 3, selectivity: 1 }, reth });
  expect(decodeFeth(flush, 12)).toEqual({ placement: 3, selectivity: 1, reserved: 0 });
  expect(decodeReth(flush, 16)).toEqual(reth);
  expect(iethRkey(encode('RC_SEND_ONLY_WITH_INVALIDATE', { invalidateRkey: 0xfedc_ba98 }), 12)).toBe(
    0xfedc_ba98,
  );
});
