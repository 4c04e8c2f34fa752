/** WRITE, READ and SEND between Node's memory and the guest program's, byte for byte, guards included. */
import { describe, expect, inject, test } from 'vitest';
import { LinkUp, sha256 } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import { sampled } from './harness/pairwise.ts';
import { readDepth } from './harness/read-depth.ts';
import { WireCapture } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const MIB = 1 << 20;
const SIZES = [0, 1, 3, 1023, 1024, 1025, 4097, MIB + 1];

/** rverbs' list of three elements over a region: uneven thirds, in order. */
function thirds(length: number): [offset: number, length: number][] {
  const a = Math.floor(length / 3);
  const b = Math.floor(length / 2);
  return [
    [0, a],
    [a, b - a],
    [b, length - b],
  ];
}
const theirList = (mr: number, length: number) =>
  thirds(length)
    .map(([o, l]) => `${mr}:${o}:${l}`)
    .join(',');

const cases = sampled(
  [
    { version: 4 as const, mtu: 1024 },
    { version: 4 as const, mtu: 4096 },
    { version: 6 as const, mtu: 4096 },
  ].flatMap((network) => SIZES.map((size) => ({ ...network, size }))),
);
describe.each(cases)('IPv$version, path MTU $mtu', ({ version, mtu, size }) => {
  test(`${size} bytes, unaligned, lists of three, both roles`, async () => {
    await using link = await LinkUp.make(guest, { version, mtu });
    const { agent, qp, cq, theirQp } = link;
    const allAccess = 'LOCAL_WRITE,REMOTE_WRITE,REMOTE_READ,REMOTE_ATOMIC';
    const room = Math.max(size, 1);
    const theirMr = async (seed: number) => agent.mr({ size: room, misalign: 5, access: allAccess, seed });
    const guards = async (mr: number) => [
      await agent.sha256(mr, -4096, 4096),
      await agent.sha256(mr, room, 4096),
    ];

    const ours = await link.memory(room, { misalign: 3, seed: 11 });
    const into = await link.memory(room, { misalign: 1, seed: 12 });
    const theirs = await theirMr(21);
    const theirInto = await theirMr(22);
    const theirGuards = await guards(theirs.mr);
    const sgList = (mr: typeof ours.mr) => thirds(size).map(([offset, length]) => ({ mr, offset, length }));
    const digest = (bytes: Uint8Array) => sha256(bytes.subarray(0, size));
    const source = ours.sha256;
    const theirSource = await agent.sha256(theirs.mr);

    // We act: SEND, WRITE, READ.
    await agent.call('post_recv', { qp: theirQp, wr_id: 7, sge: theirList(theirInto.mr, size) });
    qp.postSend({ wrId: 1, opcode: 'SEND', signaled: true, sgList: sgList(ours.mr) });
    expect((await cq.next()).status).toBe('SUCCESS');
    expect(await agent.poll()).toMatchObject([{ wrId: 7, status: 0, opcode: 'RECV', byteLen: size }]);
    expect(await agent.sha256(theirInto.mr, 0, size)).toBe(digest(ours.bytes));

    await agent.call('fill', { mr: theirInto.mr, seed: 23 });
    const remote = { addr: theirInto.address, rkey: theirInto.rkey };
    qp.postSend({ wrId: 2, opcode: 'RDMA_WRITE', signaled: true, sgList: sgList(ours.mr), remote });
    expect((await cq.next()).status).toBe('SUCCESS');
    expect(await agent.sha256(theirInto.mr, 0, size)).toBe(digest(ours.bytes));

    qp.postSend({
      wrId: 3,
      opcode: 'RDMA_READ',
      signaled: true,
      sgList: sgList(into.mr),
      remote: { addr: theirs.address, rkey: theirs.rkey },
    });
    expect((await cq.next()).status).toBe('SUCCESS');
    expect(digest(into.bytes)).toBe(await agent.sha256(theirs.mr, 0, size));

    // They act: SEND, WRITE with immediate, READ.
    into.bytes.fill(0);
    qp.postRecv({ wrId: 8, sgList: sgList(into.mr) });
    const list = theirList(theirs.mr, size);
    await agent.call('post_send', { qp: theirQp, opcode: 'SEND_WITH_IMM', imm: 0xabcd, wr_id: 4, sge: list });
    expect(await agent.poll()).toMatchObject([{ wrId: 4, status: 0 }]);
    const received = await cq.next();
    expect([received.status, received.byteLen, received.immData]).toEqual(['SUCCESS', size, 0xabcd]);
    expect(digest(into.bytes)).toBe(await agent.sha256(theirs.mr, 0, size));

    into.bytes.fill(0);
    qp.postRecv({ wrId: 9 });
    const addressed = { remote_addr: into.mr.addr, rkey: into.mr.rkey };
    await agent.call('post_send', {
      qp: theirQp,
      opcode: 'RDMA_WRITE_WITH_IMM',
      imm: 5,
      wr_id: 5,
      sge: list,
      ...addressed,
    });
    expect(await agent.poll()).toMatchObject([{ wrId: 5, status: 0 }]);
    const written = await cq.next();
    expect([written.status, written.opcode, written.byteLen]).toEqual([
      'SUCCESS',
      'RECV_RDMA_WITH_IMM',
      size,
    ]);
    expect(digest(into.bytes)).toBe(await agent.sha256(theirs.mr, 0, size));

    await agent.call('fill', { mr: theirInto.mr, seed: 24 });
    await agent.call('post_send', {
      qp: theirQp,
      opcode: 'RDMA_READ',
      wr_id: 6,
      sge: theirList(theirInto.mr, size),
      remote_addr: ours.mr.addr,
      rkey: ours.mr.rkey,
    });
    expect(await agent.poll()).toMatchObject([{ wrId: 6, status: 0 }]);
    expect(await agent.sha256(theirInto.mr, 0, size)).toBe(digest(ours.bytes));

    // Sources and guards are as they were.
    expect(ours.sha256).toBe(source);
    expect(await agent.sha256(theirs.mr)).toBe(theirSource);
    expect([ours.guardsIntact, into.guardsIntact]).toEqual([true, true]);
    expect(await guards(theirs.mr)).toEqual(theirGuards);
    expect(await guards(theirInto.mr)).toEqual(theirGuards);
  });
});

test('atomics both ways, the PSN wrapping around', async () => {
  await using link = await LinkUp.make(guest, { psn: [0xff_fffc, 0xff_fffe] });
  const { agent, qp, cq, theirQp } = link;
  const ours = await link.memory(4096, { misalign: 0 });
  // Regions for atomics are aligned by hand: the guard before them is a page.
  const offset = (8 - (ours.bytes.byteOffset & 7)) & 7;
  const cell = new DataView(ours.bytes.buffer, ours.bytes.byteOffset + offset);
  const theirs = await agent.mr({ size: 4096, access: 'LOCAL_WRITE,REMOTE_ATOMIC,REMOTE_READ,REMOTE_WRITE' });
  await agent.call('write', { mr: theirs.mr, hex: '0500000000000000' });
  const result = await link.memory(64);
  for (let i = 0; i < 6; i++) {
    qp.postSend({
      wrId: i,
      opcode: 'ATOMIC_FETCH_AND_ADD',
      signaled: true,
      compareAdd: 0x1_0000_0000n + BigInt(i),
      sgList: [{ mr: result.mr, offset: 8 * i, length: 8 }],
      remote: { addr: theirs.address, rkey: theirs.rkey },
    });
    expect((await cq.next()).status).toBe('SUCCESS');
  }
  const view = new DataView(result.bytes.buffer, result.bytes.byteOffset);
  let sum = 5n;
  for (let i = 0; i < 6; i++) {
    expect(view.getBigUint64(8 * i, true)).toBe(sum);
    sum += 0x1_0000_0000n + BigInt(i);
  }
  cell.setBigUint64(0, 7n, true);
  const remote = { remote_addr: ours.mr.addr + BigInt(offset), rkey: ours.mr.rkey };
  for (let i = 0; i < 6; i++) {
    await agent.call('post_send', {
      qp: theirQp,
      opcode: 'ATOMIC_CMP_AND_SWP',
      compare: 7 + i,
      swap: 8 + i,
      sge: `${theirs.mr}:${64 + 8 * i}:8`,
      ...remote,
    });
  }
  expect((await agent.poll(6)).map((wc) => wc.status)).toEqual([0, 0, 0, 0, 0, 0]);
  expect(cell.getBigUint64(0, true)).toBe(13n);
});

describe('16 READs at a time', () => {
  const COUNT = 64;
  /** Seven responses each: rxe has 128 packets unacknowledged at most, whatever they are. */
  const SIZE = 7001;

  test('we READ from rxe', { timeout: 60_000 }, async () => {
    await using link = await LinkUp.make(guest, { mtu: 1024, connect: { maxRdAtomic: 16 } });
    const { agent, qp, cq } = link;
    const theirs = await agent.mr({ size: COUNT * SIZE, access: 'LOCAL_WRITE,REMOTE_READ', seed: 41 });
    const into = await link.memory(COUNT * SIZE);
    const capture = await WireCapture.start(guest.address);
    qp.postSend(
      Array.from({ length: COUNT }, (_, i) => ({
        wrId: i,
        opcode: 'RDMA_READ' as const,
        signaled: true,
        sgList: [{ mr: into.mr, offset: i * SIZE, length: SIZE }],
        remote: { addr: theirs.address + BigInt(i * SIZE), rkey: theirs.rkey },
      })),
    );
    for (let i = 0; i < COUNT; i++) {
      expect(await cq.next()).toMatchObject({ status: 'SUCCESS', wrIdNumber: i, byteLen: SIZE });
    }
    const packets = await capture.stop();
    capture.discard();
    expect(into.sha256).toBe(await agent.sha256(theirs.mr));
    expect(into.guardsIntact).toBe(true);
    expect(readDepth(packets, guest.address.hostIp4, 1024)).toBe(16);
  });

  test('rxe READs from us', { timeout: 120_000 }, async () => {
    // Our answers come late, so that rxe has sent all that it may before the first is there; it waits for them.
    await guest.netem('', 'delay 400ms');
    try {
      const theirsPatient = { timeout: 18, max_rd_atomic: 16 };
      await using link = await LinkUp.make(guest, {
        mtu: 1024,
        connect: { maxDestRdAtomic: 16 },
        theirs: theirsPatient,
      });
      const { agent, theirQp } = link;
      const ours = await link.memory(COUNT * SIZE, { seed: 43 });
      const theirs = await agent.mr({ size: COUNT * SIZE, access: 'LOCAL_WRITE' });
      const capture = await WireCapture.start(guest.address);
      // In one call: the time of 64 calls depends on the machine.
      await agent.call('post_send', {
        ...{ qp: theirQp, opcode: 'RDMA_READ', count: COUNT, step: SIZE },
        ...{ sge: `${theirs.mr}:0:${SIZE}`, remote_addr: ours.mr.addr, rkey: ours.mr.rkey },
      });
      const statuses = (await agent.poll(COUNT, 60_000)).map((wc) => wc.status);
      const packets = await capture.stop();
      capture.discard();
      expect(statuses).toEqual(Array(COUNT).fill(0));
      expect(await agent.sha256(theirs.mr)).toBe(ours.sha256);
      expect(readDepth(packets, guest.address.ip4, 1024, 0.4)).toBe(16);
    } finally {
      await guest.netem('');
    }
  });
});
