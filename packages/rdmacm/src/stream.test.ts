/** Connections as streams. */
import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { type Ends, openEnds, pairOf } from '../testing/ends.ts';
import type { ConnectionStream, ListenOptions, MessageConnection } from './index.ts';

const SMALL = { slots: 4, maxMessage: 64 };

/** Bytes that differ by position. */
const pattern = (length: number) => Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 255);

async function streamsOf(ends: Ends, options: Partial<ListenOptions> = SMALL, half = false) {
  const pair = await pairOf(ends, options);
  const [client, server] = pair.map((each) => each.stream({ allowHalfOpen: half })) as [
    ConnectionStream,
    ConnectionStream,
  ];
  return { client, server, pair };
}

/** Nothing is left of a connection: the device has what it had. */
async function expectClosed(connections: readonly MessageConnection[]): Promise<void> {
  await Promise.all(connections.map(({ closed }) => closed));
  await turns();
  for (const { id } of connections) expect(id.state).toBe('DESTROYED');
}

describe('a stream', () => {
  test.each([1, 63, 64, 65, 1000, 5000])('carries chunks of %i bytes in order, both ways', async (size) => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    const bytes = pattern(10_007);
    const chunks = function* () {
      for (let at = 0; at < bytes.length; at += size) yield Buffer.from(bytes.subarray(at, at + size));
    };
    void pipeline(Readable.from(chunks(), { objectMode: false }), client);
    server.pipe(server); // The echo.
    expect(new Uint8Array(await buffer(client))).toEqual(bytes);
    await expectClosed(pair);
    expect([client.bytesWritten, client.bytesRead, server.bytesRead]).toEqual([10_007, 10_007, 10_007]);
  });

  test('counts each byte that was handed over once, also while it is under way', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    const counts: number[] = [];
    const count = () => counts.push(client.bytesWritten);
    client.write(new Uint8Array(7), count);
    count();
    client.end('abc');
    count();
    server.resume().end();
    client.resume();
    await expectClosed(pair);
    count();
    expect(counts).toEqual([7, 10, 10, 10]);
  });

  test('of text and of nothing', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    client.write('');
    client.write(new Uint8Array(0));
    client.end('grüß Gott');
    expect((await buffer(server)).toString()).toBe('grüß Gott');
    await expectClosed(pair);
  });

  test('ends one direction, and goes on in the other where it is allowed to', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends, SMALL, true);
    client.end('question');
    await once(client, 'finish');
    server.resume();
    await once(server, 'end');
    server.write('answer, ');
    await turns();
    server.end('second part');
    expect((await buffer(client)).toString()).toBe('answer, second part');
    await expectClosed(pair);
  });

  test('holds a fast writer back: what waits is bounded by bytes', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends, { slots: 4, maxMessage: 1000 });
    const chunk = Buffer.alloc(10_000, 1);
    let written = 0;
    while (client.write(chunk)) written += chunk.length;
    await turns(300);
    // In the buffers of both streams, and in the slots of both sides.
    expect(server.bytesRead).toBeLessThanOrEqual(65_536 + 1000);
    expect(client.writableLength).toBeGreaterThan(100_000);
    expect(client.writableNeedDrain).toBe(true);
    const drained = once(client, 'drain');
    let read = 0;
    server.on('data', (data: Buffer) => {
      read += data.length;
    });
    await drained;
    client.end();
    await once(server, 'end');
    expect(read).toBe(written + chunk.length);
    await expectClosed(pair);
  });

  test('sends small writes together, and several messages at a time', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends, { slots: 2, maxMessage: 1000 });
    const sizes: number[] = [];
    server.on('data', (data: Buffer) => sizes.push(data.length));
    for (let i = 0; i < 500; i++) client.write(Buffer.alloc(10, i));
    client.end();
    await once(server, 'end');
    expect(sizes.reduce((a, b) => a + b)).toBe(5000);
    expect(sizes.length).toBeLessThan(20);
    await expectClosed(pair);
  });

  test('closes without a reader when both have ended', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    await Promise.all([client, server].map((stream) => once(stream.end(), 'close')));
    await expectClosed(pair);
  });

  test('that its side destroys is an error for the peer, which names this side', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    const failed = once(server, 'error');
    client.write('half a sen');
    client.destroy();
    const [error] = await failed;
    expect(error).toMatchObject({ code: 'ERR_ROCE_CLOSED', errno: 'ENOTCONN' });
    expect(error.message).toMatch(
      /^the connection with 10\.0\.0\.1:\d+ ended before the peer ended its stream/,
    );
    await expectClosed(pair);
  });

  test('that its side destroys is an error for the peer, also after the peer has ended its own direction', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends, SMALL, true);
    let hasEnded = false;
    server.resume().on('end', () => {
      hasEnded = true;
    });
    const failed = once(server, 'error');
    server.end();
    await once(server, 'finish');
    client.on('error', () => {}).destroy(new Error('stdin: EIO'));
    expect((await failed)[0]).toMatchObject({
      code: 'ERR_ROCE_CLOSED',
      message: expect.stringContaining('ended before the peer ended its stream'),
    });
    expect(hasEnded).toBe(false);
    await expectClosed(pair);
  });

  test('ends with an abort: here with AbortError', async () => {
    await using ends = await openEnds();
    const [a, b] = await pairOf(ends, SMALL);
    const controller = new AbortController();
    const client = a.stream({ signal: controller.signal });
    const server = b.stream();
    const failed = [once(client, 'error'), once(server, 'error')];
    controller.abort();
    expect((await failed[0])[0]).toMatchObject({ name: 'AbortError' });
    expect((await failed[1])[0]).toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await expectClosed([a, b]);
  });

  test('with a signal that has aborted is destroyed, and ends the connection', async () => {
    await using ends = await openEnds();
    const [a, b] = await pairOf(ends, SMALL);
    const client = a.stream({ signal: AbortSignal.abort(new Error('enough')) });
    const server = b.stream();
    const failed = [once(client, 'error'), once(server, 'error')];
    expect((await failed[0])[0]).toMatchObject({ name: 'AbortError', cause: new Error('enough') });
    expect((await failed[1])[0]).toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await expectClosed([a, b]);
  });

  test('whose peer dies fails with the completion that found out, and names the peer', async () => {
    clockOfTurns(5);
    await using ends = await openEnds();
    const { client, server } = await streamsOf(ends, { ...SMALL, keepAlive: 100 });
    const failed = once(client, 'error');
    server.on('error', () => {});
    ends.cut();
    const [error] = await failed;
    expect(error).toMatchObject({ code: 'ERR_ROCE_COMPLETION', attribute: 'RETRY_EXC_ERR' });
    expect(error.message).toContain('10.0.0.2');
  });

  test('has the messages for itself', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    const busy = { code: 'ERR_ROCE_CM_STATE', message: /10\.0\.0\.2:\d+ is a stream/ };
    await expect(pair[0].send('x')).rejects.toMatchObject(busy);
    await expect(pair[0].receive()).rejects.toMatchObject(busy);
    expect(() => pair[0].stream()).toThrow('is a stream');
    expect(() => pair[0].streams()).toThrow('is a stream');
    expect(inspect(pair[0])).toMatch(/^MessageConnection \{ peer: 10\.0\.0\.2:\d+, state: CONNECTED, /);
    const failed = once(server, 'error');
    client.destroy();
    await failed;
    await expectClosed(pair);
  });

  test('of which all was read is ended by the loop that read it', async () => {
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    client.end('all');
    for await (const chunk of server) expect(`${chunk}`).toBe('all');
    expect(await buffer(client)).toHaveLength(0);
    await expectClosed(pair);
  });

  test.each([{ allowHalfOpen: 1 }, { readableHighWaterMark: 0 }, { highWaterMark: 1 }])(
    'refuses the options %o',
    async (options) => {
      await using ends = await openEnds();
      const [client] = await pairOf(ends, SMALL);
      expect(() => client.stream(options as never)).toThrow(
        expect.objectContaining({ code: 'ERR_ROCE_INVALID_ATTRIBUTE' }),
      );
      await client.send('still usable');
    },
  );

  test('notifies the program of a time without bytes', async () => {
    clockOfTurns();
    await using ends = await openEnds();
    const { client, server, pair } = await streamsOf(ends);
    server.resume();
    let isOver = false;
    client.setTimeout(50, () => {
      isOver = true;
    });
    await turns(300);
    client.write('x');
    await turns(300);
    expect(isOver).toBe(false);
    await once(client, 'timeout');
    expect(isOver).toBe(true);
    client.setTimeout(0);
    client.end();
    await once(client, 'close');
    await expectClosed(pair);
  });
});

test('a long write that moves on is no time without bytes', async () => {
  clockOfTurns();
  await using ends = await openEnds();
  const pair = await pairOf(ends, SMALL);
  const client = pair[0].stream();
  const server = pair[1].stream({ readableHighWaterMark: 64 });
  let timeouts = 0;
  client.setTimeout(30).on('timeout', () => timeouts++);
  let isWritten = false;
  client.write(pattern(5000), () => {
    isWritten = true;
  });
  let looks = 0;
  while (!isWritten) {
    // 10 ms each.
    await turns(100);
    server.read();
    looks++;
  }
  expect([looks > 8, timeouts]).toEqual([true, 0]);
  await once(client, 'timeout');
  server.resume();
  client.end();
  await expectClosed(pair);
});

describe('Web streams', () => {
  const webOf = async (ends: Ends) => {
    const pair = await pairOf(ends, SMALL);
    return { pair, client: pair[0].streams(), server: pair[1].streams() };
  };

  test('carry bytes both ways, and close the connection with the end of both', async () => {
    await using ends = await openEnds();
    const { pair, client, server } = await webOf(ends);
    const bytes = pattern(5003);
    const echo = server.readable.pipeTo(server.writable);
    const writing = new Blob([bytes]).stream().pipeTo(client.writable as WritableStream<Uint8Array>);
    expect(new Uint8Array(await new Response(client.readable as never).arrayBuffer())).toEqual(bytes);
    await Promise.all([echo, writing]);
    await expectClosed(pair);
  });

  test('fill a buffer of the reader', async () => {
    await using ends = await openEnds();
    const { pair, client, server } = await webOf(ends);
    const writer = client.writable.getWriter();
    await writer.write('abc');
    const reader = server.readable.getReader({ mode: 'byob' });
    const { value } = await reader.read(new Uint8Array(8));
    expect(new TextDecoder().decode(value)).toBe('abc');
    await writer.close();
    expect((await reader.read(new Uint8Array(8))).done).toBe(true);
    await server.writable.close();
    expect((await client.readable.getReader().read()).done).toBe(true);
    await expectClosed(pair);
  });

  test.each([
    ['a reader that cancels', ({ readable }: { readable: ReadableStream }) => readable.cancel('enough')],
    ['a writer that aborts', ({ writable }: { writable: WritableStream }) => writable.abort('enough')],
  ])('%s ends the connection', async (_name, end) => {
    await using ends = await openEnds();
    const { pair, client, server } = await webOf(ends);
    await end(client as never);
    await expect(server.readable.getReader().read()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await expectClosed(pair);
  });

  test.each([
    ['an ArrayBuffer', new ArrayBuffer(8)],
    ['a number', 5],
    ['nothing', null],
    ['a list', [1, 2]],
  ])('of %s: the chunk is refused, and the connection ends', async (_name, chunk) => {
    await using ends = await openEnds();
    const { pair, client, server } = await webOf(ends);
    await expect(client.writable.getWriter().write(chunk as never)).rejects.toMatchObject({
      errno: 'EINVAL',
      attribute: 'chunk',
    });
    await expect(server.readable.getReader().read()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await expectClosed(pair);
  });

  test('fail with the reason of a signal', async () => {
    await using ends = await openEnds();
    const [a, b] = await pairOf(ends, SMALL);
    const controller = new AbortController();
    const client = a.streams({ signal: controller.signal });
    const server = b.streams();
    const reading = client.readable.getReader().read();
    controller.abort(new Error('enough'));
    await expect(reading).rejects.toThrow('enough');
    await expect(client.writable.getWriter().write('x')).rejects.toThrow('enough');
    await expect(server.readable.getReader().read()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await expectClosed([a, b]);
  });
});

test('a stream to a program that reads messages, as the guide had it', async () => {
  await using ends = await openEnds();
  const [client, server] = await pairOf(ends, SMALL);
  const sink = new Writable({ write: (_chunk, _encoding, callback) => callback() });
  const receiving = (async () => {
    for await (const message of server) {
      if (message.length === 0) break;
      sink.write(message);
    }
    await server.send('');
    await server.close();
  })();
  const stream = client.stream();
  stream.end('hello');
  await Promise.all([receiving, once(stream, 'close')]);
});
