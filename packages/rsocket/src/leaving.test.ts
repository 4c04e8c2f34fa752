/** Peers that leave before they have acknowledged all bytes. */
import { once } from 'node:events';
import { buffer } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { openEnds } from '../../rdmacm/testing/ends.ts';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { dropAcks, pairOf, programOf, SMALL } from '../testing/program.ts';
import { connect, createServer } from './index.ts';

/** The immediate of a message without bytes. */
const DISCONNECT = 0xe000_0000;
const SHUTDOWN = 0xe000_0002;

describe.each([
  ['in C', 'DISCONNECT', DISCONNECT, false],
  ['in C', 'SHUTDOWN', SHUTDOWN, false],
  ['of node-roce', 'DISCONNECT, although our end has not come,', DISCONNECT, true],
])('a peer %s that sends %s while it has no receive for our bytes', (_of, _name, end, announcesEnds) => {
  const bytes = 'x'.repeat(200);

  test('and disconnects: the socket is not finished, and its error names the peer', async () => {
    await using ends = await openEnds();
    const { id, qp, socket } = await programOf(ends, { most: 0, announcesEnds });
    await using _ = id;
    let isFinished = false;
    socket.on('finish', () => {
      isFinished = true;
    });
    const failed = once(socket, 'error');
    socket.resume().write(bytes);
    await turns();
    await qp.write([], { addr: 0n, rkey: 0 }, { immData: end });
    await turns(200);
    expect([isFinished, socket.closed]).toEqual([false, false]);
    await id.disconnect();
    expect((await failed)[0]).toMatchObject({
      code: 'ERR_ROCE_CLOSED',
      message: expect.stringMatching(
        /^the connection with 10\.0\.0\.1 port \d+ ended before it had acknowledged all bytes/,
      ),
    });
    expect(isFinished).toBe(false);
  });

  test('and takes them later: the socket is finished then', async () => {
    await using ends = await openEnds();
    const { id, qp, socket } = await programOf(ends, { most: 0, announcesEnds });
    await using _ = id;
    const finished = once(socket, 'finish');
    socket.resume().write(bytes);
    await turns();
    await qp.write([], { addr: 0n, rkey: 0 }, { immData: end });
    await turns(200);
    expect(socket.writableFinished).toBe(false);
    const receives = Array.from({ length: 8 }, () => qp.receive([]));
    for (const receive of receives) receive.catch(() => {});
    for (const receive of receives) if ((await receive).immData === bytes.length) break;
    await finished;
    await id.disconnect();
    if (!socket.closed) await once(socket, 'close');
  });
});

test('a peer that ended last and does not read: the socket closes soon', async () => {
  await using ends = await openEnds();
  const options = { port: 7, closeTimeout: 3_600_000 };
  const server = await createServer({ ...options, device: ends.b }, (socket) => {
    socket.once('data', () => {
      socket.pause();
      void turns(200).then(() => socket.end('too large'));
    });
  });
  const client = await connect({ ...options, host: '10.0.0.2', device: ends.a });
  client.resume().end(new Uint8Array(120_000));
  await once(client, 'close');
  await server.close();
});

test('a peer in C that ended last and does not disconnect: the socket closes soon', async () => {
  await using ends = await openEnds();
  const { id, qp, receives, socket } = await programOf(ends, { closeTimeout: 3_600_000 });
  await using _ = id;
  const closed = once(socket, 'close');
  socket.resume().end();
  for (const receive of receives) if (((await receive).immData ?? 0) >>> 0 === SHUTDOWN) break;
  await qp.write([], { addr: 0n, rkey: 0 }, { immData: DISCONNECT });
  await closed;
});

test.each([
  ['first', true],
  ['at the same moment', false],
])(
  'a peer that ended %s, and whose acknowledgements are lost: both sides are finished',
  async (_name, waits) => {
    await using ends = await openEnds();
    const options = { ...SMALL, allowHalfOpen: true, closeTimeout: 3_600_000 };
    const [client, server] = await pairOf(ends, options);
    const outcomes = [client, server].map(async (socket) => {
      let [bytes, error, isFinished] = ['', undefined as unknown, false];
      socket.on('data', (data) => {
        bytes += data;
      });
      socket.on('error', (cause) => {
        error = cause;
      });
      socket.on('finish', () => {
        isFinished = true;
      });
      await new Promise((resolve) => socket.once('close', resolve));
      return { bytes, error, isFinished };
    });
    if (waits) server.once('end', () => server.end('answer'));
    await turns();
    dropAcks(ends);
    client.end('question');
    if (!waits) server.end('answer');
    expect(await Promise.all(outcomes)).toEqual([
      { bytes: 'answer', error: undefined, isFinished: true },
      { bytes: 'question', error: undefined, isFinished: true },
    ]);
  },
);

test('a slow reader gets all bytes of a peer that died when both had ended, and closes soon', async () => {
  clockOfTurns(1);
  await using ends = await openEnds();
  const { id, qp, receives, socket } = await programOf(ends, { closeTimeout: 3_600_000 });
  await using _ = id;
  socket.pause().end();
  for (const receive of receives) if (((await receive).immData ?? 0) >>> 0 === SHUTDOWN) break;
  await qp.write([], { addr: 0n, rkey: 0 }, { immData: 100 });
  await qp.write([], { addr: 0n, rkey: 0 }, { immData: SHUTDOWN });
  ends.cut();
  // Probes find that the peer is gone.
  await turns(15_000);
  expect(await buffer(socket)).toHaveLength(100);
  // It waits for no answer of a peer that is known to be dead.
  await turns(200);
  expect(socket.closed).toBe(true);
});
