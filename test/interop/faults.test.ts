/** A network between rxe and us that loses, reorders, duplicates and corrupts, in both directions. */
import { describe, expect, inject, test } from 'vitest';
import { LinkUp } from './harness/connect.ts';
import { difference, Guest } from './harness/guest.ts';
import { LastAckLost, type PingPongOptions, playPingPong } from './harness/pingpong.ts';

const guest = new Guest(inject('guest9000'));

describe.each([
  { sent: 'loss 5%', received: '' },
  { sent: '', received: 'loss 5%' },
  { sent: 'delay 3ms reorder 30% 50%', received: '' },
  { sent: 'duplicate 20%', received: '' },
  { sent: 'corrupt 8%', received: 'corrupt 8%' },
  { sent: 'loss 3% duplicate 3%', received: 'loss 3% delay 1ms reorder 20%' },
])("netem on rxe's packets: sent $sent, received $received", ({ sent, received }) => {
  test('SEND, READ and its WRITE arrive byte for byte', { timeout: 240_000 }, async () => {
    await guest.netem(sent, received);
    try {
      // rxe counts each NAK as a retry until an ACK comes, which in one message may be too late: 7 is for
      // ever with it (docs/quirks.md).
      await using link = await LinkUp.make(guest, {
        mtu: 1024,
        // A guest that waits for its CPU does not use up eight tries of 67 ms.
        connect: { timeout: 14 },
        theirs: { timeout: 14, retry_cnt: 7 },
      });
      const { agent, cq, qp, theirQp } = link;
      const size = 100_001;
      const ours = await link.memory(size, { seed: 31 });
      const into = await link.memory(size);
      const theirs = await agent.mr({ size, access: 'LOCAL_WRITE,REMOTE_WRITE,REMOTE_READ' });
      await agent.call('post_recv', { qp: theirQp, sge: `${theirs.mr}:0:${size}` });
      qp.postSend({ opcode: 'SEND', signaled: true, sgList: [{ mr: ours.mr }] });
      expect((await cq.next()).status).toBe('SUCCESS');
      expect(await agent.sha256(theirs.mr)).toBe(ours.sha256);
      const remote = { addr: theirs.address, rkey: theirs.rkey };
      qp.postSend({ opcode: 'RDMA_READ', signaled: true, sgList: [{ mr: into.mr }], remote });
      expect((await cq.next()).status).toBe('SUCCESS');
      expect(into.sha256).toBe(ours.sha256);
      into.bytes.fill(0);
      await agent.poll(1);
      await agent.call('post_send', {
        qp: theirQp,
        opcode: 'RDMA_WRITE',
        sge: `${theirs.mr}:0:${size}`,
        remote_addr: into.mr.addr,
        rkey: into.mr.rkey,
      });
      expect(await agent.poll(1, 60_000)).toMatchObject([{ status: 0 }]);
      expect(into.sha256).toBe(ours.sha256);
      expect(into.guardsIntact).toBe(true);

      // The faults were there: netem had these packets.
      const qdiscs = await guest.must('tc -s qdisc');
      for (const [device, fault] of [
        ['eth0', sent],
        ['ifb0', received],
      ]) {
        const passed = new RegExp(`netem \\w+: dev ${device} .*\\s+Sent \\d+ bytes (\\d+) pkt`).exec(
          qdiscs,
        )?.[1];
        if (fault) expect(Number(passed), qdiscs).toBeGreaterThan(90);
      }
      const { icrcErrors } = await link.device.counters();
      if (sent.includes('corrupt')) expect(icrcErrors).toBeGreaterThan(0);
      else expect(icrcErrors).toBe(0);
    } finally {
      await guest.netem('');
    }
  });
});

describe.each([
  { sent: 'loss 5% duplicate 5%', received: 'loss 5% duplicate 5%' },
  { sent: 'delay 3ms reorder 30% 50%', received: 'delay 3ms reorder 30% 50%' },
])('atomics and a PSN that wraps: sent $sent, received $received', ({ sent, received }) => {
  test('each of them once, both ways, its answer in order', { timeout: 240_000 }, async () => {
    await guest.netem(sent, received);
    try {
      await using link = await LinkUp.make(guest, {
        psn: [0xff_fff0, 0xff_fff8],
        connect: { timeout: 12 },
        theirs: { timeout: 12, retry_cnt: 7 },
      });
      const { agent, cq, qp, theirQp } = link;
      const count = 40;
      const ours = await link.memory(4096);
      const offset = (8 - (ours.bytes.byteOffset & 7)) & 7;
      const cell = new DataView(ours.bytes.buffer, ours.bytes.byteOffset + offset);
      const theirs = await agent.mr({
        size: 4096,
        access: 'LOCAL_WRITE,REMOTE_ATOMIC,REMOTE_READ,REMOTE_WRITE',
      });
      await agent.call('write', { mr: theirs.mr, hex: '0000000000000000' });
      cell.setBigUint64(0, 0n, true);

      const answers = await link.memory(8 * count);
      const remote = { addr: theirs.address, rkey: theirs.rkey };
      for (let i = 0; i < count; i++) {
        qp.postSend({
          wrId: i,
          opcode: 'ATOMIC_FETCH_AND_ADD',
          signaled: true,
          compareAdd: BigInt(i + 1),
          sgList: [{ mr: answers.mr, offset: 8 * i, length: 8 }],
          remote,
        });
      }
      for (let i = 0; i < count; i++) {
        await agent.call('post_send', {
          qp: theirQp,
          opcode: 'ATOMIC_FETCH_AND_ADD',
          add: i + 1,
          sge: `${theirs.mr}:${64 + 8 * i}:8`,
          remote_addr: ours.mr.addr + BigInt(offset),
          rkey: ours.mr.rkey,
        });
      }
      for (let i = 0; i < count; i++) expect((await cq.next()).status).toBe('SUCCESS');
      const theirStatuses = (await agent.poll(count, 60_000)).map((wc) => wc.status);
      expect(theirStatuses).toEqual(Array(count).fill(0));

      const sums = Array.from({ length: count }, (_, i) => BigInt((i * (i + 1)) / 2));
      const view = new DataView(answers.bytes.buffer, answers.bytes.byteOffset);
      expect(sums.map((_, i) => view.getBigUint64(8 * i, true))).toEqual(sums);
      expect(cell.getBigUint64(0, true)).toBe(BigInt((count * (count + 1)) / 2));
    } finally {
      await guest.netem('');
    }
  });
});

/** Plays once more where loss ends a run that is nobody's defect, or where we do not know whose it is; twice at most. */
async function playWithPatience(options: PingPongOptions) {
  for (let run = 1; ; run++) {
    try {
      return await playPingPong(guest, options);
    } catch (error) {
      // One run of five on a busy machine fell silent for good (Linux 6.12); which side did is not known.
      const pardoned = error instanceof LastAckLost || (error as Error).message.includes('was silent');
      if (run === 3 || !pardoned) throw error;
      console.log(`once more: ${(error as Error).message}`);
    }
  }
}

describe.each([{ role: 'server' as const }, { role: 'client' as const }])(
  'ibv_rc_pingpong over loss of 5 percent each way, we are the $role',
  ({ role }) => {
    test.each([1024, 4096])('path MTU %i', { timeout: 300_000 }, async (mtu) => {
      const before = await guest.counters();
      await guest.netem('loss 5%', 'loss 5%');
      try {
        const options = { version: 4, role, mtu, size: 20_001, iters: 100, patience: 60 } as const;
        const { report } = await playWithPatience(options);
        const moved = difference(before, await guest.counters());
        // There was loss, on their way and on ours.
        expect(report.retransmittedPackets).toBeGreaterThan(0);
        expect(moved.completer_retry_err ?? 0).toBeGreaterThan(0);
        expect(report.icrcErrors).toBe(0);
        console.log(`we sent ${report.retransmittedPackets} packets again; rxe:`, moved);
      } finally {
        await guest.netem('');
      }
    });
  },
);
