/** Connections at once each way over a bad network with the real rxe: all are made and ended, and nothing stays. */
import { openDevice } from '@node-roce/verbs-api';
import { afterEach, expect, inject, test } from 'vitest';
import { PATIENCE } from '../tiers/patience.mjs';
import { equip, guestListens, guestResources, initiator, listener, placeOf } from './harness/cm-side.ts';
import { Guest } from './harness/guest.ts';
import { isFixedSample } from './harness/sample.ts';

const guest = new Guest(inject('guest9000'));
const place = placeOf(guest.address, 4);
const COUNT = Number(process.env.ROCE_CM_AT_ONCE) || (isFixedSample ? 25 : 50);
/** Connections of ucmatose, which waits for seconds before it repeats a message. */
const THEIRS = isFixedSample ? 8 : COUNT;
const FAULTS = 'loss 15% duplicate 15%';
/** Timeouts of 272 ms: those in our REQ hold for the answers of the guest, too. */
const SHORT = { responseTimeout: 16, packetLifetime: 11, maxRetries: 15 };
const EMPTY = { connections: 0, pending: 0, keys: 0, timers: 0 };
const MINUTES = 60_000;

type Device = Awaited<ReturnType<typeof openDevice>>;

afterEach(() => guest.netem(''));

/** Nothing is left on either side once TIMEWAIT is over, and ours repeated `least` messages or more. */
async function watched(least: number, use: (device: Device) => Promise<void>): Promise<void> {
  await using device = await openDevice({ address: place.ours });
  const before = await guestResources(guest);
  const report = () => device.connections.call('cmCounters');
  await use(device);
  await guest.netem('');
  await expect.poll(report, { timeout: 30_000 * PATIENCE, interval: 500 }).toMatchObject(EMPTY);
  await expect
    .poll(() => guestResources(guest), { timeout: 30_000 * PATIENCE, interval: 500 })
    .toEqual(before);
  // The network was as bad as it was meant to be.
  expect((await report()).retried).toBeGreaterThanOrEqual(least);
}

test(`${COUNT} of ours to ucmatose, which ends them`, { timeout: 3 * MINUTES * PATIENCE }, () =>
  watched(isFixedSample ? 1 : COUNT / 10, async (device) => {
    const tool = guest.exec(`ucmatose -b ${place.theirs} -p 8201 -c ${COUNT} -C 0`, { timeout: 3 * MINUTES });
    await guestListens(guest, 8201);
    await guest.netem(FAULTS, FAULTS);
    const outcomes: Record<string, number> = {};
    await Promise.all(
      Array.from({ length: COUNT }, async () => {
        const id = await initiator(place, 8201, { device, timing: SHORT });
        await using _side = await equip(id, 1, 16);
        const outcome = await id.connect({ responderResources: 1, initiatorDepth: 1 }).then(
          () => 'connected',
          (error) => error.reason ?? error.code,
        );
        outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
        if (outcome === 'connected') await id.disconnected;
      }),
    );
    expect(outcomes).toEqual({ connected: COUNT });
    const { code, stdout } = await tool;
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('return status 0') });
  }),
);

test(`${THEIRS} of ucmatose to us, which we end`, { timeout: 3 * MINUTES * PATIENCE }, () =>
  watched(isFixedSample ? 0 : THEIRS / 10, async (device) => {
    await using listening = await listener(place, 8202, { device, backlog: THEIRS });
    await guest.netem(FAULTS, FAULTS);
    const tool = guest.exec(`ucmatose -s ${place.ours} -p 8202 -c ${THEIRS} -C 0`, { timeout: 3 * MINUTES });
    const sides = [];
    const accepting: Promise<void>[] = [];
    for (let i = 0; i < THEIRS; i++) {
      const side = await equip(await listening.getRequest(), 1, 16);
      sides.push(side);
      accepting.push(side.id.accept());
    }
    await Promise.all(accepting);
    await Promise.all(sides.map(({ id }) => id.disconnect()));
    for (const side of sides) await side[Symbol.asyncDispose]();
    const { code, stdout } = await tool;
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('return status 0') });
  }),
);
