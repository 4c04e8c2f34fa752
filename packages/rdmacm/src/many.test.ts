/** Connections one after the other between two devices: nothing of them stays. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { equip } from '../testing/ends.ts';
import { CmId } from './index.ts';

const COUNT = Number(process.env.ROCE_CM_CYCLES ?? 100);
const EMPTY = { connections: 0, pending: 0, keys: 0, timers: 0 };
/** One of each leaked would fail the next connection but few. */
const LIMITS = { maxQp: 16, maxCq: 24, maxMr: 24, maxPd: 24, maxAh: 64 };
/** TIMEWAIT of 16 ms. */
const options = { ackTimeout: 12 };

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

async function held(): Promise<number> {
  collect();
  await turns();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

test(`${COUNT} connects and disconnects in a row`, { timeout: 300_000 + COUNT * 200 }, async () => {
  clockOfTurns();
  const network = new MemoryNetwork();
  const devices = await Promise.all(
    ['10.0.0.1', '10.0.0.2'].map((address) =>
      openDevice({ link: network.link(address, 1024), limits: LIMITS }),
    ),
  );
  const [a, b] = devices;
  const listening = new CmId({ ...options, device: b });
  await listening.listen({ port: 7471 });
  let ended = 0;
  const serving = (async () => {
    for await (const id of listening) {
      void (async () => {
        const { pd, cq, mr } = await equip(id);
        await id.accept().catch(() => {}); // The client may be gone already.
        await id.disconnected;
        await id.destroy();
        await mr.deregister();
        await cq.destroy();
        await pd.dealloc();
        ended++;
      })();
    }
  })();
  let first = 0;
  for (let i = 0; i < COUNT; i++) {
    const id = new CmId({ ...options, device: a });
    await id.resolveAddr({ host: '10.0.0.2', port: 7471 });
    await id.resolveRoute();
    const { pd, cq, mr } = await equip(id);
    await id.connect();
    await id.disconnect();
    await id.destroy();
    await mr.deregister();
    await cq.destroy();
    await pd.dealloc();
    // The listener's queue pairs are closed in their own time.
    while (ended < i - 4) await turns(1);
    if (i === COUNT >> 1) first = await held();
  }
  const grown = (await held()) - first;
  for (const device of devices) {
    const report = () => device.connections.call('cmCounters');
    await expect.poll(report).toMatchObject(EMPTY);
    expect(await report()).toMatchObject({
      unexpected: 0,
      malformed: 0,
      overflowed: 0,
      dropped: 0,
      unsent: 0,
    });
  }
  // Ids and QPNs of the last second are kept back; with them, half a run adds nothing.
  if (COUNT >= 10_000) expect(grown).toBeLessThan(2 * 2 ** 20);
  await listening.destroy();
  await serving;
  expect(ended).toBe(COUNT);
  for (const device of devices) await device.close();
});
