/**
 * The tail loss probe (RFC 8985 §7, fitted to RoCE): when an answer is overdue, one packet is sent once more. Overdue is two smoothed round
 * trips and the largest ACK delay, 50 µs at least. None before the round trip is known, and one a flight on a connection that lost nothing.
 */
import { BTH_BYTES, bthPsn, createRandom, NakCode, Opcode, rethLength } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort } from '../../../testing/by-hand.ts';

const FIRST = 0x500;
/** 2 · 4.096 µs · 2^timeout. */
const retryDelay = (timeout: number) => 8.192 * 2 ** timeout;

function setUp(attr = {}, options: ConstructorParameters<typeof ByHand>[1] = {}) {
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: 256, timeout: 18, ...attr }, options);
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(1 << 16));
  let psn = FIRST;
  const ack = (at: number) => hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: at, aeth: { syndrome: 0x1f } });
  const post = () =>
    side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote: { addr: 0n, rkey: 0 } });
  /** A WRITE whose answer takes so long, µs. */
  const exchange = (roundTrip: number) => {
    post();
    expect(hand.out().map(inShort)).toEqual([['RDMA_WRITE_ONLY', psn]]);
    hand.now += roundTrip;
    ack(psn++);
  };
  /** When packets are retransmitted for a WRITE that is not answered, µs after it. */
  const sentAgain = (count: number) => {
    post();
    hand.out();
    const began = hand.now;
    const at: number[] = [];
    while (at.length < count && side.adapter.nextDeadline() < Number.POSITIVE_INFINITY) {
      hand.now = Math.max(hand.now, side.adapter.nextDeadline());
      side.adapter.advance();
      for (const packet of hand.out()) {
        expect(inShort(packet)).toEqual(['RDMA_WRITE_ONLY', psn]);
        at.push(hand.now - began);
      }
    }
    return at;
  };
  return { hand, side, mr, exchange, sentAgain, post, ack, next: () => psn++ };
}

describe('is sent', () => {
  test('after 50 µs where the round trip is short', () => {
    const { exchange, sentAgain } = setUp();
    for (let i = 0; i < 20; i++) exchange(20);
    expect(sentAgain(1)[0]).toBe(50);
  });

  test('after two round trips', () => {
    const { exchange, sentAgain } = setUp();
    exchange(30_000);
    expect(sentAgain(1)[0]).toBe(60_000);
  });

  test('and the largest ACK delay: what a sample is beyond the mean of those before', () => {
    const { exchange, sentAgain } = setUp();
    exchange(16_000);
    exchange(24_000);
    // Mean 16 + (24 − 16) / 8 = 17 ms, delay 24 − 16 = 8 ms.
    expect(sentAgain(1)[0]).toBe(2 * 17_000 + 8_000);
  });

  test('never before the first sample: the timer sends', () => {
    const { sentAgain, side } = setUp();
    expect(sentAgain(1)[0]).toBe(retryDelay(18));
    expect(side.adapter.counters()).toMatchObject({ probes: 0, timeouts: 1 });
  });

  test('by the round trip of READs and of atomics', () => {
    for (const opcode of ['RDMA_READ', 'ATOMIC_FETCH_AND_ADD'] as const) {
      const { hand, side, mr, sentAgain, next } = setUp();
      const remote = { addr: 0n, rkey: 0 };
      side.post({ opcode, compareAdd: 1n, sge: [{ mr, length: 8 }], remote });
      hand.out();
      hand.now += 400;
      const answer =
        opcode === 'RDMA_READ' ? Opcode.RC_RDMA_READ_RESPONSE_ONLY : Opcode.RC_ATOMIC_ACKNOWLEDGE;
      hand.put({ opcode: answer, psn: next(), aeth: { syndrome: 0x1f }, payload: new Uint8Array(8) });
      expect(side.poll().map(({ status }) => status)).toEqual(['SUCCESS']);
      expect(sentAgain(1)[0]).toBe(800);
    }
  });

  test('never where nothing is in flight', () => {
    const { hand, exchange } = setUp();
    exchange(20);
    expect(hand.run(10_000_000)).toEqual([]);
  });

  test('by the time of a packet that was probed for: on a connection that lost nothing, the peer was slow', () => {
    const { hand, exchange, sentAgain, post, ack, next } = setUp();
    for (let i = 0; i < 20; i++) exchange(20);
    post();
    hand.out();
    const psn = next();
    expect(hand.run(100)).toHaveLength(1);
    ack(psn);
    // Mean and delay.
    expect(sentAgain(1)[0]).toBe(2 * (20 + 80 / 8) + 80);
  });

  test('not by the time of one that was retransmitted, where losses were seen (Karn)', () => {
    const { hand, exchange, sentAgain, post, ack, next } = setUp();
    exchange(20);
    post();
    hand.out();
    hand.now += 20;
    const lost = next();
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: lost, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
    hand.out();
    hand.now += 20;
    ack(lost);
    for (let i = 0; i < 200; i++) exchange(20);
    post();
    hand.out();
    expect(hand.run(100)).toHaveLength(1);
    ack(next());
    expect(sentAgain(1)[0]).toBe(50);
  });

  test('not where the queue pair has none, nor where the device has none', () => {
    for (const where of ['device', 'queue pair']) {
      const recovery = { probes: false };
      const { hand, side, post } = setUp({}, where === 'device' ? { recovery } : {});
      if (where === 'queue pair') {
        side.createQp({}, { recovery });
        hand.connect({ sqPsn: FIRST, pathMtu: 256, timeout: 18 });
      }
      post();
      expect(hand.run(retryDelay(18) - 10)).toHaveLength(1);
      expect(hand.run(20)).toHaveLength(1);
      expect(side.adapter.counters()).toMatchObject({ probes: 0, timeouts: 1 });
    }
  });
});

const COUNTS = [0, 1, 2, 3, 4, 5, 6, 7];
const timeouts = (retryCnt: number, delay: number) =>
  Array.from({ length: retryCnt }, (_, i) => Math.round((i + 1) * delay));

describe('a silent peer', () => {
  test.each(COUNTS)('that never answered sees exactly 1 + retry_cnt sends: retry_cnt %i', (retryCnt) => {
    for (let timeout = 8; timeout <= 18; timeout++) {
      const { sentAgain, side } = setUp({ retryCnt, timeout });
      expect(sentAgain(20).map(Math.round)).toEqual(timeouts(retryCnt, retryDelay(timeout)));
      expect(side.poll().map(({ status }) => status)).toContain('RETRY_EXC_ERR');
    }
  });

  test.each(COUNTS)('sees exactly 1 + retry_cnt sends without probes: retry_cnt %i', (retryCnt) => {
    for (let timeout = 8; timeout <= 18; timeout++) {
      const { exchange, sentAgain, side } = setUp({ retryCnt, timeout }, { recovery: { probes: false } });
      exchange(20);
      expect(sentAgain(20).map(Math.round)).toEqual(timeouts(retryCnt, retryDelay(timeout)));
      expect(side.poll().map(({ status }) => status)).toContain('RETRY_EXC_ERR');
    }
  });

  test.each(COUNTS)('that lost nothing before sees one probe more: retry_cnt %i', (retryCnt) => {
    for (let timeout = 8; timeout <= 18; timeout++) {
      const { exchange, sentAgain, side } = setUp({ retryCnt, timeout });
      exchange(20);
      expect(sentAgain(20).map(Math.round)).toEqual([50, ...timeouts(retryCnt, retryDelay(timeout))]);
      expect(side.adapter.counters()).toMatchObject({ timeouts: retryCnt + 1, probes: 1 });
    }
  });

  test.each(COUNTS.slice(1))(
    'on a path that loses sees doubling ones, until the timer ends: retry_cnt %i',
    (retryCnt) => {
      for (let timeout = 8; timeout <= 18; timeout++) {
        const { hand, exchange, post, ack, next, sentAgain, side } = setUp({ retryCnt, timeout });
        for (let i = 0; i < 200; i++) exchange(20);
        post();
        hand.out();
        hand.now += 20;
        const psn = next();
        hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
        hand.out();
        hand.now += 20;
        ack(psn);
        for (let i = 0; i < 200; i++) exchange(20);
        const delay = retryDelay(timeout);
        const doubling: number[] = [];
        for (let k = 1; 50 * (2 ** k - 1) < delay; k++) doubling.push(50 * (2 ** k - 1));
        expect(sentAgain(100).map(Math.round)).toEqual([...doubling, ...timeouts(retryCnt, delay)]);
        expect(side.adapter.counters()).toMatchObject({ timeouts: retryCnt + 1, probes: doubling.length });
      }
    },
  );
});

// Once: the wait for the answer to a gap took the last one, and the probe that was due by the round trip came in addition.
test('a peer that only repeats its NAK, now and then, sees no more than the doubling ones', () => {
  const retryCnt = 7;
  for (let seed = 1; seed <= 40; seed++) {
    const { chance } = createRandom(seed);
    const { hand, side, exchange, post } = setUp({ retryCnt });
    const answer = (n: number, syndrome: number = NakCode.PSN_SEQUENCE_ERROR) =>
      hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST + n, aeth: { syndrome } });
    exchange(20);
    for (let i = 1; i < 31; i++) post();
    hand.out();
    hand.now += 20;
    // An ACK beyond what it went back to shows that the peer keeps.
    answer(3);
    answer(11, 0x1f);
    hand.out();
    hand.now += 20;
    answer(13);
    hand.out();
    for (let step = 0; step < 40; step++) {
      const next = side.adapter.nextDeadline();
      if (next === Number.POSITIVE_INFINITY) break;
      if (chance(0.3)) {
        hand.now = Math.min(hand.now + 30, next);
        answer(13);
      } else {
        hand.now = Math.max(hand.now, next);
        side.adapter.advance();
      }
      hand.out();
    }
    // Where losses are frequent, two of each length.
    expect(side.adapter.counters().probes).toBeLessThanOrEqual(2 * Math.log2(retryDelay(18) / 50));
  }
});

/** After so many losses of one packet in six, to a peer that is known to keep early packets. */
function known(losses: number, { retryCnt, timeout }: { retryCnt: number; timeout: number }) {
  const set = setUp({ timeout });
  const { hand, side, post, ack, next, exchange } = set;
  exchange(20);
  for (let i = 0; i < losses; i++) {
    for (let k = 0; k < 6; k++) post();
    hand.out();
    hand.now += 20;
    const lost = next();
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: lost, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
    // Beyond the retransmitted packets: it has kept the others.
    if (i > 0) {
      hand.out();
      hand.now += 20;
    }
    for (let k = 1; k < 6; k++) next();
    ack(lost + 5);
    expect(hand.out()).toEqual([]);
  }
  side.adapter.modifyQp(side.qp.qpn, { qpState: 'SQD' });
  side.adapter.modifyQp(side.qp.qpn, { qpState: 'SQD', retryCnt });
  side.adapter.modifyQp(side.qp.qpn, { qpState: 'RTS' });
  return set;
}

test.each(COUNTS)(
  'a silent peer that keeps, where losses are near, sees one burst more, of less than the window: retry_cnt %i',
  (retryCnt) => {
    for (let timeout = 8; timeout <= 18; timeout++) {
      const { hand, side, post, next } = known(20, { retryCnt, timeout });
      for (let i = 0; i < 10; i++) post();
      expect(hand.out()).toHaveLength(10);
      const before = side.adapter.counters().probes;
      const probes = () => side.adapter.counters().probes - before;
      const packets = hand.run(retryDelay(timeout) - 10);
      const first = probes();
      expect(first).toBeGreaterThanOrEqual(2);
      // Of each probe the oldest packet and the last one; all ten once, and the first of them twice.
      expect(packets.length).toBeGreaterThan(first);
      expect(packets.length).toBeLessThanOrEqual(2 * first + 11);
      expect(inShort(packets[0])).toEqual(['RDMA_WRITE_ONLY', next()]);
      // Each timeout sends all again at most, and nothing probes any more.
      const later = hand.run(retryDelay(timeout) * 8);
      expect(later.length).toBeLessThanOrEqual(10 * retryCnt);
      expect(probes()).toBe(first);
      expect(side.poll().map(({ status }) => status)).toContain('RETRY_EXC_ERR');
    }
  },
);

describe('the packet', () => {
  /** The packets that are sent for so many WRITEs that are not answered. */
  const probesOf = (count: number) => {
    const set = setUp();
    set.exchange(20);
    for (let i = 0; i < count; i++) set.post();
    expect(set.hand.out()).toHaveLength(count);
    return { ...set, probes: set.hand.run(110).map((packet) => inShort(packet)[1] - FIRST - 1) };
  };

  test.each([4, 20])('is the last of %i, once', (count) => {
    expect(probesOf(count).probes).toEqual([count - 1]);
  });

  test('where losses were seen is the oldest one, with the last one behind it', () => {
    const set = setUp();
    const { hand, exchange, post, ack, next } = set;
    exchange(20);
    post();
    hand.out();
    const lost = next();
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: lost, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
    hand.out();
    ack(lost);
    for (let i = 0; i < 200; i++) exchange(20);
    const first = next();
    for (let i = 0; i < 5; i++) post();
    hand.out();
    expect(hand.run(55).map((packet) => inShort(packet)[1] - first)).toEqual([0, 4]);
  });

  test('is the oldest request where that is a READ or atomic, for the missing range only', () => {
    const { hand, side, mr, exchange, next } = setUp();
    exchange(20);
    const first = next();
    const remote = { addr: 0x1000n, rkey: 0 };
    side.post({ opcode: 'RDMA_READ', sge: [{ mr, length: 1024 }], remote });
    hand.out();
    hand.now += 20;
    const aeth = { syndrome: 0x1f };
    const payload = new Uint8Array(256);
    hand.put({ opcode: Opcode.RC_RDMA_READ_RESPONSE_FIRST, psn: first, aeth, payload });
    expect(hand.run(60).map(inShort)).toEqual([['RDMA_READ_REQUEST', first + 1]]);
  });
});

describe('of READs one response', () => {
  const aeth = { syndrome: 0x1f };
  const payload = new Uint8Array(256);
  /** READs of four responses each are out. */
  const reading = (count: number) => {
    const set = setUp();
    const { hand, side, mr, exchange, next } = set;
    for (let i = 0; i < 10; i++) exchange(20);
    const first = next();
    const remote = { addr: 0x1000n, rkey: 0 };
    for (let i = 0; i < count; i++) side.post({ opcode: 'RDMA_READ', sge: [{ mr, length: 1024 }], remote });
    expect(hand.out()).toHaveLength(count);
    const asked = () =>
      hand.out().map((packet) => [bthPsn(packet, 0) - first, rethLength(packet, BTH_BYTES) / 256]);
    const probed = () =>
      hand.run(51).map((packet) => [bthPsn(packet, 0) - first, rethLength(packet, BTH_BYTES) / 256]);
    const put = (opcode: number, at: number) =>
      hand.put({
        opcode,
        psn: first + at,
        ...(opcode === Opcode.RC_RDMA_READ_RESPONSE_MIDDLE ? {} : { aeth }),
        payload,
      });
    return { ...set, first, asked, probed, put };
  };

  test('of the last request, which comes behind those of the others', () => {
    expect(reading(3).probed()).toEqual([[8, 1]]);
  });

  test('the next one, of a single request', () => {
    const { put, probed } = reading(1);
    put(Opcode.RC_RDMA_READ_RESPONSE_FIRST, 0);
    expect(probed()).toEqual([[1, 1]]);
  });

  test('its answer is LAST or ONLY: the request was lost, and the rest is asked for at once', () => {
    const { put, probed, asked, side } = reading(1);
    expect(probed()).toEqual([[0, 1]]);
    put(Opcode.RC_RDMA_READ_RESPONSE_ONLY, 0);
    expect(asked()).toEqual([[1, 3]]);
    expect(side.adapter.counters()).toMatchObject({ probes: 1, retries: 0, timeouts: 0 });
  });

  test('FIRST is the answer to the request: the peer is slow, and nothing more is asked for', () => {
    const { put, probed, asked } = reading(1);
    expect(probed()).toEqual([[0, 1]]);
    put(Opcode.RC_RDMA_READ_RESPONSE_FIRST, 0);
    put(Opcode.RC_RDMA_READ_RESPONSE_MIDDLE, 1);
    expect(asked()).toEqual([]);
    expect(probed()).toEqual([]);
  });

  test('FIRST is the answer to the request: a gap behind it is asked for at once', () => {
    const { put, probed, asked } = reading(1);
    expect(probed()).toEqual([[0, 1]]);
    put(Opcode.RC_RDMA_READ_RESPONSE_FIRST, 0);
    put(Opcode.RC_RDMA_READ_RESPONSE_LAST, 3);
    expect(asked()).toEqual([[1, 2]]);
  });

  // To a responder that has not seen the request this is one of its own, and a longer one from there on would be a copy that it cannot serve.
  test('if that is lost, too, it is asked for by itself after the timeout, and then the rest', () => {
    const { hand, probed, first } = reading(1);
    expect(probed()).toEqual([[0, 1]]);
    const again = hand.run(retryDelay(18) + 10);
    expect(again.map((packet) => [bthPsn(packet, 0) - first, rethLength(packet, BTH_BYTES) / 256])).toEqual([
      [0, 1],
      [1, 3],
    ]);
  });
});

describe('the answer', () => {
  const flight = (count: number) => {
    const set = setUp();
    for (let i = 0; i < 10; i++) set.exchange(20);
    for (let i = 0; i < count; i++) set.post();
    set.hand.out();
    const first = set.next();
    expect(set.hand.run(51)).toHaveLength(1);
    set.hand.now += 20;
    return { ...set, first, psns: () => set.hand.out().map((packet) => inShort(packet)[1] - first) };
  };

  // Once: an ACK that covers a probe was taken for its own, and the whole flight was retransmitted.
  test('to a part of the packets in flight shows nothing: it may be to those before', () => {
    for (const part of [0, 2, 4]) {
      const { hand, ack, first, psns, side } = flight(6);
      ack(first + part);
      expect(psns()).toEqual([]);
      expect(hand.run(10_000)).toEqual([]);
      ack(first + 5);
      expect(side.poll()).toHaveLength(16);
      expect(side.adapter.counters()).toMatchObject({ probes: 1, retransmittedPackets: 1, retries: 0 });
    }
  });

  test('by a NAK shows the loss', () => {
    const { hand, first, psns } = flight(6);
    hand.put({
      opcode: Opcode.RC_ACKNOWLEDGE,
      psn: first + 3,
      aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR },
    });
    expect(psns()).toEqual([3, 4, 5]);
  });

  test('to all ends it', () => {
    const { ack, first, psns, side } = flight(6);
    ack(first + 5);
    expect(psns()).toEqual([]);
    expect(side.poll()).toHaveLength(16);
  });
});
