/** The claims of docs/icrc.md about `node:dgram` and a real adapter: over neither IP version do they come together. */
import { expect, inject, test } from 'vitest';
import { LinkUp } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';

const guest = new Guest(inject('guest9000'));

test.each([
  // The kernel has chosen an Identification that our ICRC does not know of: rxe drops the packet.
  { version: 4 as const, arrives: false },
  // Our ICRC is right, and rxe carries the WRITE out; its ACK has UDP checksum 0, and our kernel drops that.
  { version: 6 as const, arrives: true },
])(
  'IPv$version: a WRITE over dgram arrives at rxe: $arrives; its ACK never comes',
  async ({ version, arrives }) => {
    const open = { link: 'dgram' as const };
    const connect = { timeout: 12, retryCnt: 2 };
    await using link = await LinkUp.make(guest, { version, open, connect });
    const { agent, cq, qp } = link;
    const ours = await link.memory(1000, { seed: 61 });
    const theirs = await agent.mr({ size: 1000, access: 'LOCAL_WRITE,REMOTE_WRITE', seed: 62 });
    const before = await agent.sha256(theirs.mr);
    const remote = { addr: theirs.address, rkey: theirs.rkey };
    qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr: ours.mr }], remote });
    expect((await cq.next()).status).toBe('RETRY_EXC_ERR');
    expect(await agent.sha256(theirs.mr)).toBe(arrives ? ours.sha256 : before);
    expect((await link.device.counters()).receivedPackets).toBe(0);
  },
);
