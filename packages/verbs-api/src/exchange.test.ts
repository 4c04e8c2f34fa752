import { once } from 'node:events';
import { connect, createServer, Socket } from 'node:net';
import { inspect } from 'node:util';
import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test, vi } from 'vitest';
import { turns } from '../testing/clock.ts';
import { openPair } from '../testing/pair.ts';
import {
  type Exchange,
  ExchangeServer,
  exchangeAsClient,
  exchangeAsServer,
  exchangeServer,
  openDevice,
  RoceError,
  subscribeDiagnostics,
} from './index.ts';

const host = '127.0.0.1';

async function ends(): Promise<[Exchange, Exchange]> {
  const server = await exchangeServer({ host, port: 0 });
  const client = await exchangeAsClient({ host, port: server.port });
  const accepted = await server.accept();
  await server.close();
  return [accepted, client];
}

describe('exchange', () => {
  test('carries bigints, bytes and what mr.remote() gives', async () => {
    const [a, b] = await ends();
    await using pair = await openPair();
    const value = {
      remote: pair.a.mr.remote(8),
      key: Uint8Array.of(0, 255, 7),
      list: [1n, -2n, null],
      text: '$',
    };
    a.send(value);
    expect(await b.receive()).toEqual(value);
    await Promise.all([a.close(), b.close()]);
  });

  test('refuses values without a form in JSON at the sender', async () => {
    const [a, b] = await ends();
    const ring: Record<string, unknown> = {};
    ring.self = ring;
    for (const value of [undefined, () => 1, ring, Symbol('x')])
      expect(() => a.send(value)).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute: 'value' }));
    await Promise.all([a.close(), b.close()]);
  });

  test('a malformed bigint is not JSON', async () => {
    const [a, b] = await ends();
    a.send({ $bigint: '7x' });
    await expect(b.receive()).rejects.toMatchObject({ code: 'ERR_ROCE_EXCHANGE' });
    await Promise.all([a.close(), b.close()]);
  });

  test('a server of several clients, until it is closed', async () => {
    const server = await exchangeServer({ host, port: 0 });
    const clients = await Promise.all([1, 2, 3].map(() => exchangeAsClient({ host, port: server.port })));
    for (const [i, client] of clients.entries()) client.send(i);
    const seen: unknown[] = [];
    for await (const exchange of server) {
      seen.push(await exchange.receive());
      exchange.send('done');
      if (seen.length === 3) void server.close();
    }
    expect(seen.sort()).toEqual([0, 1, 2]);
    for (const client of clients) expect(await client.receive()).toBe('done');
    await expect(server.accept()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await Promise.all(clients.map((client) => client.close()));
  });

  test('a server that is closed listens no more, also while its clients do not close', async () => {
    const listener = createServer().listen(0, host);
    const server = new ExchangeServer(listener, undefined);
    await once(listener, 'listening');
    const { port } = server;
    const client = connect({ host, port, allowHalfOpen: true });
    await once(listener, 'connection');
    const closing = server.close();
    await expect(exchangeAsClient({ host, port })).rejects.toThrow('no program listens');
    client.destroy();
    await closing;
  });

  test('clients that wait are closed by an abort', async () => {
    const controller = new AbortController();
    const listener = createServer().listen(0, host);
    const server = new ExchangeServer(listener, controller.signal);
    await once(listener, 'listening');
    const connected = once(listener, 'connection');
    const client = await exchangeAsClient({ host, port: server.port });
    await connected;
    controller.abort();
    await expect(client.receive()).rejects.toThrow('closed the exchange');
  });

  test('of too many clients that wait, the oldest is closed', async () => {
    const listener = createServer();
    await using _server = new ExchangeServer(listener, undefined);
    const sockets = Array.from({ length: 1025 }, () => new Socket());
    const ends = sockets.slice(0, 2).map((socket) => vi.spyOn(socket, 'end'));
    for (const socket of sockets) listener.emit('connection', socket);
    expect(ends.map(({ mock }) => mock.calls.length)).toEqual([1, 0]);
    for (const socket of sockets) socket.destroy();
  });

  test('nobody listens, a port that is taken, options', async () => {
    const server = await exchangeServer({ host, port: 0 });
    const { port } = server;
    await expect(exchangeServer({ host, port })).rejects.toMatchObject({
      code: 'ERR_ROCE_PORT_IN_USE',
      errno: 'EADDRINUSE',
    });
    await server.close();
    const refused = exchangeAsClient({ host, port });
    await expect(refused).rejects.toBeInstanceOf(RoceError);
    await expect(refused).rejects.toThrow(`no program listens at TCP port ${port} of ${host}`);
    await expect(exchangeAsClient({ host, prot: 1 } as never)).rejects.toMatchObject({ expected: 'port' });
    await expect(exchangeAsClient({ host, port: '1' } as never)).rejects.toMatchObject({ attribute: 'port' });
  });

  test('an abort ends the wait for a client', async () => {
    const abort = new AbortController();
    const waiting = exchangeAsServer({ host, port: 0, signal: abort.signal });
    await turns();
    abort.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });
});

test('diagnostics have types, and a subscription ends', async () => {
  await using pair = await openPair();
  const seen: string[] = [];
  const stop = subscribeDiagnostics('state', ({ device, qpn, from, to }) => {
    if (device === pair.a.device && qpn === pair.a.qp.qpNum) seen.push(`${from} ${to}`);
  });
  await pair.a.qp.modify({ qpState: 'SQD' });
  stop();
  await pair.a.qp.modify({ qpState: 'RTS' });
  expect(seen).toEqual(['RTS SQD']);
  expect(() => subscribeDiagnostics('packets' as never, () => {})).toThrow('packet, state, retransmission');
});

test('objects print as a line', async () => {
  const device = await openDevice({ link: new MemoryNetwork().link('10.0.0.1') });
  const pd = await device.allocPd();
  const cq = await device.createCq(16);
  const qp = await pd.createQp({ sendCq: cq });
  const all = {
    device,
    pd,
    cq,
    qp,
    mr: await pd.registerMr(new Uint8Array(100)),
    mw: await pd.allocMw(),
    ah: await pd.createAh({ gid: '10.0.0.2' }),
    srq: await pd.createSrq(),
    channel: device.createCompChannel(),
  };
  for (const [name, object] of Object.entries(all)) {
    expect(inspect(object), name).toMatch(/^[A-Z]\w+ \{ .* \}$/);
    expect(inspect(object).length, name).toBeLessThan(140);
  }
  expect(inspect(qp)).toBe(
    `QueuePair { qpNum: 0x${qp.qpNum.toString(16)}, type: RC, state: RESET, sendPending: 0, recvPending: 0 }`,
  );
  await device.close();
});
