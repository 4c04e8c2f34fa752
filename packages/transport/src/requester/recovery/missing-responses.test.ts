import { expect, test } from 'vitest';
import { MissingResponses } from './missing-responses.ts';

test('what was asked for is missing again once all is retransmitted', () => {
  const missing = new MissingResponses();
  missing.asked(5);
  expect([missing.isAsked(5), missing.isAsked(6)]).toEqual([true, false]);
  missing.restarted();
  expect(missing.isAsked(5)).toBe(false);
  missing.asked(5);
  expect(missing.isAsked(5)).toBe(true);
});

test('progress past the place forgets it', () => {
  const missing = new MissingResponses();
  missing.asked(5);
  missing.progress(5);
  expect(missing.isAsked(5)).toBe(true);
  missing.progress(6);
  expect(missing.isAsked(5)).toBe(false);
});
