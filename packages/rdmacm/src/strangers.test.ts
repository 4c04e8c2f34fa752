/** Messages that a stranger forges, at a listener. */
import {
  type CmMessage,
  CmRejReason,
  CmSidrStatus,
  decodeCm,
  ipCmServiceId,
  PortSpace,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { stopClock, turns } from '../../verbs-api/testing/clock.ts';
import { equip } from '../testing/ends.ts';
import { header, openTarget, PORT, request, SERVICE, withdrawal } from '../testing/stranger.ts';
import { CmId, EventChannel, listen } from './index.ts';

type Target = Awaited<ReturnType<typeof openTarget>>;

/** The first message that the target sent. */
async function answerOf({ answers }: Target): Promise<CmMessage> {
  await expect.poll(() => answers().length).toBeGreaterThan(0);
  const parsed = decodeCm(answers()[0]);
  if (!parsed.ok) throw new Error(parsed.reason);
  return parsed.message;
}

async function expectNoRequest(id: CmId): Promise<void> {
  const ended = new AbortController();
  void turns().then(() => ended.abort(new Error('nothing came')));
  await expect(id.getRequest({ signal: ended.signal })).rejects.toThrow('nothing came');
}

describe('a request of the wrong kind is refused, and the program does not see it', () => {
  test('a question for datagrams, where connections are made', async () => {
    await using target = await openTarget();
    const id = new CmId({ device: target.device });
    await id.listen({ port: PORT });
    target.send({ name: 'SIDR_REQ', requestId: 5, pkey: 0xffff, serviceId: SERVICE, privateData: header });
    expect(await answerOf(target)).toMatchObject({ name: 'SIDR_REP', status: CmSidrStatus.REJECT });
    await expectNoRequest(id);
  });

  test('a request for a connection, where datagrams are taken', async () => {
    await using target = await openTarget();
    const id = new CmId({ device: target.device, portSpace: 'UDP' });
    await id.listen({ port: PORT });
    target.send({ ...request(1), serviceId: ipCmServiceId(PortSpace.UDP, PORT) });
    expect(await answerOf(target)).toMatchObject({ name: 'REJ', reason: CmRejReason.CONSUMER_DEFINED });
    await expectNoRequest(id);
  });

  test('an unreliable connection', async () => {
    await using target = await openTarget();
    const id = new CmId({ device: target.device });
    await id.listen({ port: PORT });
    target.send({ ...request(1), transportService: 1 });
    expect(await answerOf(target)).toMatchObject({ name: 'REJ', reason: CmRejReason.INVALID_TRANSPORT_TYPE });
    await expectNoRequest(id);
  });
});

test('a request whose header names another source than its packet is treated as translated (NAT)', async () => {
  await using target = await openTarget();
  const listener = await listen({ device: target.device, port: PORT });
  const privateData = header.slice();
  privateData[19] = 77; // The last byte of the source.
  target.send({ ...request(1), privateData });
  expect(await answerOf(target)).toMatchObject({ name: 'REJ', reason: CmRejReason.INVALID_GID });
  await listener.close();
});

test('a flood at `listen`: as many queue pairs are made as the backlog allows', async () => {
  // No answer is repeated.
  stopClock();
  await using target = await openTarget();
  const listener = await listen({ device: target.device, port: PORT, backlog: 4, slots: 1, maxMessage: 64 });
  for (let i = 1; i <= 8; i++) {
    target.send(request(i));
    await expect.poll(async () => (await target.counters()).connections).toBe(i);
  }
  for (let i = 9; i <= 200; i++) target.send(request(i));
  await expect.poll(async () => (await target.counters()).overflowed).toBe(192);
  expect(target.answers().length).toBe(4);
  expect(await target.counters()).toMatchObject({ connections: 8, pending: 4 });
  await listener.close();
});

test('a stranger that never confirms gives its place at `listen` to the next client', async () => {
  await using target = await openTarget();
  const options = { device: target.device, port: PORT, backlog: 1, slots: 1, maxMessage: 64 };
  const listener = await listen({ ...options, timing: { responseTimeout: 10 } });
  target.send(request(1));
  await expect.poll(() => target.answers().length).toBe(1);
  target.send(request(2));
  const accepted = () =>
    target.answers().flatMap((bytes) => {
      const parsed = decodeCm(bytes);
      return parsed.ok && parsed.message.name === 'REP' ? [parsed.message.remoteCommId] : [];
    });
  await expect.poll(accepted).toEqual([1, 2]);
  await listener.close();
});

test('requests that are given up before the program took their event leave nothing in the channel', async () => {
  await using target = await openTarget();
  await using channel = new EventChannel<CmId>();
  const id = new CmId({ device: target.device, channel });
  await id.listen({ port: PORT });
  for (let i = 1; i <= 5; i++) {
    target.send(request(i));
    await expect.poll(async () => (await target.counters()).pending).toBe(1);
    target.send(withdrawal(i));
    await expect.poll(async () => (await target.counters()).pending).toBe(0);
  }
  target.send(request(42));
  const { event, id: asked } = await channel.getEvent();
  expect([event, asked.request?.responderResources]).toEqual(['CONNECT_REQUEST', 42]);
  await id.destroy();
});

test('events of 2000 requests wait in a channel, and none is lost', async () => {
  await using target = await openTarget();
  await using channel = new EventChannel<CmId>();
  const id = new CmId({ device: target.device, channel });
  await id.listen({ port: PORT, backlog: 2000 });
  for (let i = 1; i <= 2000; i++) {
    target.send(request(i));
    if (i % 100 === 0) await expect.poll(async () => (await target.counters()).pending).toBe(i);
  }
  for (let i = 1; i <= 2000; i++) {
    const { id: asked } = await channel.getEvent();
    expect(asked.request!.responderResources).toBe(i % 100);
  }
  await id.destroy();
});

test('a request that wants more READs than the device has gets as many as it has', async () => {
  await using target = await openTarget();
  const id = new CmId({ device: target.device });
  await id.listen({ port: PORT });
  target.send({ ...request(1), responderResources: 255, initiatorDepth: 255 });
  const asked = await id.getRequest();
  await equip(asked);
  asked.accept().catch(() => {});
  expect(await answerOf(target)).toMatchObject({
    name: 'REP',
    responderResources: 128,
    initiatorDepth: 128,
  });
});
