import { describe, expect, test } from 'vitest';
import type { RetransmitCause } from '../facts.ts';
import { IdOrder } from './identification.ts';
import { PassedRequests } from './loss-place.ts';
import type { SentAgain } from './sent-again.ts';
import { Verdict } from './verdict.ts';

const NAK = 7;

function again(psn: number, more: Partial<SentAgain> = {}): SentAgain {
  return {
    psn,
    next: psn + 1,
    time: 0,
    sentBy: 0,
    messageEnd: psn + 1,
    lastSent: 0,
    lastNew: 0,
    lastFrame: 1,
    gapFrame: 0,
    roundTrip: 0,
    unacked: psn,
    end: psn + 1,
    migReq: false,
    idOrder: IdOrder.NEWER,
    followsOn: false,
    unseen: false,
    asks: false,
    needsAnswer: false,
    afterAsking: false,
    heard: true,
    ...more,
  };
}

/** Requests pass in this order; the last packet of a message, PSN 4, asks for an ACK. */
function passing(...psns: number[]): PassedRequests {
  const passed = new PassedRequests();
  for (const psn of psns) passed.passed(psn, psn + 1, psn === 4, false);
  return passed;
}

function placed(
  passed: PassedRequests,
  cause: RetransmitCause,
  sent: SentAgain,
  evidence = NAK,
  missing = -1,
) {
  const verdict = new Verdict();
  verdict.cause = cause;
  verdict.evidenceFrame = evidence;
  passed.place(verdict, sent, missing);
  return [verdict.missing, verdict.side];
}

describe('a sequence NAK', () => {
  const nak = (passed: PassedRequests, psn: number) => {
    passed.sequenceNak(psn, NAK);
    return placed(passed, 'sequence-nak', again(psn));
  };

  test('for a packet that passed in order: it was lost behind the tap', () => {
    expect(nak(passing(1, 2, 3, 4), 2)).toEqual(['request', 'responder']);
  });

  test('for one that later packets passed without: it was lost before the tap', () => {
    expect(nak(passing(1, 3, 4), 2)).toEqual(['request', 'requester']);
  });

  test('for one that was overtaken before the tap, though it has come since', () => {
    expect(nak(passing(1, 3, 2, 4), 2)).toEqual(['request', 'requester']);
    expect(nak(passing(2, 1, 3), 1)).toEqual(['request', 'requester']);
  });

  test('for one that came while another was missing, and was lost before the tap when it came again', () => {
    const passed = passing(1, 3, 4);
    expect(nak(passed, 2)).toEqual(['request', 'requester']);
    for (const psn of [2, 4]) passed.passed(psn, psn + 1, psn === 4, false);
    expect(nak(passed, 3)).toEqual(['request', 'requester']);
  });

  test('for packets from before the capture, and of which the tap has seen nothing: not known', () => {
    expect(nak(passing(3, 4), 2)).toEqual(['request', 'unknown']);
    expect(nak(passing(1, 2), 3)).toEqual(['request', 'unknown']);
  });

  test('with an RNR NAK: nothing was lost', () => {
    const passed = passing(1, 2, 3, 4);
    passed.rnrNak(2);
    expect(nak(passed, 2)).toEqual(['none', 'unknown']);
  });
});

describe('silence', () => {
  test('after a packet that asks for an answer: it or the answer was lost behind the tap', () => {
    expect(placed(passing(1, 2, 3, 4), 'timeout', again(2))).toEqual(['either', 'responder']);
  });

  test('after packets that ask for none: the one that does may not have passed', () => {
    expect(placed(passing(1, 2, 3), 'timeout', again(2))).toEqual(['either', 'unknown']);
    expect(placed(passing(1, 2, 4), 'timeout', again(2))).toEqual(['either', 'unknown']);
  });

  test('before a packet that was not seen: it was lost before the tap', () => {
    expect(placed(passing(1, 2, 3, 4), 'probe', again(2, { unseen: true }))).toEqual([
      'request',
      'requester',
    ]);
  });

  test('after its answer: that was lost on the way to the requester', () => {
    expect(placed(passing(1, 2), 'timeout', again(2, { unacked: 3 }))).toEqual(['response', 'requester']);
  });

  test('in one direction: not known', () => {
    expect(placed(passing(1, 2, 3, 4), 'timeout', again(2, { heard: false }))).toEqual(['either', 'unknown']);
  });
});

test('a missing response: behind the tap if a later one passed before it, else on the way to the requester', () => {
  const passed = passing(1, 2);
  expect(placed(passed, 'implied-nak', again(2, { unacked: 3 }), NAK, 2)).toEqual(['response', 'responder']);
  expect(placed(passed, 'implied-nak', again(2, { unacked: 3 }), 0)).toEqual(['response', 'requester']);
  expect(placed(passed, 'implied-nak', again(2, { unacked: 3 }), NAK, 5)).toEqual(['response', 'unknown']);
});
