/** A network between rxe and us that loses, reorders, duplicates and corrupts, in both directions. */
import { describe, expect, inject, test } from 'vitest';
import { LinkUp } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';

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
        connect: { timeout: 12 },
        theirs: { timeout: 12, retry_cnt: 7 },
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
