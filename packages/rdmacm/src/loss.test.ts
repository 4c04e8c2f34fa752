/** Connects and disconnects over a network that loses and copies packets. */
import { FaultLink, MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';
import { clockOfTurns } from '../../verbs-api/testing/clock.ts';
import { equip } from '../testing/ends.ts';
import { CmId } from './index.ts';

const COUNT = Number(process.env.ROCE_CM_LOSSY ?? 60);
const SHORT = { responseTimeout: 15, packetLifetime: 11, maxRetries: 15 };
/** Of what each side sends: a packet passes one link's faults. */
const FAULTS = { loss: 0.15, duplicate: 0.15, direction: 'outbound' } as const;
const EMPTY = { connections: 0, pending: 0, keys: 0, timers: 0 };

test(`15 % loss and 15 % copies: ${COUNT} connections each way, all at once, and nothing stays`, async () => {
  clockOfTurns();
  const network = new MemoryNetwork();
  const devices = await Promise.all(
    ['10.0.0.1', '10.0.0.2'].map((address, i) =>
      openDevice({
        link: new FaultLink(network.link(address, 1024), { ...FAULTS, seed: 7 + i }),
      }),
    ),
  );
  const [a, b] = devices;
  const options = { timing: SHORT, ackTimeout: 13 };
  const serve = async (listening: CmId) => {
    const ended: Promise<unknown>[] = [];
    for await (const id of listening) {
      const life = async () => {
        await equip(id);
        await id.accept().catch(() => {}); // The initiator may have given up.
        await id.disconnected;
        await id.destroy();
      };
      ended.push(life());
    }
    await Promise.all(ended);
    return ended.length;
  };
  const listeners: CmId[] = [];
  const serving: Promise<number>[] = [];
  for (const device of devices) {
    const listening = new CmId({ ...options, device });
    await listening.listen({ port: 7471, backlog: 1000 });
    listeners.push(listening);
    serving.push(serve(listening));
  }
  const outcomes: Record<string, number> = {};
  let unlucky = 0;
  const call = async (device: typeof a, host: string) => {
    const id = new CmId({ ...options, device });
    await id.resolveAddr({ host, port: 7471 });
    await id.resolveRoute();
    const { qp, mr } = await equip(id);
    const outcome = await id.connect().then(
      () => 'connected',
      (error) => error.reason ?? error.code,
    );
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    if (outcome === 'connected') {
      // It carries data: a WRITE of nothing comes back acknowledged, but for one of 25,000 that is lost eight times.
      await qp.write([], mr.remote()).catch((error) => {
        expect(error.attribute).toBe('RETRY_EXC_ERR');
        unlucky++;
      });
      await id.disconnect();
    }
    await id.destroy();
  };
  const calls: Promise<void>[] = [];
  for (let i = 0; i < COUNT; i++) calls.push(call(a, '10.0.0.2'), call(b, '10.0.0.1'));
  await Promise.all(calls);
  expect(Object.values(outcomes).reduce((sum, count) => sum + count, 0)).toBe(2 * COUNT);
  // 16 requests over such a network get through but once in a million.
  expect(outcomes.connected).toBe(2 * COUNT);
  expect(unlucky).toBeLessThan(4);
  for (const listening of listeners) await listening.destroy();
  expect((await Promise.all(serving)).reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(
    2 * COUNT,
  );
  const counters = await Promise.all(devices.map((device) => device.connections.call('cmCounters')));
  for (const { retried } of counters) expect(retried).toBeGreaterThan(COUNT / 10);
  for (const device of devices) {
    const held = () => device.connections.call('cmCounters');
    await expect.poll(held).toMatchObject(EMPTY);
  }
  for (const device of devices) await device.close();
});
