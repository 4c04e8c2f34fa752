/** How long sockets of an agent of `node:http` are kept: by the times of the agent and of the server, in virtual time. */
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { openEnds } from '../../rdmacm/testing/ends.ts';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { createConnection, createServer } from './index.ts';

const SMALL = { receiveBuffer: 4096, sendBuffer: 4096, queue: 16, closeTimeout: 200 };
/** Virtual milliseconds of a turn. */
const PER_TURN = 20;

const after = async (milliseconds: number) => turns(milliseconds / PER_TURN);

/** A server, and an agent that keeps one socket; `ask` resolves with the answer's text. */
async function open(keepAliveTimeout: number | undefined) {
  const ends = await openEnds();
  onTestFinished(() => ends[Symbol.asyncDispose]());
  const service = http.createServer((request, response) => response.end(request.url));
  if (keepAliveTimeout !== undefined) service.keepAliveTimeout = keepAliveTimeout;
  service.on('clientError', (_error, socket) => socket.destroy());
  const seen = { sockets: 0, closed: 0 };
  const server = await createServer({ device: ends.b, port: 7, ...SMALL }, (socket) => {
    seen.sockets++;
    socket.on('close', () => seen.closed++);
    service.emit('connection', socket);
  });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  agent.createConnection = (options) => createConnection({ ...options, ...SMALL, device: ends.a });
  const ask = async (path: string, headers: http.OutgoingHttpHeaders = {}) => {
    const request = http.get({ agent, host: '10.0.0.2', port: 7, path, headers });
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    return text(response);
  };
  onTestFinished(async () => {
    agent.destroy();
    service.closeAllConnections();
    await server.close();
  });
  return { ask, seen, service, agent };
}

test('keepAliveTimeout of the server, 5 s by default, ends an idle socket: the next request has a new one', async () => {
  clockOfTurns(PER_TURN);
  const { ask, seen, service } = await open(undefined);
  expect(service.keepAliveTimeout).toBe(5000);
  expect(await ask('/1')).toBe('/1');
  await after(2000);
  expect(await ask('/2')).toBe('/2');
  expect(seen).toEqual({ sockets: 1, closed: 0 });
  await after(8000);
  expect(seen).toEqual({ sockets: 1, closed: 1 });
  expect(await ask('/3')).toBe('/3');
  expect(seen.sockets).toBe(2);
});

test('the server ends an idle socket by itself, where its client keeps it for ever', async () => {
  clockOfTurns(PER_TURN);
  const { ask, seen, service, agent } = await open(undefined);
  // Without the header by which an agent learns of the server's time.
  service.prependListener('request', (_request, response) => response.setHeader('Keep-Alive', 'none'));
  expect(await ask('/1')).toBe('/1');
  const [socket] = Object.values(agent.freeSockets).flat();
  await after(4000);
  expect(seen).toEqual({ sockets: 1, closed: 0 });
  await after(4000);
  expect([seen, socket?.destroyed]).toEqual([{ sockets: 1, closed: 1 }, true]);
  expect(await ask('/2')).toBe('/2');
  expect(seen.sockets).toBe(2);
});

test('keepAliveTimeout 0 keeps an idle socket: a minute later, the next request has the same one', async () => {
  clockOfTurns(PER_TURN);
  const { ask, seen } = await open(0);
  expect(await ask('/1')).toBe('/1');
  await after(60_000);
  expect(await ask('/2')).toBe('/2');
  expect(seen).toEqual({ sockets: 1, closed: 0 });
});
