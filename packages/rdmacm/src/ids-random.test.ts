/**
 * Ids that connect, are accepted, refused, disconnected, aborted and destroyed at any turn, over a network that loses management
 * datagrams: every call settles, events come in order, and nothing is left. Seeded: ROCE_ID_ROUNDS=10000 is the long run.
 */
import { MemoryNetwork } from '@node-roce/link';
import { type Device, openDevice, RoceError } from '@node-roce/verbs-api';
import { createRandom } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { ADDRESSES } from '../testing/ends.ts';
import { CmId, EventChannel } from './index.ts';

const ROUNDS = Number(process.env.ROCE_ID_ROUNDS ?? 75);
const SEED = Number(process.env.ROCE_ID_SEED ?? 1);
/** A leak of one object in each round passes the limits. */
const PER_PAIR = 25;
const LIMITS = { maxQp: 8, maxPd: 8, maxCq: 8, maxAh: 8 };
const TIMING = { responseTimeout: 12, packetLifetime: 10, maxRetries: 3 };
const EMPTY = { connections: 0, pending: 0, keys: 0, timers: 0 };
/** Turns by which all repetitions and TIMEWAIT are over: a millisecond each. */
const PATIENCE = 3000;
const WAYS = ['disconnect', 'destroy', 'abort', 'close', 'nothing'] as const;

interface Side {
  id: CmId;
  /** Names of its events so far. */
  events: string[];
  isDestroyed: boolean;
}

test(`${ROUNDS} pairs of ids live and end in every way`, { timeout: 600_000 }, async () => {
  clockOfTurns(1);
  const tally: Record<string, number> = {};
  const count = (what: string) => {
    tally[what] = (tally[what] ?? 0) + 1;
  };
  for (let first = 0; first < ROUNDS; first += PER_PAIR) {
    const { unit, chance } = createRandom(SEED + first);
    const below = (end: number) => Math.floor(unit() * end);
    const network = new MemoryNetwork();
    const deliver = network.deliver.bind(network);
    let loss = 0;
    // Queue pair 1 alone: lost data is the engine's to repeat.
    network.deliver = (packet, to) => {
      if (packet.bytes[7] === 1 && chance(loss)) count('lost');
      else deliver(packet, to);
    };
    const devices = await Promise.all(
      ADDRESSES.map((address) => openDevice({ link: network.link(address, 1024), limits: LIMITS })),
    );
    for (let round = first; round < Math.min(first + PER_PAIR, ROUNDS); round++) {
      loss = chance(0.5) ? 0.2 : 0;
      await play(devices, round, below, chance, count);
      loss = 0;
      for (const { connections } of devices)
        expect(await connections.call('cmCounters'), `round ${round}`).toMatchObject(EMPTY);
    }
    for (const device of devices) await device.close();
  }
  for (const what of [
    'ESTABLISHED',
    'DISCONNECTED',
    'REJECTED',
    'UNREACHABLE',
    'TIMEWAIT_EXIT',
    'lost',
    'aborted',
  ])
    expect(tally[what], what).toBeGreaterThan(0);
});

async function play(
  [a, b]: Device[],
  round: number,
  below: (end: number) => number,
  chance: (of: number) => boolean,
  count: (what: string) => void,
): Promise<void> {
  const what = `round ${round}`;
  const portSpace = chance(0.3) ? 'UDP' : 'TCP';
  const channel = new EventChannel<CmId>();
  const sides = new Map<CmId, Side>();
  const calls: Promise<unknown>[] = [];
  /** A call: it may be refused, by an error of ours or the reason of the signal. */
  const attempt = (call: () => Promise<unknown>) => {
    const outcome = call().catch((error) => {
      if (!(error instanceof RoceError) && error.message !== 'enough') throw error;
      if (error.message === 'enough') count('aborted');
    });
    outcome.catch(() => {});
    calls.push(outcome);
    return outcome;
  };
  const add = (id: CmId): Side => {
    const side = { id, events: [], isDestroyed: false };
    sides.set(id, side);
    return side;
  };
  const hear = async () => {
    for await (const { event, id } of channel) {
      count(event);
      const side = sides.get(id) ?? add(id);
      expect(side.isDestroyed, `${what}: ${event} after destroy`).toBe(false);
      const { events } = side;
      expect(events, `${what}: ${event}`).not.toContain(event);
      if (event === 'ESTABLISHED')
        for (const end of ['DISCONNECTED', 'REJECTED', 'UNREACHABLE', 'TIMEWAIT_EXIT', 'aborted'])
          expect(events, `${what}: ESTABLISHED`).not.toContain(end);
      if (event === 'DISCONNECTED') expect(events, what).not.toContain('TIMEWAIT_EXIT');
      events.push(event);
      if (event === 'CONNECT_REQUEST') attempt(() => serve(id));
    }
  };
  const equipped: { pd: { dealloc(): Promise<void> }; cq: { destroy(): Promise<void> } }[] = [];
  const equip = async (id: CmId) => {
    const pd = await id.device.allocPd();
    const cq = await id.device.createCq(8);
    equipped.push({ pd, cq });
    await id.createQp(pd, { sendCq: cq });
  };
  const destroy = (id: CmId) => {
    const side = sides.get(id);
    if (side) side.isDestroyed = true;
    return id.destroy();
  };
  /** Ends an id in one of the ways, after some turns. */
  const end = async (id: CmId, abort: AbortController) => {
    await turns(below(chance(0.3) ? 200 : 12));
    const way = WAYS[below(WAYS.length)];
    if (way === 'destroy') await destroy(id);
    else if (way === 'disconnect') await attempt(() => id.disconnect());
    else if (way === 'close') await attempt(async () => id.qp?.close());
    else if (way === 'abort') abort.abort(new Error('enough'));
  };
  const serve = async (id: CmId) => {
    await turns(below(6));
    const abort = new AbortController();
    calls.push(end(id, abort));
    if (chance(0.15)) await id.reject();
    else {
      await equip(id);
      await turns(below(4));
      await id.accept({}, { signal: abort.signal }).catch(async (error) => {
        // One that is not accepted is answered all the same: its peer would wait for 66 s.
        await destroy(id);
        throw error;
      });
    }
  };
  const hearing = hear();
  hearing.catch(() => {});
  const listener = new CmId({ device: b, portSpace, channel, timing: TIMING });
  add(listener);
  await listener.listen({ port: 7, backlog: 2 });
  const client = new CmId({ device: a, portSpace, channel, timing: TIMING });
  add(client);
  await client.resolveAddr({ host: ADDRESSES[1], port: 7 });
  await client.resolveRoute();
  await equip(client);
  const abort = new AbortController();
  calls.push(
    attempt(() => client.connect({}, { signal: abort.signal })).then(() => {
      if (abort.signal.aborted) sides.get(client)!.events.push('aborted');
    }),
    end(client, abort),
  );
  if (chance(0.2)) calls.push(turns(below(20)).then(() => destroy(listener)));
  await turns(PATIENCE);
  const settled = await Promise.race([
    (async () => {
      for (let done = 0; done < calls.length; done = calls.length) await Promise.all(calls);
      return true;
    })(),
    turns(PATIENCE).then(() => false),
  ]);
  expect(settled, `${what}: every call settles`).toBe(true);
  for (const { id } of sides.values()) await destroy(id);
  await turns(PATIENCE);
  await channel.destroy();
  await hearing;
  for (const { pd, cq } of equipped) {
    await cq.destroy();
    await pd.dealloc();
  }
}
