import { describe, expect, test } from 'vitest';
import { openPair, type Side } from '../testing/pair.ts';
import { incRkey, type MemoryWindow, type SendWr } from './index.ts';

const write = (side: Side, remote: { addr: bigint; rkey: number }, length = 16) =>
  side.qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, remote, sgList: [{ mr: side.mr, length }] });

async function openWindows() {
  const pair = await openPair({ sqSigAll: true });
  const { b } = pair;
  const memory = new Uint8Array(4096);
  const mr = await b.pd.registerMr(memory, { access: { remoteWrite: true, mwBind: true } });
  return Object.assign(pair, { memory, region: mr });
}

const bind = (side: Side, mw: MemoryWindow, range: Parameters<Side['qp']['bindMw']>[1]) => {
  if (mw.type === 1) side.qp.bindMw(mw, range, { signaled: true });
  else side.qp.postSend({ opcode: 'BIND_MW', bind: { mw, ...range! }, signaled: true });
};

describe.each([1, 2] as const)('type %d', (type) => {
  test('opens the range it is bound to, and nothing else', async () => {
    await using pair = await openWindows();
    const { a, b, region, memory } = pair;
    const mw = await b.pd.allocMw(type);
    const first = mw.rkey;
    bind(b, mw, { mr: region, offset: 1024, length: 64, access: { remoteWrite: true } });
    expect(mw.rkey >>> 8).toBe(first >>> 8);
    expect(mw.rkey).toBe(incRkey(first));
    expect(await b.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'BIND_MW' });
    a.memory.fill(7, 0, 16);
    write(a, { addr: region.iova + 1024n, rkey: mw.rkey });
    expect((await a.cq.next()).status).toBe('SUCCESS');
    expect([...memory.subarray(1023, 1041)]).toEqual([0, ...new Array(16).fill(7), 0]);
    await expect(region.deregister()).rejects.toMatchObject({ errno: 'EBUSY' });
    write(a, { addr: region.iova + 1080n, rkey: mw.rkey });
    expect((await a.cq.next()).status).toBe('REM_ACCESS_ERR');
    await mw.dealloc();
    await mw.dealloc();
    await region.deregister();
  });
});

test('type 1: a bind of nothing closes it; the key counts on', async () => {
  await using pair = await openWindows();
  const { a, b, region } = pair;
  const mw = await b.pd.allocMw(1);
  const opened = b.qp.bindMw(mw, { mr: region, access: { remoteWrite: true } }, { wrId: 1 });
  const closed = b.qp.bindMw(mw, undefined, { wrId: 2 });
  expect(closed).toBe(incRkey(opened));
  expect([await b.cq.next(), await b.cq.next()].map((wc) => [wc.wrIdNumber, wc.status])).toEqual([
    [1, 'SUCCESS'],
    [2, 'SUCCESS'],
  ]);
  await region.deregister();
  write(a, { addr: region.iova, rkey: opened });
  expect((await a.cq.next()).status).toBe('REM_ACCESS_ERR');
});

test('type 2: closed by LOCAL_INV, and by the peer’s SEND_WITH_INV', async () => {
  await using pair = await openWindows();
  const { a, b, region } = pair;
  const mw = await b.pd.allocMw(2);
  const range = { mr: region, access: { remoteWrite: true } };
  b.qp.postSend({ opcode: 'BIND_MW', bind: { mw, ...range } });
  await b.cq.next();
  b.qp.postRecv({ wrId: 9 });
  a.qp.postSend({ opcode: 'SEND_WITH_INV', invalidateRkey: mw.rkey });
  expect(await b.cq.next()).toMatchObject({ status: 'SUCCESS', invalidatedRkey: mw.rkey });
  await a.cq.next();
  b.qp.postSend([
    { opcode: 'BIND_MW', bind: { mw, ...range } },
    { opcode: 'LOCAL_INV', invalidateRkey: incRkey(mw.rkey) },
  ]);
  expect([await b.cq.next(), await b.cq.next()].map((wc) => [wc.opcode, wc.status])).toEqual([
    ['BIND_MW', 'SUCCESS'],
    ['LOCAL_INV', 'SUCCESS'],
  ]);
  write(a, { addr: region.iova, rkey: mw.rkey });
  expect((await a.cq.next()).status).toBe('REM_ACCESS_ERR');
});

test('a bind that can not be fails, and the queue pair with it', async () => {
  await using pair = await openWindows();
  const { b } = pair;
  const mw = await b.pd.allocMw(2);
  // The side's own region was registered without mwBind.
  b.qp.postSend({ opcode: 'BIND_MW', bind: { mw, mr: b.mr, access: { remoteRead: true } } });
  expect((await b.cq.next()).status).toBe('MW_BIND_ERR');
  const other = await b.pd.allocMw(1);
  expect(() => b.qp.postSend({ opcode: 'BIND_MW', bind: { mw: other, mr: b.mr, access: 0 } })).toThrow(
    expect.objectContaining({ attribute: 'bind.mw' }),
  );
  expect(() => b.qp.bindMw(mw, undefined)).toThrow(expect.objectContaining({ attribute: 'mw' }));
});

test('the key of a bind that was refused as it was posted stays', async () => {
  await using pair = await openWindows();
  const { b, region } = pair;
  const mw = await b.pd.allocMw(2);
  const { rkey } = mw;
  const range = { mr: region, access: 0 };
  expect(() => b.qp.postSend({ opcode: 'BIND_MW', bind: { mw, ...range, offset: -1 } })).toThrow(/offset/);
  expect(() => b.qp.postSend({ opcode: 'BIND_MW', bind: { mw, ...range, rkey: 2 ** 32 } })).toThrow(/rkey/);
  expect(mw.rkey).toBe(rkey);
});

test('a batch that is refused takes back the keys of its windows', async () => {
  await using pair = await openWindows();
  const { b, region } = pair;
  const [mw, other] = [await b.pd.allocMw(2), await b.pd.allocMw(2)];
  const keys = [mw.rkey, other.rkey];
  const bind = (window: unknown) =>
    ({ opcode: 'BIND_MW', bind: { mw: window, mr: region, access: 0 } }) as SendWr;
  for (const wrong of [5, 'mw', null, undefined, {}, Object.freeze({ rkey: 1 })]) {
    // A window that is bound twice has its first key again.
    const list = [bind(mw), bind(other), bind(mw), bind(wrong)];
    const refused = { code: 'ERR_ROCE_INVALID_ATTRIBUTE', attribute: 'bind.mw', index: 3 };
    expect(() => b.qp.postBatch(list)).toThrow(expect.objectContaining(refused));
    expect([mw.rkey, other.rkey]).toEqual(keys);
    expect(b.qp.sendPending).toBe(0);
  }
  b.qp.postBatch([bind(mw), bind(other)]);
  expect([mw.rkey, other.rkey]).not.toEqual(keys);
});
