/** `roce listen` and `roce connect`: bytes of stdin and stdout over RDMA. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { expect, test } from 'vitest';

const bin = join(import.meta.dirname, '../../packages/cli/bin/roce.js');
const start = (...args: string[]) => spawn(process.execPath, [bin, ...args]);
const said = (child: ReturnType<typeof start>, words: string) =>
  new Promise<void>((resolve, reject) => {
    let all = '';
    child.stderr.on('data', (data) => {
      all += data;
      if (all.includes(words)) resolve();
    });
    child.on('exit', () => reject(new Error(`ended without "${words}": ${all}`)));
  });

const COPY = 'a file %s arrives as it is';
test.each([['both ways', [], []]])(COPY, testCopy);
test.each([
  ['to the listener', ['--no-input'], []],
  ['to the client', [], ['--no-input']],
])(COPY, { tags: ['slow', 'gate'] }, testCopy);

async function testCopy(_name: string, ofListener: string[], ofClient: string[]): Promise<void> {
  const place = ['-p', '7711'];
  const server = start('listen', ...place, '--bind', '127.0.63.1', '-v', ...ofListener);
  await said(server, 'listening at port 7711');
  const client = start('connect', '127.0.63.1', ...place, ...ofClient);
  const [up, down] = [randomBytes(3_000_001), randomBytes(1_000_001)];
  client.stdin.end(ofClient.length === 0 ? up : '');
  server.stdin.end(ofListener.length === 0 ? down : '');
  const ends = [once(server, 'exit'), once(client, 'exit')];
  const [atServer, atClient] = await Promise.all([buffer(server.stdout), buffer(client.stdout)]);
  expect(atServer.equals(ofClient.length === 0 ? up : Buffer.alloc(0))).toBe(true);
  expect(atClient.equals(ofListener.length === 0 ? down : Buffer.alloc(0))).toBe(true);
  expect((await Promise.all(ends)).map(([code]) => code)).toEqual([0, 0]);
}

test('connect to a port where nobody listens ends with 1, and names the remedy', async () => {
  const client = start('connect', '127.0.0.1', '-p', '7712');
  client.stdin.end('x');
  const [message, [code]] = await Promise.all([text(client.stderr), once(client, 'exit')]);
  expect(message).toContain('no program listens at port 7712 of 127.0.0.1: start the server first');
  expect(code).toBe(1);
});

// The client fails before the listener's end is acknowledged, or after it: abort.test.ts of rsocket forces both.
test('a stdin that cannot be read ends both sides with 1: what has arrived is not all', async () => {
  const server = start('listen', '-p', '7714', '--bind', '127.0.63.2', '--no-input', '-v');
  await said(server, 'listening at port 7714');
  // Its first page is nobody's: EIO.
  await using memory = await open('/proc/self/mem');
  const client = spawn(process.execPath, [bin, 'connect', '127.0.63.2', '-p', '7714'], {
    stdio: [memory.fd, 'pipe', 'pipe'],
  });
  const ends = [server, client].map((child) => once(child, 'exit'));
  const [ofServer, ofClient] = await Promise.all([text(server.stderr), text(client.stderr!)]);
  expect(ofClient).toBe('roce: EIO: i/o error, read\n');
  expect(ofServer).toMatch(/roce: the connection with \S+ port \d+ ended before the peer ended its stream/);
  expect((await Promise.all(ends)).map(([code]) => code)).toEqual([1, 1]);
});

test('a listener ends with Ctrl-C', async () => {
  const server = start('listen', '-p', '7713', '-v');
  await said(server, 'listening');
  const end = once(server, 'exit');
  server.kill('SIGINT');
  const [code, signal] = await end;
  expect(code === 130 || signal === 'SIGINT').toBe(true);
});
