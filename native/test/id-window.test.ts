import { createRandom } from '@node-roce/wire';
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

  test('may be late by 256, which moves nothing', () => {
    const window = windowAfter(1000);
    expect(window.admit(744, 0)).toBe(true);
    expect(windowAfter(1000).admit(743, 0)).toBe(false);
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

describe('a flow whose packets overtake each other', () => {
  test('is given 1024 both ways for a minute once one was more than 128 late', () => {
    const window = windowAfter(10_000, 9_900);
    expect(windowAfter(10_000, 9_900).admit(9_700, 0)).toBe(false);
    expect(window.admit(9_871, 0)).toBe(true);
    expect(window.admit(8_976, 0)).toBe(true);
    expect(window.admit(11_024, 0)).toBe(true);
    for (let now = 0, id = 11_025; now <= 60_000; now += 50) expect(window.admit(id++, now)).toBe(true);
    expect(window.admit(12_225 - 300, 60_001)).toBe(false);
  });

  test.each([
    [300, 1024],
    [-300, 1024],
    [1000, 4096],
    [-4096, 4096],
  ])('loses one that jumps by %i, and then none within %i', (jump, width) => {
    for (const next of [width, -width]) {
      const window = windowAfter(20_000);
      expect(window.admit(20_000 + jump, 0)).toBe(false);
      expect(window.admit(20_000 + next, 0)).toBe(true);
    }
    const window = windowAfter(20_000);
    expect(window.admit(20_000 + jump, 0)).toBe(false);
    expect(window.admit(20_000 + width + 1, 0)).toBe(false);
  });

  test('a jump of more than 4096 shows nothing', () => {
    const window = windowAfter(20_000);
    expect(window.admit(24_097, 0)).toBe(false);
    expect(window.admit(20_100, 0)).toBe(false);
  });

  /**
   * rxe with seven queue pairs on two emulated processors, as recorded: of 79,000 packets 77,390 follow the one before them,
   * 1,335 come up to 256 behind, 223 come 257 to 512 behind, 149 are 2 … 64 ahead, and one is more. One processor numbers a
   * few packets, is held up, and the other one sends on.
   */
  test.each([1, 2, 3])('rxe on two processors loses at most two packets (seed %i)', (seed) => {
    const random = createRandom(seed);
    const window = new IdWindow();
    let next = random.between(0, 0xffff);
    let refused = 0;
    const came = (id: number, packet: number) => {
      // 10,000 packets a second.
      if (!window.admit(id & 0xffff, Math.floor(packet / 10))) refused++;
    };
    let held: number[] = [];
    let until = 0;
    for (let packet = 0; packet < 79_000; packet++) {
      if (held.length === 0 && random.between(0, 99) === 0) {
        for (let i = random.between(1, 4); i > 0; i--) held.push(next++);
        // One in seven is held up for long.
        until = packet + (random.between(0, 6) === 0 ? random.between(257, 512) : random.between(1, 256));
      }
      if (held.length > 0 && packet >= until) {
        for (const id of held) came(id, packet);
        held = [];
      }
      came(next++, packet);
    }
    expect(refused).toBeLessThanOrEqual(2);
  });
});

describe('a flow without "don’t fragment"', () => {
  const MAY_FRAGMENT = 0x1_0000;

  test('counts apart from one with it', () => {
    const window = windowAfter(MAY_FRAGMENT | 1000);
    expect(window.admit(1001, 0)).toBe(false);
    expect(window.admit(MAY_FRAGMENT | 1001, 0)).toBe(true);
    expect(window.admit(1002, 0)).toBe(true); // follows the stray
    expect(window.admit(MAY_FRAGMENT | 1002, 0)).toBe(true);
  });

  test('wraps at 65536', () => {
    const window = windowAfter(MAY_FRAGMENT | 65_530);
    for (let i = 1; i < 400; i++) expect(window.admit(MAY_FRAGMENT | ((65_530 + i) & 0xffff), 0)).toBe(true);
  });

  test('may send 0 alone, which admits no other', () => {
    const window = windowAfter(MAY_FRAGMENT, MAY_FRAGMENT, MAY_FRAGMENT);
    expect(window.admit(MAY_FRAGMENT | 1, 0)).toBe(false);
    expect(window.admit(1, 0)).toBe(false);
  });

  test('that sends 0 alone is known by its second packet, after one that counted', () => {
    const window = windowAfter(1000, 1001);
    expect(window.admit(MAY_FRAGMENT, 0)).toBe(false);
    for (let i = 0; i < 5; i++) expect(window.admit(MAY_FRAGMENT, 0)).toBe(true);
    expect(window.admit(1002, 0)).toBe(true);
  });
});

describe('a flow that sends 0', () => {
  test('is admitted next to a counter, which continues', () => {
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
    expect(window.admit(29_000, 0)).toBe(false); // a repeated one has no effect
    expect(window.admit(1001, 0)).toBe(true);
  });

  test('a source’s own packet and its repetition agree, whatever came in between', () => {
    const window = windowAfter(1000);
    expect(window.admit(30_000, 0)).toBe(false);
    expect(window.admit(50_000, 100)).toBe(false);
    expect(window.admit(20_000, 200)).toBe(false);
    // Linux adds up to one a millisecond to a counter that rests.
    expect(window.admit(30_364, 300)).toBe(true);
  });

  test('a repetition agrees for a second’s worth of counting, and for a minute', () => {
    const stray = (id: number, after: number) => {
      const window = windowAfter(1000);
      expect(window.admit(30_000, 0)).toBe(false);
      for (let now = 0, next = 1001; now < after; now += 50) expect(window.admit(next++, now)).toBe(true);
      return window.admit(id, after);
    };
    expect(stray(31_064, 1000)).toBe(true);
    expect(stray(31_065, 1000)).toBe(false);
    expect(stray(31_064, 60_000)).toBe(true);
    expect(stray(31_065, 60_000)).toBe(false);
    expect(stray(31_064, 60_001)).toBe(false);
  });

  test('four counters live next to each other, a fifth displaces the one that rested longest', () => {
    const window = windowAfter(10_000);
    const next = [10_001, 20_001, 30_001, 40_001];
    for (const [i, id] of next.entries()) {
      if (i > 0) expect(window.admit(id - 1, i)).toBe(false);
      expect(window.admit(id, i)).toBe(true);
    }
    // A minute later those strays are forgotten.
    for (let now = 100; now < 62_000; now += 100) {
      for (const [i] of next.entries()) expect(window.admit(++next[i], now + i)).toBe(true);
    }
    for (const i of [1, 2, 3]) expect(window.admit(++next[i], 62_000 + i)).toBe(true);
    expect(window.admit(50_000, 62_003)).toBe(false);
    expect(window.admit(50_001, 62_003)).toBe(true);
    expect(window.admit(next[0] + 1, 62_003)).toBe(false);
    for (const i of [1, 2, 3]) expect(window.admit(++next[i], 62_003)).toBe(true);
    expect(window.admit(50_002, 62_003)).toBe(true);
  });

  test('a fifth within a minute opens the window, for a minute from then on', () => {
    const window = windowAfter(1000);
    for (const [i, id] of [10_000, 20_000, 30_000, 40_000].entries()) {
      expect(window.admit(id, i * 15_000)).toBe(false);
      for (let n = 1; n <= 20; n++) expect(window.admit(1000 + 20 * i + n, i * 15_000 + n * 700)).toBe(true);
    }
    let counter = 1080;
    const quiet = (from: number, to: number) => {
      for (let now = from; now < to; now += 100) expect(window.admit(++counter, now)).toBe(true);
    };
    quiet(59_100, 60_000);
    expect(window.admit(50_000, 60_000)).toBe(true);
    quiet(60_000, 75_000);
    expect(window.admit(55_000, 75_000)).toBe(true); // the fifth since 15,000
    quiet(75_000, 90_100);
    // 30,000 is forgotten: there have been three.
    expect(window.admit(5000, 90_100)).toBe(false);
  });

  /**
   * A source that counts sends `rate` packets a second, and somebody who can send under its address, but knows nothing
   * else, sends `strays` a second with Identifications that agree with nothing, and pairs that agree, which keep four
   * counters of his own alive: what of the source's is dropped.
   */
  function attacked(rate: number, strays: number, seconds = 300): { dropped: number; longest: number } {
    const window = windowAfter(19_998, 19_999);
    const random = createRandom(1).unit;
    let id = 20_000;
    const counters = [31_000, 38_000, 45_000, 52_000];
    for (const [i] of counters.entries()) {
      window.admit(++counters[i], 130 * i);
      window.admit(++counters[i], 130 * i);
    }
    const events: [number, () => void][] = [];
    let dropped = 0;
    let run = 0;
    let longest = 0;
    let stray = 0;
    for (let t = 520; t < seconds * 1000; t += 1000 / rate) {
      const source = (now: number) => {
        if (window.admit(id++ & 0xffff, now)) run = 0;
        else {
          dropped++;
          longest = Math.max(longest, ++run);
        }
      };
      events.push([Math.floor(t), () => source(Math.floor(t))]);
    }
    for (let t = 500; t < seconds * 1000; t += 40) {
      const which = Math.floor((t - 500) / 40) & 3;
      events.push([t, () => void window.admit(++counters[which] & 0xffff, t)]);
    }
    for (let t = 700; t < seconds * 1000; t += 1000 / strays) {
      const at = Math.floor(t + (random() * 500) / strays);
      stray = (stray + 2003) % 15_000;
      const id = 300 + stray;
      events.push([at, () => void window.admit(id, at)]);
    }
    events.sort(([a], [b]) => a - b);
    for (const [, happen] of events) happen();
    return { dropped, longest };
  }

  test.each([
    [0.25, 1],
    [0.5, 0.07],
    [0.5, 2],
    [1, 0.05],
    [1, 4],
    [2, 6],
    [4, 10],
    [7, 8],
    [30, 15],
    [1000, 15],
  ])('forged ones take few of the packets of a source that sends %d a second (%d strays)', (rate, strays) => {
    const { dropped, longest } = attacked(rate, strays);
    expect(longest).toBeLessThanOrEqual(4);
    expect(dropped).toBeLessThanOrEqual(5 * 4);
  });

  test('more than corruption can explain are let in: pairs that agree take nothing away either', () => {
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
    expect(dropped).toBeLessThanOrEqual(4);
  });

  test('as many as corruption makes are not', () => {
    const window = windowAfter(1000);
    let now = 0;
    for (let i = 0; i < 1000; i++) {
      // One every twenty seconds, of 65,536 corrupt packets each, on a flow that counts by 2 a second.
      expect(window.admit((1000 + 40 * i + 5000 * ((i % 5) + 2)) & 0xffff, now)).toBe(false);
      for (let n = 1; n <= 40; n++) {
        now += 500;
        expect(window.admit((1000 + 40 * i + n) & 0xffff, now)).toBe(true);
      }
    }
  });

  test('corrupt packets pass at the rate of the window’s size', () => {
    const random = createRandom(7);
    let passed = 0;
    const rounds = 50_000;
    for (let i = 0; i < rounds; i++) {
      const window = new IdWindow();
      window.admit(1000, 0);
      if (window.admit(random.between(0, 0xffff), 0)) passed++;
    }
    // 64 ahead, 256 behind, the last one, and 0: 322 of 65,536.
    expect(passed / rounds).toBeGreaterThan((322 / 65_536) * 0.8);
    expect(passed / rounds).toBeLessThan((322 / 65_536) * 1.2);
  });
});
