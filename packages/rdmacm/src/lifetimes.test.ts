/** Ids, connections and listeners that end at an unusual time: nothing of them stays, and nobody waits for ever. */
import { MemoryNetwork } from '@node-roce/link';
import { openDevice, RoceError } from '@node-roce/verbs-api';
import { BTH_BYTES, CmAttribute } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { ADDRESSES, type Ends, equip, openEnds } from '../testing/ends.ts';
import { CmId, connect, EventChannel, type IdOptions, listen, type MessageConnection } from './index.ts';

const PORT = 7471;
const [, SERVER] = ADDRESSES;

vi.mock('node:dns/promises', async (original) => {
  const dns = await original<typeof import('node:dns/promises')>();
  const lookup = (host: string, options: object) =>
    host === 'slow.test' ? new Promise(() => {}) : dns.lookup(host, options);
  return { ...dns, lookup };
});

/** The attribute of a management datagram, behind BTH and DETH; undefined for other packets. */
const attributeOf = ({ bytes }: { bytes: Uint8Array }) =>
  bytes[7] === 1 ? bytes[BTH_BYTES + 8 + 17] : undefined;

/** Counts messages of the connection manager by their attribute, and drops one kind. */
function watch({ network }: Ends, dropped?: number): Map<number, number> {
  const deliver = network.deliver.bind(network);
  const counts = new Map<number, number>();
  network.deliver = (packet, destination) => {
    const attribute = attributeOf(packet);
    if (attribute !== undefined) counts.set(attribute, (counts.get(attribute) ?? 0) + 1);
    if (attribute === undefined || attribute !== dropped) deliver(packet, destination);
  };
  return counts;
}

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

const CLOSED = { code: 'ERR_ROCE_CLOSED' };

describe('an id that is destroyed', () => {
  test.each(['inline', 'worker'] as const)('while it resolves: its device closes, %s', async (engine) => {
    const id = new CmId({ deviceOptions: { engine } });
    const resolving = id.resolveAddr({ host: '127.0.72.81', port: PORT, source: '127.0.72.82' });
    const outcome = expect(resolving).rejects.toMatchObject(CLOSED);
    await id.destroy();
    await (await openDevice({ address: '127.0.72.82' })).close();
    await outcome;
    expect(id.state).toBe('DESTROYED');
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

  test('while the answer comes: its channel hears no more of it', async () => {
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
    const signal = AbortSignal.timeout(50);
    for (;;) {
      const next = await channel.getEvent({ signal }).catch(() => undefined);
      if (!next) break;
      events.push(next.event);
    }
    expect(events).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED']);
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
  const taken = new RoceError('ERR_ROCE_PORT_IN_USE', 'taken', { errno: 'EADDRINUSE' });
  const call = vi.spyOn(ends.b.connections, 'call').mockRejectedValueOnce(taken);
  const id = new CmId({ device: ends.b });
  await id.listen({ port: 0 });
  const [first, second] = call.mock.calls.map(([, service]) => Number((service as bigint) & 0xffffn));
  expect(first).not.toBe(second);
  expect(id.localAddress?.port).toBe(second);
});
