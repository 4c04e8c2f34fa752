/** Operations of zero bytes on RC (on UC: unreliable.test.ts): no memory is touched, so no key is looked at (IBTA vol 1 C9-88). */
import { afterEach, expect, inject, test } from 'vitest';
import { LinkUp } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import { OPERATIONS, oursToTheirs, theirsToOurs } from './harness/operations.ts';
import { WireCapture, type WirePacket } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const NOWHERE = { addr: 0xdead_beef_dead_beefn, rkey: 0x0bad_cafe };
const ACK = 0x11;
/** Packets are counted, and rxe under emulation may answer later than a probe waits. */
const NO_PROBES = { recovery: { probes: false } };

/** Each packet once: on a busy machine a timer of either side fires before the answer is there, and its request comes again, and the answer. */
const firsts = (packets: readonly WirePacket[]) =>
  packets.filter(
    (packet, i) =>
      packets.findIndex(
        ({ source, opcode, psn }) =>
          source === packet.source && opcode === packet.opcode && psn === packet.psn,
      ) === i,
  );

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

test.each(OPERATIONS)('%s both ways, without memory, to an unknown address and key', async (operation) => {
  await using link = await LinkUp.make(guest, { ours: NO_PROBES });
  const ours = await link.memory(64, { seed: 1 });
  const theirs = await link.agent.mr({ size: 64, access: 'LOCAL_WRITE,REMOTE_WRITE' });
  capture = await WireCapture.start(address);
  await oursToTheirs(
    link,
    link,
    { from: ours, to: theirs },
    { operation, size: 0, seed: 1, remote: NOWHERE },
  );
  await theirsToOurs(
    link,
    link,
    { from: theirs, to: ours },
    { operation, size: 0, seed: 2, remote: NOWHERE },
  );
  const packets = firsts(await capture.stop());
  const requests = packets.filter((p) => p.opcode !== ACK);
  expect(requests.map((p) => p.source)).toEqual([link.host, link.peer]);
  // Theirs and ours agree to the byte, but for queue pair, PSN and MigReq.
  expect(requests[0].payload.length).toBe(requests[1].payload.length);
  expect(packets.filter((p) => p.opcode === ACK).map((p) => p.payload[12] >> 5)).toEqual([0, 0]);
});

test('READ both ways', async () => {
  await using link = await LinkUp.make(guest, { ours: NO_PROBES });
  const { agent, cq, qp, theirQp } = link;
  capture = await WireCapture.start(address);
  qp.postSend({ wrId: 1, opcode: 'RDMA_READ', remote: NOWHERE, signaled: true });
  expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS', opcode: 'RDMA_READ', byteLen: 0 });
  const remote = { remote_addr: NOWHERE.addr, rkey: NOWHERE.rkey };
  await agent.call('post_send', { qp: theirQp, wr_id: 2, opcode: 'RDMA_READ', ...remote });
  expect(await agent.poll()).toMatchObject([{ wrId: 2, status: 0, opcode: 'RDMA_READ' }]);
  // READ request, READ response ONLY; twice.
  expect(firsts(await capture.stop()).map((p) => [p.source, p.opcode])).toEqual([
    [link.host, 0x0c],
    [link.peer, 0x10],
    [link.peer, 0x0c],
    [link.host, 0x10],
  ]);
});

test('a receive without memory takes a message of zero bytes, and no other', async () => {
  await using link = await LinkUp.make(guest);
  const { agent, cq, qp, theirQp } = link;
  const theirs = await agent.mr({ size: 64, access: 'LOCAL_WRITE' });
  qp.postRecv([{ wrId: 1 }, { wrId: 2 }]);
  await agent.call('post_send', { qp: theirQp, opcode: 'SEND' });
  expect(await agent.poll()).toMatchObject([{ status: 0 }]);
  expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS', byteLen: 0 });
  await agent.call('post_send', { qp: theirQp, opcode: 'SEND', sge: `${theirs.mr}:0:1` });
  expect(await agent.poll()).toMatchObject([{ statusName: 'remote invalid request error' }]);
  expect(await cq.next()).toMatchObject({ wrId: 2n, status: 'LOC_LEN_ERR' });
});
