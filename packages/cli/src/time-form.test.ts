/** Times of packets in each form. */
import { expect, test } from 'vitest';
import { dateText, seconds, startOf, timePrinter, timeText } from './time-form.ts';

const NS = 1_795_180_977_281_450_123n;

test('UTC to the microsecond', () => {
  expect(dateText(NS, 'utc')).toBe('2026-11-20 13:22:57.281450Z');
  expect(dateText(-1n, 'utc')).toBe('1969-12-31 23:59:59.999999Z');
  expect(dateText(10n ** 27n, 'utc')).toBe('1000000000000000000.000000');
});

test('local time is the time of this machine', () => {
  const local = dateText(NS, 'absolute');
  expect(new Date(local.replace(' ', 'T').slice(0, 23)).getTime()).toBe(Number(NS / 1_000_000n));
});

test('relative is the default, and what is left where a file has no times', () => {
  expect(timeText(15_333_000n, NS)).toBe('0.015333');
  expect(timeText(15_333_000n, NS, 'utc')).toBe('2026-11-20 13:22:57.281450Z');
  expect(timeText(undefined, undefined, 'utc')).toBe('');
  expect(seconds(-1_500_000_000n)).toBe('-1.500000000');
});

test('times of an analysis by the time of its first frame', () => {
  const start = '2026-11-20T13:22:57.281450123Z';
  expect(timePrinter('utc', start)(2_000_000_000)).toBe('2026-11-20 13:22:59.281450Z');
  expect(timePrinter('utc', start)(-281_451_000)).toBe('2026-11-20 13:22:56.999999Z');
  // A file without times.
  expect(timePrinter('utc', undefined)(1500)).toBe('0.000001');
});

test('the first frame of a summary', () => {
  expect(startOf('2026-11-20T13:22:57.281450123Z')).toBe(NS);
  expect(startOf(undefined)).toBeUndefined();
});
