import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test } from 'vitest';
import { openSide, pattern, type Side } from '../testing/pair.ts';
import type { QueuePair, SharedReceiveQueue, SharedReceiveQueueInit } from './index.ts';

/** A server with one SRQ and two queue pairs on it, each connected to a client's. */
async function openServer(init: SharedReceiveQueueInit = {}) {
  const network = new MemoryNetwork();
  const client = await openSide(network, '10.0.0.1');
  const server = await openSide(network, '10.0.0.2');
  const srq = await server.pd.createSrq(init);
  const pairs: { from: QueuePair; to: QueuePair }[] = [];
  for (let i = 0; i < 2; i++) {
    const from = await client.pd.createQp({ sendCq: client.cq });
    const to = await server.pd.createQp({ sendCq: server.cq, srq });
    await from.connect(to.connectionData(), { minRnrTimer: 1 });
    await to.connect(from.connectionData());
    pairs.push({ from, to });
  }
  const send = (which: number, seed: number, length = 100) => {
    client.memory.set(pattern(length, seed), seed * 1024);
    pairs[which].from.postSend({
      opcode: 'SEND',
      signaled: true,
      sgList: [{ mr: client.mr, offset: seed * 1024, length }],
    });
  };
  return {
    client,
    server,
    srq,
    pairs,
    send,
    async [Symbol.asyncDispose]() {
      await client.device.close();
      await server.device.close();
    },
  };
}

const post = (side: Side, srq: SharedReceiveQueue, wrId: number) =>
  srq.postRecv({ wrId, sgList: [{ mr: side.mr, offset: wrId * 1024, length: 1024 }] });

test('takes receives in their order, whichever queue pair gets a message', async () => {
  await using all = await openServer();
  const { server, srq, pairs, send, client } = all;
  srq.postRecv(
    [0, 1, 2].map((wrId) => ({ wrId, sgList: [{ mr: server.mr, offset: wrId * 1024, length: 1024 }] })),
  );
  expect(srq.pending).toBe(3);
  for (const [i, which] of [1, 0, 1].entries()) {
    send(which, i + 1);
    expect(await server.cq.next()).toMatchObject({
      wrIdNumber: i,
      byteLen: 100,
      qpNum: pairs[which].to.qpNum,
    });
    expect(server.memory.subarray(i * 1024, i * 1024 + 100)).toEqual(pattern(100, i + 1));
    await client.cq.next();
  }
  // Nothing left: the peer waits (RNR) until something is posted.
  send(0, 4);
  post(server, srq, 7);
  expect(await server.cq.next()).toMatchObject({ wrIdNumber: 7 });
  expect(() => pairs[0].to.postRecv({})).toThrow(expect.objectContaining({ attribute: 'qp' }));
});

test('reports the limit once, and again when it is set anew; a query gives the current one', async () => {
  await using all = await openServer({ maxWr: 10, maxSge: 2, limit: 2, context: 'mine' });
  const { server, srq, send } = all;
  expect(srq.maxWr).toBeGreaterThanOrEqual(10);
  expect(srq.context).toBe('mine');
  expect(await srq.query()).toEqual({ maxWr: srq.maxWr, maxSge: srq.maxSge, limit: 2 });
  for (let i = 0; i < 4; i++) post(server, srq, i);
  const events: string[] = [];
  server.device.onEvent((event) => events.push(event.type));
  for (let i = 1; i <= 4; i++) send(i & 1, i);
  for (let i = 0; i < 4; i++) await server.cq.next();
  await new Promise(setImmediate);
  expect(events.filter((type) => type === 'SRQ_LIMIT_REACHED')).toHaveLength(1);
  expect((await srq.query()).limit).toBe(0);
  const { event } = await (async () => {
    for (;;) {
      const taken = await server.device.getEvent();
      taken.ack();
      if (taken.event.type === 'SRQ_LIMIT_REACHED') return taken;
    }
  })();
  expect(event).toMatchObject({ srq: srq.handle, element: srq });
  await srq.modify({ limit: 1 });
  expect((await srq.query()).limit).toBe(1);
});

test('a resize loses nothing and keeps the order', async () => {
  await using all = await openServer({ maxWr: 4 });
  const { server, srq, send, client } = all;
  for (let i = 0; i < 4; i++) post(server, srq, i);
  expect(() => post(server, srq, 9)).toThrow(expect.objectContaining({ errno: 'ENOMEM' }));
  await srq.modify({ maxWr: 16 });
  expect(srq.maxWr).toBeGreaterThanOrEqual(16);
  for (let i = 4; i < 12; i++) post(server, srq, i);
  for (let i = 0; i < 12; i++) {
    send(i & 1, i + 1);
    expect((await server.cq.next()).wrIdNumber).toBe(i);
    await client.cq.next();
  }
  await srq.modify({ maxWr: 32 });
  post(server, srq, 20);
  send(0, 1);
  expect((await server.cq.next()).wrIdNumber).toBe(20);
});

describe('the end', () => {
  test('EBUSY while queue pairs use it; then nothing more can be posted', async () => {
    await using all = await openServer();
    const { srq, pairs, server } = all;
    await expect(srq.destroy()).rejects.toMatchObject({ errno: 'EBUSY' });
    for (const { to } of pairs) await to.close();
    await srq.destroy();
    await srq.destroy();
    expect(() => post(server, srq, 1)).toThrow(expect.objectContaining({ code: 'ERR_ROCE_WRONG_STATE' }));
  });

  test('a queue pair in ERR has taken its last receive', async () => {
    await using all = await openServer();
    const { server, pairs } = all;
    const next = server.device.getEvent();
    await pairs[0].to.modify({ qpState: 'ERR' });
    let taken = await next;
    while (taken.event.type !== 'QP_LAST_WQE_REACHED') {
      taken.ack();
      taken = await server.device.getEvent();
    }
    expect(taken.event).toMatchObject({ element: pairs[0].to });
    // Until the event is acknowledged, the queue pair does not go.
    let gone = false;
    const closing = pairs[0].to.close().then(() => {
      gone = true;
    });
    await new Promise(setImmediate);
    expect(gone).toBe(false);
    taken.ack();
    taken.ack();
    await closing;
  });

  test.each([
    [{ maxWr: 0 }, 'maxWr'],
    [{ maxWr: 1e9 }, 'maxWr'],
    [{ maxSge: 1000 }, 'maxSge'],
    [{ limit: 1000 }, 'limit'],
  ])('%j is refused', async (init, attribute) => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    await expect(side.pd.createSrq(init)).rejects.toMatchObject({
      errno: 'EINVAL',
      attribute: expect.stringContaining(attribute),
    });
    await side.device.close();
  });
});

test('refuses operations on tags that are not whole', async () => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  const srq = await side.pd.createSrq({ tags: { max: 2, cq: side.cq } });
  const ops = [
    ['sgList', { opcode: 'TAG_ADD', tag: 1n }],
    ['tag', { opcode: 'TAG_ADD', sgList: [] }],
    ['handle', { opcode: 'TAG_DEL' }],
    ['handled', { opcode: 'TAG_SYNC', handled: 2 ** 32 }],
    ['opcode', {}],
  ] as const;
  for (const [attribute, op] of ops) {
    await expect(srq.postTagOp(op as never)).rejects.toMatchObject({ errno: 'EINVAL', attribute });
  }
  expect(await srq.postTagOp({ opcode: 'TAG_ADD', tag: 1n, sgList: [] })).toBeGreaterThan(0);
  await side.device.close();
});
