/** ACKs complete all entries up to their PSN, whether those are counted (messages of one packet) or looked at. */
import { createRandom, NakCode, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Ring, SendFlags, SendWqe, WrOpcode, type WrOpcodeName } from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';

/** A message before it makes the peer's credits known. */
const FIRST = 0xff_fff1;
const MTU = 256;

/** A requester with a queue of `entries`, and completions of its own. */
function setUp(entries: number, cqe: number) {
  const hand = new ByHand({}, { recovery: { probes: false } });
  const { side } = hand;
  const cq = side.adapter.createCq(cqe);
  const polled = new Ring(cq.ring);
  side.createQp({ maxSendWr: entries }, { cq: cq.handle });
  hand.connect({ sqPsn: FIRST - 1, pathMtu: MTU });
  const mr = side.register(new ArrayBuffer(16 * MTU));
  const post = (wrId: number, opcode: WrOpcodeName, length: number, signaled: boolean) =>
    side.post({
      wrId,
      opcode,
      sge: [{ mr, length }],
      remote: { addr: 0n, rkey: 1 },
      flags: signaled ? SendFlags.SIGNALED : 0,
    });
  const ack = (psn: number) => hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome: 0x1f } });
  const done = () => side.poll(polled).map(({ wrId, status }) => [wrId, status]);
  const counters = () => side.adapter.qpCounters(side.qp.qpn);
  post(0, 'SEND', 8, false);
  hand.drain();
  ack(FIRST - 1);
  return { hand, side, post, ack, done, counters };
}

test.each([0, 25, 100])('%i in a hundred messages have several packets', (others) => {
  for (let seed = 1; seed <= 20; seed++) {
    const { between } = createRandom(seed);
    const { hand, post, ack, done, counters } = setUp(64, 256);
    const waiting: { wrId: number; last: number; signaled: boolean }[] = [];
    let psn = FIRST;
    let completed = 1;
    let out = FIRST;
    for (let round = 0, wrId = 0; round < 40; round++) {
      for (let i = between(0, 10); i > 0 && waiting.length < 60; i--) {
        const packets = between(0, 99) < others ? between(2, 4) : 1;
        const signaled = between(0, 3) === 0;
        post(++wrId, between(0, 1) === 0 ? 'SEND' : 'RDMA_WRITE', packets * MTU - between(0, 20), signaled);
        psn += packets;
        waiting.push({ wrId, last: psn - 1, signaled });
      }
      out += hand.drain();
      const acked = out - 1 - between(0, Math.min(out - FIRST, 12));
      if (acked < FIRST) continue;
      ack(acked & 0xff_ffff);
      const count = waiting.filter(({ last }) => last <= acked).length;
      completed += count;
      const shown = waiting.splice(0, count).filter(({ signaled }) => signaled);
      expect(done(), `seed ${seed}`).toEqual(shown.map(({ wrId: id }) => [id, 'SUCCESS']));
      expect(counters().sentMessages).toBe(completed);
    }
  }
});

test('a completion queue that overruns in the middle of what an ACK completes: the rest is lost with it', () => {
  const { hand, side, post, ack, done } = setUp(16, 4);
  for (let i = 1; i <= 8; i++) post(i, 'SEND', 8, i % 2 === 0 || i > 5);
  hand.drain();
  ack((FIRST + 7) & 0xff_ffff);
  expect(done()).toEqual([2, 4, 6, 7].map((wrId) => [wrId, 'SUCCESS']));
  expect(side.events.map(({ type }) => type)).toEqual(['CQ_ERR', 'QP_FATAL']);
  expect(side.adapter.queryQp(side.qp.qpn).attr.qpState).toBe('ERR');
});

test('a program that changes its entries after they were started: what is out is counted by what was sent', () => {
  const { hand, side, post, ack, done } = setUp(16, 64);
  post(1, 'SEND', 8, true);
  post(2, 'SEND', 4 * MTU, true);
  post(3, 'SEND', 8, true);
  hand.drain();
  const { sq } = side;
  sq.words[sq.wordOf(1) + SendWqe.OPCODE_FLAGS] = WrOpcode.RDMA_READ | (SendFlags.SIGNALED << 8);
  sq.words[sq.wordOf(2) + SendWqe.LENGTH] = 8;
  ack(FIRST);
  hand.put({
    opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY,
    psn: FIRST,
    aeth: { syndrome: 0x1f },
    payload: new Uint8Array(8),
  });
  // The second entry has four packets, of which two are acknowledged.
  ack((FIRST + 2) & 0xff_ffff);
  expect(done()).toEqual([[1, 'SUCCESS']]);
  ack((FIRST + 5) & 0xff_ffff);
  expect(done()).toEqual([
    [2, 'SUCCESS'],
    [3, 'SUCCESS'],
  ]);
});

test('a READ that became a SEND: an ACK past it completes nothing, and none of its responses is taken for that of another', () => {
  const { hand, side, post, ack, done } = setUp(16, 64);
  post(1, 'RDMA_READ', 3 * MTU, true);
  post(2, 'SEND', 8, true);
  hand.drain();
  const { sq } = side;
  sq.words[sq.wordOf(1) + SendWqe.OPCODE_FLAGS] = WrOpcode.SEND | (SendFlags.SIGNALED << 8);
  ack((FIRST + 3) & 0xff_ffff);
  expect(done()).toEqual([]);
});

test('a SEND that became a READ is not retransmitted as such: it fails', () => {
  const { hand, side, post, done } = setUp(16, 64);
  post(1, 'SEND', 8, true);
  hand.drain();
  const { sq } = side;
  sq.words[sq.wordOf(1) + SendWqe.OPCODE_FLAGS] = WrOpcode.RDMA_READ | (SendFlags.SIGNALED << 8);
  expect(hand.run(200_000)).toEqual([]);
  expect(done()).toEqual([[1, 'LOC_QP_OP_ERR']]);
});

test('a message that became shorter than what was sent of it fails when it has to be retransmitted', () => {
  const { hand, side, post, done } = setUp(16, 64);
  post(1, 'SEND', 4 * MTU, true);
  hand.drain();
  const { sq } = side;
  sq.words[sq.wordOf(1) + SendWqe.LENGTH] = 8;
  hand.put({
    opcode: Opcode.RC_ACKNOWLEDGE,
    psn: (FIRST + 1) & 0xff_ffff,
    aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR },
  });
  hand.drain();
  expect(done()).toEqual([[1, 'LOC_LEN_ERR']]);
});
