/** Sockets that are returned at once, as those of `net.connect`. */
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { openEnds } from '../../rdmacm/testing/ends.ts';
import { addName } from '../../rdmacm/testing/names.ts';
import { connect, createConnection, listen, type RSocket } from './index.ts';

const SMALL = { receiveBuffer: 512, sendBuffer: 300, queue: 8, closeTimeout: 200 };

/** What both kinds of socket are asked. */
const stateOf = (socket: RSocket | net.Socket) => {
  const { connecting, pending, readyState, localFamily, remoteFamily } = socket;
  const { family } = socket.address() as net.AddressInfo;
  return { connecting, pending, readyState, localFamily, remoteFamily, family };
};

/** The states of a socket from its creation to its end, to a peer that reads all. */
async function livesOf(socket: RSocket | net.Socket) {
  const events: string[] = [];
  for (const name of ['connect', 'ready', 'end', 'finish', 'close']) socket.on(name, () => events.push(name));
  const states = [stateOf(socket)];
  await once(socket, 'ready');
  states.push(stateOf(socket));
  socket.resume().end('x');
  if (!socket.writableFinished) await once(socket, 'finish');
  states.push({ ...stateOf(socket), family: 'IPv4' });
  if (!socket.closed) await once(socket, 'close');
  // node:net forgets its addresses with the end of its handle.
  const { connecting, readyState } = socket;
  return { states, events: events.slice(0, 2), last: { connecting, readyState } };
}

test('a socket has the states of one of node:net', async () => {
  await using ends = await openEnds();
  await using server = await listen({ device: ends.b, port: 7, ...SMALL, allowHalfOpen: true });
  expect(server.address()).toEqual({ address: '10.0.0.2', family: 'IPv4', port: 7 });
  const tcp = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(tcp, 'listening');
  const { port } = tcp.address() as net.AddressInfo;
  const answer = async (peer: Duplex) => {
    peer.resume();
    await once(peer, 'end');
    peer.end();
  };
  tcp.on('connection', answer);
  const accepted = server.accept().then(answer);
  const ours = await livesOf(createConnection({ device: ends.a, host: '10.0.0.2', port: 7, ...SMALL }));
  expect(ours).toEqual(await livesOf(net.connect({ host: '127.0.0.1', port })));
  await accepted;
  tcp.close();
});

test('a socket that is destroyed before it is connected is closed', async () => {
  await using ends = await openEnds();
  const socket = createConnection({ device: ends.a, host: '10.0.0.2', port: 7, ...SMALL });
  expect(stateOf(socket)).toMatchObject({ connecting: true, pending: true, readyState: 'opening' });
  await once(socket.destroy(), 'close');
  expect(stateOf(socket)).toMatchObject({ connecting: false, pending: true, readyState: 'closed' });
});

test('a port and a host are arguments as with node:net; the path of a Unix socket is refused', async () => {
  addName('far.test', async () => {
    throw new Error('far.test was looked up');
  });
  for (const port of [7471, '7471']) {
    const socket = createConnection(port, 'far.test', () => {});
    expect((await once(socket, 'error'))[0]).toMatchObject({
      code: 'ERR_ROCE_CM_NO_ADDRESS',
      cause: new Error('far.test was looked up'),
    });
  }
  for (const wrong of ['/run/some.sock', undefined, null, true])
    expect(() => createConnection(wrong as never)).toThrow(
      expect.objectContaining({ errno: 'EINVAL', attribute: 'options' }),
    );
  for (const options of [
    { path: '/run/some.sock' },
    { path: '/run/some.sock', host: 'far.test', port: 7471 },
  ])
    expect(() => createConnection(options as never)).toThrow(
      expect.objectContaining({ errno: 'EINVAL', attribute: 'path' }),
    );
});

const PORTS = [
  '',
  ' ',
  '\t',
  '12abc',
  '7,5',
  'http',
  '-1',
  -1,
  65_536,
  '65536',
  7.5,
  '7.5',
  Number.NaN,
  true,
  false,
  {},
  [],
  [7],
];
test.each(PORTS)('a port that node:net refuses is refused, in an object: %j', (port) => {
  expect(() => net.connect({ port: port as never, host: 'far.test' })).toThrow(
    expect.objectContaining({ code: expect.stringMatching(/^ERR_(SOCKET_BAD_PORT|INVALID_ARG_TYPE)$/) }),
  );
  expect(() => createConnection({ port: port as never, host: 'far.test' })).toThrow(
    expect.objectContaining({ code: 'ERR_ROCE_INVALID_ATTRIBUTE', errno: 'EINVAL', attribute: 'port' }),
  );
});

test.each(['', ' ', -1, 65_536, '65536', 7.5, Number.NaN])('… and as an argument: %j', (port) => {
  expect(() => net.connect(port as never)).toThrow(expect.objectContaining({ code: 'ERR_SOCKET_BAD_PORT' }));
  expect(() => createConnection(port as never)).toThrow(
    expect.objectContaining({ code: 'ERR_ROCE_INVALID_ATTRIBUTE', errno: 'EINVAL', attribute: 'port' }),
  );
});

// A URL has a path, which `http` does not pass on as that of a socket.
test('the path of an http request is no path of a socket', async () => {
  addName('path.test', async () => {
    throw new Error('path.test was looked up');
  });
  const agent = new http.Agent();
  agent.createConnection = (options) => createConnection(options as never);
  for (const how of [{ createConnection }, { agent }]) {
    const request = http.get({ host: 'path.test', port: 7, path: '/some/page', ...how });
    expect((await once(request, 'error'))[0]).toMatchObject({ code: 'ERR_ROCE_CM_NO_ADDRESS' });
  }
});

test('a callback is called without arguments, whatever it takes', async () => {
  await using ends = await openEnds();
  await using server = await listen({ device: ends.b, port: 7, ...SMALL });
  const calls: unknown[][] = [];
  const socket = createConnection(
    { device: ends.a, host: '10.0.0.2', port: 7, ...SMALL },
    (error?: unknown, other?: unknown) => calls.push([error, other]),
  );
  await once(socket, 'ready');
  expect(calls).toEqual([[undefined, undefined]]);
  for (const each of [socket, await server.accept()]) each.on('error', () => {}).destroy();
});

test('`localAddress` of an http request is the source', async () => {
  const request = http.get({ host: '10.0.0.2', port: 7, localAddress: '2001:db8::7', createConnection });
  expect((await once(request, 'error'))[0]).toMatchObject({
    message: expect.stringContaining('2001:db8::7'),
  });
  await expect(connect({ host: '10.0.0.2', port: 7, source: 'nonsense' })).rejects.toMatchObject({
    errno: 'EINVAL',
    attribute: 'source',
  });
});
