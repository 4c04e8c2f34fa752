/** Clients that all connect at the same moment, to a listener with room for few of them, or for all. */
// @module-tag slow
import { CmAttribute } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { clockOfTurns } from '../../verbs-api/testing/clock.ts';
import { openEnds, watch } from '../testing/ends.ts';
import { connect, listen } from './index.ts';

/** The default of `listen`. */
const BACKLOG = 128;
/** The number of connections counts here, not their size. */
const SMALL = { slots: 2, maxMessage: 256 };
const CLIENTS = 500;

/** Connects all at once, has a byte echoed on each, and closes them. Returns the number of requests to connect that were sent. */
async function burst(backlog?: number): Promise<number> {
  // The turns of the event loop that all clients cost are together less than the time of a repetition, 4.6 s.
  clockOfTurns(2);
  await using ends = await openEnds();
  const sent = watch(ends);
  const listener = await listen({
    ...{ ...SMALL, device: ends.b, port: 7471 },
    ...(backlog === undefined ? {} : { backlog }),
  });
  const serving = (async () => {
    for await (const connection of listener)
      void (async () => {
        for await (const message of connection) await connection.send(message);
        await connection.close();
      })();
  })();
  // With its default, `connect` gives up while it has repetitions left.
  const options = { ...SMALL, device: ends.a, connectTimeout: 0 };
  const connecting = Array.from({ length: CLIENTS }, () => connect('10.0.0.2:7471', options));
  const connections = await Promise.all(connecting);
  const echoes = await Promise.all(
    connections.map(async (connection, i) => {
      await connection.send(Uint8Array.of(i));
      return (await connection.receive())![0];
    }),
  );
  expect(echoes).toEqual(connections.map((_, i) => i & 0xff));
  await Promise.all(connections.map((connection) => connection.close()));
  await listener.close();
  await serving;
  return sent.get(CmAttribute.REQ)!;
}

test('those without a place ask again, and all connect', async () => {
  const requests = await burst();
  // In each round, as many as the backlog get a place.
  let most = 0;
  for (let waiting = CLIENTS; waiting > 0; waiting -= BACKLOG) most += waiting;
  expect(requests).toBeGreaterThan(CLIENTS);
  expect(requests).toBeLessThanOrEqual(most);
});

test('with a place for each of them, nobody asks twice', async () => {
  expect(await burst(CLIENTS)).toBe(CLIENTS);
});
