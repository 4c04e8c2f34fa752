/** Lines of console.log for public objects, and nothing of their insides. */
import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { turns } from '../../verbs-api/testing/clock.ts';
import { openEnds } from '../testing/ends.ts';
import { CmId, connect, EventChannel, listen } from './index.ts';

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
