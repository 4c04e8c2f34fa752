/**
 * Datagrams, shared receive queues, windows and other services beyond a connected pair, over real sockets on
 * loopback, with the engine in this thread and in a worker. Details of each call are tested next to
 * the code, in packages/verbs-api.
 */
import { type Device, GRH_BYTES, type OpenOptions, openDevice, type QueuePair } from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';

const port = 50_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;

const open = new Set<Device>();
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

async function openSide(n: number, engine: OpenOptions['engine']) {
  const device = await openDevice({ address: host(n), port, engine });
  open.add(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(64);
  const memory = new Uint8Array(new SharedArrayBuffer(65_536));
  const mr = await pd.registerMr(memory, { access: { remoteWrite: true, remoteRead: true, mwBind: true } });
  return { device, pd, cq, memory, mr };
}

async function openSides(engine: OpenOptions['engine']) {
  return { a: await openSide(20, engine), b: await openSide(21, engine) };
}

async function join(left: QueuePair, right: QueuePair) {
  await left.connect(right.connectionData());
  await right.connect(left.connectionData());
}

describe.each(['inline', 'worker'] as const)('engine: %s', (engine) => {
  test('UD: there, and back along the way that the GRH has', async () => {
    const { a, b } = await openSides(engine);
    const [from, to] = await Promise.all(
      [a, b].map((side) => side.pd.createQp({ type: 'UD', sendCq: side.cq })),
    );
    await from.activate({ qkey: 9 });
    await to.activate({ qkey: 9 });
    to.postRecv({ sgList: [{ mr: b.mr, length: 256 }] });
    a.memory.fill(3, 0, 100);
    const ah = await a.pd.createAh({ gid: host(21), hopLimit: 9, trafficClass: 32 });
    const sgList = [{ mr: a.mr, length: 100 }];
    from.postSend({ opcode: 'SEND', ud: { ah, remoteQpn: to.qpNum, remoteQkey: 9 }, sgList });
    const wc = await b.cq.next();
    expect(wc).toMatchObject({ status: 'SUCCESS', byteLen: GRH_BYTES + 100, srcQp: from.qpNum });
    expect(b.memory[GRH_BYTES + 99]).toBe(3);
    const back = await b.pd.createAhFromWc(wc, b.memory);
    expect(back.attr.grh.trafficClass).toBe(32);
    from.postRecv({ sgList: [{ mr: a.mr, offset: 4096, length: 256 }] });
    to.postSend({ opcode: 'SEND', ud: { ah: back, remoteQpn: wc.srcQp, remoteQkey: 9 } });
    expect(await a.cq.next()).toMatchObject({ byteLen: GRH_BYTES, srcQp: to.qpNum });
    await ah.destroy();
    await back.destroy();
  });

  test('SRQ: two queue pairs, a resize, the limit', async () => {
    const { a, b } = await openSides(engine);
    const srq = await b.pd.createSrq({ maxWr: 4, limit: 1 });
    const froms = await Promise.all([0, 1].map(() => a.pd.createQp({ sendCq: a.cq })));
    const tos = await Promise.all([0, 1].map(() => b.pd.createQp({ sendCq: b.cq, srq })));
    for (const [i, from] of froms.entries()) await join(from, tos[i]);
    for (let i = 0; i < 4; i++) srq.postRecv({ wrId: i });
    await srq.modify({ maxWr: 64 });
    for (let i = 4; i < 12; i++) srq.postRecv({ wrId: i });
    for (let i = 0; i < 12; i++) {
      froms[i & 1].postSend({ opcode: 'SEND', signaled: true });
      expect(await b.cq.next()).toMatchObject({ wrIdNumber: i, qpNum: tos[i & 1].qpNum });
      expect((await a.cq.next()).status).toBe('SUCCESS');
    }
    let taken = await b.device.getEvent();
    while (taken.event.type !== 'SRQ_LIMIT_REACHED') taken = await b.device.getEvent();
    expect(taken.event).toMatchObject({ element: srq });
    taken.ack();
    expect(await srq.query()).toMatchObject({ limit: 0, maxWr: 64 });
  });

  test('a window of each type', async () => {
    const { a, b } = await openSides(engine);
    for (const type of [1, 2] as const) {
      const from = await a.pd.createQp({ sendCq: a.cq });
      const to = await b.pd.createQp({ sendCq: b.cq });
      await join(from, to);
      const mw = await b.pd.allocMw(type);
      const range = { mr: b.mr, offset: 512, length: 8, access: { remoteRead: true } };
      if (type === 1) to.bindMw(mw, range, { signaled: true });
      else to.postSend({ opcode: 'BIND_MW', bind: { mw, ...range }, signaled: true });
      expect(await b.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'BIND_MW' });
      b.memory.fill(0x50 + type, 512, 520);
      const read = (length: number) =>
        from.postSend({
          opcode: 'RDMA_READ',
          signaled: true,
          sgList: [{ mr: a.mr, offset: 128, length }],
          remote: { addr: b.mr.iova + 512n, rkey: mw.rkey },
        });
      read(8);
      expect((await a.cq.next()).status).toBe('SUCCESS');
      expect([...a.memory.subarray(128, 136)]).toEqual(new Array(8).fill(0x50 + type));
      read(9);
      expect((await a.cq.next()).status).toBe('REM_ACCESS_ERR');
      await mw.dealloc();
    }
  });

  test('channel, resize, re-registration', async () => {
    const { a, b } = await openSides(engine);
    const channel = b.device.createCompChannel();
    const cq = await b.device.createCq(2, { channel });
    const from = await a.pd.createQp({ sendCq: a.cq });
    const to = await b.pd.createQp({ sendCq: b.cq, recvCq: cq });
    await join(from, to);
    for (let i = 0; i < 8; i++) to.postRecv({ wrId: i });
    cq.requestNotify();
    await cq.resize(32);
    for (let i = 0; i < 8; i++) from.postSend({ opcode: 'SEND' });
    expect(await channel.getEvent()).toBe(cq);
    cq.ackEvents();
    for (let i = 0; i < 8; i++) expect((await cq.next()).wrIdNumber).toBe(i);

    const remote = b.mr.remote();
    await b.mr.reregister({ access: { remoteRead: true } });
    from.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr: a.mr, length: 8 }], remote });
    expect((await a.cq.next()).status).toBe('REM_ACCESS_ERR');
    await to.close();
    await cq.destroy();
    await channel.destroy();
  });
});
