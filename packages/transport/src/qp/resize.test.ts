/** Resizing the queues of a queue pair while they are used: the program's part by hand. */
import { createRandom } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { addressOf, Pair, QKEY, type Side } from '../../testing/pair.ts';
import { gatherSlot, type QpCap, QpStateCode, Ring } from '../index.ts';

/** The engine has the new rings; the program has not heard of them. @returns the program's part */
function begin(side: Side, cap: Partial<QpCap>): () => void {
  const { adapter, qp } = side;
  const { attr } = adapter.queryQp(qp.qpn);
  const resized = adapter.modifyQp(qp.qpn, { cap: { ...attr.cap!, ...cap } })!;
  return () => {
    const [sq, rq] = [new Ring(resized.sendQueue), new Ring(resized.recvQueue)];
    side.sq.moveTo(sq);
    side.rq.moveTo(rq);
    side.sq = sq;
    side.rq = rq;
    adapter.modifyQp(qp.qpn, {});
  };
}

const refusal = (attempt: () => void) => {
  try {
    attempt();
  } catch (error) {
    const { errno, attribute } = error as { errno: string; attribute: string };
    return [errno, attribute];
  }
  return undefined;
};

describe.each(['RC', 'UC', 'UD'] as const)('%s', (type) => {
  const set = () => {
    const pair = new Pair({ type, mtu: 256 });
    const mr = pair.right.register(new ArrayBuffer(64 * 1024));
    let posted = 0;
    const receive = () => {
      pair.right.postRecv(posted, [{ mr, offset: 512 * (posted % 64), length: 512 }]);
      posted++;
    };
    const ah = type === 'UD' ? pair.left.adapter.createAh(pair.left.pd, addressOf(2)) : 0;
    const send = (wrId: number) => {
      const inline = Uint8Array.of(wrId, wrId >> 8, 1, 2, 3);
      const datagram = type === 'UD' ? { datagram: { ah, qpn: pair.right.qp.qpn, qkey: QKEY } } : {};
      pair.left.post({ opcode: 'SEND', wrId, inline, ...datagram });
    };
    return { pair, receive, send };
  };

  test('posted requests survive, in order, growing and shrinking', () => {
    const { pair, receive, send } = set();
    const { left, right } = pair;
    for (let i = 0; i < 8; i++) receive();
    for (let i = 0; i < 6; i++) send(i);
    begin(left, { maxSendWr: 256, maxInlineData: 64 })();
    begin(right, { maxRecvWr: 8 })();
    send(6);
    send(7);
    pair.run();
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
      [0, 1, 2, 3, 4, 5, 6, 7].map((wrId) => [wrId, 'SUCCESS']),
    );
    expect(right.poll().map(({ wrId }) => wrId)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(left.adapter.queryQp(left.qp.qpn).attr.cap).toMatchObject({ maxSendWr: 256, maxInlineData: 64 });
    expect(right.adapter.queryQp(right.qp.qpn)).toMatchObject({
      attr: { cap: { maxRecvWr: 8 } },
      init: { cap: { maxRecvWr: 8 } },
    });
  });

  test('between the two halves both sides go on in the rings they know', () => {
    const { pair, receive, send } = set();
    for (let i = 0; i < 4; i++) receive();
    const moveLeft = begin(pair.left, { maxSendWr: 4 });
    const moveRight = begin(pair.right, { maxRecvWr: 4 });
    send(0);
    pair.run();
    send(1);
    moveLeft();
    receive();
    moveRight();
    send(2);
    pair.run();
    expect(pair.left.poll().map(({ wrId }) => wrId)).toEqual([0, 1, 2]);
    expect(pair.right.poll().map(({ wrId }) => wrId)).toEqual([0, 1, 2]);
  });
});

test('a program that posts more than the smaller queue holds before it moves there: what is under way keeps its place', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const remote = right.register(new ArrayBuffer(64));
  const move = begin(left, { maxSendWr: 4 });
  for (let wrId = 0; wrId < 16; wrId++)
    left.post({ wrId, opcode: 'RDMA_WRITE', inline: new Uint8Array(8), remote });
  pair.run(5);
  // It checks the promises.
  move();
  pair.run();
  left.adapter.modifyQp(left.qp.qpn, {});
  left.adapter.checkInvariants();
  expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
    Array.from({ length: 16 }, (_, wrId) => [wrId, 'SUCCESS']),
  );
  left.post({ wrId: 16, opcode: 'RDMA_WRITE', inline: new Uint8Array(8), remote });
  pair.run();
  expect(left.poll()).toMatchObject([{ wrId: 16, status: 'SUCCESS' }]);
});

test('more posted than fits is refused, and nothing changes', () => {
  const pair = new Pair();
  const { left } = pair;
  const mr = left.register(new ArrayBuffer(64));
  pair.fault = () => [];
  for (let i = 0; i < 5; i++) left.post({ opcode: 'SEND', inline: new Uint8Array(9) });
  left.post({ opcode: 'SEND', sge: [0, 1, 2].map((offset) => ({ mr, offset, length: 1 })) });
  for (let i = 0; i < 9; i++)
    left.postRecv(i, [
      { mr, length: 1 },
      { mr, length: 1 },
    ]);
  const before = left.adapter.queryQp(left.qp.qpn);
  const attempt = (cap: Partial<QpCap>) => refusal(() => begin(left, cap));
  expect(attempt({ maxSendWr: 4 })).toEqual(['EINVAL', 'cap.maxSendWr']);
  expect(attempt({ maxSendSge: 2 })).toEqual(['EINVAL', 'cap.maxSendSge']);
  expect(attempt({ maxInlineData: 8 })).toEqual(['EINVAL', 'cap.maxInlineData']);
  expect(attempt({ maxRecvWr: 8 })).toEqual(['EINVAL', 'cap.maxRecvWr']);
  expect(attempt({ maxRecvSge: 1 })).toEqual(['EINVAL', 'cap.maxRecvSge']);
  expect(attempt({ maxSendWr: 1 << 20 })).toEqual(['EINVAL', 'cap.maxSendWr']);
  expect(left.adapter.queryQp(left.qp.qpn)).toEqual(before);
  expect(
    attempt({ maxSendWr: 6, maxSendSge: 3, maxInlineData: 9, maxRecvWr: 9, maxRecvSge: 2 }),
  ).toBeUndefined();
});

test('a second resize waits for the first', () => {
  const { left } = new Pair();
  const move = begin(left, { maxSendWr: 8 });
  expect(refusal(() => begin(left, { maxSendWr: 16 }))).toEqual(['EBUSY', 'cap']);
  move();
  expect(refusal(() => begin(left, { maxSendWr: 16 }))).toBeUndefined();
});

describe('a state that changes between the two halves', () => {
  test.each(['before', 'after'] as const)('ERR flushes the requests in either ring, %s the move', (when) => {
    const pair = new Pair();
    const { left } = pair;
    const mr = left.register(new ArrayBuffer(64));
    const enter = () => left.adapter.modifyQp(left.qp.qpn, { qpState: 'ERR' });
    pair.fault = () => [];
    left.post({ opcode: 'SEND', wrId: 1, inline: new Uint8Array(1) });
    left.postRecv(2, [{ mr, length: 1 }]);
    const move = begin(left, { maxSendWr: 8, maxRecvWr: 8 });
    if (when === 'before') enter();
    move();
    if (when === 'after') enter();
    expect(left.sq.state).toBe(QpStateCode.ERR);
    left.post({ opcode: 'SEND', wrId: 3, inline: new Uint8Array(1) });
    left.postRecv(4, [{ mr, length: 1 }]);
    pair.run(1000);
    const done = left.poll();
    expect(done.map(({ wrId }) => wrId).sort()).toEqual([1, 2, 3, 4]);
    expect(new Set(done.map(({ status }) => status))).toEqual(new Set(['WR_FLUSH_ERR']));
  });

  test.each(['before', 'after'] as const)('RESET forgets the posted requests, %s the move', (when) => {
    const pair = new Pair();
    const { left, right } = pair;
    pair.fault = () => [];
    for (let i = 0; i < 3; i++) left.post({ opcode: 'SEND', inline: new Uint8Array(1) });
    const move = begin(left, { maxSendWr: 8 });
    const reset = () => left.adapter.modifyQp(left.qp.qpn, { qpState: 'RESET' });
    if (when === 'before') reset();
    move();
    if (when === 'after') reset();
    right.adapter.modifyQp(right.qp.qpn, { qpState: 'RESET' });
    pair.fault = undefined;
    pair.run(100_000);
    pair.connect();
    right.postRecv(7, [{ mr: right.register(new ArrayBuffer(8)), length: 8 }]);
    left.post({ opcode: 'SEND', wrId: 9, inline: new Uint8Array(1) });
    pair.run();
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([[9, 'SUCCESS']]);
    expect(right.poll()).toMatchObject([{ wrId: 7, status: 'SUCCESS' }]);
  });
});

test('a packet of inline data that the link has not taken is still whole', () => {
  const pair = new Pair();
  const { left } = pair;
  left.post({ opcode: 'SEND', inline: Uint8Array.of(1, 2, 3, 4) });
  left.tx.clear();
  expect(left.adapter.transmit(left.tx)).toBe(1);
  begin(left, { maxSendWr: 512, maxInlineData: 512 })();
  left.post({ opcode: 'SEND', inline: Uint8Array.of(5, 6, 7, 8) });
  const packet = gatherSlot(left.tx, 0);
  expect([...packet.subarray(12, 16)]).toEqual([1, 2, 3, 4]);
  const regions = left.adapter.regions.views.filter(Boolean).length;
  left.adapter.sent(left.tx);
  expect(left.adapter.regions.views.filter(Boolean)).toHaveLength(regions - 1);
});

test('1,000 resizes under traffic that loses packets: nothing lost, nothing twice', {
  tags: ['slow'],
}, () => {
  const random = createRandom(5).next;
  const pair = new Pair({ mtu: 256, attr: { retryCnt: 7, rnrRetry: 7 } });
  const { left, right } = pair;
  const size = 700;
  const slots = 128;
  const from = left.register(new Uint8Array(size * slots).map((_, i) => i * 7).buffer);
  const into = new Uint8Array(size * slots);
  const to = right.register(into.buffer);
  pair.fault = (packet) => (random() % 50 === 0 ? [] : [{ packet, delay: 0 }]);
  let [posted, sent, sends, received] = [0, 0, 0, 0];
  const room = (ring: Ring, most: number) => ring.used < most;
  let [maxSend, maxRecv] = [64, 64];
  for (let resizes = 0; resizes < 1000; ) {
    while (room(right.rq, maxRecv) && posted - received < slots)
      right.postRecv(posted, [{ mr: to, offset: size * (posted++ % slots), length: size }]);
    while (room(left.sq, maxSend) && sends - sent < slots)
      left.post({
        opcode: 'SEND',
        wrId: sends,
        sge: [{ mr: from, offset: size * (sends++ % slots), length: size }],
      });
    pair.run(random() % 200);
    for (const side of [left, right]) {
      const asked = 1 << (random() % 8);
      const name = side === left ? 'maxSendWr' : 'maxRecvWr';
      const used = (side === left ? side.sq : side.rq).used;
      let move: () => void;
      try {
        move = begin(side, { [name]: asked });
      } catch (error) {
        expect(error).toMatchObject({ errno: 'EINVAL', attribute: `cap.${name}` });
        expect(used).toBeGreaterThan(asked);
        continue;
      }
      if (side === left) maxSend = asked;
      else maxRecv = asked;
      if (random() % 2 === 0) pair.run(random() % 100);
      move();
      resizes++;
    }
    for (const { wrId, status } of left.poll()) expect([wrId, status]).toEqual([sent++, 'SUCCESS']);
    for (const { wrId, status, byteLen } of right.poll()) {
      expect([wrId, status, byteLen]).toEqual([received, 'SUCCESS', size]);
      const at = size * (received++ % slots);
      expect(into[at + 1]).toBe(((at + 1) * 7) & 0xff);
      into.fill(0, at, at + size);
    }
  }
  expect(sent).toBeGreaterThan(1000);
  expect(received).toBeGreaterThanOrEqual(sent);
  expect(left.events).toEqual([]);
});
