import { gidEquals, gidFromText } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { turns } from '../../verbs-api/testing/clock.ts';
import { openEnds, pairOf, text } from '../testing/ends.ts';
import { connect, listen } from './index.ts';

describe('messages', () => {
  test('go both ways, in order, each as it was sent', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    for (let i = 0; i < 100; i++) {
      await client.send(`${i}`.repeat(i));
      expect(text(await server.receive())).toBe(`${i}`.repeat(i));
    }
    await server.send(new Uint8Array(65_536).fill(7));
    expect(await client.receive()).toEqual(new Uint8Array(65_536).fill(7));
    await expect(client.send(new Uint8Array(65_537))).rejects.toMatchObject({ errno: 'EMSGSIZE' });
  });

  test('a peer that takes none holds its sender back', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends, { slots: 2, maxMessage: 64 });
    let sent = 0;
    const sending = (async () => {
      for (let i = 0; i < 20; i++) {
        await client.send(`${i}`);
        sent++;
      }
    })();
    await expect.poll(() => sent).toBe(2);
    await turns();
    expect(sent).toBe(2);
    for (let i = 0; i < 20; i++) expect(text(await server.receive())).toBe(`${i}`);
    await sending;
  });

  test('all that was sent arrives before the end does', async () => {
    await using ends = await openEnds();
    const [client, server] = await pairOf(ends);
    for (let i = 0; i < 10; i++) await client.send(`${i}`);
    const closing = client.close();
    const got: (string | undefined)[] = [];
    for await (const message of server) got.push(text(message));
    await closing;
    expect(got).toEqual(Array.from({ length: 10 }, (_, i) => `${i}`));
    await server.closed;
    await expect(server.send('late')).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await server.close();
  });

  test('private data of both programs', async () => {
    await using ends = await openEnds();
    const listener = await listen({
      port: 0,
      device: ends.b,
      privateData: new TextEncoder().encode('server'),
    });
    const options = { device: ends.a, privateData: new TextEncoder().encode('client') };
    const connecting = connect(`10.0.0.2:${listener.port}`, options);
    const server = await listener.accept();
    const client = await connecting;
    expect(text(client.privateData)?.replace(/\0*$/, '')).toBe('server');
    expect(text(server.privateData)?.replace(/\0*$/, '')).toBe('client');
  });

  test('a silent peer that is gone is found out', async () => {
    await using ends = await openEnds();
    const listener = await listen({ port: 0, device: ends.b });
    const options = { device: ends.a, keepAlive: 20, ackTimeout: 8, retryCount: 1 };
    const client = await connect(`10.0.0.2:${listener.port}`, options);
    ends.cut();
    await client.closed;
    await expect(client.receive()).rejects.toMatchObject({ attribute: 'RETRY_EXC_ERR' });
  });
});

describe('a listener', () => {
  test('several clients, until it is closed', async () => {
    await using ends = await openEnds();
    const listener = await listen({ port: 0, device: ends.b });
    const serving = (async () => {
      let count = 0;
      for await (const connection of listener) {
        count++;
        void (async () => {
          for await (const message of connection) await connection.send(`echo ${text(message)}`);
          await connection.close();
        })();
      }
      return count;
    })();
    for (let i = 0; i < 5; i++) {
      await using client = await connect(`10.0.0.2:${listener.port}`, { device: ends.a });
      await client.send(`${i}`);
      expect(text(await client.receive())).toBe(`echo ${i}`);
    }
    await listener.close();
    expect(await serving).toBe(5);
    await expect(listener.accept()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  });

  test('a signal ends it, and an attempt', async () => {
    await using ends = await openEnds();
    const controller = new AbortController();
    const listener = await listen({ port: 7, device: ends.b, signal: controller.signal });
    const waiting = listener.accept();
    controller.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await expect(connect('10.0.0.2:7', { device: ends.a })).rejects.toMatchObject({
      code: 'ERR_ROCE_CM_REFUSED',
    });
    await expect(connect('10.0.0.2:7', { device: ends.a, signal: controller.signal })).rejects.toThrow(
      'enough',
    );
  });

  test('a client behind address translation hears why it is refused', async () => {
    await using ends = await openEnds();
    const { network } = ends;
    const deliver = network.deliver.bind(network);
    const [inside, outside] = ['10.0.0.1', '10.0.0.9'].map(gidFromText);
    const swap = (gid: Uint8Array, from: Uint8Array, to: Uint8Array) => (gidEquals(gid, from) ? to : gid);
    network.deliver = (packet, destination) =>
      deliver(
        { ...packet, source: swap(packet.source, inside, outside) },
        swap(destination, outside, inside),
      );
    const listener = await listen({ port: 0, device: ends.b });
    await expect(connect(`10.0.0.2:${listener.port}`, { device: ends.a })).rejects.toMatchObject({
      reason: 'INVALID_GID',
      message: expect.stringContaining('RDMA does not pass address translation'),
    });
    await listener.close();
  });

  test('targets that are no host and port', async () => {
    await expect(connect('10.0.0.2')).rejects.toThrow('expected host:port, or [IPv6 address]:port');
    await expect(connect('10.0.0.2:99999')).rejects.toThrow('port: 99999');
  });
});
