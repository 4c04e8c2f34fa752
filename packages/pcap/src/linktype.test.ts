import { expect, test } from 'vitest';
import { LinkType, linkTypeName } from './index.ts';

test('names and numbers', () => {
  expect(linkTypeName(1)).toBe('ETHERNET');
  expect(linkTypeName(LinkType.LINUX_SLL2)).toBe('LINUX_SLL2');
  expect(linkTypeName(9999)).toBe('LINKTYPE 9999');
});
