import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PSN_MASK, psnAdd, psnDiff, psnLessOrEqual, psnLessThan } from './psn.ts';

const psn = fc.nat(PSN_MASK);
const step = fc.integer({ min: -0x80_0000, max: 0x7f_ffff });

test('wraps at 24 bits in both directions', () => {
  expect(psnAdd(0xff_ffff, 1)).toBe(0);
  expect(psnAdd(0, -1)).toBe(0xff_ffff);
  expect(psnAdd(0x12_3456, 0x100_0000)).toBe(0x12_3456);
});

test('the difference is the nearer way round the circle', () => {
  expect(psnDiff(0, 0xff_ffff)).toBe(1);
  expect(psnDiff(0xff_ffff, 0)).toBe(-1);
  expect(psnDiff(0x7f_ffff, 0)).toBe(0x7f_ffff);
  expect(psnDiff(0x80_0000, 0)).toBe(-0x80_0000);
});

test('adding and taking the difference undo each other', () => {
  fc.assert(
    fc.property(psn, step, (a, n) => {
      expect(psnDiff(psnAdd(a, n), a)).toBe(n);
    }),
  );
});

test('order follows the difference, over the wrap too', () => {
  expect(psnLessThan(0xff_fffe, 1)).toBe(true);
  expect(psnLessThan(1, 0xff_fffe)).toBe(false);
  expect(psnLessThan(5, 5)).toBe(false);
  expect(psnLessOrEqual(5, 5)).toBe(true);
  fc.assert(
    fc.property(psn, fc.integer({ min: -0x7f_ffff, max: 0x7f_ffff }), (a, n) => {
      const b = psnAdd(a, n);
      expect(psnLessThan(a, b)).toBe(n > 0);
      expect(psnLessOrEqual(a, b)).toBe(n >= 0);
    }),
  );
});
