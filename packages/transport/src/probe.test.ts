/** Tail loss probes by themselves: how many may be sent without an answer, how late, and what an answer shows. */
import { describe, expect, test } from 'vitest';
import { PROBES_PER_TIMEOUT, Probe } from './requester/probe.ts';
import type { RoundTrip } from './requester/round-trip.ts';

const path = (smoothed: number, ackDelay = 0) => ({ smoothed, ackDelay, least: smoothed }) as RoundTrip;

function granted(timeouts: number, clock = new Float64Array(1)): Probe {
  const probe = new Probe(clock);
  probe.grant(timeouts);
  return probe;
}

/** Wants probes until none is left; returns how many that were. */
function spend(probe: Probe): number {
  let count = 0;
  for (; probe.anyLeft && count < 100; count++) {
    probe.want();
    expect(probe.check()).toBeUndefined();
  }
  return count;
}

test('is wanted until its turn comes', () => {
  const probe = granted(1);
  expect(probe.wanted).toBe(false);
  probe.want();
  expect(probe.wanted).toBe(true);
  probe.take();
  expect(probe.wanted).toBe(false);
});

describe('the budget', () => {
  test.each([0, 1, 4, 8])('is two for each of %i timeouts', (timeouts) => {
    const probe = granted(timeouts);
    let count = spend(probe);
    expect(count).toBe(timeouts === 0 ? 0 : PROBES_PER_TIMEOUT);
    for (let i = 0; i < 20; i++) {
      probe.timedOut();
      const more = spend(probe);
      expect(more).toBeLessThanOrEqual(PROBES_PER_TIMEOUT);
      count += more;
    }
    expect(count).toBe(PROBES_PER_TIMEOUT * timeouts);
  });

  test('begins anew with progress', () => {
    const probe = granted(1);
    expect(spend(probe)).toBe(2);
    probe.progress(1, 10);
    expect(spend(probe)).toBe(2);
    expect(probe.unanswered).toBe(2);
  });

  test('may be spent sooner where the path has lost packets, and never exceeds the whole', () => {
    const probe = granted(4);
    probe.pathLoses();
    probe.progress(1, 10);
    expect(spend(probe)).toBe(4);
    // The answer shows another loss.
    probe.progress(1, 10);
    expect(spend(probe)).toBe(6);
    for (let i = 0; i < 10; i++) probe.progress(1, 10);
    for (let i = 0; i < 10; i++) probe.pathLoses();
    probe.progress(1, 10);
    expect(spend(probe)).toBe(8);
    probe.timedOut();
    expect(spend(probe)).toBe(0);
  });

  test('is two again after a timeout', () => {
    const probe = granted(8);
    for (let i = 0; i < 3; i++) probe.pathLoses();
    probe.progress(1, 10);
    probe.timedOut();
    expect(spend(probe)).toBe(2);
  });

  test('of none stays none', () => {
    const probe = granted(0);
    probe.pathLoses();
    probe.progress(1, 10);
    expect(spend(probe)).toBe(0);
    expect(probe.delay(path(100))).toBe(-1);
  });

  test('the check sees one that was exceeded', () => {
    const probe = granted(0);
    probe.want();
    expect(probe.check()).toBe('1 probes sent and -1 left of 0, 1 now');
  });
});

describe('the delay', () => {
  test.each([
    ['900 µs before the first sample', 0, 0, 900],
    ['two round trips', 300, 0, 600],
    ['and the largest ACK delay', 300, 70, 670],
    ['50 µs at least', 20, 5, 50],
    ['a whole number', 300.3, 0.3, 600],
    ['30 bits at most', 2 ** 31, 2 ** 31, 0x3fff_ffff],
  ])('is %s', (_, smoothed, ackDelay, expected) => {
    expect(granted(1).delay(path(smoothed, ackDelay))).toBe(expected);
  });

  test('doubles with every fourth probe that drew no answer', () => {
    const probe = granted(8);
    for (let i = 0; i < 8; i++) probe.pathLoses();
    probe.progress(1, 10);
    const delays: number[] = [];
    for (let i = 0; i < 13; i++) {
      delays.push(probe.delay(path(100)));
      probe.want();
    }
    expect(delays).toEqual([200, 200, 200, 200, 400, 400, 400, 400, 800, 800, 800, 800, 1600]);
  });
});

describe('patience', () => {
  /** Of the interval, beyond the two round trips of the path. */
  const doublings = (probe: Probe) => Math.log2(probe.delay(path(100)) / 200);
  const probed = (isCostly = false, grants = 4) => {
    const probe = granted(grants);
    probe.want();
    probe.take();
    probe.sent(11, 20, isCostly);
    return probe;
  };

  test('grows with each probe that was premature, once', () => {
    const probe = probed();
    expect(probe.isSparing).toBe(false);
    expect([probe.premature(30), probe.premature(30)]).toEqual([true, false]);
    expect([doublings(probe), probe.isSparing]).toEqual([1, true]);
  });

  test('grows with each probe that is costly, up to a bound', () => {
    const probe = probed(true);
    expect(doublings(probe)).toBe(1);
    for (let i = 0; i < 20; i++) probe.sent(11, 20, true);
    expect(doublings(probe)).toBe(10);
  });

  test('one doubling is taken back for each flight that is acknowledged without a probe', () => {
    const probe = probed(true);
    probe.premature(30);
    probe.progress(15, 30); // The answer to the probe.
    expect(doublings(probe)).toBe(2);
    for (let psn = 16; psn <= 30; psn++) probe.progress(psn, 60);
    expect(doublings(probe)).toBe(2);
    for (let psn = 31; psn <= 60; psn++) probe.progress(psn, 90);
    expect(doublings(probe)).toBe(1);
    probe.progress(90, 120);
    expect(doublings(probe)).toBe(1);
    probe.progress(91, 120);
    expect(doublings(probe)).toBe(0);
  });

  test('ends with a sample', () => {
    const probe = probed(true);
    probe.sampled();
    expect([doublings(probe), probe.isSparing]).toEqual([0, false]);
  });

  test('where one was premature, none of later timeouts are sent ahead', () => {
    const probe = probed();
    for (let i = 0; i < 3; i++) probe.pathLoses();
    probe.premature(30);
    probe.progress(31, 40);
    expect(spend(probe)).toBe(4);
  });
});

describe('an answer', () => {
  /** A probe at `psn` is sent at 1000 µs, with ten packets in flight from there on. */
  const sent = (psn: number) => {
    const clock = new Float64Array([1000]);
    const probe = granted(1, clock);
    probe.want();
    probe.take();
    probe.sent((psn + 1) & 0xff_ffff, (psn + 10) & 0xff_ffff, false);
    return { probe, clock };
  };

  test.each([
    ['to its packet alone: all behind is lost', 1, 20, true],
    ['to a part: the rest is lost', 5, 20, true],
    ['to all: nothing is lost', 10, 20, false],
    ['sooner than half the least round trip: to packets before', 5, 9, false],
  ])('%s', (_, packets, after, lost) => {
    for (const psn of [0, 0x10, 0xff_ffff, 0xff_fffa]) {
      const { probe, clock } = sent(psn);
      clock[0] += after;
      // Of what was before it, this is no answer.
      expect(probe.showsLoss(psn, path(20))).toBe(false);
      expect(probe.showsLoss((psn + packets) & 0xff_ffff, path(20))).toBe(lost);
      // Only the first one shows it.
      expect(probe.showsLoss((psn + packets) & 0xff_ffff, path(20))).toBe(false);
    }
  });

  test('shows nothing where no probe was sent', () => {
    for (let psn = 0; psn < 4; psn++) expect(granted(1).showsLoss(psn, path(20))).toBe(false);
  });

  test('shows nothing where everything is retransmitted since', () => {
    const { probe, clock } = sent(0x10);
    clock[0] += 1000;
    probe.want();
    probe.forget();
    expect(probe.wanted).toBe(false);
    expect(probe.showsLoss(0x11, path(20))).toBe(false);
  });
});
