/**
 * Streams that end in every way, over a network that loses packets: what arrives is the beginning of what was sent, all of it where both
 * sides ended in order, and nothing is left. Seeded: ROCE_STREAM_ROUNDS=10000 is the long run, ROCE_STREAM_SEED another one.
 */
// @module-tag slow
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { drawFrom } from '../testing/draw.ts';
import { play, room, watch } from '../testing/random-ends.ts';
import { connect, listen, type MessageConnection } from './index.ts';

const ROUNDS = Number(process.env.ROCE_STREAM_ROUNDS ?? 200);
const SEED = Number(process.env.ROCE_STREAM_SEED ?? 1);
/** Rounds on one pair of devices: a leak of one object in each round passes its limits. */
const PER_PAIR = 25;
const LIMITS = { maxQp: 12, maxPd: 6, maxCq: 6, maxMr: 12 };

const WAYS = ['end', 'abort', 'destroy', 'fail', 'close', 'vanish'] as const;

test(`${ROUNDS} streams end in every way, and nothing is left of them`, async () => {
  clockOfTurns(1);
  const seen = new Map<string, number>();
  for (let first = 0; first < ROUNDS; first += PER_PAIR) {
    const draw = drawFrom(SEED * 1_000_003 + first);
    const network = new MemoryNetwork();
    const a = await openDevice({ link: network.link('10.0.0.1', 256), limits: LIMITS });
    const link = network.link('10.0.0.2', 256);
    const b = await openDevice({ link, limits: LIMITS });
    const deliver = network.deliver.bind(network);
    let isCut = false;
    network.deliver = (packet, destination) => {
      if (!isCut && draw(100) >= 2) deliver(packet, destination);
    };
    const timing = { responseTimeout: 10, packetLifetime: 6, maxRetries: 15 };
    const options = { slots: 4, maxMessage: 100, keepAlive: 50, closeTimeout: 300, ackTimeoutMs: 2, timing };
    const listener = await listen({ device: b, port: 7, ...options });
    // The first connection brings the connection manager's own objects.
    const opening = connect('10.0.0.2:7', { device: a, ...options });
    for (const each of [await listener.accept(), await opening]) await each.close();
    const left = await room(a);
    expect(left).toEqual(await room(b));
    for (let round = first; round < Math.min(first + PER_PAIR, ROUNDS); round++) {
      const client = await connect('10.0.0.2:7', { device: a, ...options });
      const server = await listener.accept();
      const [one, two] = [new AbortController(), new AbortController()];
      const sideOf = (connection: MessageConnection, { signal }: AbortController) =>
        watch(connection.stream({ signal, readableHighWaterMark: 300, writableHighWaterMark: 500 }));
      const sides = [sideOf(client, one), sideOf(server, two)] as const;
      const pick = () => (draw(2) === 0 ? 'end' : WAYS[draw(WAYS.length)]);
      const ways = [pick(), pick()] as const;
      const playing = [
        play(sides[0], ways[0], draw, { abort: () => one.abort(), close: () => void client.close() }),
        play(sides[1], ways[1], draw, { abort: () => two.abort(), close: () => void server.close() }),
      ];
      if (ways.includes('vanish')) {
        // Neither hears of the other any more: a kill, as the network shows it.
        await turns(draw(60));
        isCut = true;
      }
      await Promise.all(playing);
      for (const each of sides)
        if (ways.includes('vanish') && ways.includes('end') && !isCut) each.stream.end();
      await Promise.all(sides.map(({ closed }) => closed));
      await Promise.all([client.closed, server.closed, client.close(), server.close()]);
      isCut = false;
      const what = `seed ${SEED}, round ${round}, ${ways.join(' and ')}`;
      for (const [i, side] of sides.entries()) {
        const other = sides[1 - i];
        expect(side.read, what).toBeLessThanOrEqual(other.sent);
        // An end in order, or a write that was acknowledged, is never a part.
        if (side.ended) expect(side.read, what).toBe(other.sent);
        if (!side.ended && ways[i] === 'end') expect(side.error, what).toBeDefined();
        expect([client, server][i].id.state, what).toBe('DESTROYED');
      }
      if (ways[0] === 'end' && ways[1] === 'end')
        expect(
          sides.map(({ error, finished, ended }) => [error, finished, ended]),
          what,
        ).toEqual([
          [undefined, true, true],
          [undefined, true, true],
        ]);
      seen.set(ways.join(), (seen.get(ways.join()) ?? 0) + 1);
    }
    await listener.close();
    for (const device of [a, b])
      expect(await room(device), `seed ${SEED}, rounds from ${first}`).toEqual(left);
    for (const device of [a, b]) await device.close();
  }
  expect(seen.size).toBeGreaterThan(ROUNDS < 200 ? 1 : 20);
});
