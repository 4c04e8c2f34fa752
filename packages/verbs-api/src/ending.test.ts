/** Objects whose end is asked for twice. */
import { MemoryNetwork } from '@node-roce/link';
import { expect, test } from 'vitest';
import { openSide } from '../testing/pair.ts';

test('calls that meet end an object once, and both resolve', async () => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1', { device: { experimental: ['xrc'] } });
  const { device, pd, qp, cq, mr } = side;
  const window = await pd.allocMw();
  const domain = await device.openXrcDomain();
  const target = await domain.createTarget();
  const srq = await pd.createSrq();
  const ah = await pd.createAh({ gid: '10.0.0.2' });
  const none = await pd.allocNullMr();
  const twice = (end: () => Promise<void>) => Promise.all([end(), end()]);
  await twice(() => qp.close());
  await twice(() => target.close());
  await twice(() => domain.close());
  await twice(() => srq.destroy());
  await twice(() => ah.destroy());
  await twice(() => window.dealloc());
  await twice(() => mr.deregister());
  await twice(() => none.deregister());
  await twice(() => cq.destroy());
  await twice(() => pd.dealloc());
  await pd.dealloc();
  await device.close();
});

test('an object that was in use ends with a later call', async () => {
  const { device, qp, cq } = await openSide(new MemoryNetwork(), '10.0.0.1');
  const [first, second] = await Promise.allSettled([cq.destroy(), cq.destroy()]);
  expect([first, second]).toMatchObject([{ reason: { errno: 'EBUSY' } }, { reason: { errno: 'EBUSY' } }]);
  await qp.close();
  await cq.destroy();
  await device.close();
});
