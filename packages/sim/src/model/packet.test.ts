import { OPCODES, Transport } from '@node-roce/wire';
import fc from 'fast-check';
import { expect, test } from 'vitest';
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
