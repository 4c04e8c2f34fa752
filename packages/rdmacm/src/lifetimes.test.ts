/** Ids, connections and listeners that end at an unusual time: nothing of them stays, and nobody waits for ever. */
import { MemoryNetwork } from '@node-roce/link';
import { openDevice, type QueuePair, RoceError } from '@node-roce/verbs-api';
import { CmAttribute } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { host } from '../../link/testing/loopback.ts';
import { pass, stopClock, turns } from '../../verbs-api/testing/clock.ts';
import { ADDRESSES, type Ends, equip, openEnds, pairOf, watch } from '../testing/ends.ts';
import { addName } from '../testing/names.ts';
import { deviceTable } from './devices.ts';
import { CmId, connect, EventChannel, type IdOptions, listen, type MessageConnection } from './index.ts';
import { bindPort } from './ports.ts';

const PORT = 7471;
const [, SERVER] = ADDRESSES;

async function initiator(ends: Ends, options: IdOptions = {}) {
  const id = new CmId({ device: ends.a, ...options });
  await id.resolveAddr({ host: SERVER, port: PORT });
  await id.resolveRoute();
  return { id, ...(await equip(id)) };
}

async function listening(ends: Ends, options: IdOptions = {}): Promise<CmId> {
  const id = new CmId({ device: ends.b, ...options });
  await id.listen({ port: PORT });
  return id;
}

/** A peer that does not answer is given up after 16 s at least. */
const PATIENT = { responseTimeout: 18, packetLifetime: 8, maxRetries: 15 };
const CLOSED = { code: 'ERR_ROCE_CLOSED' };

describe('an id that is destroyed', () => {
  test.each(['inline', 'worker'] as const)('while it resolves: its device closes, %s', async (engine) => {
    const id = new CmId({ deviceOptions: { engine } });
    const resolving = id.resolveAddr({ host: host(1), port: PORT, source: host(2) });
    const outcome = expect(resolving).rejects.toMatchObject(CLOSED);
    await id.destroy();
    await (await openDevice({ address: host(2) })).close();
    await outcome;
    expect(id.state).toBe('DESTROYED');
  });

  test('while a name is looked up: no device stays open', async () => {
    const id = new CmId();
    const resolving = id.resolveAddr({ host: 'localhost', port: PORT, source: host(3) });
    const outcome = expect(resolving).rejects.toMatchObject(CLOSED);
    await id.destroy();
    await outcome;
    await (await openDevice({ address: host(3) })).close();
  });

  test('while it begins to listen: the port is free', async () => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.b });
    const outcome = expect(id.listen({ port: PORT })).rejects.toMatchObject(CLOSED);
    await id.destroy();
    await outcome;
    await (await listening(ends)).destroy();
  });

  test('while its queue pair is created: the queue pair goes', async () => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.a });
    await id.resolveAddr({ host: SERVER, port: PORT });
    const pd = await ends.a.allocPd();
    const outcome = expect(id.createQp(pd, { sendCq: await ends.a.createCq(4) })).rejects.toMatchObject(
      CLOSED,
    );
    await id.destroy();
    await outcome;
    await pd.dealloc();
  });

  test('after its queue pair was created in another thread, before INIT', async () => {
    const deviceOptions = { engine: 'worker', link: 'udp' } as const;
    const id = new CmId({ deviceOptions });
    await id.bindAddr('127.0.72.85');
    const { device } = id;
    const pd = await device.allocPd();
    const creating = id.createQp(pd, { sendCq: await device.createCq(4) });
    const outcome = expect(creating).rejects.toMatchObject(CLOSED);
    // The turn in which the thread's answer comes, whatever else the machine does.
    let qp: QueuePair | undefined;
    await new Promise<void>((resolve) => {
      const set = (made: QueuePair) => {
        qp = made;
        resolve();
      };
      Object.defineProperty(id, 'qp', { get: () => qp, set });
    });
    await id.destroy();
    await outcome;
  });

  test('while the answer of a datagram service makes the address handle: the handle goes', async () => {
    await using ends = await openEnds();
    const server = new CmId({ device: ends.b, portSpace: 'UDP' });
    await server.listen({ port: PORT });
    const id = new CmId({ device: ends.a, portSpace: 'UDP' });
    await id.resolveAddr({ host: SERVER, port: PORT });
    await id.resolveRoute();
    const { pd, mr } = await equip(id);
    // An engine that answers late.
    const createAh = pd.createAh.bind(pd);
    let destroyed: Promise<void> | undefined;
    pd.createAh = async (init) => {
      const ah = await createAh(init);
      destroyed = id.destroy();
      await destroyed;
      return ah;
    };
    const outcome = expect(id.connect()).rejects.toMatchObject(CLOSED);
    const request = await server.getRequest();
    await equip(request);
    await request.accept();
    await outcome;
    await turns();
    await mr.deregister();
    await pd.dealloc();
    expect(id.peer).toBeUndefined();
  });

  test('while it joins a group: the group is left', async () => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.a, portSpace: 'UDP' });
    await id.bindAddr(ADDRESSES[0]);
    const { pd, mr } = await equip(id);
    const outcome = expect(id.joinMulticast('239.1.1.1')).rejects.toMatchObject(CLOSED);
    await id.destroy();
    await outcome;
    await mr.deregister();
    await pd.dealloc();
  });

  test('while the answer comes: its channel hears no more of it, also what waited there', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel<CmId>();
    const server = await listening(ends);
    const { id } = await initiator(ends, { channel });
    const connecting = id.connect().catch(() => {});
    const heard = ends.a.connections.listener!;
    let destroyed: Promise<void> | undefined;
    ends.a.connections.listener = {
      onClosed: (reason) => heard.onClosed(reason),
      onEvent: (event) => {
        heard.onEvent(event);
        if (event.type === 'response') destroyed = id.destroy();
      },
    };
    const request = await server.getRequest();
    await equip(request);
    await request.accept().catch(() => {});
    await connecting;
    await destroyed;
    const events: string[] = [];
    const ended = new AbortController();
    void turns().then(() => ended.abort());
    for (;;) {
      const next = await channel.getEvent({ signal: ended.signal }).catch(() => undefined);
      if (!next) break;
      events.push(next.event);
    }
    expect(events).toEqual([]);
  });
});

describe('an id that binds while it binds already refuses: its device closes with it', () => {
  const address = host(4);
  const CALLS: Record<string, (id: CmId) => Promise<void>> = {
    bindAddr: (id) => id.bindAddr(address),
    resolveAddr: (id) => id.resolveAddr({ host: address, port: PORT, source: address }),
    listen: (id) => id.listen({ address, port: 0 }),
  };
  test.each(Object.keys(CALLS))('%s', async (name) => {
    const id = new CmId();
    const first = CALLS[name](id);
    await expect(CALLS[name](id)).rejects.toMatchObject({ code: 'ERR_ROCE_CM_STATE', errno: 'EINVAL' });
    await first;
    await id.destroy();
    await (await openDevice({ address })).close();
  });
});

test('a shared device that the program has closed is replaced for the next id', async () => {
  const address = host(5);
  const first = new CmId();
  await first.bindAddr(address);
  const closing = first.device.close();
  const second = new CmId();
  await second.bindAddr(address);
  await closing;
  await first.destroy();
  await second.device.allocPd();
  await second.destroy();
  await (await openDevice({ address })).close();
});

describe('a second queue pair of an id is refused', () => {
  test.each(['at once', 'later'] as const)('%s: the first goes with the id', async (when) => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.a });
    const pd = await ends.a.allocPd();
    const init = { sendCq: await ends.a.createCq(4) };
    const first = id.createQp(pd, init);
    if (when === 'later') await first;
    await expect(id.createQp(pd, init)).rejects.toMatchObject({ code: 'ERR_ROCE_CM_STATE', errno: 'EINVAL' });
    expect(id.qp).toBe(await first);
    await id.destroy();
    await pd.dealloc();
  });

  test('but not after one that could not be created, or that was taken off the id', async () => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.a });
    const pd = await ends.a.allocPd();
    const init = { sendCq: await ends.a.createCq(4) };
    await expect(id.createQp(pd, { ...init, cap: { maxSendWr: 1e9 } })).rejects.toMatchObject({
      errno: 'EINVAL',
    });
    await (await id.createQp(pd, init)).close();
    id.qp = undefined;
    await id.createQp(pd, init);
    await id.destroy();
    await pd.dealloc();
  });
});

describe('a listener that ends', () => {
  test('leaves the connections that its program took from the event channel', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel<CmId>();
    const server = await listening(ends, { channel });
    const client = await initiator(ends);
    const connecting = client.id.connect();
    const { event, id } = await channel.getEvent();
    expect(event).toBe('CONNECT_REQUEST');
    const { qp, mr } = await equip(id);
    await Promise.all([id.accept(), connecting]);
    await server.destroy();
    expect([id.state, client.id.state]).toEqual(['CONNECTED', 'CONNECTED']);
    const arrived = qp.receive(mr);
    await client.qp.send(new Uint8Array(5));
    expect((await arrived).byteLen).toBe(5);
  });

  test('ends the connections that are being made', async () => {
    await using ends = await openEnds();
    watch(ends, CmAttribute.RTU);
    const listener = await listen({ device: ends.b, port: PORT });
    const client = await connect(`${SERVER}:${PORT}`, { device: ends.a });
    await listener.close();
    await client.closed;
    expect(await client.receive()).toBeUndefined();
    await client.close();
  });

  test('disconnects those that nobody took, and waits for no peer', async () => {
    // A wait for a peer would not end.
    stopClock();
    const limit = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(new AbortController().signal);
    await using ends = await openEnds();
    watch(ends, CmAttribute.DREP);
    const listener = await listen({ device: ends.b, port: PORT });
    const options = { device: ends.a, timing: PATIENT };
    const clients = await Promise.all([1, 2].map(() => connect(`${SERVER}:${PORT}`, options)));
    await turns(); // The listener has both.
    const closing = listener.close();
    await expect(listener.accept()).rejects.toMatchObject(CLOSED);
    await closing;
    for (const { closed } of clients) await closed;
    limit.mockRestore();
  });

  test('with its device, by the device’s signal', async () => {
    const controller = new AbortController();
    const network = new MemoryNetwork();
    const device = await openDevice({ link: network.link(SERVER, 1024), signal: controller.signal });
    const listener = await listen({ device, port: PORT });
    const waiting = expect(listener.accept()).rejects.toThrow('enough');
    controller.abort(new Error('enough'));
    await waiting;
    await listener.close();
  });

  test('before it began, by its signal', async () => {
    await using ends = await openEnds();
    const controller = new AbortController();
    const beginning = listen({ device: ends.b, port: PORT, signal: controller.signal });
    controller.abort(new Error('enough'));
    await expect(beginning).rejects.toThrow('enough');
    await (await listening(ends)).destroy();
  });
});

describe('a connection', () => {
  test('that is closed waits for a peer that is gone only for a time', async () => {
    stopClock();
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { timing: PATIENT, closeTimeout: 50 });
    ends.cut();
    const closing = Promise.all([server.close(), client.close()]);
    await pass(60);
    await closing;
    expect([client.id.state, server.id.state]).toEqual(['DESTROYED', 'DESTROYED']);
  });

  test('that the peer gives up after RTU was lost: its queue pair ends', async () => {
    await using ends = await openEnds();
    watch(ends, CmAttribute.RTU);
    const server = await listening(ends);
    const client = await connectedClient(ends, server);
    const ended = client.connection.receive();
    client.controller.abort(new Error('enough'));
    await expect(client.accepting).rejects.toThrow('enough');
    expect(await ended).toBeUndefined();
    await client.connection.close();
  });

  test('whose queue pair the program has closed is disconnected all the same', async () => {
    await using ends = await openEnds();
    const server = await listening(ends);
    const client = await initiator(ends);
    const connecting = client.id.connect();
    const id = await server.getRequest();
    await equip(id);
    await Promise.all([id.accept(), connecting]);
    await client.qp.close();
    await client.id.disconnect();
    await id.disconnected;
  });

  test('is not answered where the signal had aborted before', async () => {
    await using ends = await openEnds();
    const counts = watch(ends);
    const server = await listening(ends);
    const client = await initiator(ends);
    const connecting = client.id.connect();
    const id = await server.getRequest();
    await equip(id);
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(id.accept({}, { signal })).rejects.toThrow('enough');
    expect(counts.get(CmAttribute.REP)).toBeUndefined();
    await Promise.all([id.accept(), connecting]);
  });

  test('that cannot begin is refused at once', async () => {
    await using ends = await openEnds();
    const server = await listening(ends);
    const client = await initiator(ends);
    const outcome = expect(client.id.connect()).rejects.toMatchObject({ code: 'ERR_ROCE_CM_REFUSED' });
    const id = await server.getRequest();
    const { qp } = await equip(id);
    await qp.close();
    await expect(id.accept()).rejects.toBeInstanceOf(RoceError);
    await outcome;
    expect(id.state).toBe('DISCONNECTED');
  });

  test('by a name that the resolver does not find: its signal ends the wait', async () => {
    addName('slow.test', () => new Promise(() => {}));
    const controller = new AbortController();
    const connecting = connect('slow.test:1', { signal: controller.signal });
    controller.abort(new Error('enough'));
    await expect(connecting).rejects.toThrow('enough');
  });
});

/** A connection whose server is still waiting for RTU, with the call that gives that up. */
async function connectedClient(ends: Ends, server: CmId) {
  const connecting: Promise<MessageConnection> = connect(`${SERVER}:${PORT}`, { device: ends.a });
  const id = await server.getRequest();
  await equip(id);
  const controller = new AbortController();
  const accepting = id.accept({}, { signal: controller.signal });
  accepting.catch(() => {});
  return { connection: await connecting, controller, accepting };
}

test('a port that is drawn and has a listener: another one is drawn', async () => {
  await using ends = await openEnds();
  // One is left of those that are drawn first.
  const tables = { own: deviceTable(ends.b), others: [] };
  const others = Array.from({ length: 16_383 }, (_, i) => bindPort(tables, 'TCP', SERVER, 49_153 + i));
  const taken = new RoceError('ERR_ROCE_PORT_IN_USE', 'taken', { errno: 'EADDRINUSE' });
  const call = vi.spyOn(ends.b.connections, 'call').mockRejectedValueOnce(taken);
  const id = new CmId({ device: ends.b });
  await id.listen({ port: 0 });
  const [first, second] = call.mock.calls.map(([, service]) => Number((service as bigint) & 0xffffn));
  expect(first).toBe(49_152);
  expect(second).toBeLessThan(49_152);
  expect(id.localAddress?.port).toBe(second);
  for (const port of [...others, bindPort(tables, 'TCP', SERVER, first)]) port.release();
});
