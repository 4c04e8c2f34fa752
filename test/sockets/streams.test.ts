/** Streams between two programs on one machine, which give no option but the port. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { type EventEmitter, once } from 'node:events';
import http from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buffer, text } from 'node:stream/consumers';
import { Client, connect } from '@node-roce/rdmacm';
import { connect as connectSocket, createConnection } from '@node-roce/rsocket';
import { afterEach, describe, expect, test } from 'vitest';

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
});

/** Starts a server; resolves with its first line. */
async function start(name: string): Promise<{ server: ChildProcess; said: string }> {
  const program = join(import.meta.dirname, 'streams', name);
  const server = spawn(process.execPath, [program], { stdio: ['pipe', 'pipe', 'inherit'] });
  running.push(server);
  const [said] = await once(createInterface(server.stdout!), 'line');
  return { server, said };
}

describe('client and server on one machine', () => {
  test.each(['127.0.0.1', 'localhost'])(
    'at %s: each has the address, and neither an option',
    async (host) => {
      const { said: port } = await start('echo.mjs');
      const bytes = randomBytes(1 << 20);
      const connection = await connect(`${host}:${port}`);
      const stream = connection.stream();
      stream.end(bytes);
      expect((await buffer(stream)).equals(bytes)).toBe(true);
      await connection.closed;
    },
  );

  test('clients of each kind that wait learn of the SIGKILL of their server', {
    tags: ['slow', 'gate'],
  }, async () => {
    const { server, said } = await start('all.mjs');
    const ports: Record<'messages' | 'stream' | 'requests' | 'rsocket' | 'http', number> = JSON.parse(said);
    const target = (kind: keyof typeof ports) => `127.0.0.1:${ports[kind]}`;
    const error = (emitter: EventEmitter) => once(emitter, 'error').then(([cause]) => cause);
    const reason = (call: Promise<unknown>) =>
      call.then(
        () => expect.fail('it succeeded'),
        (cause) => cause,
      );

    const messages = await connect(target('messages'));
    expect(`${Buffer.from((await messages.receive())!)}`).toBe('x');
    const stream = (await connect(target('stream'))).stream();
    const client = new Client(target('requests'), { requestTimeout: 0 });
    expect(`${Buffer.from(await client.request('x'))}`).toBe('x');
    const socket = await connectSocket({ host: '127.0.0.1', port: ports.rsocket });
    for (const each of [stream, socket]) {
      each.write('x');
      expect(`${(await once(each, 'data'))[0]}`).toBe('x');
    }
    const agent = new http.Agent({ keepAlive: true });
    agent.createConnection = createConnection;
    const get = (path: string) => http.get({ agent, host: '127.0.0.1', port: ports.http, path });
    const [response] = await once(get('/x'), 'response');
    expect(await text(response)).toBe('x');
    const request = get('/never');
    await once(request, 'socket');

    const ended = Promise.all([
      reason(messages.receive()),
      error(stream),
      reason(client.request('never')),
      error(socket),
      error(request),
    ]);
    server.kill('SIGKILL');
    // How soon is the matter of life.test.ts, client.test.ts and sockets.test.ts of the packages, by clocks of their own.
    const dead = { code: 'ERR_ROCE_COMPLETION', attribute: 'RETRY_EXC_ERR' };
    const [, , asked, , http_] = await ended;
    expect(await ended).toMatchObject([dead, dead, asked, dead, http_]);
    for (const cause of [asked, http_]) expect(cause.code).toMatch(/^ERR_ROCE_(COMPLETION|CLOSED)$/);
    await client.close();
    agent.destroy();
  });
});
