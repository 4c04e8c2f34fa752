/** Attributes of queue pairs from forged messages. */
import { expect, test } from 'vitest';
import { initiatorSteps, listenerSteps, type OwnSide } from './qp-steps.ts';

const own = { type: 'RC', packetLifetime: 16, ackTimeout: undefined, limits: {} } as OwnSide;
const listenerTimeout = (primaryAckTimeout: number, side = own) =>
  listenerSteps(side, { primaryAckTimeout, pathMtu: 3 } as never, {} as never).rts.timeout;
const initiatorTimeout = (targetAckDelay: number, side = own) =>
  initiatorSteps(side, { targetAckDelay } as never, {} as never, 1024).rts.timeout;

test('the peer determines the ACK timeout within bounds: never for ever, nor hours', () => {
  expect([0, 1, 17, 21, 22, 31].map((code) => listenerTimeout(code))).toEqual([17, 1, 17, 21, 21, 21]);
  expect([0, 15, 20, 21, 31].map((code) => initiatorTimeout(code))).toEqual([17, 17, 20, 20, 20]);
});

test('a program that sets the ACK timeout has it', () => {
  for (const ackTimeout of [0, 31]) {
    expect(listenerTimeout(17, { ...own, ackTimeout })).toBe(ackTimeout);
    expect(initiatorTimeout(15, { ...own, ackTimeout })).toBe(ackTimeout);
  }
});
