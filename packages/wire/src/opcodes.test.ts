import { describe, expect, test } from 'vitest';
import { EXTENSION_BYTES, OPCODES, Opcode, OperationBits, opcodeInfo, Transport } from './opcodes.ts';

test('the byte of an opcode is transport and operation', () => {
  expect(Opcode.RC_SEND_ONLY).toBe(0x04);
  expect(Opcode.RC_ACKNOWLEDGE).toBe(0x11);
  expect(Opcode.RC_FLUSH).toBe(0x1c);
  expect(Opcode.RC_ATOMIC_WRITE).toBe(0x1d);
  expect(Opcode.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE).toBe(0x2b);
  expect(Opcode.RD_RESYNC).toBe(0x55);
  expect(Opcode.UD_SEND_ONLY).toBe(0x64);
  expect(Opcode.UD_SEND_ONLY_WITH_IMMEDIATE).toBe(0x65);
  expect(Opcode.CNP).toBe(0x81);
  expect(Opcode.XRC_SEND_ONLY_WITH_INVALIDATE).toBe(0xb7);
  expect(Opcode.XRC_FLUSH).toBe(0xbc);
  expect(Opcode.XRC_ATOMIC_WRITE).toBe(0xbd);
});

test('bytes that are no opcode have no row', () => {
  // 0x15 is RD's RESYNC only; 0x2c a READ on UC; 0x60 a SEND FIRST on UD; 0xc0 is the makers' own.
  for (const byte of [0x15, 0x18, 0x2c, 0x60, 0x80, 0x82, 0xb5, 0xc0, 0xff, 256, -1]) {
    expect(opcodeInfo(byte), `0x${byte.toString(16)}`).toBeUndefined();
  }
  expect(OPCODES.length).toBe(25 + 12 + 23 + 2 + 1 + 25);
});

// BTH is 12 bytes; the rest is what IBTA vol 1 table 38 lists for the opcode.
test.each([
  ['RC_SEND_MIDDLE', 12, {}],
  ['RC_SEND_LAST_WITH_IMMEDIATE', 16, { immDt: 12 }],
  ['RC_SEND_ONLY_WITH_INVALIDATE', 16, { ieth: 12 }],
  ['RC_RDMA_WRITE_FIRST', 28, { reth: 12 }],
  ['RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE', 32, { reth: 12, immDt: 28 }],
  ['RC_RDMA_READ_RESPONSE_MIDDLE', 12, {}],
  ['RC_RDMA_READ_RESPONSE_ONLY', 16, { aeth: 12 }],
  ['RC_ATOMIC_ACKNOWLEDGE', 24, { aeth: 12, atomicAckEth: 16 }],
  ['RC_COMPARE_SWAP', 40, { atomicEth: 12 }],
  ['RC_FLUSH', 32, { feth: 12, reth: 16 }],
  ['RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE', 44, { rdeth: 12, deth: 16, reth: 24, immDt: 40 }],
  ['RD_FETCH_ADD', 52, { rdeth: 12, deth: 16, atomicEth: 24 }],
  ['RD_ATOMIC_ACKNOWLEDGE', 28, { rdeth: 12, aeth: 16, atomicAckEth: 20 }],
  ['RD_RDMA_READ_RESPONSE_MIDDLE', 16, { rdeth: 12 }],
  ['UD_SEND_ONLY_WITH_IMMEDIATE', 24, { deth: 12, immDt: 20 }],
  ['XRC_RDMA_WRITE_ONLY', 32, { xrceth: 12, reth: 16 }],
  ['XRC_FLUSH', 36, { xrceth: 12, feth: 16, reth: 20 }],
  ['XRC_ATOMIC_WRITE', 32, { xrceth: 12, reth: 16 }],
  ['XRC_ACKNOWLEDGE', 16, { aeth: 12 }],
  ['CNP', 28, { cnp: 12 }],
] as const)('%s has %i bytes of headers', (key, headerLength, offsets) => {
  const info = opcodeInfo(Opcode[key])!;
  expect(info.headerLength).toBe(headerLength);
  const present = Object.entries(info.offsets).filter(([, offset]) => offset >= 0);
  expect(Object.fromEntries(present)).toEqual(offsets);
});

describe.each(OPCODES.map((info) => [info.name, info] as const))('%s', (_name, info) => {
  test('has its number, transport and offsets in agreement', () => {
    expect(opcodeInfo(info.opcode)).toBe(info);
    expect(Opcode[info.key]).toBe(info.opcode);
    expect(info.transport | info.operation).toBe(info.opcode);
    expect(Transport[info.transportName]).toBe(info.transport);
    // Headers stand end to end from the BTH on.
    let at = 12;
    for (const extension of info.extensions) {
      expect(info.offsets[extension]).toBe(at);
      at += EXTENSION_BYTES[extension];
    }
    expect(info.headerLength).toBe(at);
    expect(info.hasImmediate).toBe(info.name.endsWith('Immediate'));
    expect(info.hasInvalidate).toBe(info.name.endsWith('Invalidate'));
    expect(info.first).toBe(!/Middle|Last/.test(info.name));
    expect(info.last).toBe(!/Middle|First/.test(info.name));
    expect(info.isResponse).toBe(/Response|Acknowledge/.test(info.name));
    expect(info.isRequest).toBe(!info.isResponse && info.name !== 'CNP');
    expect(info.isAtomic).toBe(/Compare Swap|Fetch Add/.test(info.name));
  });
});

test('payload follows SEND, WRITE, READ responses and ATOMIC WRITE', () => {
  for (const { operation, transportName, hasPayload, name } of OPCODES) {
    const carries =
      transportName !== 'CNP' &&
      (operation <= OperationBits.RDMA_WRITE_ONLY_WITH_IMMEDIATE ||
        (operation >= OperationBits.RDMA_READ_RESPONSE_FIRST &&
          operation <= OperationBits.RDMA_READ_RESPONSE_ONLY) ||
        operation === OperationBits.SEND_LAST_WITH_INVALIDATE ||
        operation === OperationBits.SEND_ONLY_WITH_INVALIDATE ||
        operation === OperationBits.ATOMIC_WRITE);
    expect(hasPayload, name).toBe(carries);
  }
});
