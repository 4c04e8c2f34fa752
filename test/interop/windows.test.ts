/** Memory windows and invalidation with the real rxe: bound here and used from there, and the other way round. */
import type { AccessInit, MemoryWindow } from '@node-roce/verbs-api';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { type Guarded, LinkUp, sha256 } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import type { TheirRegion } from './harness/operations.ts';
import { WireCapture, type WirePacket } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const ACK = 0x11;
const [SEND_LAST_INV, SEND_ONLY_INV] = [0x16, 0x17];
const FLUSHED = 5;
const REM_ACCESS_ERR = 10;
const NAK_REMOTE_ACCESS = 0x62;

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

const naks = (packets: readonly WirePacket[]) =>
  packets
    .filter((p) => p.opcode === ACK && p.payload[12] >> 5 !== 0)
    .map(({ source, payload, psn }) => ({ source, syndrome: payload[12], psn }));

describe('a window of ours, used by rxe', () => {
  interface World extends AsyncDisposable {
    link: LinkUp;
    ours: Guarded;
    theirs: TheirRegion;
  }
  async function setUp(mtu = 4096): Promise<World> {
    const link = await LinkUp.make(guest, { mtu, psn: [1, 0x777777] });
    const ours = await link.memory(4096, { seed: 1, access: { mwBind: true } });
    const theirs = await link.agent.mr({ size: 4096, access: 'LOCAL_WRITE', seed: 2 });
    return { link, ours, theirs, [Symbol.asyncDispose]: () => link[Symbol.asyncDispose]() };
  }

  /** Binds a type 2 window to bytes 1024 … 1088. */
  async function bind({ link, ours }: World, access: AccessInit): Promise<MemoryWindow> {
    const mw = await link.pd.allocMw(2);
    const range = { mw, mr: ours.mr, offset: 1024, length: 64, access };
    link.qp.postSend({ wrId: 1, opcode: 'BIND_MW', bind: range, signaled: true });
    expect(await link.cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS', opcode: 'BIND_MW' });
    return mw;
  }

  async function rdma(
    { link, ours, theirs }: World,
    opcode: string,
    rkey: number,
    offset = 1024,
    length = 64,
  ) {
    await link.agent.call('post_send', {
      qp: link.theirQp,
      wr_id: 9,
      opcode,
      sge: `${theirs.mr}:0:${length}`,
      remote_addr: ours.mr.addr + BigInt(offset),
      rkey,
    });
    const [completion] = await link.agent.poll();
    return completion;
  }

  /** rxe's request fails, with our NAK for it, and both queue pairs end: what waits is flushed, in order. */
  async function expectRefusal(world: World, use: () => Promise<{ status: number }>): Promise<void> {
    const { link } = world;
    link.qp.postRecv([{ wrId: 70 }, { wrId: 71 }]);
    const { sqPsn } = await link.agent.call<{ sqPsn: number }>('query_qp', { qp: link.theirQp });
    capture = await WireCapture.start(address);
    expect(await use()).toMatchObject({ wrId: 9, status: REM_ACCESS_ERR });
    expect(naks(await capture.stop())).toEqual([
      { source: link.host, syndrome: NAK_REMOTE_ACCESS, psn: sqPsn },
    ]);
    expect(await link.cq.next()).toMatchObject({ wrId: 70n, status: 'WR_FLUSH_ERR' });
    expect(await link.cq.next()).toMatchObject({ wrId: 71n, status: 'WR_FLUSH_ERR' });
    expect(link.qp.state).toBe('ERR');
    expect(await link.agent.call('query_qp', { qp: link.theirQp })).toMatchObject({ state: 'ERR' });
    expect(world.ours.guardsIntact).toBe(true);
  }

  test('WRITE and READ inside of it', async () => {
    await using world = await setUp();
    const { link, ours, theirs } = world;
    const mw = await bind(world, { remoteWrite: true, remoteRead: true });
    expect(await rdma(world, 'RDMA_WRITE', mw.rkey)).toMatchObject({ status: 0 });
    expect(sha256(ours.bytes.subarray(1024, 1088))).toBe(await link.agent.sha256(theirs.mr, 0, 64));
    await link.agent.call('fill', { mr: theirs.mr, seed: 5 });
    expect(await rdma(world, 'RDMA_READ', mw.rkey)).toMatchObject({ status: 0 });
    expect(await link.agent.sha256(theirs.mr, 0, 64)).toBe(sha256(ours.bytes.subarray(1024, 1088)));
  });

  test.each([
    ['WRITE past its end', 'RDMA_WRITE', 1024, 65],
    ['WRITE before its start', 'RDMA_WRITE', 1023, 64],
    ['READ past its end', 'RDMA_READ', 1025, 64],
  ])('%s', async (_what, opcode, offset, length) => {
    await using world = await setUp();
    const mw = await bind(world, { remoteWrite: true, remoteRead: true });
    const before = world.ours.sha256;
    await expectRefusal(world, () => rdma(world, opcode, mw.rkey, offset, length));
    expect(world.ours.sha256).toBe(before);
  });

  test.each([
    ['WRITE where it allows READ', 'RDMA_WRITE', { remoteRead: true }],
    ['READ where it allows WRITE', 'RDMA_READ', { remoteWrite: true }],
  ])('%s', async (_what, opcode, access) => {
    await using world = await setUp();
    const mw = await bind(world, access);
    await expectRefusal(world, () => rdma(world, opcode, mw.rkey));
  });

  test('its key before it is bound', async () => {
    await using world = await setUp();
    const mw = await world.link.pd.allocMw(2);
    await expectRefusal(world, () => rdma(world, 'RDMA_WRITE', mw.rkey));
  });

  test('invalidated by us: LOCAL_INV', async () => {
    await using world = await setUp();
    const { link } = world;
    const mw = await bind(world, { remoteWrite: true });
    expect(await rdma(world, 'RDMA_WRITE', mw.rkey)).toMatchObject({ status: 0 });
    link.qp.postSend({ wrId: 2, opcode: 'LOCAL_INV', invalidateRkey: mw.rkey, signaled: true });
    expect(await link.cq.next()).toMatchObject({ wrId: 2n, status: 'SUCCESS', opcode: 'LOCAL_INV' });
    await expectRefusal(world, () => rdma(world, 'RDMA_WRITE', mw.rkey));
  });

  test.each([
    [16, [SEND_ONLY_INV]],
    [1100, [0x00, 0x01, SEND_LAST_INV]],
  ])(
    'invalidated by rxe: SEND_WITH_INV of %i bytes; bound again under another key, the old one stays shut',
    async (length, opcodes) => {
      await using world = await setUp(512);
      const { link, ours, theirs } = world;
      const mw = await bind(world, { remoteWrite: true });
      const old = mw.rkey;
      link.qp.postRecv({ wrId: 60, sgList: [{ mr: ours.mr, offset: 2048, length: 2000 }] });
      capture = await WireCapture.start(address);
      await link.agent.call('post_send', {
        qp: link.theirQp,
        wr_id: 8,
        opcode: 'SEND_WITH_INV',
        invalidate_rkey: old,
        sge: `${theirs.mr}:0:${length}`,
      });
      expect(await link.agent.poll()).toMatchObject([{ wrId: 8, status: 0 }]);
      const wc = await link.cq.next();
      expect([wc.wrIdNumber, wc.status, wc.byteLen, wc.invalidatedRkey]).toEqual([
        60,
        'SUCCESS',
        length,
        old,
      ]);
      const packets = await capture.stop();
      expect(packets.filter((p) => p.source === link.peer).map((p) => p.opcode)).toEqual(opcodes);
      capture.discard();
      link.qp.postSend({
        wrId: 3,
        opcode: 'BIND_MW',
        bind: { mw, mr: ours.mr, offset: 1024, length: 64, access: { remoteWrite: true } },
        signaled: true,
      });
      expect(await link.cq.next()).toMatchObject({ wrId: 3n, status: 'SUCCESS' });
      expect(await rdma(world, 'RDMA_WRITE', mw.rkey)).toMatchObject({ status: 0 });
      await expectRefusal(world, () => rdma(world, 'RDMA_WRITE', old));
    },
  );

  test('atomics through it', async () => {
    await using world = await setUp();
    const { link, ours, theirs } = world;
    const mw = await bind(world, { remoteAtomic: true });
    const value = new DataView(ours.bytes.buffer, ours.bytes.byteOffset + 1032, 8);
    value.setBigUint64(0, 40n, true);
    await link.agent.call('post_send', {
      qp: link.theirQp,
      opcode: 'ATOMIC_FETCH_AND_ADD',
      sge: `${theirs.mr}:0:8`,
      remote_addr: ours.mr.addr + 1032n,
      rkey: mw.rkey,
      add: 2,
    });
    expect(await link.agent.poll()).toMatchObject([{ status: 0, opcode: 'FETCH_ADD' }]);
    expect(value.getBigUint64(0, true)).toBe(42n);
    expect(await link.agent.call('read', { mr: theirs.mr, length: 8 })).toEqual({ hex: '2800000000000000' });
    await expectRefusal(world, () => rdma(world, 'RDMA_WRITE', mw.rkey));
  });

  test('by another queue pair than the one that bound it (type 2B)', async () => {
    await using world = await setUp();
    const { link } = world;
    const mw = await bind(world, { remoteWrite: true });
    const second = await link.connect({ psn: [1, 0x888888] });
    const { qp, cq, theirQp, theirQpn } = link;
    const before = world.ours.sha256;
    Object.assign(link, second);
    await expectRefusal(world, () => rdma(world, 'RDMA_WRITE', mw.rkey));
    expect(world.ours.sha256).toBe(before);
    // The first may still.
    Object.assign(link, { qp, cq, theirQp, theirQpn });
    expect(await rdma(world, 'RDMA_WRITE', mw.rkey)).toMatchObject({ status: 0 });
  });

  test('type 1: bound, bound elsewhere, and to nothing', async () => {
    await using world = await setUp();
    const { link, ours, theirs } = world;
    const mw = await link.pd.allocMw(1);
    const access = { remoteWrite: true };
    const first = link.qp.bindMw(
      mw,
      { mr: ours.mr, offset: 1024, length: 64, access },
      { wrId: 1, signaled: true },
    );
    expect(await link.cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS', opcode: 'BIND_MW' });
    expect(await rdma(world, 'RDMA_WRITE', first)).toMatchObject({ status: 0 });
    const second = link.qp.bindMw(
      mw,
      { mr: ours.mr, offset: 2048, length: 64, access },
      { wrId: 2, signaled: true },
    );
    expect(await link.cq.next()).toMatchObject({ wrId: 2n, status: 'SUCCESS' });
    expect(second).not.toBe(first);
    expect(await rdma(world, 'RDMA_WRITE', second, 2048)).toMatchObject({ status: 0 });
    expect(sha256(ours.bytes.subarray(2048, 2112))).toBe(await link.agent.sha256(theirs.mr, 0, 64));
    link.qp.bindMw(mw, undefined, { wrId: 3, signaled: true });
    expect(await link.cq.next()).toMatchObject({ wrId: 3n, status: 'SUCCESS' });
    await expectRefusal(world, () => rdma(world, 'RDMA_WRITE', second, 2048));
  });

  test('zero-based: addresses count from its start', async () => {
    await using world = await setUp();
    const { link, ours, theirs } = world;
    const mw = await bind(world, { remoteWrite: true, zeroBased: true });
    await link.agent.call('post_send', {
      qp: link.theirQp,
      opcode: 'RDMA_WRITE',
      sge: `${theirs.mr}:0:60`,
      remote_addr: 4,
      rkey: mw.rkey,
    });
    expect(await link.agent.poll()).toMatchObject([{ status: 0 }]);
    expect(sha256(ours.bytes.subarray(1028, 1088))).toBe(await link.agent.sha256(theirs.mr, 0, 60));
    await expectRefusal(world, () => rdma(world, 'RDMA_WRITE', mw.rkey));
  });

  test('SEND_WITH_INV of a key that is no window’s: NAK, and the receive fails', async () => {
    await using world = await setUp();
    const { link, ours } = world;
    link.qp.postRecv([{ wrId: 60 }, { wrId: 61 }]);
    capture = await WireCapture.start(address);
    const key = { invalidate_rkey: ours.mr.rkey };
    await link.agent.call('post_send', { qp: link.theirQp, wr_id: 9, opcode: 'SEND_WITH_INV', ...key });
    expect(await link.agent.poll()).toMatchObject([{ wrId: 9, status: REM_ACCESS_ERR }]);
    expect(naks(await capture.stop())).toEqual([
      { source: link.host, syndrome: NAK_REMOTE_ACCESS, psn: 0x777777 },
    ]);
    const failed = await link.cq.next();
    expect(failed.wrIdNumber).toBe(60);
    expect(failed.status).not.toBe('SUCCESS');
    expect(await link.cq.next()).toMatchObject({ wrId: 61n, status: 'WR_FLUSH_ERR' });
  });
});

describe('a window of rxe, used by us', () => {
  const RANGE = { offset: 1024, length: 64 };
  interface World extends AsyncDisposable {
    link: LinkUp;
    ours: Guarded;
    theirs: TheirRegion;
    mw: number;
  }
  async function setUp(type: 1 | 2 = 2, mtu = 4096): Promise<World> {
    const link = await LinkUp.make(guest, { mtu, psn: [0x555555, 1] });
    const ours = await link.memory(4096, { seed: 1 });
    const theirs = await link.agent.mr({ size: 4096, access: 'LOCAL_WRITE,REMOTE_WRITE,MW_BIND', seed: 2 });
    const { mw } = await link.agent.call<{ mw: number }>('mw', { type });
    return { link, ours, theirs, mw, [Symbol.asyncDispose]: () => link[Symbol.asyncDispose]() };
  }

  async function bind({ link, theirs, mw }: World, access = 'REMOTE_WRITE,REMOTE_READ', range = RANGE) {
    const keys = { mw, qp: link.theirQp, mr: theirs.mr, access, ...range };
    const { rkey } = await link.agent.call<{ rkey: number }>('bind', keys);
    expect(await link.agent.poll()).toMatchObject([{ status: 0, opcode: 'BIND_MW' }]);
    return rkey;
  }

  async function rdma(
    { link, ours, theirs }: World,
    opcode: 'RDMA_WRITE' | 'RDMA_READ',
    rkey: number,
    offset = 1024,
  ) {
    const remote = { addr: theirs.address + BigInt(offset), rkey };
    link.qp.postSend({ wrId: 9, opcode, sgList: [{ mr: ours.mr, length: 64 }], remote, signaled: true });
    return link.cq.next();
  }

  /** Our request fails with rxe's NAK for its PSN; then ours in order, and theirs, are flushed. */
  async function expectRefusal(
    { link, ours, theirs }: World,
    opcode: 'RDMA_WRITE' | 'RDMA_READ',
    rkey: number,
  ) {
    await link.agent.call('post_recv', { qp: link.theirQp, wr_id: 70 });
    link.qp.postRecv({ wrId: 80 });
    const psn = (await link.qp.query()).attr.sqPsn;
    capture = await WireCapture.start(address);
    const remote = { addr: theirs.address + 1024n, rkey };
    link.qp.postSend([
      { wrId: 9, opcode, sgList: [{ mr: ours.mr, length: 64 }], remote, signaled: true },
      { wrId: 10, opcode: 'SEND' },
      { wrId: 11, opcode: 'SEND', signaled: true },
    ]);
    expect(await link.cq.next()).toMatchObject({ wrId: 9n, status: 'REM_ACCESS_ERR' });
    const flushed = [await link.cq.next(), await link.cq.next(), await link.cq.next()];
    expect(flushed.every((wc) => wc.status === 'WR_FLUSH_ERR')).toBe(true);
    expect(flushed.map((wc) => wc.wrIdNumber).filter((id) => id < 80)).toEqual([10, 11]);
    expect(await link.agent.poll()).toMatchObject([{ wrId: 70, status: FLUSHED }]);
    expect(naks(await capture.stop())).toEqual([{ source: link.peer, syndrome: NAK_REMOTE_ACCESS, psn }]);
    expect(link.qp.state).toBe('ERR');
  }

  test.each([1, 2] as const)('type %i: WRITE and READ through it', async (type) => {
    await using world = await setUp(type);
    const { link, ours, theirs } = world;
    const rkey = await bind(world);
    expect(await rdma(world, 'RDMA_WRITE', rkey)).toMatchObject({ status: 'SUCCESS' });
    expect(await link.agent.sha256(theirs.mr, 1024, 64)).toBe(sha256(ours.bytes.subarray(0, 64)));
    await link.agent.call('fill', { mr: theirs.mr, seed: 5 });
    expect(await rdma(world, 'RDMA_READ', rkey)).toMatchObject({ status: 'SUCCESS' });
    expect(sha256(ours.bytes.subarray(0, 64))).toBe(await link.agent.sha256(theirs.mr, 1024, 64));
  });

  test('WRITE where it allows READ', async () => {
    await using world = await setUp();
    await expectRefusal(world, 'RDMA_WRITE', await bind(world, 'REMOTE_READ'));
  });

  test('invalidated by rxe: LOCAL_INV', async () => {
    await using world = await setUp();
    const { link } = world;
    const rkey = await bind(world);
    expect(await rdma(world, 'RDMA_WRITE', rkey)).toMatchObject({ status: 'SUCCESS' });
    await link.agent.call('post_send', {
      qp: link.theirQp,
      wr_id: 3,
      opcode: 'LOCAL_INV',
      invalidate_rkey: rkey,
    });
    expect(await link.agent.poll()).toMatchObject([{ wrId: 3, status: 0, opcode: 'LOCAL_INV' }]);
    await expectRefusal(world, 'RDMA_WRITE', rkey);
  });

  test.each([16, 900, 3000])('invalidated by us: SEND_WITH_INV of %i bytes', async (length) => {
    await using world = await setUp(2, 512);
    const { link, ours, theirs } = world;
    const rkey = await bind(world);
    await link.agent.call('post_recv', { qp: link.theirQp, wr_id: 60, sge: `${theirs.mr}:0:4000` });
    link.qp.postSend({
      wrId: 8,
      opcode: 'SEND_WITH_INV',
      invalidateRkey: rkey,
      sgList: [{ mr: ours.mr, length }],
      signaled: true,
    });
    expect(await link.cq.next()).toMatchObject({ wrId: 8n, status: 'SUCCESS', opcode: 'SEND' });
    expect(await link.agent.poll()).toMatchObject([{ wrId: 60, status: 0, opcode: 'RECV', byteLen: length }]);
    expect(await link.agent.sha256(theirs.mr, 0, length)).toBe(sha256(ours.bytes.subarray(0, length)));
    await expectRefusal(world, 'RDMA_WRITE', rkey);
  });

  test('by another queue pair than the one that bound it (type 2B)', async () => {
    await using world = await setUp();
    const { link } = world;
    const rkey = await bind(world);
    Object.assign(link, await link.connect({ psn: [0x666666, 1] }));
    await expectRefusal(world, 'RDMA_WRITE', rkey);
  });

  test('type 1: bound elsewhere, the old key is shut', async () => {
    await using world = await setUp(1);
    const old = await bind(world);
    const rkey = await bind(world, 'REMOTE_WRITE', { offset: 2048, length: 64 });
    expect(await rdma(world, 'RDMA_WRITE', rkey, 2048)).toMatchObject({ status: 'SUCCESS' });
    await expectRefusal(world, 'RDMA_WRITE', old);
  });
});
