/** Peers that end a connection before they have ended their stream: a part is never taken for the whole. */
import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import { openEnds, watch } from '../../rdmacm/testing/ends.ts';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { dropAcks, pairOf, SMALL } from '../testing/program.ts';
import { connect, listen, type RSocket } from './index.ts';
import { decodeConnectionData, encodeConnectionData } from './wire.ts';

/** Attribute of a DREQ. */
const DREQ = 0x15;
const OPTIONS = { ...SMALL, allowHalfOpen: true };
/** What a socket fails with whose peer has left in the middle. */
const LEFT = {
  code: 'ERR_ROCE_CLOSED',
  message: expect.stringMatching(
    /^the connection with 10\.0\.0\.1 port \d+ ended before the peer ended its stream/,
  ),
};

/** The bytes that a socket got, and its error; the promise resolves when it is closed. */
async function outcomeOf(socket: RSocket): Promise<{ bytes: string; error: unknown; hasEnded: boolean }> {
  let [bytes, error, hasEnded] = ['', undefined as unknown, false];
  socket.on('data', (data) => {
    bytes += data;
  });
  socket.on('end', () => {
    hasEnded = true;
  });
  socket.on('error', (cause) => {
    error = cause;
  });
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  return { bytes, error, hasEnded };
}

describe('a node-roce peer that aborts', () => {
  const fail = (client: RSocket) => client.on('error', () => {}).destroy(new Error('stdin: EIO'));

  test('after it has acknowledged our end is an error, and what has arrived is delivered', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, OPTIONS);
    const outcome = outcomeOf(server);
    server.end();
    await once(server, 'finish');
    client.write('a part');
    await turns();
    fail(client);
    expect(await outcome).toEqual({ bytes: 'a part', error: expect.objectContaining(LEFT), hasEnded: false });
  });

  test('while our end is under way is the same error', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, OPTIONS);
    const outcome = outcomeOf(server);
    dropAcks(ends);
    server.end();
    await turns();
    expect(server.writableFinished).toBe(false);
    fail(client);
    expect(await outcome).toMatchObject({ error: LEFT, hasEnded: false });
  });

  test('without an error of its own, half open and in the middle of an answer, is the same error', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, OPTIONS);
    const outcome = outcomeOf(server);
    client.resume();
    server.end('a question');
    await once(client, 'end');
    await new Promise<void>((resolve) => client.write('a part', () => resolve()));
    await turns();
    client.destroy();
    expect(await outcome).toEqual({ bytes: 'a part', error: expect.objectContaining(LEFT), hasEnded: false });
  });

  test('before our end is the same error', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, OPTIONS);
    const outcome = outcomeOf(server);
    fail(client);
    expect(await outcome).toMatchObject({ error: LEFT, hasEnded: false });
  });

  test('with bytes under way is the same error', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, OPTIONS);
    const outcome = outcomeOf(server);
    server.end();
    await once(server, 'finish');
    client.write(Buffer.alloc(10_000, 'x'));
    server.once('data', () => fail(client));
    const { bytes, ...rest } = await outcome;
    expect(rest).toMatchObject({ error: LEFT, hasEnded: false });
    expect('x'.repeat(10_000).startsWith(bytes)).toBe(true);
  });

  test('and whose word of it is lost at first is the same error', async () => {
    clockOfTurns(0.1);
    await using ends = await openEnds();
    const timing = { responseTimeout: 14 };
    const [client, server] = await pairOf(ends, { ...OPTIONS, timing, keepAlive: 0 });
    const outcome = outcomeOf(server);
    server.end();
    await once(server, 'finish');
    const { network } = ends;
    const { deliver } = network;
    const counts = watch(ends, DREQ);
    fail(client);
    await turns();
    expect([counts.get(DREQ), server.destroyed]).toEqual([1, false]);
    network.deliver = deliver;
    expect(await outcome).toMatchObject({ error: LEFT, hasEnded: false });
  });

  test('at the moment when this side does ends both with their own errors', async () => {
    await using ends = await openEnds();
    const pair = await pairOf(ends, OPTIONS);
    const outcomes = pair.map(outcomeOf);
    pair[1].end();
    await once(pair[1], 'finish');
    for (const [i, socket] of pair.entries()) socket.destroy(new Error(`failure ${i}`));
    for (const [i, outcome] of (await Promise.all(outcomes)).entries())
      expect(outcome.error).toEqual(new Error(`failure ${i}`));
  });
});

test('a node-roce peer whose device is closed has not ended its stream, although it has taken our end', async () => {
  await using ends = await openEnds();
  const [client, server] = await pairOf(ends, OPTIONS);
  const outcome = outcomeOf(server);
  server.end();
  await once(server, 'finish');
  await ends.a.close();
  expect(await outcome).toMatchObject({ error: LEFT, hasEnded: false });
  client.destroy();
});

test('a listener that closes before its program takes a client has not ended the stream to it', async () => {
  await using ends = await openEnds();
  const server = await listen({ device: ends.b, port: 7, ...OPTIONS });
  const client = await connect({ device: ends.a, host: '10.0.0.2', port: 7, ...OPTIONS });
  const outcome = outcomeOf(client);
  client.end('a question');
  await once(client, 'finish');
  await server.close();
  expect(await outcome).toMatchObject({ error: { code: 'ERR_ROCE_CLOSED' }, hasEnded: false });
});

test('a peer is one of node-roce by 8 bytes behind its connection data, of version 1 or later', () => {
  const target = { addr: 1n, key: 2, length: 2 };
  const data = { isBigEndian: false, credits: 8, sgl: target, buffer: target };
  const ofC = encodeConnectionData(data);
  const ours = encodeConnectionData({ ...data, announcesEnds: true });
  expect([ofC.length, Buffer.from(ours.subarray(40)).toString('latin1')]).toEqual([40, '\x01\0\0\0nRrs']);
  expect(ours.subarray(0, 40)).toEqual(ofC);
  // As private data arrives: with zeros behind what the peer wrote.
  const isOfNodeRoce = (own: number[]) =>
    decodeConnectionData(Uint8Array.from([...ofC, ...own]))!.announcesEnds;
  const magic = [...ours.subarray(44)];
  expect(isOfNodeRoce([1, 0, 0, 0, ...magic])).toBe(true);
  expect(isOfNodeRoce([2, 5, 0, 0, ...magic, 9, 9])).toBe(true);
  for (const own of [
    [],
    [1, 0, 0, 0, ...magic.slice(1)],
    [0, 0, 0, 0, ...magic],
    Array(16).fill(0),
    [1, 0, 0, 0, 1, ...magic],
  ])
    expect(isOfNodeRoce(own), `${own}`).toBe(false);
});
