import { inspect } from 'node:util';
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

class Answered extends RoceError {
  readonly privateData = new Uint8Array(148);
  readonly status = 28;
}

test('an error prints as its stack, and its values in one line after it', () => {
  const error = new Answered('ERR_ROCE_X', 'no\nanswer', { errno: 'EIO', expected: 'one' });
  error.privateData.set([0x6e, 0x6f]);
  const frames = error.stack!.split('\n').slice(2);
  expect(frames.length).toBeGreaterThan(0);
  expect(inspect(error).split('\n')).toEqual([
    'Answered [RoceError]: no',
    'answer (expected one)',
    ...frames,
    "  { code: 'ERR_ROCE_X', errno: 'EIO', expected: 'one', privateData: <148 bytes: 6e 6f, zeros>, status: 28 }",
  ]);
  expect(`${inspect(error, { colors: true }).split('\n').length}`).toBe(
    `${inspect(error).split('\n').length}`,
  );
});

test.each([
  [[], '<0 bytes>'],
  [[0, 0], '<2 bytes: zeros>'],
  [[1, 0, 2], '<3 bytes: 01 00 02>'],
  [Array.from({ length: 17 }, () => 255), `<17 bytes:${' ff'.repeat(16)} …>`],
])('bytes %o print as %s', (bytes, text) => {
  const error = Object.assign(invalid('a', 'b'), { bytes: Uint8Array.from(bytes) });
  expect(inspect(error)).toContain(`bytes: ${text} }`);
});

test('a cause prints with its own stack; values of any size, and a stack that is gone, do not break the line', () => {
  const error = new RoceError('ERR_ROCE_X', 'what', { errno: 'EIO', cause: new Error('why') });
  Object.assign(error, { many: Array.from({ length: 500 }, () => ({})), long: 'x'.repeat(5000) });
  error.stack = undefined;
  const lines = inspect(error).split('\n');
  expect(lines[0]).toBe('RoceError: what');
  expect(lines[1]).toMatch(/^ {2}\{ code: 'ERR_ROCE_X', .*many: \[.*496 more items.*more characters \}$/);
  expect(lines[2]).toBe('  [cause]: Error: why');
  expect(lines[3]).toMatch(/^ {6}at /);
});
