/** UC with the real rxe: messages that arrive, messages that are silently dropped, and the use of the connection afterwards. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { LinkUp } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import { eventually, OPERATIONS, oursToTheirs, theirsToOurs } from './harness/operations.ts';
import { WireCapture } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const ALL = 'LOCAL_WRITE,REMOTE_WRITE,REMOTE_READ';

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

describe.each([4, 6] as const)('IPv%i', (version) => {
  test.each([0, 1, 1023, 1024, 1025, 20_001])(
    '%i bytes by each operation, both ways, PSNs that wrap',
    async (size) => {
      await using link = await LinkUp.make(guest, {
        type: 'UC',
        version,
        mtu: 1024,
        psn: [0xff_fffe, 0xff_ffff],
      });
      const ours = await link.memory(size + 1, { misalign: 3, seed: size });
      const theirs = await link.agent.mr({ size: size + 1, misalign: 5, access: ALL });
      const guards = () => link.agent.sha256(theirs.mr, -4096, 4096);
      const before = await guards();
      capture = await WireCapture.start(address);
      for (const [i, operation] of OPERATIONS.entries()) {
        const seed = 10 * i + 1;
        await oursToTheirs(link, link, { from: ours, to: theirs }, { operation, size, seed });
        await theirsToOurs(link, link, { from: theirs, to: ours }, { operation, size, seed: seed + 1 });
      }
      expect(await guards()).toBe(before);
      const packets = await capture.stop();
      // Each message's own packets, right, and no answer asked for or given to any.
      expect(packets).toHaveLength(2 * OPERATIONS.length * Math.max(1, Math.ceil(size / 1024)));
      expect(packets.every((p) => p.icrcOk && p.opcode >> 5 === 1 && p.payload[8] >> 7 === 0)).toBe(true);
    },
  );
});

/** The next SEND is taken, by the receive with that number: the connection lives. */
async function isAlive(link: LinkUp, direction: string, wrId: number): Promise<void> {
  const { agent, qp, cq, theirQp } = link;
  const ours = await link.memory(100, { seed: 77 });
  const theirs = await agent.mr({ size: 100, access: ALL, seed: 78 });
  if (direction === 'ours to rxe') {
    qp.postSend({ wrId: 1000, opcode: 'SEND', sgList: [{ mr: ours.mr, length: 11 }], signaled: true });
    expect(await cq.next()).toMatchObject({ wrId: 1000n, status: 'SUCCESS' });
    expect(await agent.poll()).toMatchObject([{ wrId, status: 0, byteLen: 11 }]);
    expect(await agent.call('query_qp', { qp: theirQp })).toMatchObject({ state: 'RTS' });
  } else {
    await agent.call('post_send', { qp: theirQp, wr_id: 1000, opcode: 'SEND', sge: `${theirs.mr}:0:11` });
    expect(await agent.poll()).toMatchObject([{ wrId: 1000, status: 0 }]);
    expect(await cq.next()).toMatchObject({ wrId: BigInt(wrId), status: 'SUCCESS', byteLen: 11 });
  }
  expect(qp.state).toBe('RTS');
}

describe.each(['ours to rxe', 'rxe to us'])('%s: dropped silently, and the connection lives', (direction) => {
  const outward = direction === 'ours to rxe';

  test('a SEND without a receive', async () => {
    await using link = await LinkUp.make(guest, { type: 'UC', mtu: 1024 });
    const { agent, qp, cq, theirQp } = link;
    const ours = await link.memory(4096, { seed: 1 });
    const theirs = await agent.mr({ size: 4096, access: ALL, seed: 2 });
    capture = await WireCapture.start(address);
    if (outward) {
      qp.postSend({ wrId: 1, opcode: 'SEND', sgList: [{ mr: ours.mr, length: 3000 }], signaled: true });
      // Done when it is sent: nothing reports whether it arrived.
      expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS' });
      await sleep(200);
      await agent.call('post_recv', { qp: theirQp, wr_id: 5, sge: `${theirs.mr}:0:4096` });
    } else {
      await agent.call('post_send', { qp: theirQp, wr_id: 1, opcode: 'SEND', sge: `${theirs.mr}:0:3000` });
      expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 0 }]);
      await eventually(async () => (await qp.counters()).receivedPackets === 3, 'three packets');
      qp.postRecv({ wrId: 5, sgList: [{ mr: ours.mr }] });
    }
    await isAlive(link, direction, 5);
    expect((await capture.stop()).map((p) => p.source)).toEqual(
      Array(4).fill(outward ? link.host : link.peer),
    );
  });

  test.each([
    ['a wrong key', 0x00ff_ff00, 0],
    ['an address past the end', 0, 4096 - 2999],
  ])('a WRITE with immediate data and %s', async (_what, keyXor, offset) => {
    await using link = await LinkUp.make(guest, { type: 'UC', mtu: 1024 });
    const { agent, qp, cq, theirQp } = link;
    const ours = await link.memory(4096, { seed: 1 });
    const theirs = await agent.mr({ size: 4096, access: ALL, seed: 2 });
    const into = await link.memory(64);
    const theirInto = await agent.mr({ size: 64, access: ALL });
    const before = outward ? await agent.sha256(theirs.mr) : ours.sha256;
    capture = await WireCapture.start(address);
    if (outward) {
      await agent.call('post_recv', { qp: theirQp, wr_id: 5, sge: `${theirInto.mr}:0:64` });
      const remote = { addr: theirs.address + BigInt(offset), rkey: (theirs.rkey ^ keyXor) >>> 0 };
      const sgList = [{ mr: ours.mr, length: 3000 }];
      qp.postSend({ wrId: 1, opcode: 'RDMA_WRITE_WITH_IMM', immData: 1, sgList, remote, signaled: true });
      expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS' });
    } else {
      qp.postRecv({ wrId: 5, sgList: [{ mr: into.mr }] });
      await agent.call('post_send', {
        qp: theirQp,
        wr_id: 1,
        opcode: 'RDMA_WRITE_WITH_IMM',
        imm: 1,
        sge: `${theirs.mr}:0:3000`,
        remote_addr: ours.mr.addr + BigInt(offset),
        rkey: (ours.mr.rkey ^ keyXor) >>> 0,
      });
      expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 0 }]);
    }
    // The receive that its immediate data would have taken is there for the next message.
    await isAlive(link, direction, 5);
    expect(outward ? await agent.sha256(theirs.mr) : ours.sha256).toBe(before);
    expect((await capture.stop()).map((p) => p.source)).toEqual(
      Array(4).fill(outward ? link.host : link.peer),
    );
  });

  test('a WRITE that the queue pair does not allow', async () => {
    const allowed = outward ? { theirs: { access: '' } } : { connect: { access: 0 } };
    await using link = await LinkUp.make(guest, { type: 'UC', mtu: 1024, ...allowed });
    const { agent, qp, cq, theirQp } = link;
    const ours = await link.memory(4096, { seed: 1 });
    const theirs = await agent.mr({ size: 4096, access: ALL, seed: 2 });
    const before = outward ? await agent.sha256(theirs.mr) : ours.sha256;
    if (outward) {
      const remote = { addr: theirs.address, rkey: theirs.rkey };
      qp.postSend({
        wrId: 1,
        opcode: 'RDMA_WRITE',
        sgList: [{ mr: ours.mr, length: 10 }],
        remote,
        signaled: true,
      });
      expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS' });
      await agent.call('post_recv', { qp: theirQp, wr_id: 5, sge: `${theirs.mr}:2048:64` });
    } else {
      await agent.call('post_send', {
        qp: theirQp,
        wr_id: 1,
        opcode: 'RDMA_WRITE',
        sge: `${theirs.mr}:0:10`,
        remote_addr: ours.mr.addr,
        rkey: ours.mr.rkey,
      });
      expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 0 }]);
      const into = await link.memory(64);
      qp.postRecv({ wrId: 5, sgList: [{ mr: into.mr }] });
    }
    if (outward) expect(await agent.sha256(theirs.mr)).toBe(before);
    await isAlive(link, direction, 5);
    if (!outward) expect(ours.sha256).toBe(before);
  });
});

test('rxe to us: a message longer than the receive leaves it to the next', async () => {
  // The other way, rxe ends the queue pair (quirks.test.ts).
  await using link = await LinkUp.make(guest, { type: 'UC', mtu: 1024 });
  const { agent, qp, theirQp } = link;
  const ours = await link.memory(2500);
  const theirs = await agent.mr({ size: 4096, access: ALL, seed: 2 });
  qp.postRecv({ wrId: 5, sgList: [{ mr: ours.mr }] });
  await agent.call('post_send', { qp: theirQp, wr_id: 1, opcode: 'SEND', sge: `${theirs.mr}:0:2501` });
  expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 0 }]);
  await isAlive(link, 'rxe to us', 5);
  expect(ours.guardsIntact).toBe(true);
});
