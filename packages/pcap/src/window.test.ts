import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ByteWindow } from './window.ts';

test('bytes within one chunk are the chunk itself', () => {
  const window = new ByteWindow();
  const chunk = Uint8Array.of(1, 2, 3, 4);
  window.push(chunk);
  expect(window.require(3)).toBe(true);
  expect(window.bytes.buffer).toBe(chunk.buffer);
  window.start += 3;
  expect(window.offset).toBe(3);
});

test('after a failed require the chunk may be overwritten', () => {
  const window = new ByteWindow();
  const chunk = Uint8Array.of(1, 2, 3, 4);
  window.push(chunk);
  expect(window.require(8)).toBe(false);
  expect(window.wanted).toBe(8);
  chunk.fill(9);
  window.push(Uint8Array.of(5, 6, 7, 8));
  expect(window.require(8)).toBe(true);
  expect(Array.from(window.bytes.subarray(window.start, window.start + 8))).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  expect(window.view.getUint8(window.start + 7)).toBe(8);
});

test('a seam takes only what it needs; the rest of the chunk is not copied', () => {
  const window = new ByteWindow();
  const second = Uint8Array.of(3, 4, 5, 6);
  window.push(Uint8Array.of(1, 2));
  window.push(second);
  expect(window.require(3)).toBe(true);
  expect(window.bytes.buffer).not.toBe(second.buffer);
  window.start += 3;
  expect(window.require(3)).toBe(true);
  expect(window.bytes.buffer).toBe(second.buffer);
  expect(window.bytes[window.start]).toBe(4);
  expect(window.offset).toBe(3);
});

test('any pushes and any requires give the input in order, and earlier views stay good', () => {
  const size = fc.integer({ min: 0, max: 50 });
  fc.assert(
    fc.property(fc.array(size, { maxLength: 30 }), fc.array(size, { maxLength: 60 }), (pushes, takes) => {
      const window = new ByteWindow();
      const total = pushes.reduce((sum, n) => sum + n, 0);
      const input = Uint8Array.from({ length: total }, (_, i) => i * 7);
      const views: [number, Uint8Array][] = [];
      let pushed = 0;
      let taken = 0;
      let turn = 0;
      for (const n of pushes) {
        window.push(input.slice(pushed, pushed + n));
        pushed += n;
        for (; turn < takes.length && window.require(takes[turn]); turn++) {
          const n = takes[turn];
          views.push([taken, window.bytes.subarray(window.start, window.start + n)]);
          window.start += n;
          taken += n;
          expect(window.offset).toBe(taken);
        }
        if (turn < takes.length) expect(taken + takes[turn]).toBeGreaterThan(pushed);
      }
      for (const [at, view] of views) expect(view).toEqual(input.slice(at, at + view.length));
    }),
  );
});

test('memory follows the bytes that came, not those that are wanted', () => {
  const window = new ByteWindow();
  window.push(new Uint8Array(10));
  expect(window.require(2 ** 32)).toBe(false);
  expect(window.bytes.length).toBe(65_536);
  window.push(new Uint8Array(100_000));
  expect(window.require(2 ** 32)).toBe(false);
  expect(window.bytes.length).toBeLessThanOrEqual(200_020);
});
