/** The time after which an initiator gives up with the default times. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { answerMicroseconds, DEFAULT_TIMING } from './intervals.ts';

test('an initiator gives up after 74 s, as the pages state', () => {
  const { packetLifetime, responseTimeout, maxRetries } = DEFAULT_TIMING;
  const seconds = ((1 + maxRetries) * answerMicroseconds(packetLifetime, responseTimeout)) / 1e6;
  expect(Math.round(seconds)).toBe(74);
  for (const page of ['connect.md', 'guide/lifetimes.md'])
    expect(readFileSync(new URL(`../../../docs/${page}`, import.meta.url), 'utf8')).toMatch(/\b74 s\b/);
});
