/**
 * Scenarios of a reliable connection in virtual time. Each runs with the engine and with the model as the
 * requester, against the model: where both pass, they agree on the rule.
 */
import {
  aeth,
  bth,
  type EndpointKind,
  expectPacket,
  type ModelEndpoint,
  payload,
  reth,
  type SimPacket,
  type SimSend,
} from '@node-roce/sim';
import { RETRY_TIMER_FACTOR } from '@node-roce/transport';
import {
  ackTimeoutMicroseconds,
  bthOpcode,
  bthPsn,
  creditsOf,
  psnAdd,
  psnDiff,
  rnrTimerMicroseconds,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Scenario, statuses } from './scenario.ts';

const send = (wrId: number, length = 8): SimSend => ({ wrId, opcode: 'SEND', offset: 0, length });
const write = (wrId: number, length = 8): SimSend => ({
  ...send(wrId, length),
  opcode: 'RDMA_WRITE',
  remoteOffset: 4096,
});
const read = (wrId: number, length: number): SimSend => ({
  wrId,
  opcode: 'RDMA_READ',
  offset: 65_536,
  length,
  remoteOffset: 0,
});
const add = (wrId: number): SimSend => ({
  wrId,
  opcode: 'ATOMIC_FETCH_AND_ADD',
  offset: 65_536 + 8 * wrId,
  length: 8,
  remoteOffset: 8192,
  compareAdd: 1n,
});

/** Loses the first packet with this opcode and PSN, once. */
function loseOnce(opcode: number, psn: number): (packet: SimPacket) => boolean {
  let lost = false;
  return ({ bytes }) => {
    if (lost || bthOpcode(bytes, 0) !== opcode || bthPsn(bytes, 0) !== psn) return false;
    lost = true;
    return true;
  };
}

const READ_RESPONSE_MIDDLE = 0x0e;
const ACKNOWLEDGE = 0x11;
const ATOMIC_ACKNOWLEDGE = 0x12;
const PSN = 0xffffe0;

describe.each(['engine', 'model'] as EndpointKind[])('requester: %s', (a) => {
  const factor = a === 'engine' ? RETRY_TIMER_FACTOR : 1;

  test('rnrThenReceivePosted', () => {
    const pair = new Scenario({ a, minRnrTimer: 12 });
    pair.a.postSend(send(1, 3000));
    expect(pair.untilSends(1, 2000)).toBe(false);
    pair.b.postReceive({ wrId: 9, offset: 0, length: 4000 });
    expect(pair.untilSends(1)).toBe(true);
    expect(statuses(pair.aSends)).toEqual(['SUCCESS']);
    expect(pair.b.arena.subarray(0, 3000)).toEqual(pair.a.arena.subarray(0, 3000));
    const naks = pair.seen('arrived').filter(({ from }) => from === 'b');
    expectPacket(naks[0].packet, bth({ opcode: 'RC_ACKNOWLEDGE', psn: PSN }), aeth({ rnr: 12, msn: 0 }));
    // Nothing leaves before the time that the NAK asked for.
    const again = pair.requestsOfA().filter(({ opcode }) => opcode === 'RC_SEND_FIRST');
    expect(again.length).toBeGreaterThan(1);
    for (let i = 1; i < again.length; i++) {
      const before = naks.filter(
        ({ time, packet }) => time < again[i].time && packet.aeth!.syndrome >> 5 === 1,
      );
      expect(again[i].time - before.at(-1)!.time).toBeGreaterThanOrEqual(rnrTimerMicroseconds(12));
    }
  });

  test('sequenceNakWhileWaitingOutAnRnrNak', () => {
    // rxe sends a NAK 0x60 after each RNR NAK (docs/quirks.md): no retry may be charged for it.
    const pair = new Scenario({ a, minRnrTimer: 12, retryCnt: 2 });
    const { responder } = (pair.b as ModelEndpoint).qp;
    pair.a.postSend(send(1, 3000));
    const done = pair.run(() => {
      const last = pair.seen().at(-1);
      const wasRnr = last?.from === 'b' && last.packet.aeth!.syndrome >> 5 === 1;
      if (wasRnr) responder.nakOutstanding = false;
      if (pair.network.now > 20_000 && responder.receives.waiting.length === 0) {
        pair.b.postReceive({ wrId: 9, offset: 0, length: 4000 });
      }
      pair.collect();
      return pair.aSends.length > 0;
    }, 1e6);
    expect(done).toBe(true);
    expect(statuses(pair.aSends)).toEqual(['SUCCESS']);
  });

  test('readResumesAfterLostResponse', () => {
    const lost = psnAdd(PSN, 2);
    const pair = new Scenario({ a, bToA: { drop: loseOnce(READ_RESPONSE_MIDDLE, lost) } });
    pair.b.arena.forEach((_, i, arena) => {
      arena[i] = i * 13;
    });
    pair.a.postSend(read(1, 5000));
    expect(pair.untilSends(1)).toBe(true);
    expect(statuses(pair.aSends)).toEqual(['SUCCESS']);
    expect(pair.a.arena.subarray(65_536, 70_536)).toEqual(pair.b.arena.subarray(0, 5000));
    const [first, again] = pair.requestsOfA();
    const { base } = pair.b.info;
    expectPacket(
      first.packet,
      bth({ opcode: 'RC_RDMA_READ_REQUEST', psn: PSN }),
      reth({ va: base, length: 5000 }),
    );
    expectPacket(
      again.packet,
      bth({ psn: lost }),
      // The engine keeps what came early, and asks for what is missing alone.
      reth({ va: base + 2048n, length: a === 'engine' ? 1024 : 5000 - 2048 }),
      payload(0),
    );
    // A response past the missing one is an implied NAK: no time-out was needed.
    expect(pair.network.now).toBeLessThan(100);
  });

  test('lostLastReadResponseIsAskedForAgain', () => {
    const pair = new Scenario({ a, bToA: { drop: (_, index) => index === 4 } });
    pair.a.postSend(read(1, 5000));
    expect(pair.untilSends(1)).toBe(true);
    expectPacket(pair.requestsOfA().at(-1)!.packet, bth({ psn: psnAdd(PSN, 4) }), reth({ length: 904 }));
  });

  test('lostAtomicResponseIsRepeatedNotRedone', () => {
    const pair = new Scenario({ a, bToA: { drop: loseOnce(ATOMIC_ACKNOWLEDGE, PSN) } });
    pair.a.postSend(add(1));
    pair.a.postSend(add(2));
    expect(pair.untilSends(2)).toBe(true);
    expect(statuses(pair.aSends)).toEqual(['SUCCESS', 'SUCCESS']);
    expect(new DataView(pair.b.arena.buffer, 8192).getBigUint64(0, true)).toBe(2n);
    const answers = new DataView(pair.a.arena.buffer);
    expect(answers.getBigUint64(65_544, true)).toBe(0n);
    expect(answers.getBigUint64(65_552, true)).toBe(1n);
  });

  test('lostAckOfASend', () => {
    const pair = new Scenario({ a, bToA: { drop: loseOnce(ACKNOWLEDGE, PSN) } });
    for (let i = 0; i < 2; i++) pair.b.postReceive({ wrId: i, offset: i * 100, length: 100 });
    pair.a.postSend(send(1));
    expect(pair.untilSends(1)).toBe(true);
    expect(statuses(pair.aSends)).toEqual(['SUCCESS']);
    expect(pair.bReceives.length).toBe(1);
  });

  test('lostRequestIsSentAgainAfterOneRoundTrip', () => {
    const pair = new Scenario({ a, aToB: { drop: (_, index) => index === 1 } });
    pair.a.postSend(write(1, 5000));
    expect(pair.untilSends(1)).toBe(true);
    const nak = pair.seen().find(({ from, packet }) => from === 'b' && packet.aeth?.syndrome === 0x60);
    expectPacket(nak?.packet, bth({ psn: psnAdd(PSN, 1) }), aeth({ nak: 0x60, msn: 0 }));
    expect(pair.network.now).toBeLessThan(100);
  });

  test('fencedRequestWaitsForReads', () => {
    const pair = new Scenario({ a });
    pair.a.postSend(read(1, 3000));
    pair.a.postSend({ ...write(2), fence: true });
    expect(pair.untilSends(2)).toBe(true);
    const order = pair.network.trace.map(({ bytes, event }) => `${event} ${bthOpcode(bytes, 0)}`);
    expect(order.indexOf('sent 10')).toBeGreaterThan(order.indexOf('arrived 15'));
  });

  test.each([1, 2, 4])('noMoreThan%dReadsOut', (maxRdAtomic) => {
    const pair = new Scenario({ a, maxRdAtomic, maxDestRdAtomic: 16 });
    for (let i = 0; i < 10; i++) pair.a.postSend(i % 2 ? add(i) : read(i, 1500));
    expect(pair.untilSends(10)).toBe(true);
    let out = 0;
    let most = 0;
    for (const { event, bytes } of pair.network.trace) {
      const opcode = bthOpcode(bytes, 0);
      if (event === 'sent' && (opcode === 0x0c || opcode === 0x14)) most = Math.max(most, ++out);
      if (event === 'arrived' && [0x0f, 0x10, 0x12].includes(opcode)) out--;
    }
    expect(most).toBe(maxRdAtomic);
  });

  describe('retryCountersPerRule', () => {
    // First send, then (retry_cnt + 1) · k · T.
    const cases = [0, 1, 2, 3, 4, 5, 6, 7].map((retryCnt) => [retryCnt, (retryCnt * 3) % 20 || 20]);
    const timeouts = Array.from({ length: 20 }, (_, i) => [2, i + 1]);
    test.each([...cases, ...timeouts])('peer gone: retry_cnt %d, timeout %d', (retryCnt, timeout) => {
      const pair = new Scenario({ a, retryCnt, timeout, aToB: { drop: () => true } });
      pair.a.postSend(send(1));
      pair.a.postSend({ ...send(2), signaled: false });
      expect(pair.untilSends(2, 1e9)).toBe(true);
      expect(pair.aSends.map(({ wrId, status }) => [wrId, status])).toEqual([
        [1, 'RETRY_EXC_ERR'],
        [2, 'WR_FLUSH_ERR'],
      ]);
      const due = (retryCnt + 1) * factor * ackTimeoutMicroseconds(timeout);
      expect(pair.network.now).toBeGreaterThan(due - 1);
      expect(pair.network.now).toBeLessThan(due + 2);
      expect(pair.a.state).toBe('ERR');
    });

    test('peer gone: timeout 0 waits for ever', () => {
      const pair = new Scenario({ a, timeout: 0, aToB: { drop: () => true } });
      pair.a.postSend(send(1));
      expect(pair.untilSends(1, 1e9)).toBe(false);
      expect(pair.a.state).toBe('RTS');
    });

    test.each([0, 1, 2, 3, 4, 5, 6])('RNR for ever: rnr_retry %d', (rnrRetry) => {
      const pair = new Scenario({ a, rnrRetry, retryCnt: 0, minRnrTimer: 14 });
      pair.a.postSend(send(1));
      expect(pair.untilSends(1, 1e9)).toBe(true);
      expect(statuses(pair.aSends)).toEqual(['RNR_RETRY_EXC_ERR']);
      expect(pair.requestsOfA().length).toBe(rnrRetry + 1);
      const waits = rnrRetry * rnrTimerMicroseconds(14);
      expect(pair.network.now).toBeGreaterThanOrEqual(waits);
      expect(pair.network.now).toBeLessThan(waits * 1.1 + (rnrRetry + 1) * 25);
    });

    test('RNR for ever: rnr_retry 7 goes on', () => {
      const pair = new Scenario({ a, rnrRetry: 7, retryCnt: 0, minRnrTimer: 14 });
      pair.a.postSend(send(1));
      expect(pair.untilSends(1, 200_000)).toBe(false);
      expect(pair.requestsOfA().length).toBeGreaterThan(50);
      expect(pair.a.state).toBe('RTS');
    });

    test('progress fills the counters again', () => {
      // Each message needs as many tries as there are.
      let tries = 0;
      const pair = new Scenario({ a, retryCnt: 2, timeout: 4, aToB: { drop: () => tries++ % 3 !== 2 } });
      for (let i = 0; i < 5; i++) {
        pair.a.postSend(write(i));
        expect(pair.untilSends(i + 1)).toBe(true);
        tries = 0;
      }
      expect(statuses(pair.aSends)).toEqual(Array(5).fill('SUCCESS'));
    });

    test('aStalledThreadBurnsNoRetriesWhileTheAckWaits', () => {
      const pair = new Scenario({ a, retryCnt: 1, timeout: 14 });
      pair.a.postSend(write(1));
      pair.run(() => pair.seen().length > 0, 1);
      pair.network.stall(pair.a, 500_000);
      expect(pair.untilSends(1, 1e6)).toBe(true);
      expect(statuses(pair.aSends)).toEqual(['SUCCESS']);
      expect(pair.requestsOfA().length).toBe(1);
      expect(pair.a.state).toBe('RTS');
    });
  });

  describe('creditsLimitSends', () => {
    test.each([0, 1, 4])('a peer that grants %d', (granted) => {
      const pair = new Scenario({ a, credits: true, minRnrTimer: 1 });
      const { responder } = (pair.b as ModelEndpoint).qp;
      let receives = 0;
      const top = () => {
        const target = granted === 0 && receives > 0 ? 1 : granted;
        while (responder.receives.waiting.length < target) {
          pair.b.postReceive({ wrId: receives++, offset: 0, length: 2000 });
        }
      };
      top();
      for (let i = 0; i < 20; i++) pair.a.postSend(send(i, 1500));
      const done = pair.run(() => {
        if (granted === 0 && pair.network.now > 500 && receives < 20) {
          if (responder.receives.waiting.length === 0)
            pair.b.postReceive({ wrId: receives++, offset: 0, length: 2000 });
        } else {
          top();
        }
        pair.collect();
        return pair.aSends.length >= 20;
      }, 1e6);
      expect(done).toBe(true);
      expect(statuses(pair.aSends)).toEqual(Array(20).fill('SUCCESS'));
      expectWithinCredits(pair);
    });

    test('zero credits stall neither WRITE nor READ', () => {
      const pair = new Scenario({ a, credits: true });
      for (let i = 0; i < 10; i++) pair.a.postSend(i % 2 ? write(i, 2000) : read(i, 2000));
      expect(pair.untilSends(10)).toBe(true);
      expect(statuses(pair.aSends)).toEqual(Array(10).fill('SUCCESS'));
      expect(pair.requestsOfA().length).toBe(5 + 10);
    });
  });

  test.each([
    ['bad key', { rkey: 0xdead }, 'REM_ACCESS_ERR', 0x62],
    ['out of range', { remoteOffset: (1 << 20) - 4 }, 'REM_ACCESS_ERR', 0x62],
  ])('remoteAccess: %s', (_, wrong, status, syndrome) => {
    const pair = new Scenario({ a });
    pair.b.postReceive({ wrId: 7, offset: 0, length: 10 });
    pair.a.postSend(write(1));
    pair.a.postSend({ ...write(2), ...wrong });
    pair.a.postSend({ ...write(3), signaled: false });
    expect(pair.untilSends(3)).toBe(true);
    expect(statuses(pair.aSends)).toEqual(['SUCCESS', status, 'WR_FLUSH_ERR']);
    expectPacket(
      pair
        .seen()
        .filter(({ from }) => from === 'b')
        .at(-1)?.packet,
      bth({ psn: psnAdd(PSN, 1) }),
      aeth({ nak: syndrome, msn: 1 }),
    );
    expect([pair.a.state, pair.b.state]).toEqual(['ERR', 'ERR']);
    expect(statuses(pair.bReceives)).toEqual(['WR_FLUSH_ERR']);
  });

  test('receiveTooSmall', () => {
    const pair = new Scenario({ a });
    pair.b.postReceive({ wrId: 7, offset: 0, length: 2000 });
    pair.b.postReceive({ wrId: 8, offset: 0, length: 2000 });
    pair.a.postSend(send(1, 2001));
    expect(pair.untilSends(1)).toBe(true);
    expect(statuses(pair.aSends)).toEqual(['REM_INV_REQ_ERR']);
    expect(statuses(pair.bReceives)).toEqual(['LOC_LEN_ERR', 'WR_FLUSH_ERR']);
  });
});

/** At no time has A sent a SEND beyond the credits that it had received, and one more. */
function expectWithinCredits(pair: Scenario): void {
  let limit = 0;
  let messages = 0;
  let highest = psnAdd(PSN, -1);
  let unlimited = false;
  const packets = [...pair.network.trace];
  for (const { event, bytes, source } of packets) {
    const opcode = bthOpcode(bytes, 0);
    const psn = bthPsn(bytes, 0);
    const fromA = source[15] === 1;
    if (event === 'arrived' && !fromA && opcode === ACKNOWLEDGE && bytes[12] >> 5 === 0) {
      const msn = (bytes[13] << 16) | (bytes[14] << 8) | bytes[15];
      if (bytes[12] === 31) unlimited = true;
      else limit = Math.max(limit, msn + creditsOf(bytes[12]));
    }
    if (event === 'sent' && fromA && psnDiff(psn, highest) > 0) {
      highest = psn;
      const isFirst = opcode === 0 || opcode === 4;
      if (isFirst) expect(++messages).toBeLessThanOrEqual(limit + 1);
    }
  }
  expect(unlimited).toBe(false);
  expect(messages).toBe(20);
}
