import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { gidFromText } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type ConnectionData, connectAttributes } from './connection.ts';
import { exchangeAsClient, exchangeAsServer } from './exchange.ts';

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

async function exchanges() {
  const at = { host: '127.0.0.1', port: await freePort() };
  const serving = exchangeAsServer(at);
  const client = await exchangeAsClient(at);
  return { client, server: await serving };
}

const data: ConnectionData = { qpNum: 17, psn: 0xabcdef, gid: '10.0.0.1', mtu: 4096 };

describe('the exchange over TCP', () => {
  test('swaps connection data, then whatever the programs like, in order', async () => {
    const { client, server } = await exchanges();
    const theirs = client.swap(data);
    expect(await server.swap({ ...data, qpNum: 18 })).toEqual(data);
    expect((await theirs).qpNum).toBe(18);
    for (let i = 0; i < 100; i++) client.send({ i, text: 'é\n'.repeat(i) });
    for (let i = 0; i < 100; i++) expect(await server.receive()).toEqual({ i, text: 'é\n'.repeat(i) });
    await client.close();
    await expect(server.receive()).rejects.toMatchObject({ code: 'ERR_ROCE_EXCHANGE' });
    await server.close();
  });

  test.each([
    ['no JSON', 'hello\n', /not JSON/],
    ['a line without end', 'x'.repeat(70_000), /without end/],
    ['nothing', '', /closed the exchange/],
  ])('%s is refused', async (_name, text, message) => {
    const at = { host: '127.0.0.1', port: await freePort() };
    const serving = exchangeAsServer(at);
    // Listens already as the call returns: whoever connects then is not refused.
    const socket = connect(at);
    socket.on('error', () => {});
    const server = await serving;
    socket.end(text);
    await expect(server.receive()).rejects.toThrow(message);
    await server.close();
  });

  test('a signal ends waiting: for a client, for a server’s answer', async () => {
    const at = { host: '127.0.0.1', port: await freePort() };
    const controller = new AbortController();
    const waiting = exchangeAsServer({ ...at, signal: controller.signal });
    controller.abort();
    await expect(waiting).rejects.toMatchObject({ name: 'AbortError' });

    const serving = exchangeAsServer(at);
    const other = new AbortController();
    const client = await exchangeAsClient({ ...at, signal: other.signal });
    const server = await serving;
    const answer = client.receive();
    const reason = new Error('enough');
    other.abort(reason);
    await expect(answer).rejects.toBe(reason);
    await server.close();
    await client.close();
  });

  test('without a server, the error names it', async () => {
    await expect(exchangeAsClient({ host: '127.0.0.1', port: await freePort() })).rejects.toMatchObject({
      code: 'ERR_ROCE_EXCHANGE',
      cause: { code: 'ECONNREFUSED' },
    });
  });
});

describe('which local GID', () => {
  const gids = ['fe80::1', '10.0.0.1', 'fd00::1', '10.0.0.2'].map((address) => ({
    gid: gidFromText(address),
    address,
    type: 'RoCE v2' as const,
  }));
  const facts = { gids, activeMtu: 4096 };
  const index = (gid: string, told?: number, gidIndex?: number) =>
    connectAttributes({ initialPsn: 1, gidIndex: told }, { ...data, gid }, { gidIndex }, facts).rtr.ahAttr
      ?.grh.sgidIndex;

  test('the first of the peer’s kind, or the one the peer was given, or the one asked for', () => {
    expect(index('10.9.9.9')).toBe(1);
    expect(index('::ffff:10.9.9.9')).toBe(1);
    expect(index('fe80::9')).toBe(0);
    expect(index('fd00::9')).toBe(2);
    expect(index('10.9.9.9', 3)).toBe(3);
    expect(index('fd00::9', 3)).toBe(2);
    expect(index('10.9.9.9', 3, 1)).toBe(1);
  });

  test('the GID :: of a peer without a GID index: the message names the option that is missing', () => {
    for (const told of [undefined, 1]) expect(() => index('::', told)).toThrow(/GID is ::.*-g/);
  });
});

test('timers in milliseconds are the next longer codes', () => {
  const data = { qpNum: 5, psn: 1, gid: '10.0.0.2' };
  const facts = { gids: [{ gid: gidFromText('10.0.0.1'), address: '10.0.0.1' }], activeMtu: 1024 };
  const attributes = (options: object) => {
    const { rtr, rts } = connectAttributes({ initialPsn: 1, gidIndex: 0 }, data, options, facts as never);
    return [rts.timeout, rtr.minRnrTimer];
  };
  expect(attributes({})).toEqual([14, 12]);
  expect(attributes({ ackTimeoutMs: 68, rnrTimerMs: 0.65 })).toEqual([15, 13]);
  expect(attributes({ ackTimeoutMs: 1e9, rnrTimerMs: 1e9 })).toEqual([31, 0]);
  for (const [attribute, options] of [
    ['ackTimeoutMs', { ackTimeoutMs: 5, timeout: 5 }],
    ['rnrTimerMs', { rnrTimerMs: 5, minRnrTimer: 5 }],
    ['ackTimeoutMs', { ackTimeoutMs: 0 }],
    ['rnrTimerMs', { rnrTimerMs: Number.NaN }],
  ] as const)
    expect(() => attributes(options)).toThrow(expect.objectContaining({ errno: 'EINVAL', attribute }));
});
