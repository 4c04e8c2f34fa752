/**
 * Sockets that end in every way, over a network that loses packets: what arrives is the beginning of what was sent, all of it where both
 * sides ended in order, and nothing is left. Seeded: ROCE_STREAM_ROUNDS=10000 is the long run, ROCE_STREAM_SEED another one.
 */
// @module-tag slow
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';
import { drawFrom } from '../../rdmacm/testing/draw.ts';
import { play, room, watch } from '../../rdmacm/testing/random-ends.ts';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { connect, listen } from './index.ts';

const ROUNDS = Number(process.env.ROCE_STREAM_ROUNDS ?? 200);
const SEED = Number(process.env.ROCE_STREAM_SEED ?? 1);
/** Rounds on one pair of devices: a leak of one object in each round passes its limits. */
const PER_PAIR = 25;
const LIMITS = { maxQp: 12, maxPd: 6, maxCq: 6, maxMr: 12 };
const WAYS = ['end', 'abort', 'destroy', 'fail', 'vanish'] as const;
/** Of the packets in a hundred: many, so that acknowledgements of the last messages are among them. */
const LOST = 10;

test(`${ROUNDS} sockets end in every way, and nothing is left of them`, async () => {
  clockOfTurns(1);
  for (let first = 0; first < ROUNDS; first += PER_PAIR) {
    const draw = drawFrom(SEED * 1_000_003 + first);
    const network = new MemoryNetwork();
    const a = await openDevice({ link: network.link('10.0.0.1', 256), limits: LIMITS });
    const b = await openDevice({ link: network.link('10.0.0.2', 256), limits: LIMITS });
    const deliver = network.deliver.bind(network);
    let isCut = false;
    network.deliver = (packet, destination) => {
      if (!isCut && draw(100) >= LOST) deliver(packet, destination);
    };
    const options = {
      ...{ receiveBuffer: 512, sendBuffer: 300, queue: 8, keepAlive: 50, closeTimeout: 300, ackTimeoutMs: 2 },
      ...{ readableHighWaterMark: 300, writableHighWaterMark: 500 },
      timing: { responseTimeout: 10, packetLifetime: 6, maxRetries: 15 },
    };
    const server = await listen({ device: b, port: 7, ...options });
    const place = { host: '10.0.0.2', port: 7, device: a, ...options };
    const pair = async (signal?: AbortSignal) => {
      const client = await connect({ ...place, ...(signal && { signal }) });
      return [client, await server.accept()] as const;
    };
    // The first connection brings the connection manager's own objects.
    const gone = (await pair()).map((socket) => watch(socket.end()).closed);
    await Promise.all(gone);
    const left = [await room(a), await room(b)];
    for (let round = first; round < Math.min(first + PER_PAIR, ROUNDS); round++) {
      const [one, two] = [new AbortController(), new AbortController()];
      const sockets = await pair(one.signal);
      two.signal.addEventListener('abort', () => sockets[1].destroy(new Error('aborted')));
      const sides = [watch(sockets[0]), watch(sockets[1])] as const;
      const pick = () => (draw(2) === 0 ? 'end' : WAYS[draw(WAYS.length)]);
      const ways = [pick(), pick()] as const;
      const playing = [play(sides[0], ways[0], draw, one), play(sides[1], ways[1], draw, two)];
      if (ways.includes('vanish')) {
        await turns(draw(60));
        isCut = true;
      }
      await Promise.all([...playing, ...sides.map(({ closed }) => closed)]);
      isCut = false;
      const what = `seed ${SEED}, round ${round}, ${ways.join(' and ')}`;
      const isOrderly = ways.every((way) => way === 'end');
      for (const [i, side] of sides.entries()) {
        const other = sides[1 - i];
        expect(side.read, what).toBeLessThanOrEqual(other.sent);
        if (side.ended) expect(side.read, what).toBe(other.sent);
        if (!side.ended && ways[i] === 'end') expect(side.error, what).toBeDefined();
        if (isOrderly) expect(side, what).toMatchObject({ ended: true, finished: true, error: undefined });
      }
    }
    await server.close();
    expect([await room(a), await room(b)], `seed ${SEED}, rounds from ${first}`).toEqual(left);
    for (const device of [a, b]) await device.close();
  }
});
