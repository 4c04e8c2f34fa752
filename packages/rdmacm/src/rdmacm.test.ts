import { GRH_BYTES } from '@node-roce/verbs-api';
import { BTH_BYTES, CmAttribute, CREDIT_UNLIMITED, creditCodeFor, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ADDRESSES, type Ends, equip, openEnds } from '../testing/ends.ts';
import { CmId, type ConnectionParameters, EventChannel, type IdOptions } from './index.ts';

const [, SERVER] = ADDRESSES;
const text = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes).replace(/\0*$/, '');
const bytes = (of: string) => new TextEncoder().encode(of);

async function listener(ends: Ends, options: IdOptions = {}, port = 7471, backlog = 128): Promise<CmId> {
  const id = new CmId({ device: ends.b, ...options });
  await id.listen({ port, backlog });
  return id;
}

/** An id with a queue pair, up to its `connect`. */
async function initiator(ends: Ends, options: IdOptions = {}, port = 7471) {
  const id = new CmId({ device: ends.a, ...options });
  await id.resolveAddr({ host: SERVER, port });
  await id.resolveRoute();
  return { id, ...(await equip(id)) };
}

async function connected(ends: Ends, parameters: ConnectionParameters = {}, options: IdOptions = {}) {
  const listening = await listener(ends, options);
  const client = await initiator(ends, options);
  const connecting = client.id.connect(parameters);
  const id = await listening.getRequest();
  const server = { id, ...(await equip(id)) };
  await Promise.all([server.id.accept(), connecting]);
  return { listening, client, server };
}

describe('a connection', () => {
  test('carries messages both ways, and READs', async () => {
    await using ends = await openEnds();
    const { client, server } = await connected(ends);
    expect([client.qp.state, server.qp.state]).toEqual(['RTS', 'RTS']);
    const arrived = server.qp.receive(server.mr);
    await client.qp.send(bytes('there'));
    expect(text(server.mr.bytes(0, (await arrived).byteLen))).toBe('there');
    const back = client.qp.receive(client.mr);
    await server.qp.send(bytes('and back'));
    expect(text(client.mr.bytes(0, (await back).byteLen))).toBe('and back');
    server.mr.bytes(100, 4).set(bytes('read'));
    await client.qp.read({ mr: client.mr, length: 4 }, server.mr.remote(100));
    expect(text(client.mr.bytes(0, 4))).toBe('read');
  });

  test('gives each side the parameters that the other asks for', async () => {
    await using ends = await openEnds();
    const listening = await listener(ends);
    const client = await initiator(ends);
    const privateData = bytes('who I am');
    const connecting = client.id.connect({
      privateData,
      responderResources: 3,
      initiatorDepth: 5,
      retryCount: 2,
      rnrRetryCount: 6,
    });
    const id = await listening.getRequest();
    expect(id.request).toMatchObject({
      responderResources: 5,
      initiatorDepth: 3,
      retryCount: 2,
      rnrRetryCount: 6,
      srq: false,
      qpNum: client.qp.qpNum,
      translated: false,
    });
    expect(id.request!.privateData).toHaveLength(56);
    expect(text(id.request!.privateData)).toBe('who I am');
    expect(id.remoteAddress).toEqual(client.id.localAddress);
    expect(id.localAddress).toEqual({ address: SERVER, port: 7471 });
    const server = { id, ...(await equip(id)) };
    await Promise.all([id.accept({ privateData: bytes('welcome'), initiatorDepth: 1 }), connecting]);
    expect(text(client.id.replyData)).toBe('welcome');
    expect(client.id.reply).toEqual({
      responderResources: 1,
      initiatorDepth: 5,
      flowControl: false,
      rnrRetryCount: 7,
      srq: false,
      qpNum: server.qp.qpNum,
    });
    const attributes = async ({ qp }: typeof client) => {
      const { maxRdAtomic, maxDestRdAtomic, retryCnt, timeout, minRnrTimer, pathMtu } = (await qp.query())
        .attr;
      return { maxRdAtomic, maxDestRdAtomic, retryCnt, timeout, minRnrTimer, pathMtu };
    };
    const common = { retryCnt: 2, timeout: 17, minRnrTimer: 12, pathMtu: 1024 };
    expect(await attributes(client)).toEqual({ ...common, maxRdAtomic: 5, maxDestRdAtomic: 1 });
    expect(await attributes(server)).toEqual({ ...common, maxRdAtomic: 1, maxDestRdAtomic: 5 });
  });

  test.each([
    [true, true, true],
    [true, false, false],
    [false, true, false],
    [undefined, undefined, false],
  ])('client asks for credits: %s, server: %s, on: %s', async (client, server, on) => {
    await using ends = await openEnds();
    const { network } = ends;
    const deliver = network.deliver.bind(network);
    const syndromes = new Set<number>();
    network.deliver = (packet, destination) => {
      if (packet.bytes[0] === Opcode.RC_ACKNOWLEDGE) syndromes.add(packet.bytes[BTH_BYTES]);
      deliver(packet, destination);
    };
    const listening = await listener(ends);
    const { id, qp, mr } = await initiator(ends);
    const connecting = id.connect({ flowControl: client });
    const asked = await listening.getRequest();
    expect(asked.request!.flowControl).toBe(client ?? false);
    const far = await equip(asked);
    for (let i = 0; i < 4; i++) far.qp.receive(far.mr).catch(() => {});
    await Promise.all([asked.accept({ flowControl: server }), connecting]);
    const back = qp.receive(mr);
    await qp.send(bytes('one'));
    await far.qp.send(bytes('back'));
    await back;
    // 3 receives are left on one side and none on the other, or there is no limit.
    expect([...syndromes].sort()).toEqual(on ? [0, creditCodeFor(3)] : [CREDIT_UNLIMITED]);
  });

  test('takes the options of the id: traffic class, ACK timeout, RNR timer', async () => {
    await using ends = await openEnds();
    const { client, server } = await connected(
      ends,
      {},
      { trafficClass: 104, ackTimeout: 10, minRnrTimer: 5 },
    );
    for (const { qp } of [client, server]) {
      const { attr } = await qp.query();
      expect(attr).toMatchObject({ timeout: 10, minRnrTimer: 5 });
      expect(attr.ahAttr!.grh.trafficClass).toBe(104);
    }
  });

  test('is there with the first data, where RTU is lost', async () => {
    await using ends = await openEnds();
    const { network } = ends;
    const deliver = network.deliver.bind(network);
    let lost = 0;
    network.deliver = (packet, destination) => {
      // BTH, DETH, and the attribute of the MAD header.
      const isRtu = packet.bytes[7] === 1 && packet.bytes[12 + 8 + 17] === CmAttribute.RTU;
      if (isRtu && lost++ === 0) return;
      deliver(packet, destination);
    };
    const listening = await listener(ends);
    const client = await initiator(ends);
    const connecting = client.id.connect();
    const id = await listening.getRequest();
    const server = { id, ...(await equip(id)) };
    const accepting = id.accept();
    await connecting;
    const arrived = server.qp.receive(server.mr);
    await client.qp.send(bytes('early'));
    expect((await arrived).byteLen).toBe(5);
    await accepting;
    expect([lost, server.qp.state]).toEqual([1, 'RTS']);
  });

  test('ends on both sides where one disconnects', async () => {
    await using ends = await openEnds();
    const { client, server } = await connected(ends);
    await client.id.disconnect();
    await server.id.disconnected;
    // As of rdma_disconnect(3), which programs call when they hear of the end.
    await Promise.all([client.id.disconnect(), server.id.disconnect()]);
    expect([client.id.state, server.id.state]).toEqual(['DISCONNECTED', 'DISCONNECTED']);
    expect([client.qp.state, server.qp.state]).toEqual(['ERR', 'ERR']);
  });

  test('of a client that leaves at once: it was there, and its message is', async () => {
    await using ends = await openEnds();
    const listening = await listener(ends);
    const client = await initiator(ends);
    const connecting = client.id.connect();
    const id = await listening.getRequest();
    const server = { id, ...(await equip(id)) };
    const arrived = server.qp.receive(server.mr);
    // The server's program hears of the beginning together with the end.
    const { connections } = ends.b;
    const heard = connections.listener!;
    const early: Parameters<typeof heard.onEvent>[0][] = [];
    connections.listener = {
      onClosed: (reason) => heard.onClosed(reason),
      onEvent: (event) => {
        early.push(event);
        if (event.type === 'disconnected') for (const one of early.splice(0)) heard.onEvent(one);
      },
    };
    const accepting = id.accept();
    await connecting;
    await client.qp.send(bytes('hello'));
    const leaving = client.id.disconnect();
    await accepting;
    expect(text(server.mr.bytes(0, (await arrived).byteLen))).toBe('hello');
    await id.disconnected;
    await leaving;
  });

  test('ends where both disconnect, and where one is destroyed', async () => {
    await using ends = await openEnds();
    const { client, server, listening } = await connected(ends);
    await Promise.all([client.id.disconnect(), server.id.disconnect()]);
    await listening.destroy();
    const again = await connected(ends);
    await again.client.id.destroy();
    await again.server.id.disconnected;
  });

  test('ends where the peer’s device closes', async () => {
    await using ends = await openEnds();
    const { server } = await connected(ends);
    await ends.a.close();
    await server.id.disconnected;
  });

  test('events come to a channel in their order', async () => {
    await using ends = await openEnds();
    await using channel = new EventChannel();
    const { client } = await connected(ends, {}, { channel });
    await client.id.disconnect();
    const names: string[] = [];
    for await (const { event } of channel) {
      names.push(event);
      if (names.filter((name) => name === 'TIMEWAIT_EXIT').length === 2) break;
    }
    expect(names.slice(0, 3)).toEqual(['ADDR_RESOLVED', 'ROUTE_RESOLVED', 'CONNECT_REQUEST']);
    expect(names.slice(3).sort()).toEqual(
      ['DISCONNECTED', 'DISCONNECTED', 'ESTABLISHED', 'ESTABLISHED', 'TIMEWAIT_EXIT', 'TIMEWAIT_EXIT'].sort(),
    );
  });
});

describe('calls that fail', () => {
  test('a signal gives up, and the peer hears of it', async () => {
    await using ends = await openEnds();
    const listening = await listener(ends);
    const { id } = await initiator(ends);
    const controller = new AbortController();
    const connecting = id.connect({}, { signal: controller.signal });
    const asked = await listening.getRequest();
    await equip(asked);
    controller.abort(new Error('enough'));
    await expect(connecting).rejects.toThrow('enough');
    await expect(asked.accept()).rejects.toThrow();
  });

  test('private data that is too long, names and values that are wrong', async () => {
    await using ends = await openEnds();
    const { id } = await initiator(ends);
    const refused = (parameters: object) => expect(id.connect(parameters)).rejects;
    await refused({ privateData: new Uint8Array(57) }).toThrow(
      'privateData: 57 bytes (expected 56 bytes at most)',
    );
    await refused({ retryCount: 8 }).toThrow('retryCount: 8 (expected 0 … 7)');
    await refused({ retries: 1 }).toThrow('retries: there is no such option');
    expect(() => new CmId({ trafficClass: 256 })).toThrow('trafficClass: 256');
    await expect(new CmId({ device: ends.a }).listen({ port: 65_536 })).rejects.toThrow('port: 65536');
  });

  test('a port that has a listener', async () => {
    await using ends = await openEnds();
    await listener(ends);
    await expect(listener(ends)).rejects.toMatchObject({
      code: 'ERR_ROCE_PORT_IN_USE',
      errno: 'EADDRINUSE',
      message: expect.stringMatching(/^port \d+ of 10\.0\.0\.2 is in use by another id/),
    });
  });

  test('a name and a route that do not exist', async () => {
    const id = new CmId();
    await expect(id.resolveAddr({ host: 'no.such.host.invalid', port: 1 })).rejects.toMatchObject({
      code: 'ERR_ROCE_CM_NO_ADDRESS',
      attribute: 'host',
    });
  });

  test('our address of another IP version than the peer’s', async () => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.a });
    await expect(id.resolveAddr({ host: '10.0.0.2', port: 1, source: '::1' })).rejects.toMatchObject({
      code: 'ERR_ROCE_CM_NO_ADDRESS',
      attribute: 'source',
      expected: 'an IPv4 address of this machine',
    });
    expect(id.state).toBe('IDLE');
  });

  test('a protection domain of another device', async () => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.a });
    await id.resolveAddr({ host: '10.0.0.2', port: 1 });
    const [pd, cq] = [await ends.b.allocPd(), await ends.b.createCq()];
    await expect(id.createQp(pd, { sendCq: cq })).rejects.toMatchObject({ errno: 'EINVAL', attribute: 'pd' });
    const context = ends.a.openContext();
    await id.createQp(await context.allocPd(), { sendCq: await context.createCq() });
  });

  test('calls out of order fail with the call that comes first', async () => {
    await using ends = await openEnds();
    const id = new CmId({ device: ends.a });
    await expect(id.connect()).rejects.toThrow('the id is in state IDLE (expected resolveRoute first)');
    await expect(id.accept()).rejects.toThrow('expected a request');
    await expect(id.disconnect()).rejects.toThrow('expected a connection');
  });

  test('a listener that ends: its iteration ends, and who waits for an answer is refused', async () => {
    await using ends = await openEnds();
    const listening = await listener(ends);
    const { id } = await initiator(ends);
    const connecting = id.connect();
    let requests = 0;
    for await (const _request of listening) {
      requests++;
      await listening.destroy();
    }
    expect(requests).toBe(1);
    await expect(connecting).rejects.toMatchObject({ code: 'ERR_ROCE_CM_REFUSED' });
  });
});

describe('a datagram service', () => {
  test('announces its queue pair, and learns its clients from their datagrams', async () => {
    await using ends = await openEnds();
    const listening = await listener(ends, { portSpace: 'UDP' }, 7174);
    const client = await initiator(ends, { portSpace: 'UDP' }, 7174);
    const connecting = client.id.connect({ privateData: bytes('hello') });
    const id = await listening.getRequest();
    expect(text(id.request!.privateData)).toBe('hello');
    const server = { id, ...(await equip(id)) };
    await id.accept({ privateData: bytes('here') });
    await connecting;
    expect(text(client.id.replyData)).toBe('here');
    const { peer } = client.id;
    expect(peer).toMatchObject({ remoteQpn: server.qp.qpNum, remoteQkey: 0x0123_4567 });
    const arrived = server.qp.receive(server.mr);
    await client.qp.send(bytes('a datagram'), { ud: peer! });
    const { byteLen } = await arrived;
    expect(text(server.mr.bytes(GRH_BYTES, byteLen - GRH_BYTES))).toBe('a datagram');
  });

  test('without a listener, and one that refuses', async () => {
    await using ends = await openEnds();
    const first = await initiator(ends, { portSpace: 'UDP' });
    await expect(first.id.connect()).rejects.toMatchObject({ reason: 'UNSUPPORTED', errno: 'ECONNREFUSED' });
    const listening = await listener(ends, { portSpace: 'UDP' });
    const second = await initiator(ends, { portSpace: 'UDP' });
    const connecting = second.id.connect();
    await (await listening.getRequest()).reject();
    await expect(connecting).rejects.toMatchObject({ reason: 'REJECT' });
  });
});
