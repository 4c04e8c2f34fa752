/** Every header against literal bytes, by its view, its writer and its plain value. */
import { describe, expect, test } from 'vitest';
import { fromHex, toHex } from '../bytes.ts';
import { Opcode } from '../opcodes.ts';
import { AETH_BYTES, aethMsn, aethSyndrome, decodeAeth, encodeAeth, writeAeth } from './aeth.ts';
import {
  ATOMIC_ACK_ETH_BYTES,
  ATOMIC_ETH_BYTES,
  atomicAckHigh,
  atomicAckLow,
  atomicEthCompareHigh,
  atomicEthCompareLow,
  atomicEthRkey,
  atomicEthSwapAddHigh,
  atomicEthSwapAddLow,
  atomicEthVaHigh,
  atomicEthVaLow,
  decodeAtomicAck,
  decodeAtomicEth,
  encodeAtomicAck,
  encodeAtomicEth,
  writeAtomicAck,
  writeAtomicEth,
} from './atomic.ts';
import {
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  type BthValue,
  bthAckReq,
  bthBecn,
  bthDestQp,
  bthFecn,
  bthMigReq,
  bthOpcode,
  bthPad,
  bthPkey,
  bthPsn,
  bthSolicited,
  bthTver,
  decodeBth,
  encodeBth,
  writeBth,
} from './bth.ts';
import {
  DETH_BYTES,
  decodeDeth,
  decodeRdeth,
  decodeXrceth,
  dethQkey,
  dethSrcQp,
  encodeDeth,
  encodeRdeth,
  encodeXrceth,
  RDETH_BYTES,
  rdethEeContext,
  writeDeth,
  writeRdeth,
  writeXrceth,
  XRCETH_BYTES,
  xrcethSrq,
} from './datagram.ts';
import {
  decodeReth,
  encodeReth,
  RETH_BYTES,
  rethLength,
  rethRkey,
  rethVaHigh,
  rethVaLow,
  writeReth,
} from './reth.ts';
import {
  decodeFeth,
  encodeFeth,
  FETH_BYTES,
  FlushPlacement,
  FlushSelectivity,
  fethPlacement,
  fethSelectivity,
  IETH_BYTES,
  IMM_DT_BYTES,
  iethRkey,
  immDt,
  writeFeth,
  writeIeth,
  writeImmDt,
} from './small.ts';

/** The bytes that `write` leaves of 0xaa around and in a header of `length` bytes at offset 3. */
function written(length: number, write: (b: Uint8Array, o: number) => void): string {
  const b = new Uint8Array(length + 5).fill(0xaa);
  write(b, 3);
  expect([toHex(b.subarray(0, 3)), toHex(b.subarray(length + 3))]).toEqual(['aaaaaa', 'aaaa']);
  return toHex(b.subarray(3, length + 3));
}

/** The bytes at offset 3, so that a reader that forgets its offset is found out. */
const at3 = (hex: string): Uint8Array => fromHex(`ffffff${hex}ffff`);

describe('BTH', () => {
  // RC SEND only, SE, MigReq, pad 3, tver 1, P_Key 0x8001, FECN, reserved 0x15, QP 0xfedcba, AckReq,
  // reserved 0x2a, PSN 0xabcdef: every field differs from its neighbours.
  const hex = '04f1800195fedcbaaaabcdef';
  const b = at3(hex);
  const value: BthValue = {
    opcode: Opcode.RC_SEND_ONLY,
    solicited: true,
    migReq: true,
    pad: 3,
    tver: 1,
    pkey: 0x8001,
    fecn: true,
    becn: false,
    reserved6: 0x15,
    destQp: 0xfedcba,
    ackReq: true,
    reserved7: 0x2a,
    psn: 0xabcdef,
  };

  test('is read in place', () => {
    expect([bthOpcode(b, 3), bthSolicited(b, 3), bthMigReq(b, 3), bthPad(b, 3), bthTver(b, 3)]).toEqual([
      4, 1, 1, 3, 1,
    ]);
    expect([bthPkey(b, 3), bthFecn(b, 3), bthBecn(b, 3), bthDestQp(b, 3)]).toEqual([0x8001, 1, 0, 0xfedcba]);
    expect([bthAckReq(b, 3), bthPsn(b, 3)]).toEqual([1, 0xabcdef]);
  });

  test('is written in place, congestion and reserved bits as 0', () => {
    const flags = BthFlags.SOLICITED | BthFlags.MIG_REQ | (3 << BTH_PAD_SHIFT) | 1;
    const ackReqAndPsn = BTH_ACK_REQ | 0xabcdef;
    expect(written(BTH_BYTES, (x, o) => writeBth(x, o, 4, flags, 0x8001, 0xfedcba, ackReqAndPsn))).toBe(
      '04f1800100fedcba80abcdef',
    );
    expect(written(BTH_BYTES, (x, o) => writeBth(x, o, 0x11, 0, 0xffff, 5, 7))).toBe(
      '1100ffff0000000500000007',
    );
  });

  test('goes to a value and back with every bit', () => {
    expect(decodeBth(b, 3)).toEqual(value);
    expect(written(BTH_BYTES, (x, o) => encodeBth(x, o, value))).toBe(hex);
  });

  test.each([
    ['opcode', 256],
    ['pad', 4],
    ['tver', 16],
    ['pkey', 0x1_0000],
    ['reserved6', 64],
    ['destQp', 0x100_0000],
    ['reserved7', 128],
    ['psn', -1],
    ['psn', 0.5],
  ] as const)('refuses %s %d by name', (field, number) => {
    const b12 = new Uint8Array(BTH_BYTES);
    expect(() => encodeBth(b12, 0, { ...value, [field]: number })).toThrow(`BTH ${field} ${number}`);
  });
});

test('RETH', () => {
  const hex = 'fedcba9876543210deadbeef80000000';
  const b = at3(hex);
  expect([rethVaHigh(b, 3), rethVaLow(b, 3), rethRkey(b, 3), rethLength(b, 3)]).toEqual([
    0xfedcba98, 0x76543210, 0xdeadbeef, 0x80000000,
  ]);
  const write = (x: Uint8Array, o: number) => writeReth(x, o, 0xfedcba98, 0x76543210, 0xdeadbeef, 2 ** 31);
  expect(written(RETH_BYTES, write)).toBe(hex);
  const value = { va: 0xfedcba9876543210n, rkey: 0xdeadbeef, length: 2 ** 31 };
  expect(decodeReth(b, 3)).toEqual(value);
  expect(written(RETH_BYTES, (x, o) => encodeReth(x, o, value))).toBe(hex);
  const b16 = new Uint8Array(RETH_BYTES);
  expect(() => encodeReth(b16, 0, { ...value, va: 1n << 64n })).toThrow('RETH va');
  expect(() => encodeReth(b16, 0, { ...value, va: -1n })).toThrow('RETH va');
});

test('AtomicETH', () => {
  const hex = 'f0000001f0000002f0000003f0000004f0000005f0000006f0000007';
  const b = at3(hex);
  const fields = [
    atomicEthVaHigh,
    atomicEthVaLow,
    atomicEthRkey,
    atomicEthSwapAddHigh,
    atomicEthSwapAddLow,
    atomicEthCompareHigh,
    atomicEthCompareLow,
  ].map((read) => read(b, 3));
  expect(fields).toEqual([1, 2, 3, 4, 5, 6, 7].map((n) => 0xf000_0000 + n));
  const [va, vaLow, rkey, swap, swapLow, compare, compareLow] = fields;
  expect(
    written(ATOMIC_ETH_BYTES, (x, o) => {
      writeAtomicEth(x, o, va, vaLow, rkey, swap, swapLow, compare, compareLow);
    }),
  ).toBe(hex);
  const value = decodeAtomicEth(b, 3);
  expect(value).toEqual({
    va: 0xf0000001f0000002n,
    rkey: 0xf0000003,
    swapAdd: 0xf0000004f0000005n,
    compare: 0xf0000006f0000007n,
  });
  expect(written(ATOMIC_ETH_BYTES, (x, o) => encodeAtomicEth(x, o, value))).toBe(hex);
});

test('AtomicAckETH', () => {
  const hex = '312a231c950e0700';
  const b = at3(hex);
  expect([atomicAckHigh(b, 3), atomicAckLow(b, 3)]).toEqual([0x312a231c, 0x950e0700]);
  expect(written(ATOMIC_ACK_ETH_BYTES, (x, o) => writeAtomicAck(x, o, 0x312a231c, 0x950e0700))).toBe(hex);
  expect(decodeAtomicAck(b, 3)).toEqual({ original: 0x312a231c950e0700n });
  const value = { original: 0x312a231c950e0700n };
  expect(written(ATOMIC_ACK_ETH_BYTES, (x, o) => encodeAtomicAck(x, o, value))).toBe(hex);
});

test('AETH', () => {
  const b = at3('1ffedcba');
  expect([aethSyndrome(b, 3), aethMsn(b, 3)]).toEqual([0x1f, 0xfedcba]);
  expect(written(AETH_BYTES, (x, o) => writeAeth(x, o, 0x1f, 0xfedcba))).toBe('1ffedcba');
  expect(decodeAeth(b, 3)).toEqual({ syndrome: 0x1f, msn: 0xfedcba });
  expect(written(AETH_BYTES, (x, o) => encodeAeth(x, o, { syndrome: 0x1f, msn: 0xfedcba }))).toBe('1ffedcba');
});

test('DETH', () => {
  // The Q_Key of QP1, from QP1.
  const b = at3('8001000055000001');
  expect([dethQkey(b, 3), dethSrcQp(b, 3)]).toEqual([0x8001_0000, 1]);
  expect(written(DETH_BYTES, (x, o) => writeDeth(x, o, 0x8001_0000, 0xff_0000_01))).toBe('8001000000000001');
  expect(decodeDeth(b, 3)).toEqual({ qkey: 0x8001_0000, reserved: 0x55, srcQp: 1 });
  expect(written(DETH_BYTES, (x, o) => encodeDeth(x, o, decodeDeth(b, 3)))).toBe('8001000055000001');
});

test('RDETH and XRCETH', () => {
  const b = at3('55fedcba');
  expect([rdethEeContext(b, 3), xrcethSrq(b, 3)]).toEqual([0xfedcba, 0xfedcba]);
  expect(written(RDETH_BYTES, (x, o) => writeRdeth(x, o, 0xfedcba))).toBe('00fedcba');
  expect(written(XRCETH_BYTES, (x, o) => writeXrceth(x, o, 0xfedcba))).toBe('00fedcba');
  expect(decodeRdeth(b, 3)).toEqual({ reserved: 0x55, eeContext: 0xfedcba });
  expect(decodeXrceth(b, 3)).toEqual({ reserved: 0x55, srq: 0xfedcba });
  expect(written(RDETH_BYTES, (x, o) => encodeRdeth(x, o, decodeRdeth(b, 3)))).toBe('55fedcba');
  expect(written(XRCETH_BYTES, (x, o) => encodeXrceth(x, o, decodeXrceth(b, 3)))).toBe('55fedcba');
});

test('ImmDt and IETH', () => {
  const b = at3('c0ffee08');
  expect([immDt(b, 3), iethRkey(b, 3)]).toEqual([0xc0ffee08, 0xc0ffee08]);
  expect(written(IMM_DT_BYTES, (x, o) => writeImmDt(x, o, 0xc0ffee08))).toBe('c0ffee08');
  expect(written(IETH_BYTES, (x, o) => writeIeth(x, o, 0xc0ffee08))).toBe('c0ffee08');
});

test('FETH', () => {
  const b = at3('fffffff2');
  expect([fethPlacement(b, 3), fethSelectivity(b, 3)]).toEqual([FlushPlacement.PERSISTENCE, 3]);
  const { PERSISTENCE } = FlushPlacement;
  const { MEMORY_REGION } = FlushSelectivity;
  expect(written(FETH_BYTES, (x, o) => writeFeth(x, o, PERSISTENCE, MEMORY_REGION))).toBe('00000012');
  const value = decodeFeth(b, 3);
  expect(value).toEqual({ placement: 2, selectivity: 3, reserved: 0x3ff_ffff });
  expect(written(FETH_BYTES, (x, o) => encodeFeth(x, o, value))).toBe('fffffff2');
});
