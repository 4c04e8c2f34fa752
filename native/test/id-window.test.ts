import { describe, expect, test } from 'vitest';
import { IdWindow } from '../index.js';

/** A window that has admitted these Identifications, all at time 0. */
function windowAfter(...ids: number[]): IdWindow {
  const window = new IdWindow();
  for (const id of ids) expect(window.admit(id, 0)).toBe(true);
  return window;
}

describe('a flow that counts', () => {
  test.each([0, 1, 4711, 65535])('starts anywhere: %i', (id) => {
    expect(new IdWindow().admit(id, 0)).toBe(true);
  });

  test('goes on with the next 64', () => {
    expect(windowAfter(1000).admit(1001, 0)).toBe(true);
    expect(windowAfter(1000).admit(1064, 0)).toBe(true);
    expect(windowAfter(1000).admit(1065, 0)).toBe(false);
    expect(windowAfter(1000).admit(40_000, 0)).toBe(false);
  });

  test('wraps at 65536', () => {
    const window = windowAfter(65_530);
    for (let i = 1; i < 400; i++) expect(window.admit((65_530 + i) & 0xffff, 0)).toBe(true);
  });

  test('may be late by 64, which moves nothing', () => {
    const window = windowAfter(1000);
    expect(window.admit(936, 0)).toBe(true);
    expect(window.admit(935, 0)).toBe(false);
    expect(window.admit(1000, 0)).toBe(true); // a duplicate
    expect(window.admit(1064, 0)).toBe(true); // still counted from 1000
  });

  test('reaches one further for each idle millisecond', () => {
    expect(windowAfter(1000).admit(1065, 1)).toBe(true);
    expect(windowAfter(1000).admit(1066, 1)).toBe(false);
    expect(windowAfter(1000).admit(2064, 1000)).toBe(true);
    expect(windowAfter(1000).admit(2065, 1000)).toBe(false);
    expect(windowAfter(1000).admit(900, 70_000)).toBe(true);
  });

  test('idleness is that of the flow', () => {
    const window = windowAfter(1000);
    expect(window.admit(1001, 5000)).toBe(true);
    expect(window.admit(1200, 5001)).toBe(false);
  });

  test('a packet that was looked at late may be old: the next one reaches further', () => {
    const window = windowAfter(1000);
    // Held up for 400 ms: this one came at some time in between, and the next right behind our look at it.
    expect(window.admit(1023, 400, 5)).toBe(true);
    expect(window.admit(1113, 401, 400)).toBe(true);
    expect(window.admit(1300, 402, 401)).toBe(false);
  });

  test('the clock may wrap', () => {
    const window = new IdWindow();
    expect(window.admit(1000, 0xffff_fff0)).toBe(true);
    expect(window.admit(1000 + 64 + 32, 0x10)).toBe(true);
    expect(window.admit(1000 + 64 + 32 + 65, 0x10)).toBe(false);
  });
});

describe('a flow that sends 0', () => {
  test('is admitted beside a counter, which goes on', () => {
    const window = windowAfter(1000, 0, 1001, 0, 0, 1002);
    expect(window.admit(1066, 0)).toBe(true);
  });

  test('may carry the segments of a GSO run, in any order and again', () => {
    const window = windowAfter(0);
    for (const id of [1, 2, 127, 64, 3, 3, 126]) expect(window.admit(id, 0)).toBe(true);
    expect(window.admit(128, 0)).toBe(false);
  });

  test('a flow that has never sent 0 may not', () => {
    expect(windowAfter(1000).admit(1, 0)).toBe(false);
  });

  test('a counter that passes 0 goes on', () => {
    const window = windowAfter(65_535, 0, 1, 2);
    for (let id = 3; id < 300; id++) expect(window.admit(id, 0)).toBe(true);
  });

  test('the first counted one after it is a stray', () => {
    const window = windowAfter(0);
    expect(window.admit(5000, 0)).toBe(false);
    expect(window.admit(5001, 0)).toBe(true);
  });
});

describe('strays', () => {
  test('two that agree bring the flow back', () => {
    const window = windowAfter(1000);
    expect(window.admit(30_000, 0)).toBe(false);
    expect(window.admit(30_064, 0)).toBe(true);
    expect(window.admit(30_065, 0)).toBe(true);
  });

  test('two that do not agree do not', () => {
    const window = windowAfter(1000);
    expect(window.admit(30_000, 0)).toBe(false);
    expect(window.admit(30_065, 0)).toBe(false);
    expect(window.admit(29_000, 0)).toBe(false);
    expect(window.admit(29_000, 0)).toBe(false); // the same again says nothing
    expect(window.admit(1001, 0)).toBe(true);
  });

  test('four counters live beside each other, a fifth displaces the one that rested longest', () => {
    const window = windowAfter(10_000);
    for (const [i, base] of [20_000, 30_000, 40_000].entries()) {
      expect(window.admit(base, i + 1)).toBe(false);
      expect(window.admit(base + 1, i + 1)).toBe(true);
    }
    for (const id of [10_001, 20_002, 30_002, 40_002]) expect(window.admit(id, 4)).toBe(true);
    for (const id of [20_003, 30_003, 40_003]) expect(window.admit(id, 5)).toBe(true);
    expect(window.admit(50_000, 5)).toBe(false);
    expect(window.admit(50_001, 5)).toBe(true);
    expect(window.admit(10_002, 5)).toBe(false);
    for (const id of [20_004, 30_004, 40_004, 50_002]) expect(window.admit(id, 5)).toBe(true);
  });

  test('more than corruption can explain are let in: forged packets take nothing away from the real ones', () => {
    const window = windowAfter(1000);
    let dropped = 0;
    // For ten seconds a forger sends pairs that agree: they open counters, and the source's own is displaced.
    for (let i = 1; i <= 10_000; i++) {
      for (let pair = 1; pair <= 4; pair++) {
        const id = (i * 7919 + pair * 13_001) & 0xffff;
        window.admit(id, i);
        window.admit((id + 1) & 0xffff, i);
      }
      if (!window.admit((1000 + i) & 0xffff, i)) dropped++;
    }
    expect(dropped).toBeLessThanOrEqual(16);
    // Two periods without strays, and the window is shut again.
    expect(window.admit(11_001, 12_001)).toBe(true);
    expect(window.admit(50_000, 12_002)).toBe(false);
  });

  test('as many as corruption makes are not', () => {
    const window = windowAfter(1000);
    for (let second = 1; second < 1000; second++) {
      // Ten a second: 655,360 corrupt packets.
      for (let i = 0; i < 10; i++) {
        expect(window.admit((1000 + second + 300 * (i + 5)) & 0xffff, second * 1001)).toBe(false);
      }
      expect(window.admit((1000 + second) & 0xffff, second * 1001)).toBe(true);
    }
  });

  test('corrupt packets pass at the rate that the window’s size says', () => {
    let state = 7;
    const random = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state >>> 16;
    };
    let passed = 0;
    const rounds = 200_000;
    for (let i = 0; i < rounds; i++) if (windowAfter(1000).admit(random(), 0)) passed++;
    // 64 ahead, 64 behind, the last one, and 0: 130 of 65,536.
    expect(passed / rounds).toBeGreaterThan((130 / 65_536) * 0.8);
    expect(passed / rounds).toBeLessThan((130 / 65_536) * 1.2);
  });
});
