/** Dead peers, silent machines, connections without messages: how long each is waited for. */
import { describe, expect, test } from 'vitest';
import { clockOfTurns, pass, stopClock, turns } from '../../verbs-api/testing/clock.ts';
import { openEnds, pairOf, text } from '../testing/ends.ts';
import { failsWithin, NO_ANSWER } from '../testing/failures.ts';
import { addName } from '../testing/names.ts';
import { firstOf, inTurns } from './eyeballs.ts';
import { answerRequests, Client, CmId, connect, listen } from './index.ts';

const DEAD = { attribute: 'RETRY_EXC_ERR' };

describe('with the defaults', () => {
  test('a side that waits learns within 10 s that its peer is dead', async () => {
    clockOfTurns(2);
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { maxMessage: 64 });
    // Idle for 6 s: probes find the peer, and the next one does not.
    await turns(3000);
    expect([client, server].map(({ id }) => id.state)).toEqual(['CONNECTED', 'CONNECTED']);
    const waiting = [client, server].map((side) => failsWithin(0, 10_000, () => side.receive()));
    ends.cut();
    for (const error of await Promise.all(waiting)) expect(error).toMatchObject(DEAD);
  });

  test('requests of a Client learn within 10 s that their server is dead, without a deadline of their own', async () => {
    clockOfTurns(2);
    await using ends = await openEnds();
    await using listener = await listen({ device: ends.b, port: 7, maxMessage: 64 });
    const never = new Promise<string>(() => {});
    const serving = listener.accept().then((connection) => answerRequests(connection, () => never));
    serving.catch(() => {});
    const client = new Client('10.0.0.2:7', { device: ends.a, maxMessage: 64, requestTimeout: 0 });
    const asking = client.request('are you there?');
    await turns(3000);
    ends.cut();
    expect(await failsWithin(0, 10_000, () => asking)).toMatchObject(DEAD);
    await client.close();
  });

  test('connect gives up a machine that is off after connectTimeout', async () => {
    await using ends = await openEnds();
    ends.cut();
    clockOfTurns(2);
    const call = () => connect('10.0.0.2:7', { device: ends.a });
    expect(await failsWithin(10_000, 10_100, call)).toMatchObject(NO_ANSWER);
  });
});

test('connectTimeout of a name that the resolver does not answer', async () => {
  addName('slow.test', () => new Promise(() => {}));
  stopClock();
  const connecting = expect(connect('slow.test:7', { connectTimeout: 50 })).rejects.toMatchObject({
    attribute: 'connectTimeout',
  });
  await pass(51);
  await connecting;
});

test('idleTimeout closes a connection without messages, probes or not', async () => {
  clockOfTurns(1);
  await using ends = await openEnds();
  const [client, server] = await pairOf(ends, { maxMessage: 64, idleTimeout: 500, keepAlive: 50 });
  for (let i = 0; i < 5; i++) {
    await turns(300);
    await client.send('x');
    expect(text(await server.receive())).toBe('x');
  }
  const since = performance.now();
  expect(await Promise.all([client.receive(), server.receive()])).toEqual([undefined, undefined]);
  const took = performance.now() - since;
  expect(took).toBeGreaterThan(400);
  expect(took).toBeLessThan(700);
});

test('closeTimeout bounds the wait for a peer that is gone', async () => {
  clockOfTurns(1);
  await using ends = await openEnds();
  const [client] = await pairOf(ends, { maxMessage: 64, closeTimeout: 100, keepAlive: 0 });
  ends.cut();
  const since = performance.now();
  await client.close();
  expect(performance.now() - since).toBeLessThan(200);
});

test('by default, close waits 5 s for a peer that is gone, as the pages state', async () => {
  clockOfTurns(1);
  await using ends = await openEnds();
  const [client] = await pairOf(ends, { maxMessage: 64, keepAlive: 0 });
  ends.cut();
  const since = performance.now();
  await client.close();
  const took = performance.now() - since;
  expect(took).toBeGreaterThan(4900);
  expect(took).toBeLessThan(5200);
});

test.each([
  [{ ackTimeoutMs: 67 }, 14],
  [{ ackTimeoutMs: 68 }, 15],
  [{ ackTimeoutMs: 0.001 }, 1],
])('%o is the code %i', async (options, code) => {
  await using ends = await openEnds();
  const [client] = await pairOf(ends, { maxMessage: 64, rnrTimerMs: 0.65, ...options });
  const { attr } = await client.qp.query();
  expect([attr.timeout, attr.minRnrTimer]).toEqual([code, 13]);
});

test('a time twice is refused', () => {
  for (const options of [
    { ackTimeout: 1, ackTimeoutMs: 1 },
    { minRnrTimer: 1, rnrTimerMs: 1 },
    { ackTimeoutMs: 0 },
  ])
    expect(() => new CmId(options)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
});

describe('a name with several addresses', () => {
  test('is tried in turns of the IP versions', () => {
    expect(inTurns(['::1', '::2', '10.0.0.1', '::3', '10.0.0.2'])).toEqual([
      '::1',
      '10.0.0.1',
      '::2',
      '10.0.0.2',
      '::3',
    ]);
  });

  test('is not tried once the signal has aborted', async () => {
    const signal = AbortSignal.abort(new Error('enough'));
    const tried: string[] = [];
    const attempt = async (address: string) => tried.push(address);
    await expect(firstOf('two.test', ['10.0.0.1', '10.0.0.2'], attempt, () => {}, signal)).rejects.toThrow(
      'enough',
    );
    expect(tried).toEqual([]);
  });

  test('connects to the one that answers, 250 ms later', async () => {
    await using ends = await openEnds();
    await using listener = await listen({ device: ends.b, port: 7 });
    const entries = ['10.0.0.77', '10.0.0.2'].map((address) => ({ address, family: 4 }));
    addName('two.test', async () => entries);
    clockOfTurns(1);
    const since = performance.now();
    const client = await connect('two.test:7', { device: ends.a });
    expect(client.id.remoteAddress?.address).toBe('10.0.0.2');
    const took = performance.now() - since;
    expect(took).toBeGreaterThanOrEqual(249);
    expect(took).toBeLessThan(400);
    const server = await listener.accept();
    await client.close();
    await server.close();
  });

  test('goes on at once from an address that fails, and reports a refusal', async () => {
    await using ends = await openEnds();
    addName('two.test', async () => [
      { address: '10.0.0.2', family: 4 },
      { address: '10.0.0.1', family: 4 },
    ]);
    clockOfTurns(1);
    const since = performance.now();
    await expect(connect('two.test:7', { device: ends.a })).rejects.toMatchObject({
      reason: 'INVALID_SERVICE_ID',
    });
    expect(performance.now() - since).toBeLessThan(200);
  });

  test('of which none answers: the error has the reason of each', async () => {
    await using ends = await openEnds();
    addName('off.test', async () => [
      { address: '10.0.0.77', family: 4 },
      { address: '10.0.0.78', family: 4 },
    ]);
    clockOfTurns(1);
    const timing = { responseTimeout: 8, packetLifetime: 8, maxRetries: 1 };
    const error = await connect('off.test:7', { device: ends.a, timing }).catch((reason) => reason);
    expect(error).toMatchObject({ code: 'ERR_ROCE_CM_UNREACHABLE', errno: 'ETIMEDOUT', attribute: 'host' });
    expect(error.message).toMatch(/no address of off\.test answers: .*10\.0\.0\.77.*; .*10\.0\.0\.78/);
    expect(error.cause.errors).toHaveLength(2);
  });

  test('that the program gives up leaves nothing', async () => {
    await using ends = await openEnds();
    addName('off.test', async () => [
      { address: '10.0.0.77', family: 4 },
      { address: '10.0.0.78', family: 4 },
    ]);
    const controller = new AbortController();
    const connecting = connect('off.test:7', { device: ends.a, signal: controller.signal });
    await turns(20);
    controller.abort(new Error('enough'));
    await expect(connecting).rejects.toThrow('enough');
    await turns(200);
    await (await ends.a.allocPd()).dealloc();
  });
});
