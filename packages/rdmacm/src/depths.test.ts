/** READs and atomics at a time: no side offers more than its device has (rdma_connect(3), rdma_accept(3)). */
import { expect, test } from 'vitest';
import { type Ends, equip, openEnds } from '../testing/ends.ts';
import { CmId, connect, listen } from './index.ts';

const openSmall = (): Promise<Ends> =>
  openEnds(1024, 1024, { limits: { maxQpRdAtom: 4, maxQpInitRdAtom: 2 } });

test.each([
  [{ responderResources: 5 }, 'responderResources', '0 … 4'],
  [{ initiatorDepth: 3 }, 'initiatorDepth', '0 … 2'],
])('more than the device has is refused: %o', async (parameters, attribute, expected) => {
  const error = { errno: 'EINVAL', attribute, expected: expect.stringContaining(expected) };
  await using ends = await openSmall();
  await expect(listen({ device: ends.b, port: 7471, ...parameters })).rejects.toMatchObject(error);
  const listener = new CmId({ device: ends.b });
  await listener.listen({ port: 7471 });
  await expect(connect('10.0.0.2:7471', { device: ends.a, ...parameters })).rejects.toMatchObject(error);

  const client = new CmId({ device: ends.a });
  await client.resolveAddr({ host: '10.0.0.2', port: 7471 });
  await client.resolveRoute();
  await equip(client);
  await expect(client.connect(parameters)).rejects.toMatchObject(error);
  const connecting = client.connect({ responderResources: 4, initiatorDepth: 2 });
  const request = await listener.getRequest();
  await equip(request);
  await expect(request.accept(parameters)).rejects.toMatchObject(error);
  await Promise.all([request.accept({ responderResources: 4, initiatorDepth: 2 }), connecting]);
  for (const id of [client, request, listener]) await id.destroy();
});

test('the defaults are no more than the device has', async () => {
  await using ends = await openSmall();
  const listener = await listen({ device: ends.b, port: 7471 });
  const client = await connect('10.0.0.2:7471', { device: ends.a });
  const server = await listener.accept();
  for (const { qp } of [client, server])
    expect((await qp.query()).attr).toMatchObject({ maxDestRdAtomic: 2, maxRdAtomic: 2 });
  for (const each of [client, server, listener]) await each.close();
});
