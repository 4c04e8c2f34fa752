/** Requests that wait: as many as the backlog allows, in their order; withdrawn ones are removed. */
import { expect, test } from 'vitest';
import { openTarget, PORT, request, withdrawal } from '../testing/stranger.ts';
import { CmId } from './index.ts';

async function openListener(backlog: number) {
  const target = await openTarget();
  const listening = new CmId({ device: target.device });
  await listening.listen({ port: PORT, backlog });
  const pending = async () => (await target.counters()).pending;
  return { ...target, listening, pending };
}

test('1500 requests wait, and none is lost', async () => {
  const { device, listening, send, pending } = await openListener(2000);
  for (let i = 1; i <= 1500; i++) {
    send(request(i));
    if (i % 100 === 0) await expect.poll(pending).toBe(i);
  }
  for (let i = 1; i <= 1500; i++) {
    const id = await listening.getRequest();
    expect(id.request!.responderResources).toBe(i % 100);
    await id.destroy();
  }
  expect(await pending()).toBe(0);
  await device.close();
});

test('a request that its sender gives up goes, and its place is free', async () => {
  const { device, listening, send, pending } = await openListener(2);
  send(request(1));
  send(request(2));
  await expect.poll(pending).toBe(2);
  send(withdrawal(1));
  await expect.poll(pending).toBe(1);
  send(request(3));
  await expect.poll(pending).toBe(2);
  const taken = [await listening.getRequest(), await listening.getRequest()];
  expect(taken.map((id) => id.request!.responderResources)).toEqual([2, 3]);
  for (const id of taken) await id.destroy();
  await device.close();
});
