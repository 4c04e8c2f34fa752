/** Our counters under rxe's names, compared with rxe's own of the same traffic (docs/counters.md). */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, inject, test } from 'vitest';
import { LinkUp } from './harness/connect.ts';
import { difference, Guest } from './harness/guest.ts';

const guest = new Guest(inject('guest9000'));
/** An ACK timeout of a second on both sides: so a retransmission shows a fault, not a busy core. */
const patient = { connect: { timeout: 18 }, theirs: { timeout: 18 } };
const REMOTE = 'LOCAL_WRITE,REMOTE_WRITE,REMOTE_READ,REMOTE_ATOMIC';

/** By how much the counters of both sides grew: those of rxe, with 0 for what did not, and ours. */
async function growth(link: LinkUp, act: () => Promise<void>) {
  const read = async () => [await guest.counters(), (await link.device.counters()).rxe] as const;
  const sentAgain = async () => (await link.device.counters()).retransmittedPackets;
  const [before, againBefore] = [await read(), await sentAgain()];
  await act();
  await sleep(200); // The last ACK.
  const [after, againAfter] = [await read(), await sentAgain()];
  const zeros = Object.fromEntries(Object.keys(after[0]).map((name) => [name, 0]));
  return {
    theirs: { ...zeros, ...difference(before[0], after[0]) } as Record<string, number>,
    ours: { ...zeros, ...difference(before[1], after[1]) } as Record<string, number>,
    /** Our probes: on a machine that stalls, an ACK can be overdue. */
    again: againAfter - againBefore,
  };
}

test('the names are those that rxe has', async () => {
  await using link = await LinkUp.make(guest);
  const { rxe } = await link.device.counters();
  // How long a reading of them is kept is no count.
  const { lifespan: _, ...theirs } = await guest.counters();
  expect(Object.keys(rxe).sort()).toEqual(Object.keys(theirs).sort());
});

test('SEND, WRITE, READ and atomics both ways: one side received what the other sent', async () => {
  await using link = await LinkUp.make(guest, patient);
  const { agent, qp, cq, theirQp } = link;
  const size = 50_000;
  const ours = await link.memory(size, { seed: 3 });
  const theirs = await agent.mr({ size, access: REMOTE, seed: 4 });
  const remote = { addr: theirs.address, rkey: theirs.rkey };
  const sgList = [{ mr: ours.mr }];
  const sge = `${theirs.mr}:0:${size}`;
  const grown = await growth(link, async () => {
    for (let i = 0; i < 5; i++) {
      qp.postRecv({ sgList });
      await agent.call('post_recv', { qp: theirQp, wr_id: i, sge });
    }
    for (let i = 0; i < 5; i++) {
      for (const opcode of ['SEND', 'RDMA_WRITE', 'RDMA_READ'] as const) {
        const common = { signaled: true, sgList };
        qp.postSend(opcode === 'SEND' ? { opcode, ...common } : { opcode, ...common, remote });
        expect((await cq.next()).status).toBe('SUCCESS');
        const theirWay = opcode === 'SEND' ? {} : { remote_addr: ours.mr.addr, rkey: ours.mr.rkey };
        await agent.call('post_send', { qp: theirQp, opcode, wr_id: 9, sge, ...theirWay });
        if (opcode === 'SEND') expect((await cq.next()).status).toBe('SUCCESS');
        const done = await agent.poll(opcode === 'SEND' ? 2 : 1);
        expect(done.every(({ status }) => status === 0)).toBe(true);
      }
    }
  });
  expect(grown.ours.sent_pkts).toBeGreaterThan(100);
  expect(grown.theirs.rcvd_pkts).toBe(grown.ours.sent_pkts);
  expect(grown.ours.rcvd_pkts).toBe(grown.theirs.sent_pkts);
  for (const [side, repeated] of [
    [grown.ours, 0],
    [grown.theirs, grown.again],
  ] as const) {
    expect(side).toMatchObject({
      rdma_sends: 5,
      rdma_recvs: 5,
      duplicate_request: repeated,
      out_of_seq_request: 0,
    });
  }
});

test('no receive posted, here or there: as many RNR NAKs were received as were sent', async () => {
  await using link = await LinkUp.make(guest, {
    connect: { timeout: 18, minRnrTimer: 20 },
    theirs: { timeout: 18, min_rnr_timer: 20 },
  });
  const { agent, qp, cq, theirQp } = link;
  const ours = await link.memory(64);
  const theirs = await agent.mr({ size: 64, access: 'LOCAL_WRITE' });
  const sge = `${theirs.mr}:0:8`;
  const sgList = [{ mr: ours.mr, length: 8 }];
  const { ours: we, theirs: they } = await growth(link, async () => {
    qp.postSend({ opcode: 'SEND', signaled: true, sgList });
    await sleep(100);
    await agent.call('post_recv', { qp: theirQp, wr_id: 1, sge });
    expect((await cq.next()).status).toBe('SUCCESS');
    await agent.poll();
    await agent.call('post_send', { qp: theirQp, opcode: 'SEND', wr_id: 2, sge });
    expect(await agent.poll(1, 100)).toEqual([]);
    qp.postRecv({ sgList });
    expect((await cq.next()).status).toBe('SUCCESS');
    expect(await agent.poll()).toMatchObject([{ wrId: 2, status: 0 }]);
  });
  expect(we.rcvd_rnr_err).toBeGreaterThan(1);
  expect(we.rcvd_rnr_err).toBe(they.send_rnr_err);
  expect(we.send_rnr_err).toBeGreaterThan(1);
  expect(we.send_rnr_err).toBe(they.rcvd_rnr_err);
});
