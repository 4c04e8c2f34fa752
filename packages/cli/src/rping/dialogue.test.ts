import { expect, test } from 'vitest';
import { textOf } from './dialogue.ts';

test('a text of the peer ends at its zero byte and cannot command the terminal', () => {
  const bytes = new TextEncoder().encode('a\u001b]0;title\u0007\u009b2Jb\n\0c');
  expect(textOf(bytes)).toBe('a\ufffd]0;title\ufffd\ufffd2Jb\ufffd');
});
