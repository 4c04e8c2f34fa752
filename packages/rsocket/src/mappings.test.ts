/** Memory that sockets offer each other (riomap, riowrite), with themselves. */
import { once } from 'node:events';
import { inspect } from 'node:util';
import { CmId } from '@node-roce/rdmacm';
import { describe, expect, test } from 'vitest';
import { type Ends, equip, openEnds } from '../../rdmacm/testing/ends.ts';
import { turns } from '../../verbs-api/testing/clock.ts';
import { dropAcks } from '../testing/program.ts';
import { connect, createConnection, listen, type RSocket } from './index.ts';
import { decodeConnectionData, decodeMapping, encodeConnectionData, encodeMapping, Op } from './wire.ts';

const SMALL = { receiveBuffer: 512, sendBuffer: 300, queue: 8, closeTimeout: 200, ioMappings: 2 };

async function pairOf(ends: Ends, options: object = SMALL, others = options): Promise<[RSocket, RSocket]> {
  await using server = await listen({ device: ends.b, port: 0, ...others });
  const connecting = connect({ device: ends.a, host: '10.0.0.2', port: server.port, ...options });
  const accepted = await server.accept();
  return [await connecting, accepted];
}

const pattern = (length: number) =>
  Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 255));

/** The next bytes of a socket. */
const next = async (socket: RSocket) => `${(await once(socket, 'data'))[0]}`;

async function endBoth(...sockets: RSocket[]): Promise<void> {
  for (const socket of sockets) {
    socket.on('error', () => {});
    socket.resume().end();
  }
  await Promise.all(sockets.map((socket) => (socket.closed ? undefined : once(socket, 'close'))));
}

describe('memory that a side offers', () => {
  test('is written by the other one, more than its ring holds, before the bytes that follow', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const memory = [new Uint8Array(5000), new Uint8Array(700)];
    const mapping = await client.iomap(memory[0], { offset: 100 });
    await server.iomap(memory[1], { offset: 2n ** 40n });
    expect(inspect(mapping)).toBe('IoMapping { offset: 100n, bytes: 5000 }');
    const [there, here] = [pattern(5000), pattern(600).reverse()];
    await Promise.all([server.iowrite(there, 100), client.iowrite(here, 2n ** 40n + 50n)]);
    server.write('done');
    expect(await next(client)).toBe('done');
    expect(Buffer.compare(memory[0], there)).toBe(0);
    client.write('done');
    expect(await next(server)).toBe('done');
    expect(Buffer.compare(memory[1].subarray(50, 650), here)).toBe(0);
    expect([memory[1][49], memory[1][650]]).toEqual([0, 0]);
    await endBoth(client, server);
  });

  test('is written in the order of calls that do not wait for each other', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const memory = new Uint8Array(1000);
    await client.iomap(memory);
    await Promise.all([1, 2, 3].map((value) => server.iowrite(new Uint8Array(1000).fill(value), 0)));
    expect(memory.every((byte) => byte === 3)).toBe(true);
    await endBoth(client, server);
  });

  test('may be in several pieces: a WRITE goes on from one to the next, and ends at a hole', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const [low, high] = [new Uint8Array(10), new Uint8Array(10)];
    await client.iomap(high, { offset: 10 });
    await client.iomap(low, { offset: 0 });
    await server.iowrite(pattern(15).fill(1), 5);
    expect([...low, ...high]).toEqual([...Array(5).fill(0), ...Array(15).fill(1)]);
    await expect(server.iowrite(pattern(15).fill(2), 15)).rejects.toMatchObject({
      errno: 'EINVAL',
      message: expect.stringContaining('20'),
    });
    server.write('done');
    expect(await next(client)).toBe('done');
    expect([...high]).toEqual([...Array(5).fill(1), ...Array(5).fill(2)]);
    await server.iowrite(new Uint8Array(0), 99);
    await endBoth(client, server);
  });

  test('needs a place in the list of the other side, which a mapping that ended gives back', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, SMALL, { ...SMALL, ioMappings: 1 });
    const mapping = await client.iomap(new Uint8Array(8));
    await expect(client.iomap(new Uint8Array(8), { offset: 8 })).rejects.toMatchObject({
      code: 'ERR_ROCE_LIMIT',
      attribute: 'ioMappings',
    });
    await expect(client.iomap(new Uint8Array(8), { offset: 7 })).rejects.toMatchObject({
      attribute: 'offset',
    });
    await mapping.unmap();
    await mapping.unmap();
    const memory = new Uint8Array(8);
    await using _second = await client.iomap(memory, { offset: 7 });
    await server.iowrite(Uint8Array.of(5), 14);
    expect(memory[7]).toBe(5);
    await endBoth(client, server);
    const [plain, other] = await pairOf(ends, { ...SMALL, ioMappings: 0 });
    await expect(plain.iomap(new Uint8Array(8))).rejects.toMatchObject({ code: 'ERR_ROCE_LIMIT' });
    await endBoth(plain, other);
  });

  test('two hundred times costs no credit for ever, and leaves nothing', async () => {
    await using ends = await openEnds(1024, 1024, { limits: { maxMr: 9 } });
    const [client, server] = await pairOf(ends);
    for (let i = 0; i < 200; i++) {
      await using mapping = await client.iomap(new Uint8Array(8), { offset: i });
      await server.iowrite(Uint8Array.of(i), i);
      expect(mapping.bytes[0]).toBe(i & 255);
    }
    client.write('still here');
    expect(await next(server)).toBe('still here');
    await client.iomap(new Uint8Array(8));
    await endBoth(client, server);
    for (const device of [ends.a, ends.b]) {
      const pd = await device.allocPd();
      for (let i = 0; i < 8; i++) await pd.registerMr(new Uint8Array(8));
    }
  });

  test('goes on after the end of its own stream: the credits come back', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { ...SMALL, allowHalfOpen: true });
    const ended = once(server.resume(), 'end');
    client.end();
    await ended;
    for (let i = 1; i <= 20; i++) {
      const mapping = await client.iomap(new Uint8Array(8));
      await server.iowrite(Uint8Array.of(i), 0);
      expect(mapping.bytes[0]).toBe(i);
      await mapping.unmap();
    }
    await endBoth(client, server);
  });

  test('is taken back by the first of two calls, and the second waits for it', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const mapping = await client.iomap(new Uint8Array(8));
    const order: number[] = [];
    await Promise.all([1, 2].map((call) => mapping.unmap().then(() => order.push(call))));
    expect(order).toEqual([1, 2]);
    await endBoth(client, server);
  });

  test('does not hold its socket where the program keeps an event unacknowledged', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const closed = [client, server].map((socket) => {
      socket.on('error', () => {});
      return new Promise((resolve) => socket.once('close', resolve));
    });
    const taking = ends.a.getEvent(); // Never acknowledged.
    const mapping = await client.iomap(new Uint8Array(8));
    await mapping.unmap();
    await server.iowrite(Uint8Array.of(1), 0).catch(() => {});
    expect((await taking).event.type).toBe('QP_ACCESS_ERR');
    for (const socket of [client, server]) socket.destroy();
    await Promise.all(closed);
  });

  test('that it took back is not written: the writer’s connection fails', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const memory = new Uint8Array(8);
    const mapping = await client.iomap(memory);
    await mapping.unmap();
    const failed = Promise.all([client, server].map((socket) => once(socket, 'error')));
    await expect(server.iowrite(Uint8Array.of(5), 0)).rejects.toMatchObject({ code: 'ERR_ROCE_COMPLETION' });
    await failed;
    expect(memory[0]).toBe(0);
    await expect(server.iowrite(Uint8Array.of(5), 0)).rejects.toThrow();
    await expect(client.iomap(memory)).rejects.toThrow();
  });

  test('that it took back is not written after the ends of both streams either: the call has the reason', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const mapping = await client.iomap(new Uint8Array(8));
    await mapping.unmap();
    // Neither socket closes while the program has bytes to read.
    for (const socket of [client, server]) {
      socket.end('unread');
      await once(socket, 'finish');
    }
    await expect(server.iowrite(Uint8Array.of(5), 0)).rejects.toMatchObject({ code: 'ERR_ROCE_COMPLETION' });
    await endBoth(client, server);
  });

  test('before its socket is connected: the calls wait, and fail with it', async () => {
    await using ends = await openEnds();
    await using server = await listen({ device: ends.b, port: 7, ...SMALL });
    const client = createConnection({ device: ends.a, host: '10.0.0.2', port: 7, ...SMALL });
    const memory = new Uint8Array(8);
    const mapping = client.iomap(memory);
    const socket = await server.accept();
    await mapping;
    await socket.iowrite(Uint8Array.of(1, 2), 6);
    expect([...memory.subarray(6)]).toEqual([1, 2]);
    await endBoth(client, socket);
    const refused = createConnection({ device: ends.a, host: '10.0.0.2', port: 8, ...SMALL });
    refused.on('error', () => {});
    await expect(refused.iomap(memory)).rejects.toMatchObject({ code: 'ERR_ROCE_CM_REFUSED' });
    await expect(refused.iowrite(memory, 0)).rejects.toMatchObject({ code: 'ERR_ROCE_CM_REFUSED' });
  });

  test('while its socket is destroyed: the calls reject, and no region is left', async () => {
    await using ends = await openEnds(1024, 1024, { limits: { maxMr: 4 } });
    const [client, server] = await pairOf(ends);
    const calls = [
      client.iomap(new Uint8Array(8)),
      server.iowrite(new Uint8Array(8), 0),
      client.iomap(new Uint8Array(8), { offset: 8 }),
    ];
    for (const socket of [client, server]) socket.on('error', () => {}).destroy();
    const results = await Promise.allSettled(calls);
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    await turns(200);
    const pd = await ends.a.allocPd();
    for (let i = 0; i < 3; i++) await pd.registerMr(new Uint8Array(8));
  });

  test.each([
    ['ends in order', (socket: RSocket) => void socket.resume().end()],
    ['is destroyed', (socket: RSocket) => void socket.destroy()],
  ])(
    'while its peer, whose acknowledgements are lost, %s: the calls reject as a write does',
    async (_name, leave) => {
      await using ends = await openEnds();
      const [client, server] = await pairOf(ends);
      await client.iomap(new Uint8Array(8));
      const closed = [client, server].map(
        (socket) => new Promise((resolve) => socket.on('error', () => {}).once('close', resolve)),
      );
      dropAcks(ends);
      const calls = [server.iowrite(Uint8Array.of(1), 0), server.iomap(new Uint8Array(8))];
      await turns();
      server.resume().end();
      leave(client);
      const ended = {
        code: 'ERR_ROCE_CLOSED',
        message: expect.stringMatching(
          /^the connection with 10\.0\.0\.1 port \d+ ended before it had acknowledged all bytes/,
        ),
      };
      for (const result of await Promise.allSettled(calls)) expect(result).toMatchObject({ reason: ended });
      await Promise.all(closed);
    },
  );

  test.each([
    ['no bytes', [new Uint8Array(0)], 'bytes'],
    ['text', ['text'], 'bytes'],
    ['an offset below 0', [new Uint8Array(2), { offset: -1 }], 'offset'],
    ['half an offset', [new Uint8Array(2), { offset: 0.5 }], 'offset'],
    ['an end beyond 64 bits', [new Uint8Array(2), { offset: 2n ** 64n - 1n }], 'offset'],
  ])('is never %s', async (_name, args, attribute) => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { ...SMALL, sendBuffer: 23 });
    await expect(client.iomap(...(args as [Uint8Array]))).rejects.toMatchObject({
      errno: 'EINVAL',
      attribute,
    });
    await expect(client.iowrite('x' as never, 0)).rejects.toMatchObject({ attribute: 'bytes' });
    await expect(client.iowrite(new Uint8Array(1), '0' as never)).rejects.toMatchObject({
      attribute: 'offset',
    });
    await expect(client.iomap(new Uint8Array(8))).rejects.toMatchObject({ attribute: 'sendBuffer' });
    await endBoth(client, server);
  });
});

test('entries and sizes as rsocket.c has them, for hosts of either byte order', () => {
  const entry = { offset: 0x0102n, addr: 0x0304n, key: 5, length: 6 };
  const hex = '0000000000000102' + '0000000000000304' + '00000005' + '00000006';
  const big = encodeMapping(entry, false);
  expect(Buffer.from(big).toString('hex')).toBe(hex);
  const little = encodeMapping(entry, true);
  const swapped = '0201000000000000' + '0403000000000000' + '05000000' + '06000000';
  expect(Buffer.from(little).toString('hex')).toBe(swapped);
  expect(decodeMapping(new DataView(little.buffer), 0, true)).toEqual(entry);
  const target = { addr: 1n, key: 2, length: 2 };
  const data = encodeConnectionData({
    isBigEndian: false,
    credits: 8,
    sgl: target,
    buffer: target,
    mappings: 3,
  });
  expect([data[1], data[7]]).toEqual([2, 3]);
  const sizeOf = (flags: number, scaled: number) => {
    data[1] = flags;
    data[7] = scaled;
    return decodeConnectionData(data)!.mappings;
  };
  expect([sizeOf(2, 128), sizeOf(2, 129), sizeOf(3, 255), sizeOf(0, 5)]).toEqual([128, 256, 127 * 256, 0]);
});

test('entries that a hostile peer writes lead into its own memory, or nowhere', async () => {
  await using ends = await openEnds();
  await using server = await listen({ device: ends.b, port: 7, ...SMALL });
  await using id = new CmId({ device: ends.a });
  await id.resolveAddr({ host: '10.0.0.2', port: 7 });
  await id.resolveRoute();
  const { qp, mr } = await equip(id as never, { cap: { maxRecvWr: 64 } });
  for (let i = 0; i < 32; i++) void qp.receive([]).catch(() => {});
  const own = { addr: mr.addr, key: mr.rkey, length: 2 };
  const privateData = encodeConnectionData({ isBigEndian: false, credits: 8, sgl: own, buffer: own });
  await id.connect({ privateData, responderResources: 0, initiatorDepth: 0 });
  const lists = decodeConnectionData(id.replyData!)!.sgl;
  const socket = await server.accept();
  socket.on('error', () => {});
  const write = async (place: number, bytes: Uint8Array) => {
    mr.bytes(0, bytes.length).set(bytes);
    const to = { addr: lists.addr + BigInt(32 + 24 * place), rkey: lists.key };
    await qp.write({ mr, offset: 0, length: bytes.length }, to, {
      immData: Op.IOMAP * 2 ** 29 + 77_777,
    });
  };
  // At the end of all offsets, and of all addresses: the address wraps, and what is there is the peer's.
  await write(
    0,
    encodeMapping({ offset: 2n ** 64n - 8n, addr: 2n ** 64n - 4n, key: mr.rkey, length: 2 ** 32 - 1 }, true),
  );
  await write(1, encodeMapping({ offset: 0n, addr: mr.addr + 100n, key: mr.rkey, length: 4 }, true));
  await socket.iowrite(Uint8Array.of(1, 2, 3, 4), 0);
  expect([...mr.bytes(100, 5)]).toEqual([1, 2, 3, 4, 0]);
  await expect(socket.iowrite(Uint8Array.of(5), 4)).rejects.toMatchObject({ attribute: 'offset' });
  const failed = once(socket, 'error');
  await expect(socket.iowrite(Uint8Array.of(1), 2n ** 64n - 4n)).rejects.toMatchObject({
    code: 'ERR_ROCE_COMPLETION',
  });
  await failed;
  // Behind its list is nothing of ours.
  await qp.close();
});
