import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import {
  callExchange,
  decodeAddress,
  encodeAddress,
  type PingpongAddress,
  serveExchange,
} from './exchange.ts';

// As ibv_rc_pingpong wrote them to each other (test/fixtures/captures/pp_rc_default.txt).
const server: PingpongAddress = { lid: 0, qpNum: 0x11, psn: 0x1bdf96, gid: gid(10, 77, 0, 3) };
const client: PingpongAddress = { lid: 0, qpNum: 0x11, psn: 0xb8d47a, gid: gid(10, 77, 0, 2) };
const SERVER_TEXT = '0000:000011:1bdf96:00000000000000000000ffff0a4d0003\0';
const CLIENT_TEXT = '0000:000011:b8d47a:00000000000000000000ffff0a4d0002\0';

function gid(...ip: number[]): Uint8Array {
  return Uint8Array.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ...ip]);
}

const one = { count: 1, slots: 1 };
const two = { count: 2, slots: 256 };

const signal = new AbortController().signal;

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const probe = createServer().listen(0);
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

async function withServer(behave: (socket: Socket) => void): Promise<{ port: number; close: () => void }> {
  const listener = createServer((socket) => {
    socket.on('error', () => {});
    behave(socket);
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  return { port: (listener.address() as AddressInfo).port, close: () => listener.close() };
}

test('the text of the tool: 52 bytes with the NUL', () => {
  expect(encodeAddress(server).toString('latin1')).toBe(SERVER_TEXT);
  expect(SERVER_TEXT).toHaveLength(52);
  expect(decodeAddress(Buffer.from(CLIENT_TEXT, 'latin1'))).toEqual(client);
});

test.each([
  ['HTTP', 'GET / HTTP/1.1'.padEnd(52, ' ')],
  ['no NUL', CLIENT_TEXT.replace('\0', ' ')],
  ['not hexadecimal', CLIENT_TEXT.replace('b8d47a', 'b8d47x')],
  ['a field too short', CLIENT_TEXT.replace('000011:', '00001:0')],
  ['nothing', ''],
])('%s is refused', (_what, text) => {
  expect(() => decodeAddress(Buffer.from(text, 'latin1'))).toThrow(
    expect.objectContaining({ code: 'ERR_ROCE_EXCHANGE' }),
  );
});

test('client and server with two queue pairs each, in the order of the tool', async () => {
  const port = await freePort();
  const order: string[] = [];
  let listening: () => void;
  const ready = new Promise<void>((resolve) => {
    listening = resolve;
  });
  const served = serveExchange(
    { port, ...two, timeout: 120, signal, onListening: () => listening() },
    async (remotes) => {
      expect(remotes).toEqual([client, server]);
      order.push('server connects');
      return [server, client];
    },
  );
  await ready;
  await callExchange(
    { host: '127.0.0.1', port, ...two, timeout: 120, signal },
    [client, server],
    async (remotes) => {
      expect(remotes).toEqual([server, client]);
      order.push('client connects');
    },
  );
  await served;
  expect(order).toEqual(['server connects', 'client connects']);
});

test('bytes that come one by one', async () => {
  const port = await freePort();
  const served = serveExchange(
    {
      port,
      ...one,
      timeout: 120,
      signal,
      onListening: async () => {
        const socket = connect(port, '127.0.0.1');
        socket.setNoDelay(true);
        for (const byte of Buffer.from(CLIENT_TEXT, 'latin1')) {
          socket.write(Buffer.of(byte));
          await new Promise(setImmediate);
        }
        const [answer] = (await once(socket, 'data')) as [Buffer];
        expect(answer.toString('latin1')).toBe(SERVER_TEXT);
        socket.end('done\0');
      },
    },
    async () => [server],
  );
  await served;
});

test.each([
  [
    'garbage',
    (socket: Socket) => socket.write('x'.repeat(52)),
    'which is not an address as ibv_rc_pingpong sends it',
  ],
  ['half an address', (socket: Socket) => socket.end(SERVER_TEXT.slice(0, 20)), 'closed the connection'],
  ['a hang-up', (socket: Socket) => socket.destroy(), 'closed the connection'],
])('a server that answers with %s', async (_what, behave, message) => {
  const { port, close } = await withServer(behave);
  const call = callExchange(
    { host: '127.0.0.1', port, ...one, timeout: 120, signal },
    [client],
    async () => {},
  );
  await expect(call).rejects.toMatchObject({
    code: 'ERR_ROCE_EXCHANGE',
    message: expect.stringContaining(message),
  });
  close();
});

test('a server that is silent: the time-out', async () => {
  const { port, close } = await withServer(() => {});
  const call = callExchange(
    { host: '127.0.0.1', port, ...one, timeout: 0.2, signal },
    [client],
    async () => {},
  );
  await expect(call).rejects.toMatchObject({
    code: 'ERR_ROCE_TIMEOUT',
    message: 'the server was silent for 0.2 s',
  });
  close();
});

test('a peer with another number of queue pairs', async () => {
  const { port, close } = await withServer((socket) => socket.write(SERVER_TEXT.repeat(256)));
  const call = callExchange(
    { host: '127.0.0.1', port, ...two, timeout: 120, signal },
    [client, client],
    async () => {},
  );
  await expect(call).rejects.toMatchObject({
    message: expect.stringContaining('has 256 queue pairs, not 2'),
  });
  close();
});

test('nobody listens', async () => {
  const port = await freePort();
  const call = callExchange(
    { host: '127.0.0.1', port, ...one, timeout: 120, signal },
    [client],
    async () => {},
  );
  await expect(call).rejects.toMatchObject({
    message: expect.stringContaining('no server listens at TCP port'),
  });
});

test('a waiting server ends when its signal aborts', async () => {
  const stop = new AbortController();
  const onListening = () => stop.abort();
  const served = serveExchange(
    { port: await freePort(), ...one, timeout: 120, signal: stop.signal, onListening },
    async () => [server],
  );
  await expect(served).rejects.toMatchObject({ name: 'AbortError' });
});
