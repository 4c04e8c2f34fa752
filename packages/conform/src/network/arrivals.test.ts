/** Waits of a tester on a machine that is busy: this process stands still while packets come. Packets without end. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, test } from 'vitest';
import { Arrivals } from './arrivals.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

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

/** Bytes of V8's heap and of array buffers. A second collection waits for the thread that gives back the array buffers of the first one. */
function held(): number {
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

test.each([
  ['long', 9000],
  ['short', 70],
])(
  '%s packets that nobody takes do not fill the memory, and whoever takes them learns that some are missing',
  async (_name, bytes) => {
    const arrivals = new Arrivals();
    const before = held();
    // Twice as many as are kept.
    for (let left = 2 ** 28; left > 0; left -= bytes + 256) arrivals.add(left, [new Uint8Array(bytes)]);
    const kept = () => held() - before;
    expect(kept()).toBeLessThan(1.2 * 2 ** 27);
    expect(kept()).toBeGreaterThan(2 ** 26);
    expect(() => arrivals.take()).toThrow('does not stop sending');
    expect(kept()).toBeLessThan(2 ** 22);
    arrivals.add(0, [new Uint8Array(bytes)]);
    expect(arrivals.take()).toHaveLength(1);
  },
);
