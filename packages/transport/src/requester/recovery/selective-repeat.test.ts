/** How a requester finds out that its peer keeps packets that come early, and how it reacts to the peer's NAKs. */
import { bthPsn } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Pair } from '../../../testing/pair.ts';
import { Again, SelectiveRepeat } from './selective-repeat.ts';

const ROUND_TRIP = 20;
const WINDOW = 32;

function setUp() {
  const clock = new Float64Array([1000]);
  const keeps = new SelectiveRepeat(clock);
  keeps.reset();
  return { clock, keeps, nakked: (psn: number) => keeps.nakked(psn, ROUND_TRIP, WINDOW) };
}

test('on a path that loses often, it waits for the answer to the missing packet alone: seven times at most', () => {
  const { keeps } = setUp();
  const tried: number[] = [];
  for (let nak = 1; nak <= 1030; nak++) {
    keeps.try();
    if (keeps.isTrying) tried.push(nak);
    keeps.progress(nak);
    expect(keeps.isTrying).toBe(false);
  }
  expect(tried).toEqual([4, 8, 16, 32, 64, 128, 256]);
});

test('a retransmission ends the wait', () => {
  const { keeps } = setUp();
  for (let i = 0; i < 4; i++) keeps.try();
  keeps.sentAgain(10, 20, false);
  expect(keeps.isTrying).toBe(false);
});

test('how long a gap took that was retransmitted: once, from when it was, and only of a peer that keeps', () => {
  const { clock, keeps } = setUp();
  keeps.sentAgain(10, 12, true);
  clock[0] += 30;
  expect(keeps.gapClosedAfter(12)).toBe(0);
  keeps.learn(true);
  keeps.sentAgain(20, 22, true);
  clock[0] += 40;
  expect([20, 21, 22].map((psn) => keeps.gapClosedAfter(psn))).toEqual([0, 40, 0]);
});

test('all is retransmitted for each NAK, as long as nothing was learned', () => {
  const { nakked } = setUp();
  expect([nakked(10), nakked(11)]).toEqual([Again.ALL, Again.ALL]);
});

describe('of a peer that keeps', () => {
  const learned = () => {
    const set = setUp();
    set.keeps.learn(false);
    return set;
  };

  test('a NAK has the gap alone retransmitted', () => {
    expect(learned().nakked(10)).toBe(Again.GAP);
  });

  test('a NAK for packets on their way changes nothing', () => {
    const { clock, keeps, nakked } = learned();
    nakked(10);
    keeps.sentAgain(10, 18, false);
    clock[0] += ROUND_TRIP - 1;
    expect([nakked(10), nakked(14), keeps.nakCameAgain]).toEqual([Again.NOTHING, Again.NOTHING, true]);
    expect(nakked(18)).toBe(Again.GAP);
  });

  test('waits longer for packets that were sent behind others', () => {
    const { keeps } = learned();
    keeps.sentAgain(10, 18, false);
    expect(keeps.waits(10, ROUND_TRIP, WINDOW)).toBe(ROUND_TRIP);
    expect(keeps.waits(12, ROUND_TRIP, WINDOW)).toBe(ROUND_TRIP + (2 * ROUND_TRIP) / WINDOW);
    expect(keeps.waits(18, ROUND_TRIP, WINDOW)).toBe(0);
  });

  test('a NAK that repeats is believed less and less often, and then all is retransmitted', () => {
    const { clock, keeps, nakked } = learned();
    const waits: number[] = [];
    const answers = [nakked(10)];
    for (let i = 0; i < 5; i++) {
      keeps.sentAgain(10, 11, false);
      const wait = keeps.waits(10, ROUND_TRIP, WINDOW);
      waits.push(wait);
      clock[0] += wait;
      answers.push(nakked(10));
    }
    expect(waits).toEqual([20, 20, 40, 80, 160]);
    expect(answers).toEqual([Again.GAP, Again.GAP, Again.GAP, Again.GAP, Again.ALL, Again.ALL]);
    expect(keeps.isRepeated).toBe(true);
    nakked(11);
    expect(keeps.isRepeated).toBe(false);
  });
});

describe('acknowledged packets beyond the retransmitted ones', () => {
  /** Goes back to `psn` with 20 packets out, and hears of them all. */
  const goBack = (keeps: SelectiveRepeat, psn: number, isLossy: boolean) => {
    keeps.sentAgain(psn, psn + 20, false);
    keeps.learn(isLossy);
  };
  /** Fills so many gaps, of one packet, behind which the peer has `kept` packets. */
  const fillGaps = (keeps: SelectiveRepeat, gaps: number, kept: number) => {
    for (let psn = 1000; gaps > 0; gaps--, psn += 100) {
      keeps.sentAgain(psn, psn + 1, true);
      keeps.progress(psn + 1 + kept);
    }
  };

  test('shows a keeper where no other retransmission was on its way', () => {
    const { keeps } = setUp();
    goBack(keeps, 10, false);
    expect(keeps.learned).toBe(true);
  });

  test('shows nothing where the packets of an earlier go-back-N may have come', () => {
    const { keeps } = setUp();
    keeps.sentAgain(8, 28, false);
    keeps.progress(10);
    goBack(keeps, 10, false);
    expect(keeps.learned).toBe(false);
    keeps.progress(30);
    goBack(keeps, 50, false);
    expect(keeps.learned).toBe(true);
  });

  test('is believed where losses are frequent, until the peer kept nothing behind eight gaps in a row', () => {
    const { keeps } = setUp();
    keeps.sentAgain(8, 28, false);
    goBack(keeps, 10, true);
    expect(keeps.learned).toBe(true);
    fillGaps(keeps, 7, 0);
    fillGaps(keeps, 1, 5);
    fillGaps(keeps, 7, 0);
    expect(keeps.learned).toBe(true);
    fillGaps(keeps, 1, 0);
    expect(keeps.learned).toBe(false);
    keeps.sentAgain(5000, 5020, false);
    goBack(keeps, 5002, true);
    expect(keeps.learned).toBe(false);
  });
});

test('gap after gap in messages of one packet: the ACK that closes a gap goes beyond it, however many entries it ends', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const mr = left.register(new ArrayBuffer(64));
  const remote = right.register(new ArrayBuffer(64));
  const lost = new Set<number>();
  pair.fault = (packet, _now, _sgidIndex, from) => {
    const psn = bthPsn(packet, 0);
    if (from !== left || psn % 40 !== 10 || lost.has(psn)) return [{ packet, delay: 0 }];
    lost.add(psn);
    return [];
  };
  for (let round = 0; round < 20; round++) {
    for (let i = 0; i < 40; i++) left.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 64 }], remote });
    pair.run(10_000_000);
    expect(left.poll()).toHaveLength(40);
  }
  // More for each gap where the peer is taken for one that discards.
  expect(left.adapter.counters().retransmittedPackets).toBeLessThan(5 * lost.size);
});
