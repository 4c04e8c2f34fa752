/** Several contexts of one device: objects, events and ends of their own. */
import { MemoryNetwork } from '@node-roce/link';
import { type Device, openDevice, type QueuePair } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';

const PORT = 26_000 + (process.pid % 800);

const open = {
  inline: (limits = {}) => openDevice({ link: new MemoryNetwork().link('10.0.0.1'), limits }),
  worker: (limits = {}) => openDevice({ address: '127.0.46.1', port: PORT, engine: 'worker', limits }),
};

/** A queue pair with its completion queue, and memory to receive into. */
async function side(device: Device) {
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const qp = await pd.createQp({ sendCq: cq });
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(64)));
  return { device, pd, cq, qp, mr };
}

const connect = async (a: QueuePair, b: QueuePair) => {
  await a.connect(b.connectionData());
  await b.connect(a.connectionData());
};

describe.each(['inline', 'worker'] as const)('%s', (engine) => {
  test('contexts exchange messages, and each hears of its own completions', async () => {
    const first = await open[engine]();
    const [a, b] = [await side(first), await side(first.openContext())];
    await connect(a.qp, b.qp);
    b.qp.postRecv({ wrId: 7, sgList: [{ mr: b.mr }] });
    a.qp.postSend({
      wrId: 8,
      opcode: 'SEND',
      inline: true,
      signaled: true,
      sgList: [Uint8Array.of(1, 2, 3)],
    });
    expect((await a.cq.next()).wrId).toBe(8n);
    const wc = await b.cq.next();
    expect([wc.wrId, ...b.mr.bytes(0, wc.byteLen)]).toEqual([7n, 1, 2, 3]);
    await b.device.close();
    await first.close();
  });

  test('closing one ends its objects; the other goes on', async () => {
    const first = await open[engine]({ maxQp: 2 });
    const second = first.openContext();
    const a = await side(first);
    const b = await side(second);
    await expect(a.pd.createQp({ sendCq: a.cq })).rejects.toMatchObject({ errno: 'ENOMEM' });
    const waiting = b.cq.next();
    await second.close();
    await expect(waiting).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await expect(second.allocPd()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    expect(() => second.openContext()).toThrow('the device is closed');
    const qp = await a.pd.createQp({ sendCq: a.cq });
    await connect(a.qp, qp);
    expect(qp.state).toBe('RTS');
    await first.close();
    expect(() => first.openContext()).toThrow('the device is closed');
  });

  test('contexts that close at the same time close the device', async () => {
    const place = { address: '127.0.46.2', port: PORT, engine };
    const controller = new AbortController();
    const first = await openDevice({ ...place, signal: controller.signal });
    const second = first.openContext();
    controller.abort();
    await Promise.all([first.close(), second.close()]);
    await (await openDevice(place)).close();
  });

  test('objects of another context are refused by name', async () => {
    const first = await open[engine]();
    const [a, b] = [await side(first), await side(first.openContext())];
    await expect(a.pd.createQp({ sendCq: b.cq })).rejects.toMatchObject({
      code: 'ERR_ROCE_INVALID_ATTRIBUTE',
      attribute: 'sendCq',
      message: expect.stringContaining('destroyed, or of another device'),
    });
    await first.close();
    await b.device.close();
  });
});

test('a queue pair that is created while its context closes ends with it', async () => {
  const first = await open.worker({ maxQp: 2 });
  const second = first.openContext();
  const [a, b] = [await first.allocPd(), await second.allocPd()];
  const sendCq = await first.createCq();
  const creating = b.createQp({ sendCq: await second.createCq() });
  await second.close();
  await expect((await creating).closed).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  await a.createQp({ sendCq });
  await a.createQp({ sendCq });
  await first.close();
});

test('a queue pair in a multicast group does not hold up the end of its context', async () => {
  const first = await open.inline();
  const second = first.openContext();
  const pd = await second.allocPd();
  const cq = await second.createCq();
  const qp = await pd.createQp({ type: 'UD', sendCq: cq });
  await qp.attachMcast('224.1.2.3');
  await second.close();
  expect(first.gids).toHaveLength(1);
  await expect(first.allocPd()).resolves.toBeDefined();
  await first.close();
});

test('names a deallocated protection domain', async () => {
  const device = await open.inline();
  const pd = await device.allocPd();
  const sendCq = await device.createCq();
  await pd.dealloc();
  await expect(pd.createQp({ sendCq })).rejects.toMatchObject({ attribute: 'pd', errno: 'EINVAL' });
  await device.close();
});
