/** RESET of a requester, as its peer sees it (IBTA vol 1 §10.3.1.2): each connection begins as the first did. */
import { bthAckReq, NakCode, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort } from '../../testing/by-hand.ts';
import { requester } from '../../testing/window-peer.ts';

const FIRST = 0x500;
const MTU = 256;
const remote = { addr: 0n, rkey: 0 };

function setUp(attr = {}) {
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: MTU, timeout: 14, ...attr });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(1 << 16));
  const post = (opcode: 'SEND' | 'RDMA_WRITE' | 'RDMA_READ', length = 8) =>
    side.post({ opcode, sge: [{ mr, length }], remote });
  const ack = (psn: number, syndrome = 0x1f, msn = 0) =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn, aeth: { syndrome, msn } });
  const reset = () => {
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    hand.out();
    side.poll();
    hand.connect({ sqPsn: FIRST, pathMtu: MTU, timeout: 14, ...attr });
  };
  const requests = () => hand.out().map((packet) => inShort(packet)[1] - FIRST);
  return { hand, side, post, ack, reset, requests };
}

test('an implied NAK is taken at the same PSN again', () => {
  const { post, ack, reset, requests } = setUp();
  for (let i = 0; i < 2; i++) {
    post('RDMA_READ');
    post('RDMA_WRITE');
    expect(requests()).toEqual([0, 1]);
    ack(FIRST + 1); // The READ was not answered.
    expect(requests()).toEqual([0, 1]);
    ack(FIRST + 1); // Once is enough.
    expect(requests()).toEqual([]);
    reset();
  }
});

test('after a timeout of the last connection, two parts of a READ may be out again', () => {
  const { hand, post, reset, requests } = setUp();
  post('RDMA_READ', 200 * MTU);
  expect(requests()).toEqual([0, 64]);
  // The ACK timer runs out.
  expect(hand.run(300_000).length).toBeGreaterThan(0);
  reset();
  post('RDMA_READ', 200 * MTU);
  expect(requests()).toEqual([0, 64]);
});

test('AckReq comes with the same packets, whatever had been sent without one', () => {
  const { hand, side, post, reset } = setUp();
  const asked = () => hand.out().map((packet) => bthAckReq(packet, 0));
  post('RDMA_WRITE', 30 * MTU);
  const fresh = asked();
  expect(fresh.filter((bit) => bit === 1).length).toBeGreaterThan(2);
  reset();
  // One packet, which does not ask, and then the next has to wait for its time.
  side.adapter.modifyQp(side.qp.qpn, { rateLimit: 1_000_000 });
  post('RDMA_WRITE', 30 * MTU);
  expect(hand.out().length).toBeLessThan(8);
  reset();
  post('RDMA_WRITE', 30 * MTU);
  expect(asked()).toEqual(fresh);
});

test('the round trip is measured anew', () => {
  const { hand, post, ack, reset, requests, side } = setUp();
  const probes = () => side.adapter.counters().probes;
  // An answer takes 100 ms here.
  post('RDMA_WRITE');
  requests();
  hand.now += 100_000;
  ack(FIRST);
  reset();
  // And 20 µs there: a probe follows a lost packet after 50 µs.
  post('RDMA_WRITE');
  requests();
  hand.now += 20;
  ack(FIRST);
  const before = probes();
  post('RDMA_WRITE');
  hand.run(60);
  expect(probes()).toBe(before + 1);
});

test('a probe of the last connection has no effect in this one', () => {
  const { hand, post, ack, reset, requests, side } = setUp();
  post('RDMA_WRITE');
  requests();
  hand.now += 20;
  ack(FIRST);
  post('RDMA_WRITE');
  expect(hand.run(60).map(inShort)).toHaveLength(2);
  expect(side.adapter.counters().probes).toBe(1);
  reset();
  for (let i = 0; i < 4; i++) post('RDMA_WRITE');
  expect(requests()).toEqual([0, 1, 2, 3]);
  ack(FIRST + 1); // The PSN of the probe, and more is in flight.
  expect(requests()).toEqual([]);
});

describe('credits', () => {
  const sends = ({ post, requests }: ReturnType<typeof setUp>) => {
    for (let i = 0; i < 8; i++) post('SEND');
    return requests().length;
  };

  test('0 credits: one SEND leaves before the first ACK', () => {
    const set = setUp();
    const { post, ack, requests, reset } = set;
    post('SEND');
    expect(requests()).toEqual([0]);
    ack(FIRST, 4, 1); // Code 4: four receives more, and one may go past.
    expect(sends(set)).toBe(5);
    reset();
    expect(sends(set)).toBe(1);
  });

  test('are counted from the first message', () => {
    const set = setUp();
    const { ack, requests, post, reset } = set;
    for (let i = 0; i < 10; i++) {
      post('SEND');
      requests();
      ack(FIRST + i, 0, i + 1);
    }
    reset();
    post('SEND');
    requests();
    ack(FIRST, 2, 1); // Code 2: two receives more.
    expect(sends(set)).toBe(3);
  });

  test('a limit that an old ACK repeats takes nothing away', () => {
    const set = setUp();
    const { post, ack, requests } = set;
    post('SEND');
    requests();
    ack(FIRST, 4, 1);
    ack(FIRST, 0, 0);
    expect(sends(set)).toBe(5);
  });

  test('a peer that counts none lifts the limit for good', () => {
    const set = setUp();
    const { post, ack, requests } = set;
    post('SEND');
    requests();
    ack(FIRST, 0x1f, 1);
    ack(FIRST, 0, 1);
    expect(sends(set)).toBe(8);
  });
});

describe('the window', () => {
  function again(peer: ReturnType<typeof requester>) {
    const { side } = peer.hand;
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RESET' });
    peer.hand.out();
    const next = requester({}, peer.hand);
    return next;
  }

  test('is 32 packets, and opens by doubling', () => {
    const peer = requester();
    peer.open();
    peer.lose();
    expect(peer.fill()).toBe(256);
    const next = again(peer);
    const windows = [];
    for (let i = 0; i < 4; i++) {
      windows.push(next.fill());
      next.acknowledge();
    }
    expect(windows).toEqual([32, 64, 128, 256]);
  });

  test('is halved by a loss at PSNs where the last connection had one', () => {
    const peer = requester();
    peer.open();
    peer.lose();
    const next = again(peer);
    expect(next.fill()).toBe(32);
    next.acknowledge();
    expect(next.fill()).toBe(64);
    next.lose();
    expect(next.fill()).toBe(32);
  });
});

test('retries are granted anew', () => {
  const { hand, side, post, requests, reset } = setUp({ timeout: 8, retryCnt: 2 });
  const timeouts = () => side.adapter.counters().timeouts;
  post('RDMA_WRITE');
  requests();
  while (timeouts() < 2) hand.run(1000);
  reset();
  post('RDMA_WRITE');
  requests();
  while (side.adapter.queryQp(side.qp.qpn).attr.qpState === 'RTS') hand.run(1000);
  expect(timeouts()).toBe(5);
  expect(side.poll()).toMatchObject([{ status: 'RETRY_EXC_ERR' }]);
});

test('nothing of the last connection is sent, and no timer of it fires', () => {
  const { hand, side, post, reset } = setUp({ timeout: 8 });
  post('RDMA_WRITE', 10 * MTU);
  hand.out();
  hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST + 2, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
  reset();
  expect(hand.run(1_000_000)).toEqual([]);
  expect(side.adapter.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  expect(side.adapter.counters().timeouts).toBe(0);
});
