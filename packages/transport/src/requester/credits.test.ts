/** End-to-end flow control at the requester (IBTA vol 1 §9.7.7.2): what an AETH allows, and what it does not. */
import { CREDIT_UNLIMITED, creditsOf } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Credits } from './credits.ts';

const LAST = 0xff_ffff;
/** Code 4: four more receives. */
const FOUR = 4;
const RNR_NAK = 0x20;
const NAK = 0x60;

function limited(): Credits {
  const credits = new Credits();
  credits.reset(true);
  return credits;
}

/** Messages that start before the limit holds back. */
function start(credits: Credits, most = 100): number {
  let count = 0;
  for (; count < most && !credits.exhausted; count++) credits.count(1);
  return count;
}

test('a service without flow control is never held back, whatever it receives', () => {
  const credits = new Credits();
  expect(start(credits)).toBe(100);
  credits.reset(false);
  expect(credits.take(FOUR, 1)).toBe(false);
  expect(start(credits)).toBe(100);
});

test('one message starts without credits, and one past the limit (§9.7.7.2.5)', () => {
  const credits = limited();
  expect(start(credits)).toBe(1);
  expect(credits.take(FOUR, 1)).toBe(true);
  // Up to SSN 1 + 4, and one more.
  expect(start(credits)).toBe(creditsOf(FOUR) + 1);
});

test('the limit that an ACK repeats, or an older one names, changes nothing', () => {
  const credits = limited();
  credits.take(FOUR, 1);
  expect(credits.take(FOUR, 1)).toBe(false);
  expect(credits.take(FOUR, 0)).toBe(false);
  expect(start(credits)).toBe(1 + creditsOf(FOUR) + 1);
});

test('more credits allow more messages, also across the wrap of the MSN', () => {
  const credits = limited();
  for (let msn = 1; msn <= 3; msn++) expect(credits.take(0, msn * 0x40_0000)).toBe(true);
  expect(credits.take(0, LAST)).toBe(true);
  expect(credits.take(0, 2)).toBe(true);
  expect(credits.take(0, LAST)).toBe(false);
});

test('code 31 lifts the limit for good', () => {
  const credits = limited();
  expect(credits.take(CREDIT_UNLIMITED, 1)).toBe(true);
  expect(credits.take(FOUR, 2)).toBe(false);
  expect(start(credits)).toBe(100);
});

test.each([RNR_NAK, NAK, NAK | 1])('the value of NAK %i is no credit', (syndrome) => {
  const credits = limited();
  expect(credits.take(syndrome | FOUR, 50)).toBe(false);
  expect(credits.take(RNR_NAK | CREDIT_UNLIMITED, 50)).toBe(false);
  expect(start(credits)).toBe(1);
});

test('a message that is not started after all gives its place back', () => {
  const credits = limited();
  expect(start(credits)).toBe(1);
  credits.count(-1);
  expect(credits.exhausted).toBe(false);
  expect(start(credits)).toBe(1);
});

test('RESET begins with none', () => {
  const credits = limited();
  credits.take(FOUR, 20);
  start(credits);
  credits.reset(true);
  expect(start(credits)).toBe(1);
  expect(credits.take(FOUR, 1)).toBe(true);
});

// Once: each READ request whose first response was probed for alone, and that had been lost, left the limit one message too far from then on.
test('a READ request of which a part was asked for alone may be counted twice, and no other one', () => {
  const credits = limited();
  credits.count(1);
  credits.askedForPart();
  // The part, and the rest.
  expect(credits.take(FOUR, 2)).toBe(true);
  expect(start(credits)).toBe(creditsOf(FOUR) + 1);
  // A number that nothing explains moves the limit alone.
  const other = limited();
  other.askedForPart();
  other.count(1);
  other.take(0, 3);
  expect(start(other)).toBe(3);
});
