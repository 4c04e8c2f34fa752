/** Waits of a tester on a machine that is busy: this process stands still while packets come. Packets without end. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { Arrivals } from './arrivals.ts';

const sockets: ReturnType<typeof createSocket>[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.close();
});

async function udp() {
  const socket = createSocket('udp4');
  sockets.push(socket);
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return socket;
}

/** Stops this process, as a busy machine does. */
const stop = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** Arrivals at a socket, and what makes one. */
async function line() {
  const [near, far] = [await udp(), await udp()];
  const arrivals = new Arrivals();
  near.on('message', (frame) => arrivals.add(0, [frame]));
  const send = () => new Promise((resolve) => far.send('x', near.address().port, '127.0.0.1', resolve));
  return { arrivals, send };
}

test('a packet that came while the process stood still is seen, though its time is over', async () => {
  const { arrivals, send } = await line();
  await send();
  let seen = 0;
  const waited = arrivals.wait(() => {
    seen += arrivals.take().length;
    return seen > 0;
  }, 2);
  stop(30);
  await waited;
  expect(seen).toBe(1);
});

test('a wait without a packet ends', async () => {
  const { arrivals } = await line();
  let calls = 0;
  await arrivals.wait(() => {
    calls++;
    return false;
  }, 50);
  expect(calls).toBe(0);
});

test('a wait ends with the packet that it is for', async () => {
  const { arrivals, send } = await line();
  const waited = arrivals.wait(() => arrivals.take().length === 1, 600_000);
  await send();
  await waited;
});

test('an error of whoever takes the frames ends the wait, and not the process', async () => {
  const { arrivals, send } = await line();
  const waited = arrivals.wait(() => {
    throw new Error('too many');
  }, 600_000);
  await send();
  await expect(waited).rejects.toThrow('too many');
});

test('what nobody takes does not fill the memory, and whoever takes it then learns that some is missing', () => {
  const arrivals = new Arrivals();
  const jumbo = new Uint8Array(9000);
  for (let i = 0; i < 100_000; i++) arrivals.add(i, [jumbo]);
  expect(() => arrivals.take()).toThrow('does not stop sending');
  arrivals.add(0, [jumbo]);
  expect(arrivals.take()).toHaveLength(1);
});
