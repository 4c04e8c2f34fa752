/** The door of loss recovery: a connection that has lost nothing does not enter it. */
import { NakCode, Opcode } from '@node-roce/wire';
import { afterEach, expect, test, vi } from 'vitest';
import { ByHand } from '../../../testing/by-hand.ts';
import { LossBursts, Recovery } from './recovery.ts';

const FIRST = 0x500;
const ENTRIES = [
  'acknowledged',
  'settled',
  'transmit',
  'windowOf',
  'answeredTwice',
  'answeredAlone',
] as const;

afterEach(() => {
  vi.restoreAllMocks();
});

function setUp() {
  const entries = ENTRIES.map((name) => vi.spyOn(Recovery.prototype, name));
  const probeDelay = vi.spyOn(Recovery.prototype, 'probeDelay', 'get');
  const counted = vi.spyOn(LossBursts.prototype, 'acknowledged');
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: 256, timeout: 18 });
  const mr = hand.side.register(new ArrayBuffer(1 << 16));
  let psn = FIRST;
  const answer = (at: number, syndrome = 0x1f) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: at, aeth: { syndrome } });
  const post = () =>
    hand.side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 600 }], remote: { addr: 0n, rkey: 0 } });
  /** A WRITE of three packets whose answer takes so long, µs. */
  const exchange = (roundTrip = 20) => {
    post();
    expect(hand.out()).toHaveLength(3);
    hand.now += roundTrip;
    psn += 3;
    answer(psn - 1);
  };
  const entered = () => {
    const calls = [...entries, probeDelay].reduce((sum, { mock }) => sum + mock.calls.length, 0);
    for (const entry of [...entries, probeDelay]) entry.mockClear();
    return calls > 0;
  };
  return { hand, post, exchange, answer, entered, counted, next: () => psn };
}

test('a connection that has lost nothing does not enter', () => {
  const { hand, exchange, entered, counted } = setUp();
  for (let i = 0; i < 100; i++) exchange();
  expect(entered()).toBe(false);
  expect(counted).not.toHaveBeenCalled();
  expect(hand.side.poll()).toHaveLength(100);
});

test('one whose peer was slow has been there for a probe, and then does not enter any more', () => {
  const { hand, post, exchange, answer, entered, next } = setUp();
  for (let i = 0; i < 20; i++) exchange();
  post();
  hand.out();
  expect(hand.run(51)).toHaveLength(1);
  hand.now += 100;
  answer(next() + 2);
  answer(next() + 2);
  expect(entered()).toBe(true);
  hand.side.poll();
  post();
  hand.out();
  hand.now += 20;
  answer(next() + 5);
  entered();
  for (let i = 0; i < 3; i++) {
    post();
    hand.out();
    hand.now += 20;
    answer(next() + 8 + 3 * i);
  }
  expect(hand.side.poll()).toHaveLength(4);
  expect(entered()).toBe(false);
});

test('one that lost a packet enters from then on, and knows how many were acknowledged before', () => {
  const { hand, post, exchange, answer, entered, counted, next } = setUp();
  for (let i = 0; i < 20; i++) exchange();
  post();
  hand.out();
  hand.now += 20;
  answer(next(), NakCode.PSN_SEQUENCE_ERROR);
  expect(counted.mock.calls).toEqual([[60]]);
  expect(hand.out()).toHaveLength(3);
  hand.now += 20;
  answer(next() + 2);
  expect(entered()).toBe(true);
  post();
  hand.out();
  hand.now += 20;
  answer(next() + 5);
  expect(entered()).toBe(true);
});

// Once it entered for as long as it lived, and READ responses never came by the quick way again.
test('one that has lost nothing for 65,536 packets does not enter any more', () => {
  const { hand, post, answer, entered, next } = setUp();
  const mr = hand.side.register(new ArrayBuffer(1 << 12));
  post();
  hand.out();
  hand.now += 20;
  answer(next(), NakCode.PSN_SEQUENCE_ERROR);
  expect(hand.out()).toHaveLength(3);
  hand.now += 20;
  let psn = next() + 2;
  answer(psn);
  const exchange = () => {
    const list = [{ mr, length: 10 * 256 }];
    hand.side.post({ opcode: 'RDMA_WRITE', sge: list, remote: { addr: 0n, rkey: 0 }, flags: 0 });
    expect(hand.drain()).toBe(10);
    hand.now += 20;
    psn += 10;
    answer(psn);
  };
  for (let i = 0; i < 6550; i++) exchange();
  expect(entered()).toBe(true);
  for (let i = 0; i < 5; i++) exchange();
  entered();
  for (let i = 0; i < 5; i++) exchange();
  expect(entered()).toBe(false);
});
