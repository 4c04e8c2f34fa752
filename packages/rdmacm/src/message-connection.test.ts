/** Connections that carry messages, at their limits. */
import { Worker } from 'node:worker_threads';
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { describe, expect, test, vi } from 'vitest';
import { host } from '../../link/testing/loopback.ts';
import { clockOfTurns, turns } from '../../verbs-api/testing/clock.ts';
import { type Ends, openEnds, pairOf, text } from '../testing/ends.ts';
import { connect, listen } from './index.ts';

describe('messages', () => {
  test('1500 wait for a program that is slow, and none is lost', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { slots: 2048, maxMessage: 8 });
    const sending: Promise<void>[] = [];
    for (let i = 0; i < 1500; i++) sending.push(client.send(`${i}`));
    await Promise.all(sending);
    await turns();
    for (let i = 0; i < 1500; i++) expect(text(await server.receive())).toBe(`${i}`);
  });

  test('a sender that gives up its wait takes the slot from nobody', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { slots: 1, maxMessage: 8 });
    const controller = new AbortController();
    await client.send('1');
    const second = client.send('2');
    const given = client.send('given up', { signal: controller.signal });
    const third = client.send('3');
    controller.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
    for (const expected of ['1', '2', '3']) expect(text(await server.receive())).toBe(expected);
    await Promise.all([second, third]);
  });

  test('keep their order where a sender comes in the turn that frees a slot', async () => {
    await using ends = await openEnds();
    const [other] = await pairOf(ends);
    const [client, server] = await pairOf(ends, { slots: 2, maxMessage: 8 });
    for (let i = 0; i < 20; i += 4) {
      const first = other.send('x');
      const sending = [0, 1, 2].map((k) => client.send(`${i + k}`)); // The third waits.
      await first;
      sending.push(client.send(`${i + 3}`));
      for (let k = 0; k < 4; k++) expect(text(await server.receive())).toBe(`${i + k}`);
      await Promise.all(sending);
    }
  });

  test('a signal ends the wait for the acknowledgement; the slot stays in use, and the message arrives', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { slots: 1, maxMessage: 8 });
    const controller = new AbortController();
    await client.send('1');
    const given = client.send('2', { signal: controller.signal });
    await turns();
    controller.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
    const third = client.send('3');
    for (const expected of ['1', '2', '3']) expect(text(await server.receive())).toBe(expected);
    await third;
  });

  test('wait for a peer that takes none, also with probes of a silent peer', async () => {
    clockOfTurns();
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { slots: 2, maxMessage: 8, keepAlive: 2 });
    const sending = ['1', '2', '3'].map((message) => client.send(message));
    await turns(600); // 60 ms
    sending.push(client.send('4'));
    for (const expected of ['1', '2', '3', '4']) expect(text(await server.receive())).toBe(expected);
    await Promise.all(sending);
    await client.close();
    await server.close();
  });

  test('under way when the connection is closed: their senders hear of it', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { slots: 1, maxMessage: 8 });
    await client.send('1');
    const outcomes = ['2', '3'].map((message) => client.send(message));
    const closed = outcomes.map((sending) =>
      expect(sending).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' }),
    );
    await client.close();
    await Promise.all(closed);
    expect(text(await server.receive())).toBe('1');
    expect(await server.receive()).toBeUndefined();
  });
});

test('closes though the program still has a region in its domain', async () => {
  await using ends = await openEnds();
  const [client, server] = await pairOf(ends);
  const region = await client.pd.registerMr(new Uint8Array(64));
  await client.close();
  expect(client.id.state).toBe('DESTROYED');
  await server.closed;
  await region.deregister();
  await client.pd.dealloc();
});

describe('a connection that there is no room for', () => {
  test('leaves nothing', async () => {
    const network = new MemoryNetwork();
    await using device = await openDevice({
      link: network.link('10.0.0.1', 1024),
      limits: { maxMr: 1, maxPd: 1 },
    });
    await expect(connect('10.0.0.2:1', { device })).rejects.toMatchObject({ code: 'ERR_ROCE_LIMIT' });
    await (await device.allocPd()).dealloc();
  });

  test('is refused with the reason, and its listener warns once', async () => {
    await using ends = await openEnds();
    const warning = vi.spyOn(process, 'emitWarning').mockReturnValue();
    const options = { device: ends.b, port: 7, slots: 16_384, maxMessage: 2 ** 31 };
    await using _listener = await listen(options);
    for (let i = 0; i < 2; i++)
      await expect(connect('10.0.0.2:7', { device: ends.a })).rejects.toMatchObject({
        reason: 'NO_RESOURCES',
      });
    expect(warning.mock.calls).toEqual([
      [expect.stringContaining('port 7'), { type: 'RoceWarning', code: 'ROCE_ACCEPT_FAILED' }],
    ]);
    warning.mockRestore();
  });

  test('reports that memory is short', async () => {
    await using ends = await openEnds();
    const options = { device: ends.a, slots: 16_384, maxMessage: 2 ** 31 };
    await expect(connect('10.0.0.2:1', options)).rejects.toMatchObject({
      code: 'ERR_ROCE_LIMIT',
      errno: 'ENOMEM',
      attribute: 'maxMessage',
    });
  });
});

test.each([
  ['connect', (ends: Ends) => connect('10.0.0.2:1', { device: ends.a, portSpace: 'UDP' as never })],
  ['listen', (ends: Ends) => listen({ port: 1, device: ends.b, portSpace: 'UDP' as never })],
])('%s in a port space of datagrams is refused', async (_name, call) => {
  await using ends = await openEnds();
  await expect(call(ends)).rejects.toMatchObject({
    code: 'ERR_ROCE_INVALID_ATTRIBUTE',
    attribute: 'portSpace',
  });
});

test('a request that the peer refuses is the reason of the end, though the peer disconnects at once', async () => {
  await using ends = await openEnds();
  const [client, server] = await pairOf(ends, {});
  const serving = server.receive().catch((error: Error) => error.message);
  const refused = { code: 'ERR_ROCE_COMPLETION', attribute: 'REM_ACCESS_ERR' };
  await expect(client.qp.write(new Uint8Array(8), { addr: 4096n, rkey: 5 })).rejects.toMatchObject(refused);
  await client.closed;
  await expect(client.send('x')).rejects.toMatchObject(refused);
  await expect(client.receive()).rejects.toMatchObject(refused);
  expect(await serving).toBe(
    `the peer had no access to the memory that it named: QP ${server.qp.qpNum}, connected to QP ${client.qp.qpNum} at 10.0.0.1`,
  );
});

test('a device that fails is no orderly end of a connection', async () => {
  const posted = vi.spyOn(Worker.prototype, 'postMessage');
  await using listener = await listen({ address: host(1), port: 0 });
  // A worker starts in seconds where other programs have the processors.
  const patient = { connectTimeout: 120_000, deviceOptions: { engine: 'worker' } } as const;
  const client = await connect(`${host(1)}:${listener.port}`, { source: host(2), ...patient });
  const receiving = expect(client.receive()).rejects.toMatchObject({ code: 'ERR_ROCE_DEVICE_FATAL' });
  const [engine] = posted.mock.contexts as Worker[];
  posted.mockRestore();
  await engine.terminate();
  await receiving;
  await expect(client.send('x')).rejects.toMatchObject({ code: 'ERR_ROCE_DEVICE_FATAL' });
});

test('a connection closes, whatever events of it the program has taken and not acknowledged', async () => {
  await using ends = await openEnds();
  const [client, server] = await pairOf(ends, { maxMessage: 64 });
  const taken = ends.b.getEvent();
  // Past `send`, which knows the size.
  const mr = await client.pd.registerMr(new Uint8Array(4096));
  await expect(client.qp.send({ mr, offset: 0, length: 4096 })).rejects.toMatchObject({
    attribute: 'REM_INV_REQ_ERR',
  });
  await mr.deregister();
  expect((await taken).event.type).toBe('QP_REQ_ERR');
  await Promise.all([client.close(), server.close()]);
  expect(server.id.state).toBe('DESTROYED');
});
