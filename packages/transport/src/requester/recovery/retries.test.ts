/** Events that count against `retry_cnt` and `rnr_retry`, and those that refill them (IBTA vol 1 §9.9.2.4.1). */
import { NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../../../testing/by-hand.ts';
import { SendFlags } from '../../index.ts';

const FIRST = 0x500;
const RNR = 0x21; // 10 µs.
const remote = { addr: 0n, rkey: 0 };

function setUp(attr = {}) {
  const hand = new ByHand(
    { sqPsn: FIRST, pathMtu: 256, timeout: 8, ...attr },
    { recovery: { probes: false } },
  );
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(1 << 16));
  const post = (opcode: 'SEND' | 'RDMA_WRITE' | 'RDMA_READ', flags: number = SendFlags.SIGNALED) =>
    side.post({ opcode, sge: [{ mr, length: 8 }], remote, flags });
  const answer = (psn: number, syndrome = 0x1f) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome } });
  const psns = () => hand.out().map((packet) => inShort(packet)[1] - FIRST);
  const statuses = () => side.poll().map(({ status }) => status);
  const counters = () => side.adapter.counters();
  return { hand, side, post, answer, psns, statuses, counters };
}

describe('rnr_retry', () => {
  const rnr = (set: ReturnType<typeof setUp>, psn: number) => {
    set.answer(psn, RNR);
    return set.hand.run(11).map((packet) => inShort(packet)[1]);
  };

  test('is filled again by progress', () => {
    const set = setUp({ rnrRetry: 1 });
    for (let i = 0; i < 4; i++) {
      set.post('SEND');
      expect(set.psns()).toEqual([i]);
      expect(rnr(set, FIRST + i)).toEqual([FIRST + i]);
      set.answer(FIRST + i);
    }
    expect(set.statuses()).toEqual(['SUCCESS', 'SUCCESS', 'SUCCESS', 'SUCCESS']);
  });

  test.each([0, 1, 3])('%i: as many waits, and then the request fails', (rnrRetry) => {
    const set = setUp({ rnrRetry });
    set.post('SEND');
    set.psns();
    for (let i = 0; i < rnrRetry; i++) expect(rnr(set, FIRST)).toEqual([FIRST]);
    set.answer(FIRST, RNR);
    expect(set.statuses()).toEqual(['RNR_RETRY_EXC_ERR']);
    expect(set.counters()).toMatchObject({
      receivedRnrErr: rnrRetry + 1,
      rnrRetryExceededErr: 1,
      retries: 0,
    });
  });

  test('7: without end', () => {
    const set = setUp({ rnrRetry: 7, retryCnt: 0 });
    set.post('SEND');
    set.psns();
    for (let i = 0; i < 20; i++) expect(rnr(set, FIRST)).toEqual([FIRST]);
    expect(set.statuses()).toEqual([]);
  });

  test('a copy of the RNR NAK during its wait costs nothing, and does not lengthen it', () => {
    const set = setUp({ rnrRetry: 1 });
    set.post('SEND');
    set.psns();
    set.answer(FIRST, RNR);
    set.hand.run(6);
    set.answer(FIRST, RNR);
    expect(set.hand.run(5)).toHaveLength(1);
    expect(set.statuses()).toEqual([]);
  });
});

describe('retry_cnt', () => {
  const nak = (set: ReturnType<typeof setUp>, psn: number) => {
    // Later than any repetition of one that has been answered.
    set.hand.now += 100_000;
    set.answer(psn, NakCode.PSN_SEQUENCE_ERROR);
    return set.psns();
  };

  test('is filled again by progress', () => {
    const set = setUp({ retryCnt: 1 });
    for (let i = 0; i < 4; i++) {
      set.post('RDMA_WRITE');
      set.psns();
      expect(nak(set, FIRST + i)).toEqual([i]);
      set.answer(FIRST + i);
    }
    expect(set.statuses()).toEqual(['SUCCESS', 'SUCCESS', 'SUCCESS', 'SUCCESS']);
  });

  test.each([0, 2, 7])('%i: as many sequence NAKs, and then the request fails', (retryCnt) => {
    const set = setUp({ retryCnt });
    set.post('RDMA_WRITE');
    set.psns();
    for (let i = 0; i < retryCnt; i++) expect(nak(set, FIRST)).toEqual([0]);
    expect(nak(set, FIRST)).toEqual([]);
    expect(set.statuses()).toEqual(['RETRY_EXC_ERR']);
    const { retries, retryExceededErr, receivedSeqErr, sequenceNakRetries } = set.counters();
    expect({ retries, retryExceededErr }).toEqual({ retries: retryCnt, retryExceededErr: 1 });
    expect({ receivedSeqErr, sequenceNakRetries }).toEqual({
      receivedSeqErr: retryCnt + 1,
      sequenceNakRetries: retryCnt,
    });
  });

  test.each([0, 2, 7])('%i: as many timeouts, and then the request fails', (retryCnt) => {
    const set = setUp({ retryCnt });
    set.post('RDMA_WRITE');
    // The timer runs 2 · 4.096 µs · 2^8 from when the link took the packet.
    const sent = set.hand.run(retryCnt * 2098 + 2000).map((packet) => inShort(packet)[1]);
    expect(sent).toEqual(Array.from({ length: retryCnt + 1 }, () => FIRST));
    expect(set.statuses()).toEqual([]);
    set.hand.run(300);
    expect(set.statuses()).toEqual(['RETRY_EXC_ERR']);
    expect(set.counters()).toMatchObject({ timeouts: retryCnt + 1, retries: retryCnt, retryExceededErr: 1 });
  });

  test('an implied NAK is taken once at a place, and again after a timeout', () => {
    const set = setUp({ retryCnt: 7 });
    set.post('RDMA_READ');
    set.post('RDMA_WRITE');
    expect(set.psns()).toEqual([0, 1]);
    set.answer(FIRST + 1);
    expect(set.psns()).toEqual([0, 1]);
    set.answer(FIRST + 1);
    expect(set.psns()).toEqual([]);
    expect(set.hand.run(2200)).toHaveLength(2);
    set.answer(FIRST + 1);
    expect(set.psns()).toEqual([0, 1]);
    expect(set.counters()).toMatchObject({ impliedNakSeqErr: 2, timeouts: 1, retries: 3 });
  });
});

test('a READ into a region of another protection domain fails before anything leaves', () => {
  const { hand, side, statuses } = setUp();
  const pd = side.adapter.allocPd();
  const buffer = new ArrayBuffer(64);
  const mr = side.adapter.registerMr({ pd, backing: 99, buffer, offset: 0, length: 64, access: 1 });
  side.post({ opcode: 'RDMA_READ', sge: [{ mr, length: 8 }], remote });
  expect(hand.out()).toEqual([]);
  expect(statuses()).toEqual(['LOC_PROT_ERR']);
});

describe.each([0, 14])(
  'a peer that NAKs the same packet again whenever it is retransmitted, with timeout %i',
  (timeout) => {
    test.each([0, 1, 3, 7])('is sent it 1 + %i times, then RETRY_EXC_ERR', (retryCnt) => {
      const hand = new ByHand({ timeout, retryCnt }, { recovery: { probes: false } });
      const { side } = hand;
      const nak: PacketInit = { opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x500, aeth: { syndrome: 0x60 } };
      for (let i = 0; i < 3; i++) side.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [] });
      let sent = 0;
      // The NAK comes at once: sooner than a round trip is known to take.
      for (let i = 0; i < 1000; i++) {
        const packets = hand.run(timeout === 0 ? 100 : 5000);
        if (packets.length === 0) continue;
        // The packets behind it are there, or not, where it is tried whether the peer keeps them.
        expect(inShort(packets[0])[1]).toBe(0x500);
        sent++;
        hand.put(nak);
      }
      expect(sent).toBe(1 + retryCnt);
      expect(side.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
        [0, 'RETRY_EXC_ERR'],
        [1, 'WR_FLUSH_ERR'],
        [2, 'WR_FLUSH_ERR'],
      ]);
    });
  },
);

describe('with timeout 0, on a path that reorders', () => {
  const setUpSilent = () => {
    const hand = new ByHand({ timeout: 0 });
    const { side } = hand;
    const answer = (psn: number, syndrome: number) =>
      hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome } });
    const post = (count: number) => {
      for (let i = 0; i < count; i++) side.post({ wrId: i, opcode: 'RDMA_WRITE', sge: [] });
    };
    post(3);
    hand.out();
    const psns = (time: number) => hand.run(time).map((packet) => inShort(packet)[1] - 0x500);
    const statuses = () => side.poll().map(({ status }) => status);
    return { hand, side, answer, post, psns, statuses };
  };

  // Once: the connection stood still. The peer has discarded the packets behind those, and reports it once only.
  test('a NAK that was ignored is remembered, though its packet is acknowledged', () => {
    const { hand, answer, psns, statuses, side } = setUpSilent();
    hand.now += 20;
    answer(0x500, 0x60);
    expect(hand.out()).toHaveLength(3);
    hand.now += 20;
    answer(0x500, 0x60);
    answer(0x501, 0x1f);
    expect(psns(990)).toEqual([]);
    expect(psns(100)).toEqual([2]);
    answer(0x502, 0x1f);
    expect(psns(1_000_000)).toEqual([]);
    expect(statuses()).toEqual(Array(3).fill('SUCCESS'));
    expect(side.adapter.counters()).toMatchObject({ timeouts: 0, retries: 1 });
  });

  test('and so is one that is overtaken by an ACK', () => {
    const { hand, answer, psns, statuses, side } = setUpSilent();
    hand.now += 20;
    answer(0x501, 0x1f);
    answer(0x501, 0x60);
    expect(psns(60)).toEqual([2]);
    answer(0x502, 0x1f);
    expect(statuses()).toEqual(Array(3).fill('SUCCESS'));
    expect(side.adapter.counters()).toMatchObject({ timeouts: 0, retries: 0 });
  });

  test('it is asked after ever less often, without end, and takes no retry', () => {
    const { hand, answer, post, statuses, side } = setUpSilent();
    hand.now += 20;
    answer(0x502, 0x1f);
    post(1);
    hand.out();
    answer(0x503, 0x60);
    expect(hand.out()).toHaveLength(1);
    const at: number[] = [];
    while (at.length < 30) {
      hand.now = side.adapter.nextDeadline();
      side.adapter.advance();
      for (const _ of hand.out()) at.push(hand.now);
    }
    // Twice 1.25 times the round trip of 20 µs, doubled up to 2^16 times.
    const gaps = at.slice(1).map((time, i) => time - at[i]);
    expect(gaps).toEqual(gaps.map((_, i) => 50 * 2 ** Math.min(i + 1, 16)));
    expect(statuses()).toEqual(Array(3).fill('SUCCESS'));
    expect(side.adapter.counters()).toMatchObject({ timeouts: 0, retries: 1 });
    answer(0x503, 0x1f);
    expect(statuses()).toEqual(['SUCCESS']);
    expect(hand.run(100_000_000)).toEqual([]);
  });

  test('a peer that is silent, and has reported nothing, is waited for without end', () => {
    const { psns, side } = setUpSilent();
    expect(psns(100_000_000)).toEqual([]);
    expect(side.adapter.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });
});
