import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test } from 'vitest';
import { clockOfTurns } from '../testing/clock.ts';
import { openPair, openSide, pattern } from '../testing/pair.ts';
import type { DeviceEvent } from './async-events.ts';
import { type OpenDeviceOptions, openDevice } from './device.ts';

describe('opening', () => {
  test.each<[string, object, string]>([
    ['an unknown engine', { engine: 'gpu' }, 'engine'],
    ['a link for another thread', { engine: 'worker', link: new MemoryNetwork().link('10.0.0.1') }, 'link'],
    ['neither address nor interface', {}, 'address'],
    [
      'faults out of range',
      { link: new MemoryNetwork().link('10.0.0.1'), faults: { loss: 2 } },
      'faults.loss',
    ],
  ])('%s is refused', async (_name, options, attribute) => {
    await expect(openDevice(options as OpenDeviceOptions)).rejects.toMatchObject({
      name: 'RoceError',
      errno: 'EINVAL',
      attribute,
    });
  });

  test('a signal that was aborted before', async () => {
    const reason = new Error('no');
    const link = new MemoryNetwork().link('10.0.0.1');
    await expect(openDevice({ link, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });

  test('limits that are asked for are kept to', async () => {
    const link = new MemoryNetwork().link('10.0.0.1');
    await using device = await openDevice({ link, limits: { maxQpWr: 8, maxPd: 1 } });
    const pd = await device.allocPd();
    await expect(device.allocPd()).rejects.toMatchObject({ errno: 'ENOMEM' });
    const sendCq = await device.createCq();
    await expect(pd.createQp({ sendCq, cap: { maxSendWr: 9 } })).rejects.toMatchObject({
      attribute: 'cap.maxSendWr',
    });
  });
});

test('a query describes device, port and GIDs', async () => {
  const side = await openSide(new MemoryNetwork(), 'fd00::7', { mtu: 2048 });
  expect(side.device.query()).toMatchObject({
    link: 'memory',
    activeMtu: 2048,
    maxMtu: 4096,
    maxQpRdAtom: 128,
    atomicCap: 'HCA',
    linkLayer: 'Ethernet',
    portState: 'ACTIVE',
    nodeGuid: '0200:00ff:fe00:0000',
    pkeyTblLen: 1,
  });
  expect(side.device.gids.map((g) => [g.address, g.type])).toEqual([['fd00::7', 'RoCE v2']]);
  await side.device.close();
});

describe('regions', () => {
  test('overlapping regions of a buffer agree about addresses; iova overrides', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const buffer = new ArrayBuffer(8192);
    const all = await side.pd.registerMr(buffer);
    const part = await side.pd.registerMr(new Uint8Array(buffer, 100, 50));
    expect(part.addr).toBe(all.addr + 100n);
    expect(all.addr % 4096n).toBe(0n);
    expect(part.length).toBe(50);
    const other = await side.pd.registerMr(buffer, { iova: 0x1000n });
    expect([other.addr, other.iova]).toEqual([all.addr, 0x1000n]);
    expect(other.remote(16)).toEqual({ addr: 0x1010n, rkey: other.rkey });
    expect(() => part.bytes(40, 11)).toThrow(/expected a part of the region's/);
    await side.device.close();
  });

  test('memory that can move is refused, and access that makes no sense', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    // TypeScript's ES2023 does not know the option yet.
    const resizable = Reflect.construct(ArrayBuffer, [16, { maxByteLength: 32 }]);
    await expect(side.pd.registerMr(resizable)).rejects.toMatchObject({
      errno: 'EINVAL',
      attribute: 'buffer',
    });
    await expect(
      side.pd.registerMr(new Uint8Array(8), { access: { localWrite: false, remoteWrite: true } }),
    ).rejects.toMatchObject({ attribute: 'access' });
    await expect(side.pd.registerMr(7 as never)).rejects.toMatchObject({ attribute: 'memory' });
    const moved = new Uint8Array(8);
    structuredClone(moved, { transfer: [moved.buffer] });
    await expect(side.pd.registerMr(moved)).rejects.toMatchObject({ errno: 'EINVAL', attribute: 'buffer' });
    // A refused region holds nothing of its domain.
    const pd = await side.device.allocPd();
    await expect(pd.registerMr(moved)).rejects.toThrow('detached');
    await pd.dealloc();
    await side.device.close();
  });

  test('a buffer that was transferred away fails the work that names it, and nothing else', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const buffer = new ArrayBuffer(4096);
    const mr = await a.pd.registerMr(buffer);
    structuredClone(buffer, { transfer: [buffer] });
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr, length: 64 }], remote: b.mr.remote() });
    expect((await a.cq.next()).status).toBe('LOC_PROT_ERR');
  });

  test('a domain in use stays', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    await expect(side.pd.dealloc()).rejects.toMatchObject({ errno: 'EBUSY' });
    await side.qp.close();
    await side.mr.deregister();
    await side.pd.dealloc();
    await side.device.close();
  });
});

describe('events', () => {
  test('a listener and an iteration hear the same, until the device is closed', async () => {
    const pair = await openPair();
    const { b } = pair;
    const heard: DeviceEvent[] = [];
    const off = b.device.onEvent((event) => heard.push(event));
    const iterated: DeviceEvent[] = [];
    const loop = (async () => {
      for await (const event of b.device.events()) iterated.push(event);
    })();
    await b.qp.modify({ qpState: 'SQD', enSqdAsyncNotify: true });
    off();
    await b.qp.modify({ qpState: 'RTS' });
    await b.qp.modify({ qpState: 'SQD', enSqdAsyncNotify: true });
    await pair[Symbol.asyncDispose]();
    await loop;
    expect(heard.map((e) => e.type)).toEqual(['SQ_DRAINED']);
    expect(iterated.map((e) => e.type)).toEqual(['SQ_DRAINED', 'SQ_DRAINED']);
  });

  test('a signal ends an iteration', async () => {
    await using pair = await openPair();
    const controller = new AbortController();
    const next = pair.a.device.events({ signal: controller.signal }).next();
    controller.abort(new Error('enough'));
    await expect(next).rejects.toThrow('enough');
  });

  test('an iteration has the events since the call, and refuses wrong options at once', async () => {
    await using pair = await openPair();
    const { device, qp } = pair.b;
    expect(() => device.events({ singal: 1 } as never)).toThrow('singal');
    const events = device.events();
    await qp.modify({ qpState: 'SQD', enSqdAsyncNotify: true });
    await new Promise(setImmediate);
    const first = events.next();
    await device.close();
    expect(await first).toMatchObject({ value: { type: 'SQ_DRAINED' } });
  });
});

describe('the end', () => {
  test('closing in the middle of traffic; then every call rejects or does nothing', async () => {
    const pair = await openPair();
    const { a, b } = pair;
    for (let i = 0; i < 50; i++) {
      a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr: a.mr }], remote: b.mr.remote() });
    }
    await b.device.progress();
    await a.device.close();
    await a.device.close();
    expect(() => a.qp.postSend({ opcode: 'SEND' })).toThrow(
      expect.objectContaining({ code: 'ERR_ROCE_CLOSED' }),
    );
    await expect(a.device.allocPd()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED', errno: 'ECANCELED' });
    await expect(a.qp.modify({ qpState: 'ERR' })).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await a.qp.close();
    await a.mr.deregister();
    await a.cq.destroy();
    await a.pd.dealloc();
    await expect(a.device.progress()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await b.device.close();
  });

  test('a loop that looks at memory ends with the device', async () => {
    const { device } = await openSide(new MemoryNetwork(), '10.0.0.1');
    let looks = 0;
    const loop = (async () => {
      // Without an end it would go on, and no timer of this thread would run any more.
      while (looks++ < 100_000) await device.progress();
    })();
    const ended = expect(loop).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await device.close();
    await ended;
  });

  test('of one of two contexts: a loop that looks at memory ends, although no packet comes', async () => {
    const { device } = await openSide(new MemoryNetwork(), '10.0.0.1');
    const other = device.openContext();
    const looks = (async () => {
      for (;;) await other.progress();
    })();
    const ended = expect(looks).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    await other.close();
    await ended;
    await device.close();
  });

  test('a signal closes the device: who waits hears its reason', async () => {
    const controller = new AbortController();
    const side = await openSide(new MemoryNetwork(), '10.0.0.1', { device: { signal: controller.signal } });
    const wait = side.cq.wait();
    const reason = new Error('shutting down');
    controller.abort(reason);
    await expect(wait).rejects.toBe(reason);
    await side.device.close();
    expect(() => side.qp.postRecv({})).toThrow(expect.objectContaining({ code: 'ERR_ROCE_CLOSED' }));
  });
});

test('an RDMA WRITE is awaited by looking at memory', async () => {
  await using pair = await openPair();
  const { a, b } = pair;
  a.memory.set(pattern(5000));
  a.memory[4999] = 1;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr: a.mr, length: 5000 }], remote: b.mr.remote() });
  while (b.memory[4999] === 0) await b.device.progress();
  expect(b.memory.subarray(0, 4999)).toEqual(pattern(5000).subarray(0, 4999));
});

test('through a link that loses, duplicates, reorders and corrupts, every byte arrives', async () => {
  clockOfTurns();
  const faults = { loss: 0.02, duplicate: 0.02, reorder: 0.02, corrupt: 0.02, seed: 3 };
  await using pair = await openPair({ faults }, { timeout: 8 });
  const { a, b } = pair;
  a.memory.set(pattern(65_536));
  for (let i = 0; i < 4; i++) {
    b.memory.fill(0);
    a.qp.postSend({
      opcode: 'RDMA_WRITE',
      signaled: true,
      sgList: [{ mr: a.mr }],
      remote: b.mr.remote(),
    });
    expect((await a.cq.next()).status).toBe('SUCCESS');
    expect(Buffer.compare(b.memory, pattern(65_536))).toBe(0);
  }
  const counters = await a.device.counters();
  expect(counters.retransmittedPackets).toBeGreaterThan(0);
  expect(counters.link['outbound.lost']).toBeGreaterThan(0);
});

test.each([
  [true, true],
  [false, undefined],
])('connection data of a device whose selective is %s', async (selective, said) => {
  clockOfTurns();
  const faults = { loss: 0.05, seed: 9 };
  await using pair = await openPair({ faults, device: { recovery: { selective } } }, { timeout: 10 });
  const { a, b } = pair;
  expect(a.qp.connectionData().selective).toBe(said);
  for (let i = 0; i < 20; i++) {
    a.qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr: a.mr }], remote: b.mr.remote() });
    expect((await a.cq.next()).status).toBe('SUCCESS');
  }
  expect((await b.device.counters()).keptPackets).toBeGreaterThan(0);
});
