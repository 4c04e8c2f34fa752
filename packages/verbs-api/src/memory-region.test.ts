import { describe, expect, test } from 'vitest';
import { openPair, pattern, type Side } from '../testing/pair.ts';
import { Access, type Remote } from './index.ts';

const read = async (side: Side, remote: Remote, length = 64) => {
  side.qp.postSend({
    opcode: 'RDMA_READ',
    signaled: true,
    remote,
    sgList: [{ mr: side.mr, offset: 4096, length }],
  });
  return (await side.cq.next()).status;
};

test('a zero-based region begins at 0, for peers and in lists', async () => {
  await using pair = await openPair();
  const { a, b } = pair;
  const memory = pattern(256);
  const mr = await b.pd.registerMr(memory, { access: { remoteRead: true, zeroBased: true } });
  expect([mr.iova, mr.remote(8).addr]).toEqual([0n, 8n]);
  expect(await read(a, { addr: 16n, rkey: mr.rkey })).toBe('SUCCESS');
  expect(a.memory.subarray(4096, 4160)).toEqual(memory.subarray(16, 80));
  b.qp.postSend({
    opcode: 'RDMA_WRITE',
    signaled: true,
    remote: a.mr.remote(),
    sgList: [
      { mr, offset: 100, length: 4 },
      { addr: 0n, lkey: mr.lkey, length: 4 },
    ],
  });
  expect((await b.cq.next()).status).toBe('SUCCESS');
  expect([...a.memory.subarray(0, 8)]).toEqual([...memory.subarray(100, 104), ...memory.subarray(0, 4)]);
  await expect(b.pd.registerMr(memory, { access: { zeroBased: true }, iova: 4096n })).rejects.toMatchObject({
    attribute: 'iova',
  });
});

describe('re-registration', () => {
  test('rights: the keys stay, peers meet the new ones', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const mr = await b.pd.registerMr(pattern(4096), { access: { remoteRead: true } });
    const { rkey, lkey, iova } = mr;
    expect(await read(a, mr.remote())).toBe('SUCCESS');
    await mr.reregister({ access: { remoteWrite: true } });
    expect([mr.rkey, mr.lkey, mr.iova, mr.access]).toEqual([
      rkey,
      lkey,
      iova,
      Access.LOCAL_WRITE | Access.REMOTE_WRITE,
    ]);
    expect(await read(a, mr.remote())).toBe('REM_ACCESS_ERR');
  });

  test('rights of a region that begins at 0 by choice: it still does', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const mr = await b.pd.registerMr(pattern(4096), { access: { remoteRead: true }, iova: 0n });
    const { rkey } = mr;
    expect(await read(a, { addr: 0n, rkey })).toBe('SUCCESS');
    await mr.reregister({ access: { remoteRead: true, remoteWrite: true } });
    expect([mr.rkey, mr.iova]).toEqual([rkey, 0n]);
    expect(await read(a, { addr: 0n, rkey })).toBe('SUCCESS');
  });

  test('memory: a new key; the old one opens nothing', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const mr = await b.pd.registerMr(pattern(4096, 1), { access: { remoteRead: true } });
    const old = mr.remote();
    const other = pattern(128, 2);
    await mr.reregister({ memory: other });
    expect(mr.rkey).not.toBe(old.rkey);
    expect(mr.length).toBe(128);
    expect(await read(a, mr.remote())).toBe('SUCCESS');
    expect(a.memory.subarray(4096, 4160)).toEqual(other.subarray(0, 64));
    // Views of the new memory are found, those of the old are not.
    b.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [other.subarray(3, 9)], remote: a.mr.remote() });
    expect(await read(a, old)).toBe('REM_ACCESS_ERR');
  });

  test('a protection domain: queue pairs of the old one can not use it any more', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const other = await b.device.allocPd();
    const memory = pattern(64);
    const mr = await b.pd.registerMr(memory, { access: { remoteRead: true }, iova: 0x10_0000n });
    await mr.reregister({ pd: other });
    expect([mr.pd, mr.iova]).toEqual([other, 0x10_0000n]);
    expect(() => b.qp.postSend({ opcode: 'SEND', sgList: [memory] })).toThrow(/no region/);
    await expect(other.dealloc()).rejects.toMatchObject({ errno: 'EBUSY' });
    expect(await read(a, mr.remote())).toBe('REM_ACCESS_ERR');
    await mr.deregister();
    await other.dealloc();
  });

  test('a re-registration that fails changes nothing', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    const memory = pattern(4096);
    const mr = await b.pd.registerMr(memory, { access: { remoteRead: true } });
    await expect(
      mr.reregister({ memory: new Uint8Array(8), access: { localWrite: false, remoteWrite: true } }),
    ).rejects.toMatchObject({ attribute: 'access' });
    expect([mr.buffer, mr.length]).toEqual([memory.buffer, 4096]);
    expect(await read(a, mr.remote())).toBe('SUCCESS');
    await mr.deregister();
    await expect(mr.reregister({ access: 0 })).rejects.toMatchObject({ attribute: 'mr' });
  });
});
