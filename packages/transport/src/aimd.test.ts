/** The window by itself: slow start, additive increase, multiplicative decrease (RFC 5681 §3.1), reacting to a loss once a window. */
import { expect, test } from 'vitest';
import { Aimd, WINDOW_MAX, WINDOW_START } from './congestion/aimd.ts';
import { Loss } from './congestion/controller.ts';

const LEAST = 2;

/** Acknowledges as many packets as the window has, one by one. */
function roundTrip(aimd: Aimd, packets = aimd.window): number {
  for (let i = 0; i < packets; i++) aimd.onAck(1, 5);
  expect(aimd.check()).toBeUndefined();
  return aimd.window;
}

test('slow start: each acknowledged packet opens the window by one, up to the most', () => {
  const aimd = new Aimd();
  expect(aimd.window).toBe(WINDOW_START);
  aimd.onAck(5, 5);
  expect(aimd.window).toBe(WINDOW_START + 5);
  aimd.onAck(10_000, 5);
  expect(aimd.window).toBe(WINDOW_MAX);
  expect(roundTrip(aimd)).toBe(WINDOW_MAX);
});

test('there is no rate, and no reaction to a CNP', () => {
  const aimd = new Aimd();
  aimd.onCnp();
  aimd.onSent(100);
  expect([aimd.rate, aimd.window]).toEqual([0, WINDOW_START]);
});

test('a gap halves the window, and from there it grows by one a round trip', () => {
  const aimd = new Aimd();
  aimd.onLoss(Loss.GAP, 0, 32);
  expect(aimd.window).toBe(16);
  for (const wanted of [17, 18, 19]) {
    roundTrip(aimd, aimd.window - 1);
    expect(aimd.window).toBe(wanted - 1);
    expect(roundTrip(aimd, 1)).toBe(wanted);
  }
  // What goes beyond a window counts for the next.
  aimd.onAck(19 + 12, 5);
  expect(aimd.window).toBe(20);
  expect(roundTrip(aimd, 7)).toBe(20);
  expect(roundTrip(aimd, 1)).toBe(21);
});

test('a timeout takes the window to the least; slow start leads to half of what it was', () => {
  const aimd = new Aimd();
  aimd.onAck(8, 5);
  aimd.onLoss(Loss.TIMEOUT, 5, 45);
  expect(aimd.window).toBe(LEAST);
  expect(roundTrip(aimd)).toBe(2 * LEAST);
  aimd.onAck(100, 5);
  expect(aimd.window).toBe(20);
  expect(roundTrip(aimd, 19)).toBe(20);
  expect(roundTrip(aimd, 1)).toBe(21);
});

test('losses never take the window below its least size', () => {
  const aimd = new Aimd();
  for (let i = 0; i < 9; i++) aimd.onLoss(Loss.TIMEOUT, 5, 5);
  expect([aimd.window, roundTrip(aimd)]).toEqual([LEAST, LEAST + 1]);
});

test.each([
  ['', 0x10, 0x30],
  [', at the wrap of PSNs', 0xff_fff0, 0],
  [', behind it', 0xff_fff0, 0x10],
])('further gaps before what was sent then change nothing%s', (_, unacked, sent) => {
  const aimd = new Aimd();
  aimd.onLoss(Loss.GAP, unacked, sent);
  aimd.onLoss(Loss.GAP, unacked, sent + 4);
  expect(aimd.window).toBe(16);
  const before = (sent - 1) & 0xff_ffff;
  aimd.onAck(0, before);
  aimd.onLoss(Loss.GAP, before, sent + 4);
  expect(aimd.window).toBe(16);
  // All that was out then is acknowledged: this is another loss.
  aimd.onLoss(Loss.GAP, sent, sent + 4);
  expect(aimd.window).toBe(8);
});

test('a timeout is reacted to at any time', () => {
  const aimd = new Aimd();
  aimd.onLoss(Loss.GAP, 0x10, 0x30);
  aimd.onLoss(Loss.TIMEOUT, 0x10, 0x30);
  expect(aimd.window).toBe(LEAST);
});

test.each([0, 0x10])(
  'a recovery up to PSN %i is forgotten, however many PSNs later the next loss is',
  (sent) => {
    const aimd = new Aimd();
    aimd.onLoss(Loss.GAP, (sent - 16) & 0xff_ffff, sent);
    aimd.onAck(0, sent);
    // The PSN of then is ahead again, by less than half of the circle.
    aimd.onLoss(Loss.GAP, sent + 0x80_0020, sent + 0x80_0030);
    expect(aimd.window).toBe(8);
  },
);

test('a loss begins the count for the next increase anew', () => {
  const aimd = new Aimd();
  aimd.onLoss(Loss.GAP, 0, 0x10);
  roundTrip(aimd, 15);
  aimd.onLoss(Loss.GAP, 0x10, 0x20);
  expect(aimd.window).toBe(8);
  expect(roundTrip(aimd, 7)).toBe(8);
  expect(roundTrip(aimd, 1)).toBe(9);
});

test('RESET: as at first', () => {
  const aimd = new Aimd();
  aimd.onLoss(Loss.GAP, 0, 0x10);
  roundTrip(aimd, 15);
  aimd.reset();
  expect(roundTrip(aimd)).toBe(2 * WINDOW_START);
  aimd.reset();
  aimd.onLoss(Loss.GAP, 0, 0x10);
  expect(aimd.window).toBe(16);
  expect(roundTrip(aimd, 15)).toBe(16);
});
