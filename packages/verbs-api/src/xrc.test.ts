/** XRC through the verbs: domains, SRQs with numbers, initiators, targets that are shared. */
import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test } from 'vitest';
import { openSide, pattern, type Side } from '../testing/pair.ts';
import { DeviceCap, type QueuePair, type SharedReceiveQueue, type XrcTarget } from './index.ts';

const OPTIONS = { device: { experimental: ['xrc'] as const } };

async function openBoth(device: typeof OPTIONS.device | object = OPTIONS.device) {
  const network = new MemoryNetwork();
  const client = await openSide(network, '10.0.0.1', { device });
  const server = await openSide(network, '10.0.0.2', { device });
  return {
    client,
    server,
    async [Symbol.asyncDispose]() {
      await client.device.close();
      await server.device.close();
    },
  };
}

/** A server's domain with an SRQ, and initiators of the client connected to a target each. */
async function openXrc(count = 1) {
  const both = await openBoth();
  const { client, server } = both;
  const domain = await server.device.openXrcDomain();
  const srq = await server.pd.createSrq({ maxWr: 64, xrc: { domain, cq: server.cq } });
  const links: { from: QueuePair; to: XrcTarget }[] = [];
  for (let i = 0; i < count; i++) {
    const from = await client.pd.createQp({ type: 'XRC_INI', sendCq: client.cq });
    const to = await domain.createTarget();
    await from.connect(to.connectionData(), { retryCnt: 1, timeout: 8, rnrRetry: 1, minRnrTimer: 1 });
    await to.connect(from.connectionData(), { minRnrTimer: 1 });
    links.push({ from, to });
  }
  return { ...both, domain, srq, links, [Symbol.asyncDispose]: both[Symbol.asyncDispose] };
}

const post = (side: Side, srq: SharedReceiveQueue, wrId: number) =>
  srq.postRecv({ wrId, sgList: [{ mr: side.mr, offset: wrId * 1024, length: 1024 }] });

test('four initiators and one SRQ: each message arrives once, with its bytes', async () => {
  await using all = await openXrc(4);
  const { client, server, srq, links } = all;
  client.memory.set(pattern(65_536));
  for (let i = 0; i < 40; i++) post(server, srq, i);
  const sends = links.flatMap(({ from }, c) =>
    Array.from({ length: 10 }, (_, i) =>
      from.send({ mr: client.mr, offset: (c * 10 + i) * 1024, length: 1000 }, { remoteSrqn: srq.number! }),
    ),
  );
  expect((await Promise.all(sends)).every(({ ok }) => ok)).toBe(true);
  const received = server.cq.poll(64);
  expect(received.map(({ wrId }) => Number(wrId)).sort((a, b) => a - b)).toEqual(
    Array.from({ length: 40 }, (_, i) => i),
  );
  const from = new Map(links.map(({ from, to }, c) => [to.qpNum, { c, from, next: 0 }]));
  for (const { wrId, qpNum, byteLen } of received) {
    const link = from.get(qpNum)!;
    const place = (link.c * 10 + link.next++) * 1024;
    expect(byteLen).toBe(1000);
    const at = Number(wrId) * 1024;
    expect(server.memory.subarray(at, at + 1000)).toEqual(client.memory.subarray(place, place + 1000));
  }
});

test('READ, WRITE and atomics of an initiator', async () => {
  await using all = await openXrc();
  const { client, server, srq, links } = all;
  const [{ from }] = links;
  const options = { remoteSrqn: srq.number! };
  server.memory.set(pattern(3000, 2), 0);
  await from.read({ mr: client.mr, offset: 0, length: 3000 }, server.mr.remote(0), options);
  expect(client.memory.subarray(0, 3000)).toEqual(pattern(3000, 2));
  await from.write({ mr: client.mr, offset: 0, length: 3000 }, server.mr.remote(8192), options);
  expect(server.memory.subarray(8192, 8192 + 3000)).toEqual(pattern(3000, 2));
  const before = new DataView(server.memory.buffer).getBigUint64(0, true);
  await from.fetchAdd({ mr: client.mr, offset: 4096, length: 8 }, server.mr.remote(0), 5n, options);
  expect(new DataView(server.memory.buffer).getBigUint64(0, true)).toBe(BigInt.asUintN(64, before + 5n));
});

describe('refused', () => {
  test('without experimental, by name; the capability bit is clear', async () => {
    await using both = await openBoth({});
    const { client } = both;
    const refused = { errno: 'EOPNOTSUPP', message: expect.stringContaining("experimental: ['xrc']") };
    await expect(client.device.openXrcDomain()).rejects.toMatchObject(refused);
    await expect(client.pd.createQp({ type: 'XRC_INI', sendCq: client.cq })).rejects.toMatchObject({
      ...refused,
      attribute: 'type',
    });
    expect(client.device.query().deviceCapFlags & DeviceCap.XRC).toBe(0);
    await using with_ = await openXrc();
    expect(with_.client.device.query().deviceCapFlags & DeviceCap.XRC).toBe(DeviceCap.XRC);
  });

  test('an unknown experiment', async () => {
    await expect(openBoth({ experimental: ['xrcc'] })).rejects.toMatchObject({
      errno: 'EINVAL',
      attribute: 'experimental',
    });
  });

  test('requests without an SRQ, and SRQs on other queue pairs', async () => {
    await using all = await openXrc();
    const { client, srq, links } = all;
    const sgList = [{ mr: client.mr, length: 8 }];
    const [{ from }] = links;
    expect(() => from.postSend({ opcode: 'SEND', sgList })).toThrow(
      expect.objectContaining({ attribute: 'remoteSrqn' }),
    );
    expect(() => from.postSend({ opcode: 'SEND', sgList, remoteSrqn: 2 ** 24 })).toThrow(
      expect.objectContaining({ attribute: 'remoteSrqn' }),
    );
    const rc = await client.pd.createQp({ sendCq: client.cq });
    const other = await client.pd.createQp({ sendCq: client.cq });
    await rc.connect(other.connectionData());
    expect(() => rc.postSend({ opcode: 'SEND', sgList, remoteSrqn: srq.number! })).toThrow(
      expect.objectContaining({ attribute: 'remoteSrqn', expected: 'an XRC_INI queue pair' }),
    );
    expect(() => from.postRecv({ sgList })).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
    await expect(client.pd.createQp({ type: 'XRC_TGT' as never, sendCq: client.cq })).rejects.toMatchObject({
      attribute: 'type',
    });
  });

  test('a domain of another device, or one that is closed', async () => {
    await using all = await openXrc();
    const { client, domain } = all;
    await expect(client.pd.createSrq({ xrc: { domain, cq: client.cq } })).rejects.toMatchObject({
      attribute: 'domain',
    });
    const own = await client.device.openXrcDomain();
    await own.close();
    await expect(own.createTarget()).rejects.toMatchObject({ errno: 'EINVAL' });
    await expect(client.pd.createSrq({ xrc: { domain: own, cq: client.cq } })).rejects.toMatchObject({
      errno: 'EINVAL',
    });
  });
});

test('errors: the initiator gets the status, the target its cause, its openings the event', async () => {
  await using all = await openXrc();
  const { server, client, srq, domain, links } = all;
  const [{ from, to }] = links;
  const second = await domain.openTarget(to.qpNum);
  const ends = Promise.allSettled([to.closed, second.closed]);
  const event = server.device.getEvent();
  await expect(
    from.send({ mr: client.mr, length: 8 }, { remoteSrqn: srq.number! ^ 1 }),
  ).rejects.toMatchObject({ attribute: 'REM_INV_REQ_ERR' });
  expect((await event).event).toMatchObject({ type: 'QP_ACCESS_ERR', qpn: to.qpNum, element: to });
  (await event).ack();
  expect((await ends).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(to.state).toBe('ERR');
  expect(from.state).toBe('ERR');
});

test('a domain is shared by name between contexts of a device; the target goes with its last opening', async () => {
  await using all = await openBoth();
  const { server } = all;
  const context = server.device.openContext();
  const first = await server.device.openXrcDomain({ name: 'a' });
  await expect(context.openXrcDomain({ name: 'b', create: false })).rejects.toMatchObject({
    errno: 'EAGAIN',
  });
  await expect(context.openXrcDomain({ name: 'a', exclusive: true })).rejects.toMatchObject({
    errno: 'EINVAL',
  });
  const second = await context.openXrcDomain({ name: 'a', create: false });
  const target = await first.createTarget({ context: 'one' });
  const opened = await second.openTarget(target.qpNum, { context: 'two' });
  expect([target.context, opened.context, opened.qpNum]).toEqual(['one', 'two', target.qpNum]);
  await target.toInit();
  expect(opened.state).toBe('INIT');
  await expect(first.close()).rejects.toMatchObject({ errno: 'EBUSY' });
  await target.close();
  await first.close();
  expect(opened.state).toBe('INIT');
  // The context takes its openings with it.
  await context.close();
  await expect(server.device.openXrcDomain({ name: 'a', create: false })).rejects.toMatchObject({
    errno: 'EAGAIN',
  });
});

test('an SRQ of a domain is destroyed while targets are there', async () => {
  await using all = await openXrc();
  const { client, server, srq, links } = all;
  post(server, srq, 0);
  await srq.destroy();
  await expect(
    links[0].from.send({ mr: client.mr, length: 8 }, { remoteSrqn: srq.number! }),
  ).rejects.toMatchObject({ attribute: 'REM_INV_REQ_ERR' });
  expect(server.cq.poll(4)).toEqual([]);
});

test('a target is reset and connected again', async () => {
  await using all = await openXrc();
  const { client, server, srq, links } = all;
  const [{ from, to }] = links;
  await to.modify({ qpState: 'ERR' });
  await expect(to.closed).rejects.toMatchObject({ code: 'ERR_ROCE_QP_FAILED' });
  await to.modify({ qpState: 'RESET' });
  await from.modify({ qpState: 'RESET' });
  await from.connect(to.connectionData());
  await to.connect(from.connectionData());
  post(server, srq, 0);
  await from.send({ mr: client.mr, length: 8 }, { remoteSrqn: srq.number! });
  expect(server.cq.poll(4).map(({ ok }) => ok)).toEqual([true]);
  expect((await to.counters()).receivedMessages).toBe(1);
});

test('RESET draws the PSN of every opening of a target anew', async () => {
  await using all = await openXrc();
  const { domain, links } = all;
  const [{ to }] = links;
  const other = await domain.openTarget(to.qpNum);
  const psns = () => [to, other].map((target) => target.connectionData().psn);
  const before = psns();
  await to.modify({ qpState: 'ERR' });
  expect(psns()).toEqual(before);
  await to.modify({ qpState: 'RESET' });
  for (const [i, psn] of psns().entries()) expect(psn).not.toBe(before[i]);
});

test('the error state is the end of every opening of a target, and RESET a new start', async () => {
  await using all = await openXrc();
  const { domain, links } = all;
  const [{ to }] = links;
  const other = await domain.openTarget(to.qpNum);
  const ends = Promise.allSettled([to.closed, other.closed]);
  await to.modify({ qpState: 'ERR' });
  expect((await ends).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  await to.modify({ qpState: 'RESET' });
  const { closed } = other;
  await other.close();
  await closed;
});

test('what one context does to a target holds for the openings of the others, and raises no async event', async () => {
  await using all = await openBoth();
  const { server } = all;
  const context = server.device.openContext();
  const events: unknown[] = [];
  for (const device of [server.device, context]) device.onEvent((event) => events.push(event));
  const [first, second] = await Promise.all(
    [server.device, context].map((device) => device.openXrcDomain({ name: 'a' })),
  );
  const target = await first.createTarget();
  const opened = await second.openTarget(target.qpNum);
  const { psn } = opened.connectionData();
  await target.toInit();
  await target.modify({ qpState: 'ERR' });
  await expect(opened.closed).rejects.toMatchObject({ code: 'ERR_ROCE_QP_FAILED' });
  await opened.modify({ qpState: 'RESET' });
  expect(opened.connectionData().psn).not.toBe(psn);
  const { closed } = target;
  await target.toInit();
  await opened.modify({ qpState: 'ERR' });
  await opened.modify({ qpState: 'RESET' });
  await expect(closed).rejects.toMatchObject({ code: 'ERR_ROCE_QP_FAILED' });
  const end = opened.closed;
  await opened.close();
  await end;
  expect(events).toEqual([]);
  await context.close();
});
