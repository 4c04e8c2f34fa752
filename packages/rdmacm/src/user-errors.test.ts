/** Errors that a user meets: each names its cause, and what to do. */
import { openDevice, RoceError } from '@node-roce/verbs-api';
import { gidEquals, gidFromText } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { host } from '../../link/testing/loopback.ts';
import { clockOfTurns, stopClock } from '../../verbs-api/testing/clock.ts';
import { ADDRESSES, type Ends, equip, openEnds } from '../testing/ends.ts';
import { CmId, connect, type IdOptions, listen, RefusedError } from './index.ts';

const [CLIENT, SERVER] = ADDRESSES;
const PORT = 7471;
/** A client that gives up after 0.1 s. */
const SHORT = { responseTimeout: 12, packetLifetime: 10, maxRetries: 3 };

async function initiator(ends: Ends, options: IdOptions = {}) {
  const id = new CmId({ device: ends.a, ...options });
  await id.resolveAddr({ host: SERVER, port: PORT });
  await id.resolveRoute();
  await equip(id);
  return id;
}

async function failureOf(attempt: Promise<unknown>): Promise<RoceError> {
  const error = await attempt.then(
    () => undefined,
    (failure) => failure,
  );
  expect(error).toBeInstanceOf(RoceError);
  return error;
}

test('a refused port: at once, also where no program listens at all', async () => {
  stopClock();
  await using ends = await openEnds();
  const id = await initiator(ends);
  const error = await failureOf(id.connect());
  expect(error).toBeInstanceOf(RefusedError);
  expect(error).toMatchObject({
    code: 'ERR_ROCE_CM_REFUSED',
    errno: 'ECONNREFUSED',
    reason: 'INVALID_SERVICE_ID',
    status: 8,
    message: `no program listens at port ${PORT} of ${SERVER}: start the server first`,
  });
  expect(id.state).toBe('DISCONNECTED');
});

test('a program that refuses, with its private data', async () => {
  await using ends = await openEnds();
  const listening = new CmId({ device: ends.b });
  await listening.listen({ port: PORT });
  const connecting = failureOf((await initiator(ends)).connect());
  await (await listening.getRequest()).reject(new TextEncoder().encode('not today'));
  const error = (await connecting) as RefusedError;
  expect(error).toMatchObject({ reason: 'CONSUMER_DEFINED', status: 28 });
  expect(error.message).toContain('refuses the connection; `privateData` has its answer');
  expect(new TextDecoder().decode(error.privateData.subarray(0, 9))).toBe('not today');
});

/** Both look like silence to the client: the error names them, and how to distinguish them. */
const SILENCE = {
  code: 'ERR_ROCE_CM_UNREACHABLE',
  errno: 'ETIMEDOUT',
  attribute: 'host',
  message: expect.stringMatching(
    /^no answer from 10\.0\.0\.2: nobody there, a firewall on UDP 4791, no RoCE on its interface, or a full backlog at port 7471/,
  ),
  expected: expect.stringContaining('`roce doctor 10.0.0.2` checks the path'),
};

test('nobody there, or an interface without RoCE', async () => {
  clockOfTurns();
  await using ends = await openEnds();
  ends.cut();
  const id = await initiator(ends, { timing: SHORT });
  expect(await failureOf(id.connect())).toMatchObject(SILENCE);
});

test('a full backlog', async () => {
  clockOfTurns();
  await using ends = await openEnds();
  const listening = new CmId({ device: ends.b });
  await listening.listen({ port: PORT, backlog: 1 });
  const first = await initiator(ends);
  const waiting = failureOf(first.connect());
  await listening.getRequest();
  const second = await initiator(ends, { timing: SHORT });
  expect(await failureOf(second.connect())).toMatchObject(SILENCE);
  expect((await ends.b.connections.call('cmCounters')).overflowed).toBeGreaterThan(1);
  await first.destroy();
  await waiting;
});

test('a GID that the peer can’t reach: an address is translated on the way', async () => {
  await using ends = await openEnds();
  const { network } = ends;
  const deliver = network.deliver.bind(network);
  const [inside, outside] = [CLIENT, '10.0.0.9'].map(gidFromText);
  const swap = (gid: Uint8Array, from: Uint8Array, to: Uint8Array) => (gidEquals(gid, from) ? to : gid);
  network.deliver = (packet, destination) =>
    deliver({ ...packet, source: swap(packet.source, inside, outside) }, swap(destination, outside, inside));
  await using listener = await listen({ port: 0, device: ends.b });
  const error = await failureOf(connect(`${SERVER}:${listener.port}`, { device: ends.a }));
  expect(error).toMatchObject({ code: 'ERR_ROCE_CM_REFUSED', reason: 'INVALID_GID' });
  expect(error.message).toContain('an address is translated on the way to 10.0.0.2');
  expect(error.message).toContain('use addresses that both ends have on their interfaces');
});

test('a path MTU that the listener’s port does not have', async () => {
  await using ends = await openEnds(4096, 1024);
  const listening = new CmId({ device: ends.b });
  await listening.listen({ port: PORT });
  const error = await failureOf((await initiator(ends)).connect());
  expect(error).toMatchObject({ code: 'ERR_ROCE_CM_REFUSED', reason: 'INVALID_MTU' });
  expect(error.message).toContain('give both interfaces the same MTU');
});

test('private data that is too long', async () => {
  await using ends = await openEnds();
  const id = await initiator(ends);
  expect(await failureOf(id.connect({ privateData: new Uint8Array(57) }))).toMatchObject({
    code: 'ERR_ROCE_INVALID_ATTRIBUTE',
    errno: 'EINVAL',
    attribute: 'privateData',
    message: 'privateData: 57 bytes (expected 56 bytes at most)',
  });
  expect(id.state).toBe('ROUTE_RESOLVED');
});

test('a name, or a route, that does not exist', async () => {
  const id = new CmId();
  expect(await failureOf(id.resolveAddr({ host: 'no.such.host.invalid', port: 1 }))).toMatchObject({
    code: 'ERR_ROCE_CM_NO_ADDRESS',
    errno: 'ENOENT',
    attribute: 'host',
    message: expect.stringContaining('host: no.such.host.invalid has no address'),
    expected: 'an IP address, or a name that the resolver knows',
  });
});

test('our address is on no interface', async () => {
  const id = new CmId();
  const error = await failureOf(id.resolveAddr({ host: '127.0.0.1', port: 1, source: '203.0.113.77' }));
  expect(error).toMatchObject({ errno: 'EADDRNOTAVAIL', attribute: 'address' });
  expect(error.message).toContain('203.0.113.77');
  expect(error.expected).toBeDefined();
});

test('our address is another one than the device’s', async () => {
  await using device = await openDevice({ address: host(1) });
  const id = new CmId({ device });
  const error = await failureOf(id.resolveAddr({ host: host(3), port: 1, source: host(2) }));
  expect(error).toMatchObject({
    code: 'ERR_ROCE_CM_NO_ADDRESS',
    errno: 'EADDRNOTAVAIL',
    expected: host(1),
  });
});
