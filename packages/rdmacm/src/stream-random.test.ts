/**
 * Streams that end in every way, over a network that loses packets: what arrives is the beginning of what was sent, all of it where both
 * sides ended in order, and nothing is left. Seeded: ROCE_STREAM_ROUNDS=10000 is the long run, ROCE_STREAM_SEED another one.
 */
// @module-tag slow
import { MemoryNetwork } from '@node-roce/link';
import { type CompletionQueue, type Device, openDevice, type ProtectionDomain } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { drawFrom } from '../testing/draw.ts';
import { type ConnectionStream, connect, listen, type MessageConnection } from './index.ts';

const ROUNDS = Number(process.env.ROCE_STREAM_ROUNDS ?? 200);
const SEED = Number(process.env.ROCE_STREAM_SEED ?? 1);
/** Rounds on one pair of devices: a leak of one object in each round passes its limits. */
const PER_PAIR = 25;
const LIMITS = { maxQp: 12, maxPd: 6, maxCq: 6, maxMr: 12 };

/** Domains and completion queues that can be made now. */
async function room(device: Device): Promise<number[]> {
  const made = { pds: [] as ProtectionDomain[], cqs: [] as CompletionQueue[] };
  const untilRefused = async (make: () => Promise<void>) => {
    for (;;) {
      try {
        await make();
      } catch {
        return;
      }
    }
  };
  await untilRefused(async () => void made.pds.push(await device.allocPd()));
  await untilRefused(async () => void made.cqs.push(await device.createCq(4)));
  const counts = [made.pds.length, made.cqs.length];
  for (const each of made.pds) await each.dealloc();
  for (const each of made.cqs) await each.destroy();
  return counts;
}

const WAYS = ['end', 'abort', 'destroy', 'fail', 'close', 'vanish'] as const;

/** One side: it writes, reads, and ends in one of the ways after some turns. */
interface Side {
  connection: MessageConnection;
  stream: ConnectionStream;
  sent: number;
  read: number;
  ended: boolean;
  finished: boolean;
  error: unknown;
  closed: Promise<void>;
}

const byteAt = (index: number) => (index * 31 + (index >> 8)) & 255;

function watch(connection: MessageConnection, signal: AbortSignal): Side {
  const stream = connection.stream({ signal, readableHighWaterMark: 300, writableHighWaterMark: 500 });
  const closed = new Promise<void>((resolve) => stream.once('close', resolve));
  const side: Side = {
    ...{ connection, stream, sent: 0, read: 0, ended: false, finished: false, error: undefined },
    closed,
  };
  stream.on('error', (error) => {
    side.error = error;
  });
  stream.on('finish', () => {
    side.finished = true;
  });
  stream.on('end', () => {
    side.ended = true;
  });
  stream.on('data', (data: Buffer) => {
    for (const byte of data)
      if (byte !== byteAt(side.read++)) throw new Error(`byte ${side.read - 1} differs`);
  });
  return side;
}

async function play(
  side: Side,
  way: (typeof WAYS)[number],
  draw: (below: number) => number,
  stop: () => void,
) {
  const { stream } = side;
  for (let writes = draw(12); writes > 0 && !stream.destroyed && stream.writable; writes--) {
    const chunk = Uint8Array.from({ length: draw(200) }, (_, i) => byteAt(side.sent + i));
    side.sent += chunk.length;
    stream.write(chunk);
    await turns(draw(8));
    if (draw(4) === 0) stream.pause();
    if (draw(2) === 0) stream.resume();
  }
  stream.resume();
  if (stream.destroyed) return;
  if (way === 'end') stream.end();
  else if (way === 'abort') stop();
  else if (way === 'destroy') stream.destroy();
  else if (way === 'fail') stream.destroy(new Error('the program failed'));
  else if (way === 'close') void side.connection.close();
}

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
      const sides = [watch(client, one.signal), watch(server, two.signal)] as const;
      const pick = () => (draw(2) === 0 ? 'end' : WAYS[draw(WAYS.length)]);
      const ways = [pick(), pick()] as const;
      const playing = [
        play(sides[0], ways[0], draw, () => one.abort()),
        play(sides[1], ways[1], draw, () => two.abort()),
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
        expect(side.connection.id.state, what).toBe('DESTROYED');
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
