import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { setNanoseconds, splitTime, TimestampScale, unitsPerSecond } from './timestamp.ts';

const BILLION = 1_000_000_000n;

test.each([
  [0, 1n],
  [6, 1_000_000n],
  [9, 1_000_000_000n],
  [12, 1_000_000_000_000n],
  [0x80, 1n],
  [0x94, 1_048_576n],
  [0x7f, 10n ** 127n],
])('if_tsresol %i', (tsresol, units) => {
  expect(unitsPerSecond(tsresol)).toBe(units);
});

describe('split', () => {
  test.each([
    [6, 0x00060a24, 0x18202240, 1_700_000_000, 123_456_000],
    [9, 0x17979cfe, 0x3d85cd15, 1_700_000_000, 123_456_789],
    [0x94, 0x0006553f, 0x10080000, 1_700_000_000, 500_000_000],
    [0, 0, 1_700_000_000, 1_700_000_000, 0],
    [12, 0, 1999, 0, 1],
  ])('resolution %i', (tsresol, high, low, seconds, nanoseconds) => {
    const scale = new TimestampScale(unitsPerSecond(tsresol), 0n);
    scale.split(high, low);
    expect([scale.seconds, scale.nanoseconds]).toEqual([seconds, nanoseconds]);
  });

  test('an offset may go back before 1970; nanoseconds stay positive', () => {
    const scale = new TimestampScale(1000n, -10n);
    scale.split(0, 1500);
    expect([scale.seconds, scale.nanoseconds]).toEqual([-9, 500_000_000]);
    expect(scale.toNanoseconds(0, 1500)).toBe(-8_500_000_000n);
  });

  test('every resolution agrees with integer arithmetic, rounded down to the nanosecond', () => {
    const word = fc.integer({ min: 0, max: 0xffff_ffff });
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 255 }), word, word, (tsresol, high, low) => {
        const units = unitsPerSecond(tsresol);
        const value = (BigInt(high) << 32n) | BigInt(low);
        // Seconds are a number, exact to 2^53.
        fc.pre(value / units < 1n << 53n);
        expect(new TimestampScale(units, 0n).toNanoseconds(high, low)).toBe((value * BILLION) / units);
      }),
      { numRuns: 2000 },
    );
  });
});

test('setNanoseconds writes the words of splitTime, high word first in both byte orders', () => {
  const view = new DataView(new ArrayBuffer(8));
  const limit = 18_446_744_073n * BILLION;
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: limit - 1n }), fc.boolean(), (time, littleEndian) => {
      const { seconds, nanoseconds } = splitTime(time);
      setNanoseconds(view, 0, seconds, nanoseconds, littleEndian);
      const high = BigInt(view.getUint32(0, littleEndian));
      expect((high << 32n) | BigInt(view.getUint32(4, littleEndian))).toBe(time);
    }),
    { numRuns: 1000 },
  );
  expect(() => splitTime(-1n)).toThrow(RangeError);
  expect(() => splitTime(limit)).toThrow(RangeError);
});
