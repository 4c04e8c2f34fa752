import { randomFillSync } from 'node:crypto';
import { crc32 as zlibCrc32 } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import { type CrcImplementation, crc32, crc32Copy, features, setCrcImplementation } from '../index.js';

const best = features().crc;
afterEach(() => setCrcImplementation(best));

const available = (['vpclmul', 'pclmul', 'arm', 'table'] as const).filter((name) => {
  try {
    setCrcImplementation(name);
    return true;
  } catch {
    return false;
  }
});
setCrcImplementation(best);

test('the table is there everywhere and the fastest is chosen', () => {
  expect(available).toContain('table');
  expect(best).toBe(available[0]);
  // All but a few of the first processors of arm64 have the CRC32 instructions, and so has QEMU's.
  if (process.arch === 'arm64') expect(best).toBe('arm');
});

test('an unknown implementation is refused', () => {
  expect(() => setCrcImplementation('sse9' as CrcImplementation)).toThrow(RangeError);
  expect(features().crc).toBe(best);
});

describe.each(available)('%s', (name) => {
  const memory = randomFillSync(new Uint8Array(70_000));

  test('of a part, as of a view of it', () => {
    setCrcImplementation(name);
    fc.assert(
      fc.property(fc.nat(2000), fc.nat(2000), fc.nat(0xffff_ffff), (start, length, seed) => {
        const part = memory.subarray(start, start + length);
        expect(crc32(memory, seed, start, start + length)).toBe(zlibCrc32(part, seed));
      }),
    );
    const bytes = new Uint8Array(10);
    for (const [start, end] of [
      [0, 11],
      [11, undefined],
      [5, 4],
      [-1, 3],
      [0.5, 3],
    ]) {
      expect(() => crc32(bytes, 0, start, end)).toThrow(RangeError);
    }
    expect(crc32(bytes, 0, 10)).toBe(0);
  });

  test('agrees with zlib at every length to 1100 and every alignment', () => {
    setCrcImplementation(name);
    expect(features().crc).toBe(name);
    for (let length = 0; length < 1100; length++) {
      const bytes = memory.subarray(length % 67, (length % 67) + length);
      if (crc32(bytes) !== zlibCrc32(bytes)) expect.fail(`${length} bytes`);
    }
  });

  test('agrees with zlib for any stretch and seed, plain and copying', () => {
    setCrcImplementation(name);
    fc.assert(
      fc.property(
        fc.nat(3000),
        fc.nat(67_000),
        fc.nat(0xffff_ffff),
        fc.nat(100),
        (at, length, seed, shift) => {
          const bytes = memory.subarray(at, at + length);
          const expected = zlibCrc32(bytes, seed);
          const target = new Uint8Array(bytes.length + 200);
          expect(crc32(bytes, seed)).toBe(expected);
          expect(crc32Copy(target.subarray(shift), bytes, seed)).toBe(expected);
          expect(Buffer.compare(target.subarray(shift, shift + bytes.length), bytes)).toBe(0);
          expect(target.subarray(0, shift).every((b) => b === 0)).toBe(true);
          expect(target.subarray(shift + bytes.length).every((b) => b === 0)).toBe(true);
        },
      ),
      { numRuns: 200 },
    );
  });
});

test('crc32Copy refuses targets that are short or overlap', () => {
  const bytes = new Uint8Array(100);
  expect(() => crc32Copy(new Uint8Array(99), bytes)).toThrow(RangeError);
  expect(() => crc32Copy(bytes.subarray(1), bytes.subarray(0, 99))).toThrow(RangeError);
});
