/** Responses as a requester takes them: what they acknowledge, what they bring, and which end the connection (IBTA vol 1 §9.7.5, §9.9.2). */
import { NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { ByHand, inShort, type PacketInit } from '../../testing/by-hand.ts';
import { type QpAttr, Ring, type WrOpcodeName } from '../index.ts';
import { SendQueue } from '../qp/send-queue.ts';

const FIRST = 0x500;
const MTU = 256;
const OK = 0x1f;
const RNR = 0x21; // 10 µs.
const remote = { addr: 0n, rkey: 0 };

function requester(attr: QpAttr = {}) {
  const hand = new ByHand(
    { sqPsn: FIRST, pathMtu: MTU, ...attr },
    { recovery: { probes: false, selective: false } },
  );
  const { side } = hand;
  const memory = new Uint8Array(4096);
  const mr = side.register(memory.buffer);
  let wrId = 0;
  /** Posts requests of these lengths, numbered from 1. */
  const post = (opcode: WrOpcodeName, ...lengths: number[]) => {
    for (const length of lengths) side.post({ wrId: ++wrId, opcode, sge: [{ mr, length }], remote });
  };
  const ack = (psn: number, syndrome = OK, msn = 0): PacketInit => ({
    opcode: Opcode.RC_ACKNOWLEDGE,
    psn: FIRST + psn,
    aeth: { syndrome, msn },
  });
  const sent = () => hand.out().map((packet) => inShort(packet)[1] - FIRST);
  const done = () => side.poll().map(({ wrId: id, status }) => [id, status]);
  const state = () => side.adapter.queryQp(side.qp.qpn).attr.qpState;
  const counters = () => side.adapter.qpCounters(side.qp.qpn);
  return { hand, side, mr, memory, post, ack, sent, done, state, counters };
}

/** A READ response at `psn` with `length` bytes of `value`. */
function part(
  name: 'FIRST' | 'MIDDLE' | 'LAST' | 'ONLY',
  psn: number,
  length: number,
  value = 7,
): PacketInit {
  const opcode = Opcode[`RC_RDMA_READ_RESPONSE_${name}`];
  const payload = new Uint8Array(length).fill(value);
  return {
    opcode,
    psn: FIRST + psn,
    payload,
    ...(name === 'MIDDLE' ? {} : { aeth: { syndrome: OK } }),
  };
}

/** The answer of an atomic; AtomicAckETH is 8 bytes, the most significant first. */
function result(psn: number, value: bigint, syndrome = OK, msn = 0): PacketInit {
  const payload = new Uint8Array(8);
  new DataView(payload.buffer).setBigUint64(0, value);
  return { opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, psn: FIRST + psn, aeth: { syndrome, msn }, payload };
}

describe('an ACK', () => {
  test('acknowledges all up to its PSN, and no more', () => {
    const { hand, post, ack, sent, done } = requester();
    post('RDMA_WRITE', 8, 8, 8);
    expect(sent()).toEqual([0, 1, 2]);
    hand.put(ack(1));
    expect(done()).toEqual([
      [1, 'SUCCESS'],
      [2, 'SUCCESS'],
    ]);
    hand.put(ack(2));
    expect(done()).toEqual([[3, 'SUCCESS']]);
  });

  test.each([
    ['equal messages of three packets', [600, 600, 600, 600, 600]],
    ['a shorter one between', [600, 600, 8, 600, 600]],
    ['longer ones behind', [8, 8, 600, 600, 8]],
  ])('of each PSN, after each other one, completes what it covers: %s', (_what, lengths) => {
    const ends: number[] = [];
    for (const length of lengths) ends.push((ends.at(-1) ?? 0) + Math.ceil(length / MTU));
    const covered = (psn: number) => ends.filter((end) => psn >= end - 1).length;
    const last = ends[ends.length - 1];
    for (let first = 0; first < last; first++) {
      for (let second = first; second < last; second++) {
        const { hand, post, ack, sent, done } = requester();
        post('RDMA_WRITE', ...lengths);
        expect(sent()).toHaveLength(last);
        hand.put(ack(first));
        expect(done()).toHaveLength(covered(first));
        hand.put(ack(second));
        expect(done()).toHaveLength(covered(second) - covered(first));
        // The next ones are counted by the size of the first of them.
        post('RDMA_WRITE', 600, 600);
        expect(sent()).toHaveLength(6);
        hand.put(ack(last + 2));
        expect(done()).toHaveLength(lengths.length - covered(second) + 1);
        hand.side.adapter.checkInvariants();
      }
    }
  });

  test('its distance shows the entries again, once one of another size or a READ is done', () => {
    const { hand, post, ack, sent, done } = requester();
    const reachedBy = vi.spyOn(SendQueue.prototype, 'reachedBy');
    post('RDMA_WRITE', 3 * MTU, 100, 100);
    expect(sent()).toHaveLength(5);
    let psn = 2;
    hand.put(ack(psn));
    for (let i = 0; i < 5; i++) {
      post('RDMA_WRITE', 100);
      sent();
      hand.put(ack(++psn));
    }
    expect(done()).toHaveLength(6);
    expect(reachedBy.mock.results.map(({ value }) => value)).toEqual([-1, 1, 1, 1, 1, 1]);
    hand.side.adapter.checkInvariants();
  });

  test('in the middle of a message: the go-back-N begins behind it', () => {
    const { hand, post, ack, sent, done } = requester();
    post('RDMA_WRITE', 4 * MTU);
    expect(sent()).toEqual([0, 1, 2, 3]);
    hand.put(ack(1));
    expect(done()).toEqual([]);
    hand.put(ack(2, NakCode.PSN_SEQUENCE_ERROR));
    expect(sent()).toEqual([2, 3]);
    hand.put(ack(3));
    expect(done()).toEqual([[1, 'SUCCESS']]);
  });

  test('past a READ that was not answered: the READ is asked for again, its ACK is no answer (§9.7.6.2)', () => {
    const { hand, post, ack, sent, done, counters } = requester();
    post('RDMA_WRITE', 8);
    post('RDMA_READ', 8);
    post('RDMA_WRITE', 8);
    expect(sent()).toEqual([0, 1, 2]);
    hand.put(ack(2));
    expect(done()).toEqual([[1, 'SUCCESS']]);
    expect(sent()).toEqual([1, 2]);
    expect(counters()).toMatchObject({ impliedNakSeqErr: 1, retries: 1 });
    // Before any of it was retransmitted nothing new is known.
    hand.put(ack(2, NakCode.PSN_SEQUENCE_ERROR));
    expect(counters()).toMatchObject({ impliedNakSeqErr: 1, receivedSeqErr: 0 });
  });
});

describe('a response that is late or early', () => {
  test('of the PSN that is sent next acknowledges nothing', () => {
    const { hand, side, post, ack, sent, done } = requester();
    post('RDMA_WRITE', 8);
    expect(sent()).toEqual([0]);
    hand.put(ack(1), ack(1, NakCode.REMOTE_ACCESS_ERROR));
    expect(done()).toEqual([]);
    expect(side.adapter.counters().staleResponses).toBe(2);
  });

  /** The ACK timer has expired, and nothing was retransmitted yet. */
  function overdue({ hand, side }: ReturnType<typeof requester>): void {
    hand.now += 1_000_000;
    side.adapter.advance();
    expect(side.adapter.counters().timeouts).toBe(1);
  }

  test('a READ response that comes after the timeout is taken, and nothing is retransmitted', () => {
    const set = requester();
    const { hand, post, sent, done, memory } = set;
    post('RDMA_READ', MTU + 8);
    sent();
    overdue(set);
    hand.put(part('FIRST', 0, MTU, 1), part('LAST', 1, 8, 2));
    expect(done()).toEqual([[1, 'SUCCESS']]);
    expect([memory[0], memory[MTU]]).toEqual([1, 2]);
    expect(sent()).toEqual([]);
  });

  test('after a timeout, an ACK past a READ that waits to be retransmitted takes no retry', () => {
    const set = requester();
    const { hand, post, ack, sent, counters } = set;
    post('RDMA_READ', 8);
    post('RDMA_WRITE', 8);
    sent();
    overdue(set);
    hand.put(ack(1));
    expect(counters()).toMatchObject({ impliedNakSeqErr: 0, retries: 1 });
    expect(sent()).toEqual([0, 1]);
  });

  test.each([0, 1])('the first implied NAK is taken at any PSN: %i', (sqPsn) => {
    const { hand, post, counters } = requester({ sqPsn });
    post('RDMA_READ', 8);
    post('RDMA_WRITE', 8);
    hand.out();
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: sqPsn + 1, aeth: { syndrome: OK } });
    expect(counters().impliedNakSeqErr).toBe(1);
  });
});

describe('a NAK', () => {
  test.each([NakCode.REMOTE_ACCESS_ERROR, NakCode.PSN_SEQUENCE_ERROR, RNR])(
    '0x%s at a request that could not be retransmitted: the request fails for that',
    (code) => {
      const { hand, side, post, ack, sent, done } = requester();
      const other = side.register(new ArrayBuffer(1024));
      post('RDMA_WRITE', 8);
      side.post({ wrId: 2, opcode: 'RDMA_WRITE', sge: [{ mr: other, length: 3 * MTU }], remote });
      expect(sent()).toEqual([0, 1, 2, 3]);
      side.adapter.deregisterMr(other.handle);
      expect(hand.run(200_000).map((packet) => inShort(packet)[1] - FIRST)).toEqual([0]);
      hand.put(ack(1, code));
      expect(done()).toEqual([
        [1, 'SUCCESS'],
        [2, 'LOC_PROT_ERR'],
      ]);
    },
  );

  test.each([
    [NakCode.INVALID_REQUEST, 'REM_INV_REQ_ERR', { receivedInvalidRequest: 1 }],
    [NakCode.REMOTE_ACCESS_ERROR, 'REM_ACCESS_ERR', { receivedAccessErr: 1 }],
    [NakCode.REMOTE_OPERATIONAL_ERROR, 'REM_OP_ERR', { receivedOperationalErr: 1 }],
    [NakCode.INVALID_RD_REQUEST, 'REM_INV_RD_REQ_ERR', {}],
    // Reserved codes.
    [0x65, 'BAD_RESP_ERR', {}],
    [0x7f, 'BAD_RESP_ERR', {}],
  ])('0x%s: earlier requests succeed, its request fails, the rest is flushed', (code, status, counts) => {
    const { hand, post, ack, sent, done, state, counters } = requester();
    post('RDMA_WRITE', 8, 2 * MTU, 8);
    sent();
    hand.put(ack(2, code));
    expect(done()).toEqual([
      [1, 'SUCCESS'],
      [2, status],
      [3, 'WR_FLUSH_ERR'],
    ]);
    expect(state()).toBe('ERR');
    const none = { receivedInvalidRequest: 0, receivedAccessErr: 0, receivedOperationalErr: 0 };
    expect(counters()).toMatchObject({ ...none, ...counts });
    expect(sent()).toEqual([]);
  });

  test('of any kind, past a READ that was not answered: the READ comes first', () => {
    for (const code of [NakCode.PSN_SEQUENCE_ERROR, NakCode.REMOTE_ACCESS_ERROR, RNR]) {
      const { hand, post, ack, sent, done, state } = requester();
      post('RDMA_READ', 8);
      post('RDMA_WRITE', 8);
      sent();
      hand.put(ack(1, code));
      expect(state()).toBe('RTS');
      expect(done()).toEqual([]);
      expect(sent()).toEqual([0, 1]);
    }
  });

  test('of the sequence, twice: it is gone back once, and counted once, until the packets may have arrived', () => {
    const { hand, post, ack, sent, counters } = requester();
    post('RDMA_WRITE', 8, 8);
    sent();
    hand.put(ack(0, NakCode.PSN_SEQUENCE_ERROR), ack(0, NakCode.PSN_SEQUENCE_ERROR));
    expect(counters()).toMatchObject({ receivedSeqErr: 1, sequenceNakRetries: 1, retries: 1 });
    expect(sent()).toEqual([0, 1]);
    hand.put(ack(0, NakCode.PSN_SEQUENCE_ERROR));
    expect(counters()).toMatchObject({ receivedSeqErr: 2, retries: 1 });
    expect(sent()).toEqual([]);
    // It is acted upon then, or when it comes again.
    expect(hand.run(1100).map((packet) => inShort(packet)[1] - FIRST)).toEqual([0, 1]);
    expect(counters()).toMatchObject({ retries: 2 });
    hand.now += 1100;
    hand.put(ack(0, NakCode.PSN_SEQUENCE_ERROR));
    expect(counters()).toMatchObject({ receivedSeqErr: 3, retries: 3 });
    expect(sent()).toEqual([0, 1]);
  });

  test('of the sequence, during an RNR wait: nothing is sent before the wait is over, and no retry is taken', () => {
    const { hand, post, ack, sent, counters } = requester();
    post('SEND', 8);
    sent();
    hand.put(ack(0, RNR));
    hand.put(ack(0, NakCode.PSN_SEQUENCE_ERROR));
    expect(sent()).toEqual([]);
    expect(counters()).toMatchObject({ receivedRnrErr: 1, receivedSeqErr: 0, retries: 0 });
    expect(hand.run(10).map(inShort)).toEqual([['SEND_ONLY', FIRST]]);
  });
});

describe('a READ response', () => {
  test('acknowledges the packets sent before its request', () => {
    const { hand, post, sent, done, memory } = requester();
    post('RDMA_WRITE', 8, 8);
    post('RDMA_READ', 8);
    expect(sent()).toEqual([0, 1, 2]);
    hand.put(part('ONLY', 2, 8));
    expect(done()).toEqual([
      [1, 'SUCCESS'],
      [2, 'SUCCESS'],
      [3, 'SUCCESS'],
    ]);
    expect([...memory.subarray(0, 9)]).toEqual([7, 7, 7, 7, 7, 7, 7, 7, 0]);
  });

  test('goes to its place; the READ is done with the last', () => {
    const { hand, post, sent, done, memory } = requester();
    post('RDMA_READ', 2 * MTU + 4);
    sent();
    hand.put(part('FIRST', 0, MTU, 1), part('MIDDLE', 1, MTU, 2));
    expect(done()).toEqual([]);
    hand.put(part('LAST', 2, 4, 3));
    expect(done()).toEqual([[1, 'SUCCESS']]);
    const at = [0, MTU - 1, MTU, 2 * MTU - 1, 2 * MTU, 2 * MTU + 3, 2 * MTU + 4];
    expect(at.map((i) => memory[i])).toEqual([1, 1, 2, 2, 3, 3, 0]);
  });

  test('behind one that is missing: the READ is asked for again from there', () => {
    const { hand, post, sent, done, counters, memory } = requester();
    post('RDMA_READ', 3 * MTU);
    expect(sent()).toEqual([0]);
    hand.put(part('FIRST', 0, MTU, 1), part('LAST', 2, MTU, 9));
    expect(counters()).toMatchObject({ impliedNakSeqErr: 1, retries: 1 });
    expect(memory[2 * MTU]).toBe(0);
    expect(sent()).toEqual([1]);
    hand.put(part('FIRST', 1, MTU, 2), part('LAST', 2, MTU, 3));
    expect(done()).toEqual([[1, 'SUCCESS']]);
    expect([memory[0], memory[MTU], memory[2 * MTU]]).toEqual([1, 2, 3]);
  });

  test('of the next READ, while the one before it has none: that one is asked for again', () => {
    const { hand, post, sent, done } = requester();
    post('RDMA_READ', 8, 8);
    expect(sent()).toEqual([0, 1]);
    hand.put(part('ONLY', 1, 8));
    expect(done()).toEqual([]);
    expect(sent()).toEqual([0, 1]);
  });

  test.each<[string, PacketInit[]]>([
    ['a FIRST of less than the path MTU', [part('FIRST', 0, MTU - 4)]],
    ['a FIRST of more than the path MTU', [part('FIRST', 0, MTU + 4)]],
    ['a LAST of less than is missing', [part('FIRST', 0, MTU), part('MIDDLE', 1, MTU), part('LAST', 2, 4)]],
    ['a LAST of more than is missing', [part('FIRST', 0, MTU), part('MIDDLE', 1, MTU), part('LAST', 2, 12)]],
    ['a LAST where a MIDDLE is due', [part('FIRST', 0, MTU), part('LAST', 1, MTU)]],
    ['an ONLY where a FIRST is due', [part('ONLY', 0, MTU)]],
    ['a MIDDLE where the LAST is due', [part('FIRST', 0, MTU), part('MIDDLE', 1, MTU), part('MIDDLE', 2, 8)]],
    ['a FIRST with a NAK in its AETH', [{ ...part('FIRST', 0, MTU), aeth: { syndrome: 0x62 } }]],
    [
      'a LAST with an RNR NAK',
      [part('FIRST', 0, MTU), part('MIDDLE', 1, MTU), { ...part('LAST', 2, 8), aeth: { syndrome: RNR } }],
    ],
    ['the answer of an atomic', [result(0, 1n)]],
  ])('%s: BAD_RESP_ERR', (_what, responses) => {
    const { hand, post, sent, done, state, memory } = requester();
    post('RDMA_READ', 2 * MTU + 8);
    post('RDMA_WRITE', 8);
    sent();
    hand.put(...responses);
    expect(done()).toEqual([
      [1, 'BAD_RESP_ERR'],
      [2, 'WR_FLUSH_ERR'],
    ]);
    expect(state()).toBe('ERR');
    const good = (responses.length - 1) * MTU;
    expect(memory.subarray(good).every((byte) => byte === 0)).toBe(true);
  });

  test.each<[string, WrOpcodeName]>([
    ['a WRITE', 'RDMA_WRITE'],
    ['a SEND', 'SEND'],
    ['an atomic', 'ATOMIC_FETCH_AND_ADD'],
  ])('to %s: BAD_RESP_ERR', (_what, opcode) => {
    const { hand, post, sent, done, memory } = requester();
    post(opcode, 8);
    sent();
    hand.put(part('ONLY', 0, 8));
    expect(done()).toEqual([[1, 'BAD_RESP_ERR']]);
    expect(memory[0]).toBe(0);
  });

  test('whose acknowledgement finds no place for completions ends the queue pair, and brings nothing', () => {
    const { hand, side, mr, memory, state } = requester();
    const { handle, ring } = side.adapter.createCq(1);
    side.createQp({}, { cq: handle });
    hand.connect({ sqPsn: FIRST, pathMtu: MTU });
    for (const opcode of ['RDMA_WRITE', 'RDMA_WRITE', 'RDMA_READ'] as const) {
      side.post({ opcode, sge: [{ mr, length: 8 }], remote });
    }
    hand.out();
    hand.put(part('ONLY', 2, 8));
    expect(state()).toBe('ERR');
    expect(new Ring(ring).used).toBe(1);
    expect(memory[0]).toBe(0);
    expect(hand.out()).toEqual([]);
  });

  test('into a region that has gone: LOC_PROT_ERR', () => {
    const { hand, side, mr, post, sent, done, memory } = requester();
    post('RDMA_READ', 8);
    sent();
    side.adapter.deregisterMr(mr.handle);
    hand.put(part('ONLY', 0, 8));
    expect(done()).toEqual([[1, 'LOC_PROT_ERR']]);
    expect(memory[0]).toBe(0);
  });
});

describe('the answer of an atomic', () => {
  test('is what was there, as a number in the machine’s order; it acknowledges what was before', () => {
    const { hand, post, sent, done, memory } = requester();
    post('RDMA_WRITE', 8);
    post('ATOMIC_CMP_AND_SWP', 8);
    sent();
    hand.put(result(1, 0x0102_0304_0506_0708n));
    expect(done()).toEqual([
      [1, 'SUCCESS'],
      [2, 'SUCCESS'],
    ]);
    expect([...memory.subarray(0, 9)]).toEqual([8, 7, 6, 5, 4, 3, 2, 1, 0]);
  });

  test('of the next atomic, while the one before it has none: that one is asked for again', () => {
    const { hand, post, sent, done, memory } = requester();
    post('ATOMIC_FETCH_AND_ADD', 8, 8);
    expect(sent()).toEqual([0, 1]);
    hand.put(result(1, 5n));
    expect(done()).toEqual([]);
    expect(memory[0]).toBe(0);
    expect(sent()).toEqual([0, 1]);
  });

  test.each<[string, WrOpcodeName, number]>([
    ['to a WRITE', 'RDMA_WRITE', OK],
    ['with a NAK in its AETH', 'ATOMIC_FETCH_AND_ADD', 0x62],
    ['with an RNR NAK in its AETH', 'ATOMIC_FETCH_AND_ADD', RNR],
  ])('%s: BAD_RESP_ERR', (_what, opcode, syndrome) => {
    const { hand, post, sent, done, memory } = requester();
    post(opcode, 8);
    sent();
    hand.put(result(0, 5n, syndrome));
    expect(done()).toEqual([[1, 'BAD_RESP_ERR']]);
    expect(memory[0]).toBe(0);
  });

  test('into a region that has gone: LOC_PROT_ERR', () => {
    const { hand, side, mr, post, sent, done } = requester();
    post('ATOMIC_FETCH_AND_ADD', 8);
    sent();
    side.adapter.deregisterMr(mr.handle);
    hand.put(result(0, 5n));
    expect(done()).toEqual([[1, 'LOC_PROT_ERR']]);
  });
});

describe('credits come with the AETH of (§9.7.7.2)', () => {
  /** Two SENDs are out, the second past the limit; two more wait for credits. */
  function atTheLimit(opcode: WrOpcodeName) {
    const set = requester();
    const { post, sent } = set;
    post(opcode, 8);
    post('SEND', 8, 8, 8);
    return { ...set, before: sent() };
  }
  /** ACK with so many credits. */
  const credits = (code: number, msn: number) => ({ syndrome: code, msn });

  test('an ACK', () => {
    const { hand, ack, sent, before } = atTheLimit('SEND');
    expect(before).toEqual([0]);
    hand.put(ack(0, 1, 1));
    expect(sent()).toEqual([1, 2]);
  });

  test('an ACK of the past', () => {
    const { hand, ack, sent } = atTheLimit('SEND');
    hand.put(ack(0, 0, 1));
    const waiting = sent();
    hand.put(ack(0, 3, 1));
    expect([...waiting, ...sent()]).toEqual([1, 2, 3]);
  });

  test('a READ response', () => {
    const { hand, sent, before } = atTheLimit('RDMA_READ');
    hand.put({ ...part('ONLY', 0, 8), aeth: credits(3, 1) });
    expect([...before, ...sent()]).toEqual([0, 1, 2, 3]);
  });

  test('the answer of an atomic', () => {
    const { hand, sent, before } = atTheLimit('ATOMIC_FETCH_AND_ADD');
    hand.put(result(0, 5n, 3, 1));
    expect([...before, ...sent()]).toEqual([0, 1, 2, 3]);
  });

  test('no ACK of what was never sent', () => {
    const { hand, ack, sent, before } = atTheLimit('SEND');
    expect(before).toEqual([0]);
    hand.put(ack(1, 3, 1), ack(9, 3, 1));
    expect(sent()).toEqual([]);
  });
});
