/** Sizes that both ends agree on in private data. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { equip, openEnds, pairOf, text } from '../testing/ends.ts';
import { agreed, takeSizes, withSizes } from './agreement.ts';
import { CmId, connect, listen, MessageConnection } from './index.ts';

test('sizes are the last 12 bytes', () => {
  const bytes = withSizes(Uint8Array.of(1, 2), 56, { maxMessage: 0x1_2345, slots: 0x102 })!;
  expect(bytes).toHaveLength(56);
  expect(Buffer.from(bytes.subarray(44)).toString('hex')).toBe('010001020001234' + '56e526d73');
  const { privateData, sizes } = takeSizes(bytes);
  expect(sizes).toEqual({ maxMessage: 0x1_2345, slots: 0x102 });
  expect(privateData).toEqual(Uint8Array.from({ length: 56 }, (_, i) => [1, 2][i] ?? 0));
});

test('private data of a program that needs the room stays as it is', () => {
  const full = new Uint8Array(45);
  expect(withSizes(full, 56, { maxMessage: 1, slots: 1 })).toBe(full);
  expect(withSizes(new Uint8Array(44), 56, { maxMessage: 1, slots: 1 })).toHaveLength(56);
});

test('of a later version the fields of this one are read; impossible values are ignored', () => {
  const bytes = withSizes(undefined, 56, { maxMessage: 5, slots: 7 })!;
  bytes[44] = 9;
  expect(takeSizes(bytes).sizes).toEqual({ maxMessage: 5, slots: 7 });
  for (const [at, value] of [
    [44, 0], // version
    [47, 0], // slots
    [51, 0], // maxMessage
    [55, 0], // magic
  ] as const) {
    const broken = bytes.slice();
    broken[at] = value;
    expect(takeSizes(broken)).toEqual({ privateData: broken, sizes: undefined });
  }
  expect(takeSizes(new Uint8Array(3)).sizes).toBeUndefined();
});

test('whatever a stranger sends, no size is zero or larger than ours', () => {
  const own = { maxMessage: 1000, slots: 16 };
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 12, maxLength: 12 }), fc.boolean(), (tail, hasMagic) => {
      const bytes = new Uint8Array(196);
      bytes.set(tail, 184);
      if (hasMagic) bytes.set([0x6e, 0x52, 0x6d, 0x73], 192);
      const { maxMessage, slots } = agreed(own, takeSizes(bytes).sizes);
      expect(maxMessage).toBeGreaterThan(0);
      expect(maxMessage).toBeLessThanOrEqual(1000);
      expect(slots).toBeGreaterThan(0);
      expect(slots).toBeLessThanOrEqual(16);
    }),
  );
});

test.each([
  [
    { maxMessage: 100, slots: 3 },
    { maxMessage: 50, slots: 9 },
  ],
  [
    { maxMessage: 50, slots: 9 },
    { maxMessage: 100, slots: 3 },
  ],
])('the smaller ones hold for both sides: %o and %o', async (ours, theirs) => {
  await using ends = await openEnds();
  const listener = await listen({ device: ends.b, port: 0, ...theirs, privateData: Buffer.from('server') });
  const connecting = connect(`10.0.0.2:${listener.port}`, {
    device: ends.a,
    ...ours,
    privateData: Buffer.from('client'),
  });
  const server = await listener.accept();
  const client = await connecting;
  for (const side of [client, server]) expect([side.maxMessage, side.slots]).toEqual([50, 3]);
  expect([client, server].map(({ privateData }) => text(privateData)?.replace(/\0+$/, ''))).toEqual([
    'server',
    'client',
  ]);
  const large = ours.maxMessage === 100 ? client : server;
  const other = large === client ? server : client;
  await expect(large.send(new Uint8Array(51))).rejects.toMatchObject({
    errno: 'EMSGSIZE',
    expected: `50 bytes at most (maxMessage of ${large.peer}, where this side has 100)`,
  });
  for (let i = 0; i < 7; i++) {
    await large.send(new Uint8Array(50).fill(i));
    expect(await other.receive()).toEqual(new Uint8Array(50).fill(i));
  }
  await client.close();
  await server.close();
  await listener.close();
});

test('a listener that names no sizes is served as before', async () => {
  await using ends = await openEnds();
  await using listening = new CmId({ device: ends.b });
  await listening.listen({ port: 7 });
  const connecting = connect('10.0.0.2:7', { device: ends.a, privateData: Buffer.from('me'), slots: 2 });
  const request = await listening.getRequest();
  // A program that looks at its own bytes finds them where they were.
  expect(text(request.request!.privateData.subarray(0, 3))).toBe('me\0');
  await equip(request);
  await request.accept({ privateData: Buffer.from('raw') });
  const client = await connecting;
  expect([client.maxMessage, client.slots]).toEqual([65_536, 2]);
  expect(text(client.privateData.subarray(0, 4))).toBe('raw\0');
  await client.close();
  await request.destroy();
});

test('a client that names no sizes gets the private data of the program alone', async () => {
  await using ends = await openEnds();
  await using listener = await listen({ device: ends.b, port: 7, privateData: Buffer.from('hi') });
  await using id = new CmId({ device: ends.a });
  await id.resolveAddr({ host: '10.0.0.2', port: 7 });
  await id.resolveRoute();
  await equip(id);
  await id.connect();
  expect(text(id.replyData)?.replace(/\0+$/, '')).toBe('hi');
  await (await listener.accept()).discard();
});

test('a client whose private data fills the message is served by the sizes of the server', async () => {
  await using ends = await openEnds();
  const privateData = new Uint8Array(56).fill(5);
  await using listener = await listen({ device: ends.b, port: 7, slots: 3 });
  const client = await connect('10.0.0.2:7', { device: ends.a, privateData });
  const server = await listener.accept();
  expect(server.privateData).toEqual(privateData);
  expect([client.slots, server.slots]).toEqual([16, 3]);
  await client.send('x');
  expect(text(await server.receive())).toBe('x');
  await client.close();
  await server.close();
});

test('a send that waits for the smaller number of slots is not overtaken', async () => {
  await using ends = await openEnds();
  const [client, server] = await pairOf(ends, { slots: 2, maxMessage: 8 });
  expect(client).toBeInstanceOf(MessageConnection);
  const drained = new Promise<void>((resolve) => client.once('drain', resolve));
  const sending = ['1', '2', '3', '4'].map((each) => client.send(each));
  for (const expected of ['1', '2', '3', '4']) expect(text(await server.receive())).toBe(expected);
  await Promise.all(sending);
  await drained;
  const closed = new Promise((resolve) => server.once('close', resolve));
  await client.close();
  expect(await closed).toBeUndefined();
  await server.close();
});
