/** The estimate of the round trip: the mean as RFC 6298 has it for TCP, the shortest, and the largest ACK delay. */
import { psnAdd } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { LossBursts } from './recovery/loss-bursts.ts';
import { ANY_ACK, RoundTrip } from './round-trip.ts';

const FIRST = 0xff_ffff;
const NEXT = 0;

function setUp() {
  const clock = new Float64Array([5_000]);
  const losses = new LossBursts();
  const roundTrip = new RoundTrip(clock, losses);
  /** One packet is sent, and acknowledged after so many µs. */
  const sample = (microseconds: number) => {
    roundTrip.begin(FIRST);
    clock[0] += microseconds;
    roundTrip.acknowledged(NEXT);
  };
  /** Mean, least and ACK delay. */
  const known = () => [roundTrip.smoothed, roundTrip.least, roundTrip.ackDelay];
  return { clock, losses, roundTrip, sample, known };
}

test('nothing is known before the first answer', () => {
  const { clock, roundTrip, known } = setUp();
  roundTrip.begin(FIRST);
  clock[0] += 1000;
  expect(known()).toEqual([0, 0, 0]);
});

test('the first sample is the mean (§2.2) and the least', () => {
  const { sample, known } = setUp();
  sample(10_000);
  expect(known()).toEqual([10_000, 10_000, 0]);
});

test('further samples count by 1/8 (§2.3); the delay is the most by which one exceeded the mean before it', () => {
  const { sample, known } = setUp();
  sample(10_000);
  sample(18_000);
  expect(known()).toEqual([11_000, 10_000, 8_000]);
  sample(8_000);
  expect(known()).toEqual([10_625, 8_000, 8_000]);
  sample(20_000);
  expect(known()).toEqual([11_796.875, 8_000, 9_375]);
});

test('the delay is forgotten after ten seconds', () => {
  const { clock, sample, known } = setUp();
  sample(10_000);
  sample(18_000);
  clock[0] += 9_990_000;
  sample(9_000);
  expect(known()[2]).toBe(8_000);
  clock[0] += 2_000;
  sample(9_000);
  expect(known()[2]).toBe(0);
});

test('where losses were seen, which delay ACKs as well, a quarter of it is forgotten with each sample', () => {
  const { losses, sample, known } = setUp();
  losses.seen();
  sample(10_000);
  sample(18_000);
  expect(known()).toEqual([11_000, 10_000, 8_000]);
  sample(8_000);
  expect(known()).toEqual([10_625, 8_000, 6_000]);
  sample(20_000);
  expect(known()).toEqual([11_796.875, 8_000, 9_375]);
});

test('a NAK bounds the round trip until there is a sample', () => {
  const { clock, roundTrip, sample, known } = setUp();
  roundTrip.begin(FIRST);
  clock[0] += 700;
  roundTrip.nakked();
  expect(known()).toEqual([700, 0, 0]);
  expect(roundTrip.settled).toBe(1_000);
  sample(100);
  expect(known()).toEqual([100, 100, 0]);
  roundTrip.begin(FIRST);
  clock[0] += 700;
  roundTrip.nakked();
  expect(known()).toEqual([100, 100, 0]);
});

test('before the first sample a retransmitted packet is timed, until something is acknowledged', () => {
  for (const [how, timed] of [
    ['nakked', true],
    ['goneBack', true],
    ['cancel', false],
  ] as const) {
    const { roundTrip, sample } = setUp();
    expect(roundTrip.timesAgain).toBe(false);
    roundTrip[how]();
    expect(roundTrip.timesAgain).toBe(timed);
    roundTrip.acknowledged(NEXT);
    expect(roundTrip.timesAgain).toBe(false);
    sample(100);
    roundTrip[how]();
    expect(roundTrip.timesAgain).toBe(false);
  }
});

test('an answer at once is a sample, too', () => {
  const { sample, known } = setUp();
  sample(0);
  expect(known()).toEqual([1, 1, 0]);
});

test.each([0, 0x10, 0xff_ffff])('one packet is timed at a time: the first one, at PSN %i', (psn) => {
  const { clock, roundTrip } = setUp();
  roundTrip.begin(psn);
  clock[0] += 6_000;
  roundTrip.begin(psnAdd(psn, 1));
  clock[0] += 4_000;
  roundTrip.acknowledged(psnAdd(psn, 2));
  expect(roundTrip.smoothed).toBe(10_000);
  // Nothing is timed now: another acknowledgement changes nothing.
  clock[0] += 90_000;
  roundTrip.acknowledged(psnAdd(psn, 3));
  expect(roundTrip.smoothed).toBe(10_000);
});

test('an ACK of packets before the timed one takes no sample', () => {
  const { clock, roundTrip } = setUp();
  roundTrip.begin(0x10);
  clock[0] += 4_000;
  roundTrip.acknowledged(0x10);
  expect(roundTrip.smoothed).toBe(0);
  clock[0] += 6_000;
  roundTrip.acknowledged(0x11);
  expect(roundTrip.smoothed).toBe(10_000);
});

test('a packet that may have been sent twice is no sample (§3, Karn)', () => {
  const { clock, roundTrip } = setUp();
  roundTrip.begin(0x10);
  roundTrip.cancel();
  clock[0] += 6_000;
  roundTrip.acknowledged(0x11);
  expect(roundTrip.smoothed).toBe(0);
  // PSN 0 is a packet like others.
  roundTrip.begin(0);
  clock[0] += 10_000;
  roundTrip.acknowledged(1);
  expect(roundTrip.smoothed).toBe(10_000);
});

test('RESET forgets all of it', () => {
  const { clock, roundTrip, sample, known } = setUp();
  sample(10_000);
  sample(20_000);
  roundTrip.begin(0x10);
  roundTrip.reset();
  expect(known()).toEqual([0, 0, 0]);
  clock[0] += 1_000;
  roundTrip.acknowledged(0x11);
  expect(known()).toEqual([0, 0, 0]);
  sample(10_000);
  expect(known()).toEqual([10_000, 10_000, 0]);
});

/** A packet took 900 µs, and was retransmitted meanwhile. */
function doubted(answer: number) {
  const set = setUp();
  const { clock, roundTrip, sample } = set;
  sample(100);
  roundTrip.begin(FIRST);
  clock[0] += 250;
  roundTrip.doubt(answer);
  clock[0] += 650;
  roundTrip.acknowledged(NEXT);
  return set;
}

test('a packet that may have been repeated counts once it was answered twice', () => {
  for (const answer of [ANY_ACK, FIRST]) {
    const { clock, roundTrip, known } = doubted(answer);
    expect(known()).toEqual([100, 100, 0]);
    clock[0] += 5000;
    roundTrip.confirm(answer === FIRST ? NEXT : FIRST);
    expect(known()).toEqual([100, 100, 0]);
    for (let i = 0; i < 2; i++) roundTrip.confirm(answer);
    expect(known()).toEqual([200, 100, 800]);
  }
});

test('before the first sample it bounds the round trip', () => {
  const { clock, roundTrip, sample, known } = setUp();
  roundTrip.begin(FIRST);
  roundTrip.doubt(ANY_ACK);
  clock[0] += 900;
  roundTrip.acknowledged(NEXT);
  expect(known()).toEqual([900, 0, 0]);
  sample(100);
  expect(known()).toEqual([100, 100, 0]);
});

test.each(['doubt', 'cancel', 'cancelIn'] as const)(
  'a doubtful sample is forgotten when others are retransmitted: %s',
  (how) => {
    const { roundTrip, sample, known } = doubted(ANY_ACK);
    if (how === 'doubt') roundTrip.doubt(ANY_ACK);
    else if (how === 'cancel') roundTrip.cancel();
    else roundTrip.cancelIn(5, 6);
    roundTrip.confirm(ANY_ACK);
    // The next packet is not in doubt.
    sample(100);
    expect(known()).toEqual([100, 100, 0]);
  },
);

test('the time of a packet that was perhaps sent twice lowers the mean alone, and not below the least', () => {
  const { roundTrip, sample, known } = setUp();
  roundTrip.isAtMost(10);
  expect(known()).toEqual([0, 0, 0]);
  sample(800);
  sample(1_600);
  expect(known()).toEqual([900, 800, 800]);
  for (const time of [0, 900, 2_000]) roundTrip.isAtMost(time);
  expect(known()).toEqual([900, 800, 800]);
  roundTrip.isAtMost(820);
  expect(known()).toEqual([890, 800, 800]);
  roundTrip.isAtMost(10);
  expect(known()).toEqual([878.75, 800, 800]);
});
