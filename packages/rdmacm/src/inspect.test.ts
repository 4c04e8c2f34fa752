/** Lines of console.log for public objects, and nothing of their insides. */
import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { turns } from '../../verbs-api/testing/clock.ts';
import { openEnds } from '../testing/ends.ts';
import { CmId, connect, EventChannel, listen, RefusedError } from './index.ts';

test('each object is one line with its state and its addresses', async () => {
  await using ends = await openEnds();
  const id = new CmId({ device: ends.a });
  expect(inspect(id)).toBe('CmId { state: IDLE, portSpace: TCP }');
  await id.bindAddr('10.0.0.1', 5000);
  expect(inspect(id)).toBe('CmId { state: BOUND, portSpace: TCP, local: 10.0.0.1:5000 }');
  await id.destroy();
  const listener = await listen({ device: ends.b, address: '10.0.0.2', port: 7 });
  expect(inspect(listener)).toBe('Listener { at: 10.0.0.2:7, state: LISTEN }');
  const client = await connect('10.0.0.2:7', { device: ends.a });
  const server = await listener.accept();
  expect(inspect(client.id)).toMatch(
    /^CmId { state: CONNECTED, portSpace: TCP, local: 10\.0\.0\.1:\d+, remote: 10\.0\.0\.2:7, qpNum: 0x[0-9a-f]+ }$/,
  );
  const stream = client.stream();
  expect(inspect(stream)).toBe(
    'ConnectionStream { peer: 10.0.0.2:7, bytesRead: 0, bytesWritten: 0, destroyed: false }',
  );
  const channel = new EventChannel();
  await channel.destroy();
  expect(inspect(channel)).toBe('EventChannel { destroyed: true }');
  stream.destroy();
  await Promise.all([server.closed, listener.close()]);
  await turns();
  expect(inspect(listener)).toBe('Listener { at: 10.0.0.2:7, state: DESTROYED }');
});

test('a refusal has its reason and its private data in one line after the stack', () => {
  const error = new RefusedError('no', 'CONSUMER_DEFINED', 28, new Uint8Array(148).fill(7, 0, 2));
  const lines = inspect(error).split('\n');
  expect(lines[0]).toBe('RefusedError [RoceError]: no');
  expect(lines.filter((line) => !line.startsWith('    at '))).toHaveLength(2);
  expect(lines.at(-1)).toMatch(
    /reason: 'CONSUMER_DEFINED', status: 28, privateData: <148 bytes: 07 07, zeros> }$/,
  );
});
