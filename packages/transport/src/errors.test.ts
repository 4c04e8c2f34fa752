import { expect, test } from 'vitest';
import { invalid, RoceError } from './errors.ts';

test('an error names the wrong value, and the accepted ones where they are known', () => {
  const bare = invalid('pathMtu', 'no MTU');
  expect(bare).toMatchObject({ code: 'ERR_ROCE_INVALID_ATTRIBUTE', errno: 'EINVAL', attribute: 'pathMtu' });
  expect(bare.message).toBe('pathMtu: no MTU');
  expect(bare.expected).toBeUndefined();
  const full = invalid('pathMtu', 'no MTU', '256');
  expect([full.message, full.expected]).toEqual(['pathMtu: no MTU (expected 256)', '256']);
});

test('an error keeps its cause, and has none without', () => {
  const cause = new Error('why');
  expect(new RoceError('ERR_ROCE_X', 'what', { errno: 'EIO', cause }).cause).toBe(cause);
  expect('cause' in new RoceError('ERR_ROCE_X', 'what', { errno: 'EIO' })).toBe(false);
});
