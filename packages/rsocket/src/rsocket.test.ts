/** Sockets over RDMA, with themselves. */
import { once } from 'node:events';
import http from 'node:http';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { CmId, connect as connectMessages } from '@node-roce/rdmacm';
import { decodeCm } from '@node-roce/wire';
import { describe, expect, onTestFinished, test } from 'vitest';
import { equip, openEnds } from '../../rdmacm/testing/ends.ts';
import { header, openTarget, PORT, request } from '../../rdmacm/testing/stranger.ts';
import { turns } from '../../verbs-api/testing/clock.ts';
import { pairOf, programOf, SMALL } from '../testing/program.ts';
import { Inbound } from './inbound.ts';
import { connect, createConnection, createServer, listen, type RSocket } from './index.ts';
import { Outbound } from './outbound.ts';
import { dataOf, decodeConnectionData, encodeConnectionData, Op, opOf } from './wire.ts';

const pattern = (length: number) =>
  Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 255));

describe('a socket', () => {
  test.each([
    ['small rings', SMALL],
    ['uneven rings', { ...SMALL, receiveBuffer: 1000, sendBuffer: 77 }],
    ['a ring of an odd number of bytes', { ...SMALL, receiveBuffer: 1001, sendBuffer: 77 }],
    ['the default', {}],
  ])('carries bytes in order both ways, past the ends of %s', async (_name, options) => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, options);
    const bytes = pattern(20_011);
    const chunks = function* () {
      for (let at = 0, size = 1; at < bytes.length; at += size, size = (size * 3 + 1) % 1999)
        yield bytes.subarray(at, at + size);
    };
    void pipeline(Readable.from(chunks(), { objectMode: false }), client);
    server.pipe(server);
    expect((await buffer(client)).equals(bytes)).toBe(true);
    await Promise.all([client, server].map((socket) => (socket.closed ? undefined : once(socket, 'close'))));
  });

  test('ends one direction, and goes on in the other', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { ...SMALL, allowHalfOpen: true });
    client.end('question');
    server.resume();
    await once(server, 'end');
    server.end('answer');
    expect(`${await buffer(client)}`).toBe('answer');
    for (const socket of [client, server]) if (!socket.closed) await once(socket, 'close');
  });

  test('holds a writer back whose peer does not read', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { ...SMALL, readableHighWaterMark: 100 });
    const chunk = Buffer.alloc(10_000, 1);
    client.write(chunk);
    await turns(300);
    expect(server.bytesRead).toBeLessThan(1200);
    const all = buffer(server);
    client.end();
    expect((await all).equals(chunk)).toBe(true);
    if (!client.closed) await once(client, 'close');
  });

  test('of a peer that leaves silently is an error', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    const failed = once(server, 'error');
    client.destroy();
    expect((await failed)[0]).toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  });
});

test('a socket whose signal has aborted before is destroyed, and no connection is made', async () => {
  await using ends = await openEnds();
  await using server = await listen({ device: ends.b, port: 7, ...SMALL });
  const place = { device: ends.a, host: '10.0.0.2', port: 7, ...SMALL };
  const socket = createConnection({ ...place, signal: AbortSignal.abort(new Error('enough')) });
  const [error] = await once(socket, 'error');
  expect(error).toMatchObject({ name: 'AbortError', cause: new Error('enough') });
  if (!socket.closed) await once(socket, 'close');
  // The next one is the first that the server gets.
  const client = await connect(place);
  const taken = await server.accept();
  expect(taken.remotePort).toBe(client.localPort);
  for (const each of [client, taken]) each.on('error', () => {}).destroy();
});

test('a listener of rsockets refuses a client of messages', async () => {
  await using ends = await openEnds();
  await using server = await listen({ device: ends.b, port: 0 });
  await expect(
    connectMessages(`10.0.0.2:${server.port}`, { device: ends.a, maxMessage: 64 }),
  ).rejects.toMatchObject({ code: 'ERR_ROCE_CM_REFUSED', reason: 'CONSUMER_DEFINED' });
});

test('a program that accepts and is no rsocket fails the client, which leaves nothing', async () => {
  await using ends = await openEnds();
  await using id = new CmId({ device: ends.b });
  await id.listen({ port: 7 });
  const connecting = connect({ device: ends.a, host: '10.0.0.2', port: 7, ...SMALL });
  const request = await id.getRequest();
  const data = decodeConnectionData(request.request!.privateData)!;
  expect(data).toMatchObject({ version: 1, isBigEndian: false, credits: 8, sgl: { length: 2 } });
  expect(data.buffer.length).toBe(256);
  await equip(request as never);
  await Promise.allSettled([
    request.accept(),
    expect(connecting).rejects.toMatchObject({ code: 'ERR_ROCE_PROTOCOL' }),
  ]);
  await request.destroy();
});

/** The immediate of SHUTDOWN. */
const SHUTDOWN = 0xe000_0002;

test('a peer that writes more than it was given room for is cut off', async () => {
  await using ends = await openEnds();
  const { id, qp, socket } = await programOf(ends);
  await using _ = id;
  const failed = once(socket, 'error');
  // DATA of 513 bytes, where both halves of the ring have 512.
  await qp.write([], { addr: 0n, rkey: 0 }, { immData: 513 });
  expect((await failed)[0]).toMatchObject({
    code: 'ERR_ROCE_PROTOCOL',
    message: expect.stringContaining('without room'),
  });
});

describe('a peer that disconnects without a message', () => {
  test('has ended its stream, if it has taken the end of ours', async () => {
    await using ends = await openEnds();
    const { id, receives, socket } = await programOf(ends);
    await using _ = id;
    const bytes = buffer(socket);
    socket.end();
    for (const receive of receives) if (((await receive).immData ?? 0) >>> 0 === SHUTDOWN) break;
    await id.disconnect();
    expect(await bytes).toHaveLength(0);
    if (!socket.closed) await once(socket, 'close');
  });

  test('has left its stream in the middle, if it has not', async () => {
    await using ends = await openEnds();
    const { id, socket } = await programOf(ends);
    await using _ = id;
    socket.resume();
    const failed = once(socket, 'error');
    await id.disconnect();
    expect((await failed)[0]).toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  });
});

describe('a listener', () => {
  const place = { host: '10.0.0.2', port: 7 };
  /** Connection data of a stranger, whose address is that of a packet, or another one. */
  const dataOf = (lastByte: number) => {
    const own = { addr: 0n, key: 1, length: 2 };
    const privateData = new Uint8Array(92);
    privateData.set(header);
    privateData[19] = lastByte;
    privateData.set(encodeConnectionData({ isBigEndian: false, credits: 8, sgl: own, buffer: own }), 36);
    return privateData;
  };
  const sentBy = ({ answers }: Awaited<ReturnType<typeof openTarget>>) =>
    answers().map((bytes) => {
      const parsed = decodeCm(bytes);
      return parsed.ok ? parsed.message.name : parsed.reason;
    });

  test('refuses a request that names another source than it came from', async () => {
    await using target = await openTarget();
    await using _server = await listen({ device: target.device, port: PORT });
    target.send({ ...request(1), privateData: dataOf(77) });
    await expect.poll(() => sentBy(target)).toEqual(['REJ']);
  });

  test('closes at once, although a stranger does not confirm', async () => {
    await using target = await openTarget();
    const server = await listen({ device: target.device, port: PORT });
    target.send({ ...request(1), privateData: dataOf(1) });
    await expect.poll(() => sentBy(target)).toEqual(['REP']);
    let isClosed = false;
    const closing = server.close().then(() => {
      isClosed = true;
    });
    await turns(500);
    expect(isClosed).toBe(true);
    await closing;
  });

  test('makes as many connections as its backlog, until the program takes one', async () => {
    await using ends = await openEnds();
    await using server = await listen({ device: ends.b, port: 7, ...SMALL, backlog: 2 });
    const clients: Promise<unknown>[] = [];
    let connected = 0;
    for (let i = 0; i < 4; i++) {
      const connecting = connect({ device: ends.a, ...place, ...SMALL });
      const counted = connecting.then((socket) => {
        connected++;
        socket.on('error', () => {}).resume();
      });
      clients.push(counted);
      await turns();
    }
    expect(connected).toBe(2);
    const sockets = [await server.accept(), await server.accept()];
    await turns(500);
    expect(connected).toBe(4);
    await Promise.all(clients);
    for (const socket of sockets) socket.on('error', () => {}).destroy();
  });

  test('keeps a client that leaves before the program takes it from being an uncaught error', async () => {
    await using ends = await openEnds();
    const server = await listen({ device: ends.b, port: 7, ...SMALL });
    const client = await connect({ device: ends.a, ...place, ...SMALL });
    client.destroy();
    await once(client, 'close');
    await turns(200);
    const socket = await server.accept();
    expect((await once(socket, 'error'))[0]).toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await server.close();
  });

  test('ends with its signal, and the sockets that were taken go on', async () => {
    await using ends = await openEnds();
    const controller = new AbortController();
    const server = await listen({ device: ends.b, port: 7, ...SMALL, signal: controller.signal });
    const client = await connect({ device: ends.a, ...place, ...SMALL });
    const socket = await server.accept();
    const next = expect(server.accept()).rejects.toThrow('enough');
    controller.abort(new Error('enough'));
    await next;
    await expect(connect({ device: ends.a, ...place })).rejects.toMatchObject({
      code: 'ERR_ROCE_CM_REFUSED',
    });
    client.end('still here');
    expect(`${await buffer(socket)}`).toBe('still here');
    client.resume();
    await Promise.all([client, socket].map((each) => (each.closed ? undefined : once(each, 'close'))));
    await expect(listen({ device: ends.b, port: 8, signal: AbortSignal.abort() })).rejects.toThrow('abort');
  });

  test('goes on where the function of a socket has thrown', async () => {
    await using ends = await openEnds();
    const thrown: unknown[] = [];
    const others = process.rawListeners('uncaughtException') as NodeJS.UncaughtExceptionListener[];
    process.removeAllListeners('uncaughtException').on('uncaughtException', (error) => thrown.push(error));
    onTestFinished(() => {
      process.removeAllListeners('uncaughtException');
      for (const each of others) process.on('uncaughtException', each);
    });
    const sockets: RSocket[] = [];
    await using _server = await createServer({ device: ends.b, port: 7, ...SMALL }, (socket) => {
      sockets.push(socket);
      if (sockets.length === 1) throw new Error('not today');
    });
    const clients = [
      await connect({ device: ends.a, ...place, ...SMALL }),
      await connect({ device: ends.a, ...place, ...SMALL }),
    ];
    await turns(100);
    expect([sockets.length, thrown]).toEqual([2, [new Error('not today')]]);
    for (const each of [...clients, ...sockets]) each.on('error', () => {}).destroy();
  });

  test('of a function ends by its signal without an unhandled rejection', async () => {
    await using ends = await openEnds();
    const unhandled: unknown[] = [];
    const others = process.rawListeners('unhandledRejection') as NodeJS.UnhandledRejectionListener[];
    process
      .removeAllListeners('unhandledRejection')
      .on('unhandledRejection', (error) => unhandled.push(error));
    onTestFinished(() => {
      process.removeAllListeners('unhandledRejection');
      for (const each of others) process.on('unhandledRejection', each);
    });
    const abort = new AbortController();
    const server = await createServer({ device: ends.b, port: 7, ...SMALL, signal: abort.signal }, () => {});
    abort.abort();
    await turns();
    await server.close();
    await expect(connect({ device: ends.a, ...place, ...SMALL })).rejects.toMatchObject({
      code: 'ERR_ROCE_CM_REFUSED',
    });
    expect(unhandled).toEqual([]);
  });

  test('refuses a client for whose objects there is no room, and leaves nothing of them', async () => {
    await using ends = await openEnds(1024, 1024, { limits: { maxMr: 2, maxCq: 2 } });
    await using _server = await listen({ device: ends.b, port: 7, ...SMALL });
    const warned = once(process, 'warning');
    for (let i = 0; i < 5; i++) {
      const own = connect({ device: ends.a, ...place, ...SMALL });
      await expect(own).rejects.toMatchObject({ code: 'ERR_ROCE_LIMIT' });
      await using id = new CmId({ device: ends.a });
      await id.resolveAddr(place);
      await id.resolveRoute();
      const pd = await id.device.allocPd();
      await id.createQp(pd, { sendCq: await id.device.createCq(4) });
      await expect(id.connect()).rejects.toMatchObject({ reason: 'NO_RESOURCES' });
      const { sendCq } = id.qp!;
      await id.qp!.close();
      await sendCq!.destroy();
    }
    expect((await warned)[0]).toMatchObject({ code: 'ROCE_ACCEPT_FAILED' });
  });
});

/** ROCE_HTTP_REQUESTS=100000 is the long run, with 100 sockets. */
const REQUESTS = Number(process.env.ROCE_HTTP_REQUESTS ?? 300);

test(`http with an agent that keeps sockets: each of ${REQUESTS} answers is its request’s`, async () => {
  const maxSockets = Math.min(100, Math.ceil(REQUESTS / 60));
  const service = http.createServer((request, response) => {
    request.pipe(response);
  });
  // No socket ends because the machine is busy for 5 s.
  service.keepAliveTimeout = 0;
  const listener = await createServer({ port: 0, address: '127.0.62.1' }, (socket) =>
    service.emit('connection', socket),
  );
  const agent = new http.Agent({ keepAlive: true, maxSockets });
  let sockets = 0;
  agent.createConnection = ((options: never) => {
    sockets++;
    return createConnection(options);
  }) as never;
  const ask = async (i: number) => {
    const body = `request ${i} `.repeat(1 + (i % 50));
    const request = http.request({
      agent,
      host: '127.0.62.1',
      port: listener.port,
      method: 'POST',
      path: `/${i}`,
    });
    request.end(body);
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    expect(`${await buffer(response)}`).toBe(body);
  };
  let next = 0;
  const work = async () => {
    while (next < REQUESTS) await ask(next++);
  };
  // Twice as many as sockets: some wait for one.
  await Promise.all(Array.from({ length: 2 * maxSockets }, work));
  expect(sockets).toBe(maxSockets);
  agent.destroy();
  service.closeAllConnections();
  await listener.close();
});

test('`timeout` is that of the socket, as with node:net, and options of ids are its ids’', async () => {
  await using ends = await openEnds();
  await using server = await listen({ device: ends.b, port: 7, ...SMALL });
  const socket = createConnection({ device: ends.a, host: '10.0.0.2', port: 7, timeout: 20, ...SMALL });
  await once(socket, 'timeout');
  expect(socket.timeout).toBe(20);
  const taken = await server.accept();
  for (const each of [socket, taken]) each.on('error', () => {}).destroy();
  const refused = createConnection({ device: ends.a, host: '10.0.0.2', port: 7, timing: { maxRetries: 99 } });
  expect((await once(refused, 'error'))[0]).toMatchObject({
    errno: 'EINVAL',
    attribute: 'timing.maxRetries',
  });
});

test.each([
  [{ host: 'x' }, 'port'],
  [{ port: 5 }, 'host'],
  [{ host: 'x', port: 5, queue: 4 }, 'queue'],
  [{ host: 'x', port: 5, sendbuffer: 4 }, 'sendbuffer'],
  [{ host: 'x', port: 5, signal: {} }, 'signal'],
])('connect refuses %o', async (options, attribute) => {
  await expect(connect(options as never)).rejects.toMatchObject({ errno: 'EINVAL', attribute });
  await expect(listen({ port: 70_000 })).rejects.toMatchObject({ errno: 'EINVAL', attribute: 'port' });
});

test('a million mutated control messages end a socket, or do nothing', () => {
  let seed = 7;
  const draw = (below: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 8) % below;
  };
  const own = { bytes: new Uint8Array(64), addr: 4096n, rkey: 5 };
  let inbound = new Inbound(own, 8);
  let room = 32;
  let unread = 0;
  for (let i = 0; i < 1_000_000; i++) {
    const imm = draw(2) === 0 ? draw(80) : (draw(65_536) * 65_536 + draw(65_536)) >>> 0;
    if (opOf(imm) === Op.SGL || opOf(imm) === Op.CTRL || opOf(imm) === Op.IOMAP) continue;
    const fits = dataOf(imm) <= room && unread < 8;
    if (inbound.arrived(dataOf(imm)) !== fits) throw new Error(`message ${i}: ${imm}, room ${room}`);
    if (fits) room -= dataOf(imm);
    if (fits) unread++;
    if (draw(3) === 0) {
      while (!inbound.isEmpty) if (inbound.take(16).length > 64) throw new Error(`message ${i}`);
      unread = 0;
    }
    if (inbound.owesGrant && draw(2) === 0 && inbound.grant().buffer) room += 32;
    if (i % 10_000 === 0) [inbound, room, unread] = [new Inbound(own, 8), 32, 0];
  }
});

test('entries and credits of a hostile peer: what is placed stays in its buffer and ours', {
  tags: ['slow', 'gate'],
}, () => {
  let seed = 9;
  const draw = (below: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 8) % below;
  };
  const sgl = new Uint8Array(32);
  const first = { addr: 0n, key: 1, length: 100 };
  const outbound = new Outbound(sgl, new Uint8Array(50), {
    ...{ version: 1, isBigEndian: false, credits: 5, sgl: first, mappings: 0, announcesEnds: false },
    buffer: first,
  });
  const placed: number[] = [];
  for (let i = 0; i < 100_000; i++) {
    for (let at = draw(4); at > 0; at--) sgl[draw(32)] = draw(256);
    if (draw(3) === 0) outbound.granted(draw(70_000));
    const { room } = outbound;
    if (!(room >= 0 && room <= 50)) throw new Error(`step ${i}: room for ${room} bytes`);
    if (room > 0) {
      const piece = outbound.place(new Uint8Array(1 + draw(room)));
      placed.push(piece.length);
      if (!piece.ranges.every(({ offset, length }) => offset >= 0 && offset + length <= 50))
        throw new Error(`step ${i}: ${JSON.stringify(piece.ranges)}`);
    }
    if (placed.length > 0 && draw(2) === 0) outbound.completed(placed.shift()!);
  }
});
