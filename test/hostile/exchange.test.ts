/**
 * The channel by which programs find each other is input from outside, too: any JSON in the place of connection
 * data, any bytes in the place of JSON.
 */
import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { MemoryNetwork } from '@node-roce/link';
import { type ConnectionData, exchangeAsServer, openDevice, RoceError } from '@node-roce/verbs-api';
import fc from 'fast-check';
import { expect, test } from 'vitest';

const seed = 7;

/** Nearly right in some places, and random in others. */
const connectionData = fc.oneof(
  fc.jsonValue(),
  fc.record(
    {
      qpNum: fc.oneof(fc.integer({ min: -2, max: 2 ** 25 }), fc.double(), fc.jsonValue()),
      psn: fc.oneof(fc.integer({ min: -2, max: 2 ** 25 }), fc.double(), fc.jsonValue()),
      gid: fc.oneof(fc.constantFrom('10.0.0.2', 'fe80::1', '::', '10.0.0.256'), fc.string(), fc.jsonValue()),
      mtu: fc.oneof(fc.constantFrom(256, 1024, 4096, 0, 65536), fc.double(), fc.jsonValue()),
    },
    { requiredKeys: [] },
  ),
);

test('connection data of any shape: an error that names the wrong member, and the queue pair can still be connected', async () => {
  const network = new MemoryNetwork();
  const device = await openDevice({ link: network.link('10.0.0.1') });
  const pd = await device.allocPd();
  const cq = await device.createCq(8);
  let connected = 0;
  await fc.assert(
    fc.asyncProperty(connectionData, async (data) => {
      const qp = await pd.createQp({ sendCq: cq });
      try {
        await qp.connect(data as unknown as ConnectionData);
        connected++;
        expect(qp.state).toBe('RTS');
      } catch (error) {
        expect(error).toBeInstanceOf(RoceError);
        expect((error as RoceError).message).toMatch(/\S/);
        if (qp.state !== 'RESET') await qp.modify({ qpState: 'RESET' });
        await qp.connect({ qpNum: 5, psn: 6, gid: '10.0.0.2' });
        expect(qp.state).toBe('RTS');
      }
      await qp.close();
    }),
    { seed, numRuns: 400 },
  );
  expect(connected).toBeGreaterThan(0);
  await device.close();
});

test('bytes of any kind over TCP: a value, or ERR_ROCE_EXCHANGE', async () => {
  const port = 20_000 + (process.pid % 10_000);
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => {
      const address = { host: '127.0.0.1', port };
      const accepted = exchangeAsServer(address);
      const socket = connectTcp(address);
      socket.on('error', () => {});
      await once(socket, 'connect');
      const exchange = await accepted;
      const answer = exchange.receive().catch((error: unknown) => error);
      socket.end(bytes);
      const got = await answer;
      if (got instanceof Error) expect(got).toMatchObject({ code: 'ERR_ROCE_EXCHANGE' });
      await exchange.close();
      socket.destroy();
    }),
    { seed, numRuns: 100 },
  );
});
