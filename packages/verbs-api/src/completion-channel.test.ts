import { describe, expect, test } from 'vitest';
import { openPair, type Side } from '../testing/pair.ts';
import { EventChannel } from './event-channel.ts';
import { AffiliatedEvents } from './event-queue.ts';
import type { CompletionQueue } from './index.ts';

const receive = (side: Side, wrId = 0) => side.qp.postRecv({ wrId, sgList: [{ mr: side.mr, length: 1024 }] });
const send = (side: Side, more = {}) =>
  side.qp.postSend({ opcode: 'SEND', sgList: [{ mr: side.mr, length: 8 }], ...more });

/** A pair whose right side has a second queue pair that completes on a channel. */
async function openChannel(cqe = 64) {
  const pair = await openPair();
  const { a, b } = pair;
  const channel = b.device.createCompChannel();
  const cq = await b.device.createCq(cqe, { channel, context: 'here' });
  const qp = await b.pd.createQp({ sendCq: b.cq, recvCq: cq });
  const from = await a.pd.createQp({ sendCq: a.cq });
  await qp.connect(from.connectionData());
  await from.connect(qp.connectionData());
  return Object.assign(pair, { channel, cq, right: { ...b, qp }, left: { ...a, qp: from } });
}

test('one event for a request; each has to be acknowledged before the queue goes', async () => {
  await using all = await openChannel();
  const { channel, cq, left, right } = all;
  expect([cq.context, channel.users]).toEqual(['here', 1]);
  for (let i = 0; i < 3; i++) receive(right, i);
  cq.requestNotify();
  send(left);
  send(left);
  expect(await channel.getEvent()).toBe(cq);
  while (right.qp.recvPending > 1) await right.device.progress();
  expect(channel.pollEvent()).toBeUndefined();
  expect(cq.poll().map((wc) => wc.wrIdNumber)).toEqual([0, 1]);

  cq.requestNotify({ solicitedOnly: true });
  send(left);
  while (right.qp.recvPending > 0) await right.device.progress();
  expect(channel.pollEvent()).toBeUndefined();
  receive(right, 3);
  send(left, { solicited: true });
  expect(await channel.getEvent()).toBe(cq);

  await expect(channel.destroy()).rejects.toMatchObject({ errno: 'EBUSY' });
  await right.qp.close();
  let gone = false;
  const destroying = cq.destroy().then(() => {
    gone = true;
  });
  await new Promise(setImmediate);
  expect(gone).toBe(false);
  cq.ackEvents(2);
  await destroying;
  await channel.destroy();
  await expect(channel.getEvent()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
});

test('the event that was asked for comes, though others wait for the queue as well', async () => {
  await using all = await openChannel();
  const { channel, cq, left, right } = all;
  for (let i = 0; i < 4; i++) receive(right, i);

  cq.requestNotify();
  const waiting = cq.wait();
  send(left);
  expect(await channel.getEvent()).toBe(cq);
  await waiting;
  expect(cq.poll()).toHaveLength(1);

  cq.requestNotify();
  const next = cq.next();
  send(left);
  expect(await channel.getEvent()).toBe(cq);
  await next;

  // Nobody has asked since: what wakes those who wait is no event of the channel.
  const controller = new AbortController();
  const given = cq.wait({ signal: controller.signal });
  controller.abort(new Error('enough'));
  await expect(given).rejects.toThrow('enough');
  send(left);
  await cq.wait();
  expect(channel.pollEvent()).toBeUndefined();
  cq.ackEvents(2);
});

test('the end of the device is the end of the wait for acknowledgments', async () => {
  const all = await openChannel();
  const { channel, cq, left, right } = all;
  receive(right);
  cq.requestNotify();
  send(left);
  expect(await channel.getEvent()).toBe(cq);
  await right.qp.close();
  const destroying = cq.destroy();
  await all.b.device.close();
  await destroying;
  await all.a.device.close();
});

test('each queue that raises an event gets its turn, however many they are', () => {
  const channel = new EventChannel(() => {});
  const queues = Array.from({ length: 1025 }, () => ({
    channelEvents: new AffiliatedEvents(),
    ackEvents: () => {},
  }));
  for (const queue of queues) channel.raise(queue);
  const taken = new Set(queues.map(() => channel.pollEvent()));
  expect(taken).toEqual(new Set(queues));
});

test('an iteration gives queues as they have something, and ends with the channel', async () => {
  await using all = await openChannel();
  const { channel, cq, left, right } = all;
  for (let i = 0; i < 3; i++) receive(right, i);
  const seen: CompletionQueue[] = [];
  const loop = (async () => {
    for await (const queue of channel) {
      seen.push(queue);
      queue.poll();
      if (seen.length === 3) {
        await right.qp.close();
        await queue.destroy();
        await channel.destroy();
      } else {
        queue.requestNotify();
        send(left);
      }
    }
  })();
  cq.requestNotify();
  send(left);
  await loop;
  expect(seen).toEqual([cq, cq, cq]);
});

test('a signal, and the end of the device, reach who waits', async () => {
  const all = await openChannel();
  const reason = new Error('enough');
  const controller = new AbortController();
  const first = all.channel.getEvent({ signal: controller.signal });
  const second = all.channel.getEvent();
  controller.abort(reason);
  await expect(first).rejects.toBe(reason);
  await all.b.device.close();
  await expect(second).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  expect(() => all.b.device.createCompChannel()).toThrow(/closed/);
  await all.a.device.close();
});

describe('resize', () => {
  test('unpolled completions stay, in order; an armed notification moves along', async () => {
    await using all = await openChannel(4);
    const { channel, cq, left, right } = all;
    for (let i = 0; i < 30; i++) receive(right, i);
    for (let i = 0; i < 3; i++) send(left);
    while (right.qp.recvPending > 27) await right.device.progress();
    await expect(cq.resize(2)).rejects.toMatchObject({ errno: 'EINVAL' });
    cq.requestNotify();
    await cq.resize(16);
    expect(cq.cqe).toBeGreaterThanOrEqual(16);
    for (let i = 0; i < 5; i++) send(left);
    expect(await channel.getEvent()).toBe(cq);
    cq.ackEvents();
    while (right.qp.recvPending > 22) await right.device.progress();
    await cq.resize(32);
    for (let i = 0; i < 20; i++) send(left);
    while (right.qp.recvPending > 2) await right.device.progress();
    const order: number[] = [];
    for (let some = cq.poll(); some.length > 0; some = cq.poll()) {
      order.push(...some.map((wc) => wc.wrIdNumber));
    }
    expect(order).toEqual(Array.from({ length: 28 }, (_, i) => i));
  });

  test('wait sees what lies in the ring before', async () => {
    await using all = await openChannel(4);
    const { cq, left, right } = all;
    receive(right, 5);
    send(left);
    while (right.qp.recvPending > 0) await right.device.progress();
    await cq.resize(64);
    await cq.wait();
    expect((await cq.next()).wrIdNumber).toBe(5);
    const next = cq.next();
    receive(right, 6);
    send(left);
    expect((await next).wrIdNumber).toBe(6);
  });
});
