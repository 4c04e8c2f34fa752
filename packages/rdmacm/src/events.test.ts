/** Events on channels: of a device that ends, and of ids that are destroyed. */
import { describe, expect, test } from 'vitest';
import { ADDRESSES, type Ends, equip, openEnds } from '../testing/ends.ts';
import { CmId, type CmIdEvent, EventChannel, type IdOptions } from './index.ts';

const PORT = 7471;
const [CLIENT, SERVER] = ADDRESSES;

async function initiator(ends: Ends, options: IdOptions = {}): Promise<CmId> {
  const id = new CmId({ device: ends.a, ...options });
  await id.resolveAddr({ host: SERVER, port: PORT });
  await id.resolveRoute();
  await equip(id);
  return id;
}

/** A listener and a connected id of it, with one channel, and the initiator without one. */
async function connected(ends: Ends, channel: EventChannel<CmId>) {
  const listener = new CmId({ device: ends.b, channel });
  await listener.listen({ port: PORT });
  const client = await initiator(ends);
  const connecting = client.connect();
  const { id: server } = await channel.getEvent();
  await equip(server);
  await Promise.all([server.accept(), connecting]);
  return { listener, client, server };
}

/** The events that wait. */
async function waiting(channel: EventChannel<CmId>): Promise<CmIdEvent<CmId>[]> {
  const events: CmIdEvent<CmId>[] = [];
  for (;;) {
    // Long enough for what is under way in memory.
    const signal = AbortSignal.timeout(300);
    const event = await channel.getEvent({ signal }).catch(() => undefined);
    if (!event) return events;
    events.push(event);
  }
}

test('a connect that was aborted in its last step is never ESTABLISHED', async () => {
  await using ends = await openEnds();
  await using channel = new EventChannel<CmId>();
  const listener = new CmId({ device: ends.b });
  await listener.listen({ port: PORT });
  const client = await initiator(ends, { channel });
  await waiting(channel);
  const abort = new AbortController();
  const { connections } = ends.a;
  const call = connections.call.bind(connections);
  connections.call = (name, ...args) => {
    if (name === 'cmReady') abort.abort(new Error('enough'));
    return call(name, ...args);
  };
  const outcome = expect(client.connect({}, { signal: abort.signal })).rejects.toThrow('enough');
  const request = await listener.getRequest();
  await equip(request);
  await request.accept().catch(() => {}); // It may hear of the end first.
  await outcome;
  expect(client.state).toBe('DISCONNECTED');
  expect(await waiting(channel)).toEqual([]);
  for (const id of [client, request, listener]) await id.destroy();
});

describe('a device that ends', () => {
  test('raises DEVICE_REMOVAL for each of its ids, and DISCONNECTED for those that are connected', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel<CmId>();
    const { listener, server } = await connected(ends, channel);
    const bound = new CmId({ device: ends.b, channel });
    await bound.bindAddr(SERVER);
    const other = new CmId({ device: ends.a, channel });
    await other.bindAddr(CLIENT);
    await waiting(channel);

    const next = channel.getEvent();
    await ends.b.close();
    const events = [await next, ...(await waiting(channel))];
    expect(events.map(({ event, id }) => [event, id])).toEqual([
      ['DEVICE_REMOVAL', listener],
      ['DISCONNECTED', server],
      ['DEVICE_REMOVAL', server],
      ['DEVICE_REMOVAL', bound],
    ]);
    expect(events[0].error).toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    expect([listener, server, bound, other].map(({ state }) => state)).toEqual([
      'DISCONNECTED',
      'DISCONNECTED',
      'DISCONNECTED',
      'BOUND',
    ]);
    await listener.disconnected;
    await expect(listener.getRequest()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    for (const id of [listener, server, bound, other]) await id.destroy();
  });

  test('ends an attempt: its channel hears of the device alone', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel<CmId>();
    ends.cut();
    const id = await initiator(ends, { channel });
    const outcome = expect(id.connect()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await waiting(channel);
    await ends.a.close();
    await outcome;
    expect((await waiting(channel)).map(({ event }) => event)).toEqual(['DEVICE_REMOVAL']);
  });

  test('ends while an id answers its peer, who leaves: DISCONNECTED comes once, and before DEVICE_REMOVAL', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel<CmId>();
    const { client, server } = await connected(ends, channel);
    await waiting(channel);
    const qp = server.qp!;
    const stop = qp.modify.bind(qp);
    qp.modify = async (attributes) => {
      await stop(attributes);
      await ends.b.close();
    };
    await client.disconnect();
    const events = (await waiting(channel)).filter(({ id }) => id === server);
    expect(events.map(({ event }) => event)).toEqual(['DISCONNECTED', 'DEVICE_REMOVAL']);
    await client.destroy();
  });

  test('is refused by ids that come later', async () => {
    await using ends = await openEnds();
    await ends.a.close();
    const id = new CmId({ device: ends.a });
    await expect(id.bindAddr(CLIENT)).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    const resolving = id.resolveAddr({ host: SERVER, port: PORT });
    await expect(resolving).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  });
});

describe('an id that is destroyed', () => {
  test('has no events any more, also those that wait', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel<CmId>();
    const { listener, client, server } = await connected(ends, channel);
    const bound = await initiator(ends, { channel });
    await client.disconnect();
    await server.disconnected;
    await server.destroy();
    expect((await waiting(channel)).map(({ event, id }) => [event, id])).toEqual([
      ['ADDR_RESOLVED', bound],
      ['ROUTE_RESOLVED', bound],
    ]);
    for (const id of [bound, client, listener]) await id.destroy();
  });

  test('takes along the requests that came to it', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel<CmId>();
    const listener = new CmId({ device: ends.b, channel });
    await listener.listen({ port: PORT });
    const client = await initiator(ends);
    const outcome = expect(client.connect()).rejects.toMatchObject({ code: 'ERR_ROCE_CM_REFUSED' });
    await expect.poll(async () => (await ends.b.connections.call('cmCounters')).pending).toBe(1);
    await listener.destroy();
    await outcome;
    expect(await waiting(channel)).toEqual([]);
  });
});
