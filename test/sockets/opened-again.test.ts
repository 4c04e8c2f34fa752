/** Devices that open and close again and again, or fail to open: no descriptor, thread or buffer of them stays. */
// @module-tag slow
import { readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { connect, listen } from '@node-roce/rdmacm';
import { type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { beforeAll, expect, test } from 'vitest';
import { host, ownPort } from '../../packages/link/testing/loopback.ts';

const port = ownPort;
const CONNECTIONS = 1500;
/** The start of a thread with an engine takes a busy machine seconds. */
const timeout = 3_600_000;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const open = (address: string, options: OpenOptions = {}) =>
  openDevice({ address, port, link: 'udp', ...options });
const entries = (folder: string) => readdirSync(`/proc/self/${folder}`).length;
/** Of this process. */
const held = () => ({ descriptors: entries('fd'), threads: entries('task') });

/** Plays something once, then so many times: the process has no more descriptors and threads afterwards. */
async function staysEqual(times: number, play: () => Promise<unknown>): Promise<void> {
  await play();
  const before = held();
  for (let i = 0; i < times; i++) await play();
  // The event loop closes what a thread had, and the threads end, a little later.
  await expect.poll(() => held().descriptors).toBeLessThanOrEqual(before.descriptors);
  await expect.poll(() => held().threads).toBeLessThanOrEqual(before.threads);
}

beforeAll(async () => {
  // The first device of a process and its first thread open some descriptors for good.
  await (await open(host(1), { engine: 'worker' })).close();
});

const WAYS: [string, number, OpenOptions][] = [
  ['an engine inline', 200, {}],
  ['an engine in a worker', 20, { engine: 'worker' }],
  ['a shared address', 100, { shared: true }],
  ['link dgram', 100, { link: 'dgram' }],
];

test.each(WAYS)('%s: opened and closed %i times', { timeout }, async (_, times, options) => {
  await staysEqual(times, async () => (await open(host(2), options)).close());
});

test.each(WAYS.filter(([, , { link }]) => link === undefined))(
  '%s: the address is taken',
  { timeout },
  async (_, times, options) => {
    const taken = await open(host(3));
    const refused = () => open(host(3), options).catch(({ code }) => code);
    await staysEqual(times / 10, async () => expect(await refused()).toBe('ERR_ROCE_PORT_IN_USE'));
    await taken.close();
  },
);

test('contexts of one device, 300 times', async () => {
  const device = await open(host(4));
  await staysEqual(300, async () => {
    const context = device.openContext();
    const pd = await context.allocPd();
    await pd.createQp({ sendCq: await context.createCq() });
    await context.close();
  });
  await device.close();
});

test(`${CONNECTIONS} connections in a row, each with a device of its own`, { timeout }, async () => {
  const listener = await listen({ address: host(5), port: 7471, deviceOptions: { port, link: 'udp' } });
  const serving = (async () => {
    for await (const connection of listener)
      void (async () => {
        for await (const message of connection) await connection.send(message);
        await connection.close();
      })();
  })();
  const options = { source: host(6), deviceOptions: { port, link: 'udp' } } as const;
  const exchange = async () => {
    const connection = await connect(`${host(5)}:7471`, options);
    await connection.send('x');
    expect(await connection.receive()).toEqual(Uint8Array.of(0x78));
    await connection.close();
  };
  const memory = () => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  await staysEqual(CONNECTIONS / 3, exchange);
  const before = memory();
  await staysEqual((2 * CONNECTIONS) / 3, exchange);
  // 4 KiB for each connection would be found.
  expect(memory() - before).toBeLessThan(2 << 20);
  await listener.close();
  await serving;
});
