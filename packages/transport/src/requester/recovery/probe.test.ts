/** Tail loss probes by themselves: when one may be sent, how late, and what an answer shows. */
import { describe, expect, test } from 'vitest';
import { RoundTrip } from '../round-trip.ts';
import { LossBursts } from './loss-bursts.ts';
import { Probe } from './probe.ts';

/** A probe on a path whose round trip is `sample` µs (0: not known), at 1,000 µs. */
function setUp(sample = 100) {
  const clock = new Float64Array(1);
  const losses = new LossBursts();
  const roundTrip = new RoundTrip(clock, losses);
  const measure = (microseconds: number) => {
    roundTrip.begin(0);
    clock[0] += microseconds;
    roundTrip.acknowledged(1);
  };
  if (sample > 0) measure(sample);
  clock[0] = 1000;
  const probe = new Probe(roundTrip, losses);
  probe.enable(true);
  /** One is sent for the PSN before `end`, with those before `flightEnd` in flight. */
  const send = (end: number, flightEnd = end, part = -1) => {
    probe.want();
    probe.take();
    probe.sent(clock[0], end, flightEnd, part);
  };
  /** Everything before `psn` is acknowledged `later` µs later. */
  const progress = (psn: number, later = 0) => {
    clock[0] += later;
    losses.acknowledged(1);
    probe.progress(clock[0], psn);
  };
  const frequent = () => {
    losses.seen();
    for (let i = 0; i < 20; i++) losses.lost();
  };
  return { clock, losses, roundTrip, probe, send, progress, measure, frequent };
}

test('is wanted until its turn comes', () => {
  const { probe } = setUp();
  expect(probe.wanted).toBe(false);
  probe.want();
  expect(probe.wanted).toBe(true);
  probe.take();
  expect(probe.wanted).toBe(false);
});

describe('is allowed', () => {
  test('not where there are none, nor before the round trip is known', () => {
    const { probe } = setUp();
    probe.enable(false);
    expect([probe.isAllowed, probe.delay]).toEqual([false, -1]);
    expect(setUp(0).probe.delay).toBe(-1);
  });

  test.each([0, 0x10, 0xff_fffa, 0xff_ffff])(
    'once a flight, on a connection that lost nothing, from PSN %i',
    (psn) => {
      const { probe, send, progress } = setUp();
      const at = (offset: number) => (psn + offset) & 0xff_ffff;
      send(at(10));
      expect(probe.isAllowed).toBe(false);
      progress(at(1));
      progress(at(9));
      expect(probe.isAllowed).toBe(false);
      progress(at(10));
      expect(probe.isAllowed).toBe(true);
    },
  );

  test('again and again where losses were seen', () => {
    const { probe, losses, send } = setUp();
    losses.seen();
    for (let i = 0; i < 20; i++) {
      send(10);
      expect(probe.isAllowed).toBe(true);
    }
  });

  test('not after the ACK timer ran out, until something is acknowledged', () => {
    for (const seen of [false, true]) {
      const { probe, losses, progress } = setUp();
      if (seen) losses.seen();
      probe.timedOut(1000);
      expect([probe.isAllowed, probe.delay]).toEqual([false, -1]);
      progress(1);
      expect(probe.isAllowed).toBe(true);
    }
  });

  test('once everything in flight is retransmitted, the last one is forgotten', () => {
    const { probe, send } = setUp();
    send(10);
    probe.want();
    probe.forget();
    expect([probe.wanted, probe.isAllowed]).toEqual([false, true]);
  });

  test('on another path anew', () => {
    const { probe, send } = setUp();
    send(10);
    probe.timedOut(1000);
    probe.enable(true);
    expect([probe.isAllowed, probe.unanswered]).toEqual([true, 0]);
  });
});

describe('the delay', () => {
  test.each([
    ['two round trips', 300, 600],
    ['50 µs at least', 20, 50],
    ['a whole number', 300.3, 600],
    ['30 bits at most', 2 ** 31, 0x3fff_ffff],
  ])('is %s', (_, sample, expected) => {
    expect(setUp(sample).probe.delay).toBe(expected);
  });

  test('and the largest ACK delay', () => {
    const { probe, measure } = setUp(800);
    measure(1600);
    expect(probe.delay).toBe(2 * 900 + 800);
  });

  const delays = (set: ReturnType<typeof setUp>) =>
    Array.from({ length: 6 }, () => {
      const { delay } = set.probe;
      set.send(10);
      return delay;
    });

  test('doubles with each one that was not answered', () => {
    const set = setUp();
    set.losses.seen();
    expect(delays(set)).toEqual([200, 400, 800, 1600, 3200, 6400]);
    set.progress(1);
    expect(set.probe.delay).toBe(200);
  });

  test('doubles with each second one where losses are frequent: the first is easily lost', () => {
    const set = setUp();
    set.frequent();
    expect(delays(set)).toEqual([200, 200, 400, 400, 800, 800]);
  });
});

test('a timer that was late by more than a round trip gives the answer another interval, once', () => {
  const { probe, progress } = setUp();
  expect(probe.isDelayed(100)).toBe(false);
  expect([probe.isDelayed(101), probe.isDelayed(101)]).toEqual([true, false]);
  progress(1);
  expect(probe.isDelayed(101)).toBe(true);
});

describe('an answer', () => {
  test('shows no loss, on a connection on which losses are not frequent', () => {
    for (const seen of [false, true]) {
      const { probe, losses, send, progress, clock } = setUp();
      if (seen) losses.seen();
      send(1, 10);
      progress(1, 100);
      expect(probe.showsLoss(clock[0], 1)).toBe(false);
    }
  });

  test.each([
    ['to its packet alone: all behind is lost', 1, 100, true],
    ['to a part: the rest is lost', 5, 100, true],
    ['to all: nothing is lost', 10, 100, false],
    ['sooner than half the least round trip: to packets before', 5, 49, false],
  ])('where they are, %s', (_, packets, after, lost) => {
    for (const psn of [0, 0x10, 0xff_ffff, 0xff_fffa]) {
      const { probe, send, progress, clock, frequent } = setUp();
      frequent();
      const end = (psn + packets) & 0xff_ffff;
      send((psn + 1) & 0xff_ffff, (psn + 10) & 0xff_ffff);
      // Of what was before it, this is no answer.
      expect(probe.showsLoss(clock[0], psn)).toBe(false);
      progress(end, after);
      expect(probe.showsLoss(clock[0], end)).toBe(lost);
      // Only the first one shows it.
      expect(probe.showsLoss(clock[0], end)).toBe(false);
    }
  });

  // Once frequent losses stayed frequent for as long as the connection lived, and each probe of a slow peer cost all that was in flight.
  test('shows no loss any more, once nothing was lost for 65,536 packets', () => {
    const { probe, losses, send, progress, clock, frequent } = setUp();
    frequent();
    losses.acknowledged(65_535);
    expect([losses.isFrequent, losses.isNone]).toEqual([true, false]);
    losses.acknowledged(1);
    expect([losses.isFrequent, losses.isNone]).toEqual([false, true]);
    send(1, 10);
    progress(1, 100);
    expect(probe.showsLoss(clock[0], 1)).toBe(false);
  });

  test('that was a suspicion is none any more after 1,024 packets', () => {
    const { losses, send, progress } = setUp();
    send(10);
    progress(10, 120);
    progress(11, 100);
    losses.acknowledged(1023);
    expect(losses.isNone).toBe(false);
    losses.acknowledged(1);
    expect(losses.isNone).toBe(true);
  });

  test('to all, a round trip later and once only, shows that the probe repaired a loss (RFC 8985 §7.4.2)', () => {
    const { losses, send, progress } = setUp();
    for (const seen of [false, false, true]) {
      send(10);
      progress(10, 120);
      expect(losses.areSeen).toBe(false);
      progress(11, 100);
      // Twice is an accident: a responder that was slow may have answered both at once.
      expect(losses.areSeen).toBe(seen);
    }
    losses.acknowledged(1023);
    expect(losses.areSeen).toBe(true);
    losses.acknowledged(1);
    expect(losses.areSeen).toBe(false);
  });

  test.each(['late', 'soon', 'twice'])('that comes %s ends the suspicion', (how) => {
    const { probe, losses, send, progress } = setUp();
    for (let i = 0; i < 8; i++) {
      send(10);
      const isOther = i % 3 === 2;
      progress(10, isOther && how === 'late' ? 151 : isOther && how === 'soon' ? 99 : 120);
      if (isOther && how === 'twice') probe.answeredTwice();
      progress(11, 100);
      expect(losses.areSeen).toBe(false);
    }
  });

  test('that comes so 1,024 packets later is another accident', () => {
    const { losses, send, progress } = setUp();
    for (let i = 0; i < 5; i++) {
      send(10);
      progress(10, 120);
      progress(11, 100);
      losses.acknowledged(1024);
    }
    expect(losses.areSeen).toBe(false);
  });

  test('that comes twice shows that nothing was lost, and so does one that comes much later', () => {
    for (const late of [false, true]) {
      const { probe, losses, send, progress } = setUp();
      for (let i = 0; i < 5; i++) {
        send(10);
        progress(10, late ? 151 : 120);
        if (!late) probe.answeredTwice();
        progress(11, 100);
      }
      expect(losses.areSeen).toBe(false);
    }
  });

  // The peer may join its second answer with that to a later packet.
  test('sooner than a round trip shows no loss, though there is no second one', () => {
    for (const timedOut of [false, true]) {
      const { probe, losses, send, progress, clock } = setUp();
      if (timedOut) probe.timedOut(clock[0]);
      else send(10);
      progress(10, 99);
      progress(11, 100);
      expect(losses.areSeen).toBe(false);
    }
  });

  test('a round trip after a timeout shows a loss as well', () => {
    for (const late of [false, true]) {
      const { probe, losses, clock, progress } = setUp();
      probe.timedOut(clock[0]);
      progress(1, late ? 151 : 150);
      expect(losses.areSeen).toBe(!late);
    }
  });

  test('is its own where it asks for one response alone', () => {
    const { probe, send, progress } = setUp();
    send(6, 10, 5);
    expect([4, 5, 6].map((psn) => probe.asksOnlyFor(psn))).toEqual([false, true, false]);
    progress(10);
    expect(probe.asksOnlyFor(5)).toBe(false);
  });
});
