import { expect, test } from 'vitest';
import { pingText, textOf } from './dialogue.ts';
import { Statistics } from './statistics.ts';

test('sums up round trips as ping does', () => {
  const statistics = new Statistics();
  for (const time of [1, 2, 4, 5]) {
    statistics.sent();
    statistics.received(time);
  }
  expect(statistics.lines('server', 3004.4)).toEqual([
    '',
    '--- server ping statistics ---',
    '4 packets transmitted, 4 received, 0% packet loss, time 3004ms',
    'rtt min/avg/max/mdev = 1.000/3.000/5.000/1.581 ms',
  ]);
  statistics.sent();
  expect(statistics.lost).toBe(1);
  expect(statistics.lines('server', 1)[2]).toBe(
    '5 packets transmitted, 4 received, 20% packet loss, time 1ms',
  );
});

test('nothing came back', () => {
  const statistics = new Statistics();
  statistics.sent();
  expect(statistics.lines('server', 1).slice(2)).toEqual([
    '1 packets transmitted, 0 received, 100% packet loss, time 1ms',
  ]);
});

test('the text of a ping is rping’s', () => {
  // Recorded: test/fixtures/captures/cm_rping.txt, -S 100.
  expect(textOf(pingText(4, 100))).toBe(
    'rdma-ping-4: EFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`',
  );
  expect(pingText(0, 100).at(-1)).toBe(0);
});
