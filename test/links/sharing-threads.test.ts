/** Threads that end with a shared address open: the address is free again at once, and no descriptor is left. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { openDevice } from '@node-roce/verbs-api';
import { beforeAll, expect, test } from 'vitest';

// Nobody else's: a port of our own and addresses that follow from the process.
const PORT = 29_000 + (process.pid % 800);
const host = (n: number) => `127.83.${process.pid & 0xff}.${n}`;
const index = new URL('../../packages/verbs-api/dist/index.js', import.meta.url).href;

/** A thread of the program that has the address open; it reports that, and throws at a message. */
const HOLDER = `
  const { parentPort, workerData } = require('node:worker_threads');
  parentPort.on('message', () => { throw new Error('uncaught'); });
  import(workerData.index).then(async ({ openDevice }) => {
    globalThis.device = await openDevice(workerData.options);
    parentPort.postMessage('open');
  });
`;

const sockets = () => readdirSync('/proc/self/fd').length;

/** Nobody has the address: a device has it alone. */
async function expectFree(address: string): Promise<void> {
  const alone = await openDevice({ address, port: PORT, link: 'udp' });
  await alone.close();
}

beforeAll(async () => {
  // The first device of a process opens some descriptors for good.
  await expectFree(host(1));
});

test.each([
  ['inline', 'terminate', 2],
  ['inline', 'throw', 3],
  ['worker', 'terminate', 4],
  ['worker', 'throw', 5],
] as const)('a thread with an engine %s ends by %s', async (engine, end, n) => {
  const options = { address: host(n), port: PORT, engine, shared: true, link: 'udp' };
  const before = sockets();
  const thread = new Worker(HOLDER, { eval: true, execArgv: [], workerData: { index, options } });
  thread.on('error', () => {}); // It throws.
  await once(thread, 'message');
  expect(sockets()).toBeGreaterThan(before + 32);
  const gone = new Promise((resolve) => thread.once('exit', resolve));
  if (end === 'terminate') await thread.terminate();
  else thread.postMessage('throw');
  await gone;
  await expectFree(host(n));
  // The thread's own event loop has closed its descriptors, too.
  expect(sockets()).toBeLessThan(before + 10);
});

test('the engine’s thread ends: the device opens again', async () => {
  const threads: Worker[] = [];
  const { ref } = Worker.prototype;
  Worker.prototype.ref = function (this: Worker) {
    threads.push(this);
    return ref.call(this);
  };
  try {
    const options = { address: host(6), port: PORT, engine: 'worker', shared: true, link: 'udp' } as const;
    const device = await openDevice(options);
    await device.allocPd(); // A command refers to the thread.
    const failed = device.getEvent();
    await threads.at(-1)!.terminate();
    expect((await failed).event.type).toBe('DEVICE_FATAL');
    await device.close();
    const again = await openDevice(options);
    await again.close();
    await expectFree(host(6));
  } finally {
    Worker.prototype.ref = ref;
  }
});

test.each(['inline', 'worker'])('an engine %s closes without a warning of Node’s', async (engine) => {
  const options = JSON.stringify({ address: host(7), port: PORT, engine, shared: true, link: 'udp' });
  // The second gets its sockets from the first. A worker's warnings are written, and no event of this thread.
  const program = `
    import { openDevice } from ${JSON.stringify(index)};
    const first = await openDevice(${options});
    const second = await openDevice(${options});
    await second.close();
    await first.close();
  `;
  const { stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program]);
  expect(stderr).toBe('');
});
