/**
 * The window by itself: slow start, additive increase, multiplicative decrease (RFC 5681 §3.1), a reaction to a loss once a window. A
 * gap does not take it below 32 packets, nor below what the path delivers.
 */
import { describe, expect, test } from 'vitest';
import { Aimd, WINDOW_MAX, WINDOW_START } from './aimd.ts';
import { Loss } from './controller.ts';

const LEAST = 2;
const LEAST_OF_GAP = 44;
const LEAST_OF_WHOLE = 16;
/** Nothing is known of the path. */
const NO_PATH = { clock: new Float64Array(1), least: 0 };

/** In slow start, with this window. */
function opened(window: number): Aimd {
  const aimd = new Aimd(NO_PATH);
  if (window > WINDOW_START) aimd.onAck(window - WINDOW_START, 5, 5);
  expect(aimd.window).toBe(window);
  return aimd;
}

/** Acknowledges as many packets as the window has, one by one. */
function roundTrip(aimd: Aimd, packets = aimd.window): number {
  for (let i = 0; i < packets; i++) aimd.onAck(1, 5, 5);
  expect(aimd.check()).toBeUndefined();
  return aimd.window;
}

test('slow start: each acknowledged packet opens the window by one, up to the most', () => {
  const aimd = new Aimd(NO_PATH);
  expect(aimd.window).toBe(WINDOW_START);
  aimd.onAck(5, 5, 5);
  expect(aimd.window).toBe(WINDOW_START + 5);
  aimd.onAck(10_000, 5, 5);
  expect(aimd.window).toBe(WINDOW_MAX);
  expect(roundTrip(aimd)).toBe(WINDOW_MAX);
});

test('there is no rate, and no reaction to a CNP', () => {
  const aimd = new Aimd(NO_PATH);
  aimd.onCnp();
  aimd.onSent(100);
  expect([aimd.rate, aimd.window]).toEqual([0, WINDOW_START]);
});

test('a gap halves the window, and from there it grows by one a round trip', () => {
  const aimd = opened(128);
  aimd.onLoss(Loss.GAP, 0, 32);
  expect(aimd.window).toBe(64);
  for (const wanted of [65, 66, 67]) {
    roundTrip(aimd, aimd.window - 1);
    expect(aimd.window).toBe(wanted - 1);
    expect(roundTrip(aimd, 1)).toBe(wanted);
  }
  // Packets beyond a window count for the next one.
  aimd.onAck(67 + 60, 5, 5);
  expect(aimd.window).toBe(68);
  expect(roundTrip(aimd, 7)).toBe(68);
  expect(roundTrip(aimd, 1)).toBe(69);
});

test('a timeout takes the window to the least; slow start leads to half of what it was', () => {
  const aimd = opened(40);
  aimd.onLoss(Loss.TIMEOUT, 5, 45);
  expect(aimd.window).toBe(LEAST);
  expect(roundTrip(aimd)).toBe(2 * LEAST);
  aimd.onAck(100, 5, 5);
  expect(aimd.window).toBe(20);
  expect(roundTrip(aimd, 19)).toBe(20);
  expect(roundTrip(aimd, 1)).toBe(21);
});

// Once each halved the threshold again: after an outage of two timers, the window grew by one a round trip from 2 on.
test.each([2, 3, 7])(
  '%i timeouts in a row are one loss: slow start leads to half of what it was',
  (timeouts) => {
    const aimd = opened(400);
    for (let i = 0; i < timeouts; i++) aimd.onLoss(Loss.TIMEOUT, 5, 405);
    expect(aimd.window).toBe(LEAST);
    aimd.onAck(150, 6, 405);
    expect(aimd.window).toBe(152);
    aimd.onAck(300, 7, 405);
    expect(aimd.window).toBe(200);
  },
);

test('losses never take the window below its least size', () => {
  const aimd = new Aimd(NO_PATH);
  for (let i = 0; i < 9; i++) {
    aimd.onLoss(Loss.TIMEOUT, 5, 5);
    expect(aimd.window).toBe(LEAST);
    aimd.onAck(0, 5, 5);
  }
  expect(roundTrip(aimd)).toBe(LEAST + 1);
});

test.each([
  ['', 0x10, 0x30],
  [', at the wrap of PSNs', 0xff_fff0, 0],
  [', behind it', 0xff_fff0, 0x10],
])('further gaps before what was sent then change nothing%s', (_, unacked, sent) => {
  const aimd = opened(256);
  aimd.onLoss(Loss.GAP, unacked, sent);
  aimd.onLoss(Loss.GAP, unacked, sent + 4);
  expect(aimd.window).toBe(128);
  const before = (sent - 1) & 0xff_ffff;
  aimd.onAck(0, before, before);
  aimd.onLoss(Loss.GAP, before, sent + 4);
  expect(aimd.window).toBe(128);
  // All that was out then is acknowledged: this is another loss.
  aimd.onLoss(Loss.GAP, sent, sent + 4);
  expect(aimd.window).toBe(64);
});

describe('a timeout that was none is undone', () => {
  test.each([1, 2, 3])('after %i in a row: the window is what it was before the first', (timeouts) => {
    const aimd = opened(400);
    for (let i = 0; i < timeouts; i++) aimd.onLoss(Loss.TIMEOUT, 0, 32);
    expect(aimd.window).toBe(LEAST);
    aimd.onAck(1, 5, 32);
    aimd.undo();
    expect(roundTrip(aimd, 100)).toBe(500);
  });

  test('but not those before it, after which something was acknowledged', () => {
    const aimd = opened(400);
    for (let i = 0; i < 2; i++) aimd.onLoss(Loss.TIMEOUT, 0, 32);
    aimd.onAck(1, 1, 32);
    expect(aimd.window).toBe(LEAST + 1);
    aimd.onLoss(Loss.TIMEOUT, 1, 32);
    aimd.onAck(1, 2, 32);
    aimd.undo();
    expect(aimd.window).toBeLessThan(LEAST + 3);
  });
});

test('a timeout is reacted to at any time', () => {
  const aimd = opened(64);
  aimd.onLoss(Loss.GAP, 0x10, 0x30);
  aimd.onLoss(Loss.TIMEOUT, 0x10, 0x30);
  expect(aimd.window).toBe(LEAST);
});

test.each([0, 0x10])(
  'a recovery up to PSN %i is forgotten, however many PSNs later the next loss is',
  (sent) => {
    const aimd = opened(256);
    aimd.onLoss(Loss.GAP, (sent - 16) & 0xff_ffff, sent);
    aimd.onAck(0, sent, sent);
    // The PSN of then is ahead again, by less than half of the circle.
    aimd.onLoss(Loss.GAP, sent + 0x80_0020, sent + 0x80_0030);
    expect(aimd.window).toBe(64);
  },
);

test('a loss begins the count for the next increase anew', () => {
  const aimd = opened(256);
  aimd.onLoss(Loss.GAP, 0, 0x10);
  roundTrip(aimd, 127);
  aimd.onLoss(Loss.GAP, 0x10, 0x20);
  expect(aimd.window).toBe(64);
  expect(roundTrip(aimd, 63)).toBe(64);
  expect(roundTrip(aimd, 1)).toBe(65);
});

describe('a gap does not take the window below', () => {
  test.each([
    ['44 packets', Loss.GAP, LEAST_OF_GAP],
    ['16 where all in flight is retransmitted', Loss.WHOLE, LEAST_OF_WHOLE],
  ])('%s', (_, loss, least) => {
    const aimd = opened(128);
    for (const wanted of [64, Math.max(32, least), least, least]) {
      aimd.onLoss(loss, 5, 5);
      expect(aimd.window).toBe(wanted);
    }
  });

  test('its value after a timeout', () => {
    const aimd = opened(128);
    aimd.onLoss(Loss.TIMEOUT, 5, 5);
    aimd.onAck(4, 5, 5);
    aimd.onLoss(Loss.GAP, 5, 5);
    expect(aimd.window).toBe(6);
  });

  /** Rounds of `packets` packets, each acknowledged after 100 µs. */
  function busy(packets: number, least: number, rounds = 3) {
    const path = { clock: new Float64Array([1000]), least };
    const aimd = new Aimd(path);
    aimd.onAck(1000, 0, 0);
    let psn = 0;
    for (let i = 0; i < rounds; i++) {
      psn += packets;
      path.clock[0] += 100;
      aimd.onAck(packets, psn, psn + packets);
    }
    expect(aimd.window).toBe(WINDOW_MAX);
    return { aimd, path, psn };
  }

  test.each([
    // 400 packets each 100 µs, and an eighth more.
    ['the packets that the path delivers in its least round trip', 100, 450],
    ['those, without the packets that wait in queues', 80, 360],
    ['half', 40, 256],
    ['all that it was', 200, 512],
  ])('%s', (_, least, wanted) => {
    const { aimd, psn } = busy(400, least);
    aimd.onLoss(Loss.GAP, psn, psn + 400);
    expect(aimd.window).toBe(wanted);
  });

  test('the recent rate of the path: an eighth of it is forgotten with each round', () => {
    const { aimd, path, psn } = busy(400, 100);
    for (let i = 1; i <= 2; i++) {
      path.clock[0] += 100;
      aimd.onAck(10, psn + 400 + 10 * i, psn + 400 + 10 * i);
    }
    // 400 · (7/8)² is 306.25; a packet is whole, and so is an eighth of 307.
    aimd.onLoss(Loss.GAP, psn + 420, psn + 430);
    expect(aimd.window).toBe(307 + 39);
  });

  test('but a timeout does', () => {
    const { aimd, psn } = busy(400, 100);
    aimd.onLoss(Loss.TIMEOUT, psn, psn + 400);
    expect(aimd.window).toBe(LEAST);
    // And slow start leads to what the path delivers.
    aimd.onAck(600, psn + 600, psn + 600);
    expect(aimd.window).toBe(450);
  });
});

describe('where all in flight is retransmitted for a gap, the window', () => {
  /** A path of 100 µs that delivers so many packets in that time, until the window was too large; and a gap. */
  function full(packets: number) {
    const path = { clock: new Float64Array([1000]), least: 100 };
    const aimd = new Aimd(path);
    aimd.onAck(32, 0, 0);
    expect(aimd.window).toBe(64);
    path.clock[0] += 100;
    aimd.onAck(packets, packets, packets + 64);
    for (let i = 0; i < 3; i++) aimd.onLoss(Loss.WHOLE, packets, packets);
    return aimd;
  }

  test('does not grow beyond the rate of a short path, and a sixteenth', () => {
    const aimd = full(32);
    // 32 packets, and 2.
    expect(aimd.window).toBe(34);
    aimd.onAck(10_000, 400, 400);
    expect(aimd.window).toBe(34);
  });

  test('grows again after a gap of which only what is missing was', () => {
    const aimd = full(32);
    aimd.onLoss(Loss.GAP, 320, 400);
    expect(roundTrip(aimd, 34)).toBe(35);
  });

  test('grows on a long path', () => {
    const aimd = opened(256);
    aimd.onLoss(Loss.WHOLE, 0, 0x10);
    expect(roundTrip(aimd, 128)).toBe(129);
  });

  test('grows as ever before the rate of the path is known', () => {
    const aimd = opened(64);
    aimd.onLoss(Loss.WHOLE, 5, 5);
    expect(roundTrip(aimd, 32)).toBe(33);
  });
});

test('RESET: as at first', () => {
  const path = { clock: new Float64Array([1000]), least: 100 };
  const aimd = new Aimd(path);
  aimd.onAck(400, 400, 800);
  path.clock[0] += 100;
  aimd.onAck(400, 800, 1200);
  aimd.onLoss(Loss.GAP, 800, 1200);
  roundTrip(aimd, 15);
  aimd.reset();
  expect(roundTrip(aimd)).toBe(2 * WINDOW_START);
  aimd.reset();
  aimd.onAck(96, 5, 5);
  aimd.onLoss(Loss.GAP, 0, 0x10);
  expect(aimd.window).toBe(64);
  expect(roundTrip(aimd, 63)).toBe(64);
});
