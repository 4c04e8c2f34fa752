/**
 * The window of a requester, as its peer sees it: how many packets leave without an ACK. A loss halves it, once for all that was out,
 * but not below what it began with, nor below what the path delivers; a timeout takes it to the least; ACKs open it again.
 */
import { describe, expect, test } from 'vitest';
import { requester } from '../testing/window-peer.ts';

const MOST = 512;
const START = 32;

test('begins with 32 and doubles each round trip up to 512', () => {
  const { fill, acknowledge } = requester();
  const windows: number[] = [];
  for (let i = 0; i < 7; i++) {
    windows.push(fill());
    acknowledge();
  }
  expect(windows).toEqual([32, 64, 128, 256, 512, 512, 512]);
});

describe('a sequence NAK', () => {
  test('halves the window', () => {
    const peer = requester();
    peer.open();
    peer.lose();
    expect(peer.fill()).toBe(MOST / 2);
  });

  test('acknowledges what is before it, and halves what the window was', () => {
    const peer = requester();
    peer.open();
    peer.lose(100);
    expect(peer.fill()).toBe(MOST / 2);
  });

  test('halves it once for all that was out', () => {
    const peer = requester();
    peer.open();
    peer.lose(10);
    expect(peer.fill()).toBe(MOST / 2);
    peer.lose(10);
    expect(peer.fill()).toBe(MOST / 2);
    // A loss of what was sent afterwards counts again.
    peer.acknowledge(246);
    peer.fill();
    peer.acknowledge();
    const wide = peer.fill();
    expect(wide).toBeGreaterThanOrEqual(MOST / 2);
    peer.lose(MOST / 2);
    expect(peer.fill()).toBeLessThan(MOST / 2);
  });

  test('never takes it below half of what it began with', () => {
    const peer = requester({}, undefined, { selective: false });
    const windows: number[] = [];
    for (let i = 0; i < 8; i++) {
      peer.fill();
      peer.lose();
      windows.push(peer.fill());
      peer.acknowledge();
    }
    expect(Math.min(...windows)).toBe(START / 2);
  });

  test('leaves it at the packets that the path delivers in its least round trip', () => {
    const peer = requester();
    for (let i = 0; i < 10; i++) {
      peer.fill();
      peer.hand.now += 100;
      peer.acknowledge();
    }
    peer.fill();
    peer.lose();
    expect(peer.fill()).toBe(MOST);
  });

  test('makes it grow by one packet a round trip afterwards', () => {
    const peer = requester();
    peer.open();
    peer.lose();
    expect(peer.fill()).toBe(256);
    // Up to the loss nothing more is learned; then a window of ACKs is one more packet.
    peer.acknowledge(256);
    const windows: number[] = [];
    for (let i = 0; i < 4; i++) {
      windows.push(peer.fill());
      peer.acknowledge();
    }
    const steps = windows.slice(1).map((window, i) => window - windows[i]);
    expect(steps).toEqual([1, 1, 1]);
  });
});

test('a timeout reduces the window to 2, from where it doubles to half of its size before', () => {
  const peer = requester({ timeout: 8 });
  peer.open();
  const { hand } = peer;
  const before = hand.side.adapter.counters().timeouts;
  hand.now = hand.side.adapter.nextDeadline();
  while (hand.side.adapter.counters().timeouts === before) {
    hand.now = Math.max(hand.now, hand.side.adapter.nextDeadline());
    hand.side.adapter.advance();
  }
  const windows: number[] = [];
  for (let i = 0; i < 10; i++) {
    const out = peer.fill();
    windows.push(out);
    peer.acknowledge(out);
  }
  expect(windows.slice(0, 8)).toEqual([2, 4, 8, 16, 32, 64, 128, 256]);
  expect(windows[8]).toBeLessThanOrEqual(258);
});
