/** How long a socket waits for a peer that is not there, and which of its addresses it tries. */
import { once } from 'node:events';
import http from 'node:http';
import { CmId } from '@node-roce/rdmacm';
import { describe, expect, test } from 'vitest';
import { equip, openEnds } from '../../rdmacm/testing/ends.ts';
import { failsWithin, NO_ANSWER } from '../../rdmacm/testing/failures.ts';
import { addName } from '../../rdmacm/testing/names.ts';
import { clockOfTurns, pass, stopClock, turns } from '../../verbs-api/testing/clock.ts';
import { type ConnectOptions, connect, createConnection, listen } from './index.ts';
import { encodeConnectionData } from './wire.ts';

const SMALL = { receiveBuffer: 512, sendBuffer: 300, queue: 8, closeTimeout: 200 };
const PLACE = { host: '10.0.0.2', port: 7 };

describe('a machine that is off, with the defaults', () => {
  test.each<[string, (options: Pick<ConnectOptions, 'device' | 'host' | 'port'>) => Promise<unknown>]>([
    ['connect', connect],
    ['createConnection', (options) => once(createConnection(options), 'connect')],
    [
      'http.get',
      (options) =>
        once(http.get({ ...PLACE, createConnection: () => createConnection(options) }), 'response'),
    ],
  ])('%s gives up after connectTimeout', async (_, call) => {
    await using ends = await openEnds();
    ends.cut();
    clockOfTurns(2);
    const options = { device: ends.a, ...PLACE };
    expect(await failsWithin(10_000, 10_100, () => call(options))).toMatchObject(NO_ANSWER);
  });

  test('connectTimeout of a name that the resolver does not answer', async () => {
    addName('slow.test', () => new Promise(() => {}));
    stopClock();
    const connecting = expect(
      connect({ host: 'slow.test', port: 7, connectTimeout: 50 }),
    ).rejects.toMatchObject({ attribute: 'connectTimeout' });
    await pass(51);
    await connecting;
  });
});

describe('with the defaults, a peer that dies is found within 10 s', () => {
  test.each(['reads', 'writes', 'waits for iowrite'])('by a socket that %s', async (what) => {
    clockOfTurns(2);
    await using ends = await openEnds();
    await using server = await listen({ device: ends.b, port: 7, ioMappings: 1 });
    const connecting = connect({ device: ends.a, ...PLACE, ioMappings: 1 });
    const accepted = await server.accept();
    const client = await connecting;
    const sockets = [client, accepted];
    await accepted.iomap(new Uint8Array(100));
    // Idle for 6 s: probes find the peer, and the next one does not.
    await turns(3000);
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([false, false]);
    const ending = sockets.map((socket) => failsWithin(0, 10_000, () => once(socket, 'close')));
    ends.cut();
    const calls: Promise<unknown>[] = [];
    for (const socket of sockets) {
      if (what === 'reads') socket.resume();
      if (what === 'writes') socket.write(Buffer.alloc(1_000_000));
    }
    if (what === 'waits for iowrite')
      calls.push(failsWithin(0, 10_000, () => client.iowrite(new Uint8Array(100), 0)));
    for (const error of await Promise.all(ending))
      expect(error).toMatchObject({ code: 'ERR_ROCE_COMPLETION', attribute: 'RETRY_EXC_ERR' });
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ attribute: 'RETRY_EXC_ERR' });
  });
});

test('a server finds within 11 s that a client in C has died, which asks for 7 retries', async () => {
  clockOfTurns(2);
  await using ends = await openEnds();
  await using server = await listen({ device: ends.b, port: 7 });
  const id = new CmId({ device: ends.a });
  await id.resolveAddr(PLACE);
  await id.resolveRoute();
  const { qp, mr } = await equip(id as never, { cap: { maxRecvWr: 20 } });
  for (let i = 0; i < 16; i++) qp.receive([]).catch(() => {});
  const privateData = encodeConnectionData({
    ...{ isBigEndian: false, credits: 12, mappings: 0 },
    sgl: { addr: mr.addr, key: mr.rkey, length: 2 },
    buffer: { addr: mr.addr + 1024n, key: mr.rkey, length: 2000 },
  });
  const limits = { responderResources: 0, initiatorDepth: 0, retryCount: 7, rnrRetryCount: 7 };
  await id.connect({ ...limits, privateData });
  const socket = (await server.accept()).resume();
  // A probe has just been answered.
  await turns(3010);
  const ending = failsWithin(10_000, 11_000, () => once(socket, 'close'));
  ends.cut();
  expect(await ending).toMatchObject({ attribute: 'RETRY_EXC_ERR' });
});

describe('a name with several addresses', () => {
  test.each(['connect', 'createConnection'])('%s tries the next one after 250 ms', async (call) => {
    await using ends = await openEnds();
    await using server = await listen({ device: ends.b, port: 7, ...SMALL });
    addName('two.test', async () => [
      { address: '10.0.0.77', family: 4 },
      { address: '10.0.0.2', family: 4 },
    ]);
    clockOfTurns(1);
    const since = performance.now();
    const options = { device: ends.a, host: 'two.test', port: 7, ...SMALL };
    const socket = call === 'connect' ? await connect(options) : createConnection(options);
    if (call !== 'connect') await once(socket, 'connect');
    expect(socket.remoteAddress).toBe('10.0.0.2');
    expect(performance.now() - since).toBeLessThan(600);
    const taken = await server.accept();
    for (const each of [socket, taken]) each.on('error', () => {}).destroy();
  });

  test('of which none answers: the error has the reason of each, and nothing is left', async () => {
    await using ends = await openEnds(1024, 1024, { limits: { maxQp: 4, maxPd: 3 } });
    addName('off.test', async () => [
      { address: '10.0.0.77', family: 4 },
      { address: '10.0.0.78', family: 4 },
    ]);
    clockOfTurns(1);
    const timing = { responseTimeout: 8, packetLifetime: 8, maxRetries: 1 };
    for (let i = 0; i < 5; i++)
      await expect(
        connect({ device: ends.a, host: 'off.test', port: 7, timing, ...SMALL }),
      ).rejects.toMatchObject({
        code: 'ERR_ROCE_CM_UNREACHABLE',
        message: expect.stringMatching(/no address of off\.test answers: .*10\.0\.0\.77.*; .*10\.0\.0\.78/),
      });
  });
});
