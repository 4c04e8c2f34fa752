import { expect, test } from 'vitest';
import {
  counted,
  formatBytes,
  formatDuration,
  formatEndpoint,
  formatPsn,
  formatRate,
  formatShare,
  formatTime,
} from './units.ts';

test.each([
  [0, '0 ns'],
  [999, '999 ns'],
  [999.6, '1 µs'],
  [1234, '1.23 µs'],
  [67_108_864, '67.1 ms'],
  [999_600_000, '1 s'],
  [1.5e9, '1.5 s'],
  [3.6e12, '3,600 s'],
  [-2000, '-2 µs'],
])('duration %d', (nanoseconds, text) => expect(formatDuration(nanoseconds)).toBe(text));

test.each([
  [0, '0 B'],
  [512, '512 B'],
  [3000, '2.93 KiB'],
  [1023, '1023 B'],
  [1023 * 1024, '1020 KiB'],
  [2 ** 20 - 1, '1 MiB'],
  [1.5 * 2 ** 30, '1.5 GiB'],
])('%d bytes', (bytes, text) => expect(formatBytes(bytes)).toBe(text));

test.each([
  [0, '0 bit/s'],
  [3_700_000, '3.7 Mbit/s'],
  [999_900_000, '1 Gbit/s'],
  [100e9, '100 Gbit/s'],
])('%d bit/s', (rate, text) => expect(formatRate(rate)).toBe(text));

test('formats times, counts and endpoints', () => {
  expect(formatTime(1_240_123_456)).toBe('1.240123 s');
  expect(formatTime(-1000)).toBe('-0.000001 s');
  expect([counted(1, 'packet'), counted(1234, 'packet')]).toEqual(['1 packet', '1,234 packets']);
  expect(formatEndpoint({ address: 'fd00::1', qpn: 0x11 })).toBe('fd00::1 QP 0x11');
  expect(formatEndpoint({ address: 'fd00::1', qpn: -1 })).toBe('fd00::1 QP ?');
});

test('formats PSNs both ways, and shares that round to nothing', () => {
  expect(formatPsn(1193046)).toBe('1193046 = 0x123456');
  expect(formatPsn(7)).toBe('7 = 0x000007');
  expect([formatShare(0, 10), formatShare(3, 100_000), formatShare(1, 16), formatShare(54, 100)]).toEqual([
    '0.0 %',
    '< 0.1 %',
    '6.3 %',
    '54 %',
  ]);
});
