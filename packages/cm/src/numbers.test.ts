import { expect, test } from 'vitest';
import { KeptNumbers, Numbers } from './numbers.ts';

test('a number is kept for its time, and not longer', () => {
  const kept = new KeptNumbers(100);
  kept.keep(7, 0, 1000);
  kept.keep(8, 0, 500);
  expect([kept.has(7, 999), kept.has(8, 499)]).toEqual([true, true]);
  expect([kept.has(7, 1000), kept.has(8, 500)]).toEqual([false, false]);
  kept.keep(9, 2000, 1);
  expect(kept.size).toBe(1);
});

test('a number that is given back twice is kept for the longer time', () => {
  const kept = new KeptNumbers(100);
  kept.keep(7, 0, 1000);
  kept.keep(7, 100, 10);
  expect([kept.has(7, 999), kept.has(7, 1000)]).toEqual([true, false]);
  kept.keep(8, 2000, 1);
  expect(kept.size).toBe(1);
});

test('no more than the limit are kept, the latest', () => {
  const kept = new KeptNumbers(10);
  for (let i = 0; i < 5000; i++) kept.keep(i, i, 1e9);
  expect(kept.size).toBe(10);
  expect([kept.has(4989, 5000), kept.has(4990, 5000)]).toEqual([false, true]);
});

test('an id is not drawn while it is in use or kept', () => {
  const draws = [0, 5, 6, 7, 8];
  let at = 0;
  const numbers = new Numbers(() => draws[at++ % draws.length]);
  at = 0;
  numbers.release(6, 0, 1000);
  expect(numbers.draw(10, (id) => id === 5)).toBe(7);
  at = 0;
  expect(numbers.draw(1000, (id) => id === 5)).toBe(6);
});
