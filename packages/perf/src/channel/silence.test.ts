import { afterEach, expect, test, vi } from 'vitest';
import { Silence } from './silence.ts';

let now = 0;
vi.spyOn(performance, 'now').mockImplementation(() => now);
afterEach(() => {
  now = 0;
});

const { signal } = new AbortController();

test('without signs of life it ends with the timeout', async () => {
  const silence = new Silence({ timeout: 1, signal });
  now = 999;
  expect(await silence.isTooLong()).toBe(false);
  silence.end();
  now += 999;
  expect(await silence.isTooLong()).toBe(false);
  now += 1;
  expect(await silence.isTooLong()).toBe(true);
});

test('signs of life prolong it, and are read twice for each timeout at most', async () => {
  let signs = 0;
  const read = vi.fn(async () => signs);
  const silence = new Silence({ timeout: 1, signal, signs: read });
  for (; now < 5000; now += 100, signs++) expect(await silence.isTooLong()).toBe(false);
  expect(read.mock.calls.length).toBeLessThan(10);
  // They stay as they are from now on.
  await silence.isTooLong();
  for (; now < 7500 && !(await silence.isTooLong()); now += 100);
  expect(now).toBeGreaterThan(5500);
  expect(now).toBeLessThanOrEqual(7000);
});

test('the second look comes a whole timeout after the first', async () => {
  const silence = new Silence({ timeout: 1, signal, signs: async () => 7 });
  now = 5000;
  expect(await silence.isTooLong()).toBe(false);
  now += 999;
  expect(await silence.isTooLong()).toBe(false);
  now += 1;
  expect(await silence.isTooLong()).toBe(true);
});
