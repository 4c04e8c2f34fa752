/** Many connections with the real rxe, one after the other: nothing of them stays on either side. */
import { openDevice } from '@node-roce/verbs-api';
import { expect, inject, test } from 'vitest';
import { PATIENCE } from '../tiers/patience.mjs';
import { equip, guestListens, guestResources, initiator, listener, placeOf } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';

const guest = new Guest(inject('guest9000'));
const place = placeOf(guest.address, 4);
const COUNT = Number(process.env.ROCE_CM_IN_A_ROW) || 100;
const EMPTY = { connections: 0, pending: 0, keys: 0, timers: 0 };

/** A device of ours whose connection manager holds nothing after TIMEWAIT, which lasts 2 s with Linux 6.1. */
async function watched(use: (device: Awaited<ReturnType<typeof openDevice>>) => Promise<void>) {
  await using device = await openDevice({ address: place.ours });
  const before = await guestResources(guest);
  await use(device);
  const held = () => device.connections.call('cmCounters');
  await expect.poll(held, { timeout: 10_000 * PATIENCE, interval: 200 }).toMatchObject(EMPTY);
  await expect
    .poll(() => guestResources(guest), { timeout: 10_000 * PATIENCE, interval: 200 })
    .toEqual(before);
}

test(`${COUNT} connections of ours in a row to rping -P`, { timeout: 400_000 * PATIENCE }, () =>
  watched(async (device) => {
    const server = guest.spawn(`rping -s -P -a ${place.theirs} -p 8101`);
    await guestListens(guest, 8101);
    const running = await guestResources(guest);
    const qpns = new Set<number>();
    for (let i = 0; i < COUNT; i++) {
      const id = await initiator(place, 8101, { device });
      await using side = await equip(id, 1, 16);
      qpns.add(side.qp.qpNum);
      await id.connect({ responderResources: 1, initiatorDepth: 1 });
      await id.disconnect();
    }
    // None comes back soon.
    expect(qpns.size).toBe(COUNT);
    // The program has given back what was for its clients, while it runs.
    await expect
      .poll(() => guestResources(guest), { timeout: 20_000 * PATIENCE, interval: 500 })
      .toEqual(running);
    server.signal('SIGKILL');
    await server.exited.catch(() => {});
  }),
);

test(`${COUNT} connections of rdma_xclient in a row to us`, { timeout: 600_000 * PATIENCE }, () =>
  watched(async (device) => {
    await using listening = await listener(place, 8102, { device });
    const tool = guest.exec(
      `for i in $(seq ${COUNT}); do rdma_xclient -s ${place.ours} -p 8102 > /dev/null || exit 1; done; echo all`,
      { timeout: 590_000 },
    );
    for (let i = 0; i < COUNT; i++) {
      await using side = await equip(await listening.getRequest(), 1, 16);
      await side.id.accept();
      expect((await side.arriving[0]).byteLen).toBe(16);
      await side.id.disconnected;
    }
    expect(await tool).toMatchObject({ code: 0, stdout: 'all\n' });
  }),
);
