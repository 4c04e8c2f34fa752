import { expect, onTestFinished, test } from 'vitest';
import { callTcp, TcpListener } from './tcp.ts';

const { signal } = new AbortController();

test('a thread that stood still reads what has come before it calls the peer silent', async () => {
  const listener = await TcpListener.open(0, '127.0.0.1', signal);
  const called = callTcp('127.0.0.1', listener.port, { timeout: 120, signal });
  const server = await listener.accept({ timeout: 0.02, signal });
  listener.close();
  const client = await called;
  onTestFinished(async () => {
    for (const end of [client, server]) await end.destroy();
  });
  const read = server.read(4);
  await client.write(Buffer.from('here'));
  // For longer than the server waits.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  expect(`${await read}`).toBe('here');
});
