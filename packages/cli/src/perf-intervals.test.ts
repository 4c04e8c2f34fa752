import { expect, test } from 'vitest';
import { Intervals, intervalLine } from './perf-intervals.ts';

const report = (messages: number | undefined, ms: number | undefined, run = 0, size = 2 ** 20) => ({
  ...{ size, run, runs: 2, part: undefined, messages, ms },
});

test('messages and rate of each interval, and a new count in each run', () => {
  const intervals = new Intervals('MiB/s');
  expect(intervals.next(report(0, 0))).toBeUndefined();
  expect(intervals.next(report(100, 1000))).toEqual({
    ...{ size: 2 ** 20, start: 0, end: 1, messages: 100, rate: 100, unit: 'MiB/s' },
  });
  // Nothing came in a second: the interval is there, with 0.
  expect(intervals.next(report(100, 2000))).toMatchObject({ start: 1, end: 2, messages: 0, rate: 0 });
  expect(intervals.next(report(130, 2500))).toMatchObject({ messages: 30, rate: 60 });
  expect(intervals.next(report(0, 0, 1))).toBeUndefined();
  expect(intervals.next(report(7, 1000, 1))).toMatchObject({ start: 0, messages: 7, rate: 7 });
});

test('a run whose first report is late, and a side that does not measure', () => {
  expect(new Intervals('messages/s').next(report(5, 500))).toMatchObject({ start: 0, messages: 5, rate: 10 });
  expect(new Intervals('MiB/s').next(report(undefined, undefined))).toBeUndefined();
});

test.each([
  ['Gb/s', '     0.00 … 1.00 s   1048576 bytes        100 messages        0.84 Gb/s'],
  ['messages/s', '     0.00 … 1.00 s   1048576 bytes        100 messages         100 messages/s'],
] as const)('a line in %s', (unit, line) => {
  const interval = new Intervals(unit).next(report(100, 1000));
  expect(interval && intervalLine(interval)).toBe(line);
});
