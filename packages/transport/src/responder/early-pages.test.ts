import { expect, test } from 'vitest';
import { EarlyPages, PAGE_BYTES } from './early-pages.ts';

test('gives no more pages than its limit, and those that come back again', () => {
  const pages = new EarlyPages(2);
  const [first, second] = [pages.take(), pages.take()];
  expect(first?.length).toBe(PAGE_BYTES);
  expect(second).not.toBe(first);
  expect(pages.take()).toBeUndefined();
  expect(pages.taken).toBe(2);
  pages.give(first as Uint8Array);
  expect(pages.take()).toBe(first);
});
