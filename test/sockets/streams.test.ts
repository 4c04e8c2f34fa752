/** Streams between two programs on one machine, which give no option but the port. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buffer } from 'node:stream/consumers';
import { connect } from '@node-roce/rdmacm';
import { afterEach, describe, expect, test } from 'vitest';

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
});

/** Starts the server; resolves with its port. */
async function start(): Promise<{ server: ChildProcess; port: string }> {
  const program = join(import.meta.dirname, 'streams/echo.mjs');
  const server = spawn(process.execPath, [program], { stdio: ['pipe', 'pipe', 'inherit'] });
  running.push(server);
  const [port] = await once(createInterface(server.stdout!), 'line');
  return { server, port };
}

describe('client and server on one machine', () => {
  test.each(['127.0.0.1', 'localhost'])(
    'at %s: each has the address, and neither an option',
    async (host) => {
      const { port } = await start();
      const bytes = randomBytes(1 << 20);
      const connection = await connect(`${host}:${port}`);
      const stream = connection.stream();
      stream.end(bytes);
      expect((await buffer(stream)).equals(bytes)).toBe(true);
      await connection.closed;
    },
  );

  test('a client that waits learns of the SIGKILL of its server', { tags: ['slow', 'gate'] }, async () => {
    const { server, port } = await start();
    const connection = await connect(`127.0.0.1:${port}`);
    const stream = connection.stream();
    stream.write('x');
    expect(`${(await once(stream, 'data'))[0]}`).toBe('x');
    server.kill('SIGKILL');
    const failed = once(stream, 'error');
    // How soon is the matter of packages/rdmacm/src/life.test.ts, by a clock of its own.
    expect((await failed)[0]).toMatchObject({ code: 'ERR_ROCE_COMPLETION', attribute: 'RETRY_EXC_ERR' });
    await connection.closed;
  });
});
