/** Volume, an ordinary user, memory that changes under the peer's READs, and the engine in a worker. */
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { openDevice } from '@node-roce/verbs-api';
import { expect, inject, test } from 'vitest';
import { VerbsAgent } from './harness/agent.ts';
import { fill, LinkUp, sha256 } from './harness/connect.ts';
import { difference, Guest } from './harness/guest.ts';
import { UserProgram } from './harness/user.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const MIB = 1 << 20;
const ALL = 'LOCAL_WRITE,REMOTE_WRITE,REMOTE_READ';

interface Report {
  uid: number;
  capabilities: string;
  receiveBuffer: number;
  sha256: string;
  counters: Record<string, number>;
  kernelDrops: number;
}

test('64 MiB of rxe WRITEs to us and of our READs from rxe, as an ordinary user with the default buffer', {
  timeout: 600_000,
}, async () => {
  const agent = await VerbsAgent.start(guest);
  const theirs = await agent.mr({ size: 64 * MIB, access: ALL, seed: 99, guard: 4096 });
  const wanted = await agent.sha256(theirs.mr);
  const made = await agent.call<{ qp: number; qpn: number }>('qp', { max_send_wr: 64 });

  const user = new UserProgram('test/interop/harness/ordinary-user.mjs');
  user.send({ host: address.hostIp4, size: 64 * MIB });
  const ours = (await user.next()) as { qpNum: number; psn: number; addr: string; rkey: number };
  await agent.call('modify_qp', {
    qp: made.qp,
    state: 'INIT',
    pkey_index: 0,
    port: 1,
    access: 'REMOTE_READ,REMOTE_WRITE',
  });
  await agent.call('modify_qp', {
    qp: made.qp,
    state: 'RTR',
    path_mtu: 4096,
    dest_qpn: ours.qpNum,
    rq_psn: ours.psn,
    max_dest_rd_atomic: 16,
    min_rnr_timer: 12,
    dgid: `00000000000000000000ffff${address.hostIp4
      .split('.')
      .map((n) => Number(n).toString(16).padStart(2, '0'))
      .join('')}`,
  });
  await agent.call('modify_qp', {
    qp: made.qp,
    state: 'RTS',
    sq_psn: 5,
    timeout: 14,
    retry_cnt: 7,
    rnr_retry: 7,
    max_rd_atomic: 16,
  });
  user.send({ qpNum: made.qpn, psn: 5, gid: address.ip4, addr: theirs.address, rkey: theirs.rkey });
  expect(await user.next()).toEqual({ connected: true });

  const before = await guest.counters();
  let start = performance.now();
  for (let i = 0; i < 64; i++) {
    await agent.call('post_send', {
      qp: made.qp,
      opcode: 'RDMA_WRITE',
      wr_id: i,
      sge: `${theirs.mr}:${i * MIB}:${MIB}`,
      remote_addr: BigInt(ours.addr) + BigInt(i * MIB),
      rkey: ours.rkey,
    });
  }
  const statuses = await agent.poll(64, 240_000);
  expect(statuses.map((wc) => wc.status)).toEqual(Array(64).fill(0));
  const writeSeconds = (performance.now() - start) / 1000;
  user.send({ report: true });
  const written = (await user.next()) as unknown as Report;
  expect(written.uid).toBe(65534);
  expect(written.capabilities).toBe('0000000000000000');
  expect(written.sha256).toBe(wanted);
  const theirRetries = difference(before, await guest.counters());
  console.log(
    `64 MiB of WRITEs from rxe in ${writeSeconds.toFixed(1)} s; receive buffer ${written.receiveBuffer} bytes;`,
    {
      kernelDrops: written.kernelDrops,
      outOfSeqRequest: written.counters.outOfSeqRequest,
      duplicateRequest: written.counters.duplicateRequest,
      rxe: theirRetries,
    },
  );

  start = performance.now();
  user.send({ read: true });
  const read = (await user.next()) as unknown as Report;
  expect(read.sha256).toBe(wanted);
  console.log(`64 MiB of READs from rxe in ${((performance.now() - start) / 1000).toFixed(1)} s;`, {
    kernelDrops: read.kernelDrops - written.kernelDrops,
    retransmittedPackets: read.counters.retransmittedPackets,
    impliedNakSeqErr: read.counters.impliedNakSeqErr,
    timeouts: read.counters.timeouts,
    probes: read.counters.probes,
  });
  user.send({ end: true });
  expect(await user.done).toBe(0);
  agent.close();
});

test('a worker increments every word of a shared region while rxe READs it for 10 s: nothing is sent twice', async () => {
  // rxe never asks again with timeout 0: one response with a wrong ICRC, and the READs stand still.
  await using link = await LinkUp.make(guest, { theirs: { timeout: 0 } });
  const { agent, pd, theirQp } = link;
  const shared = new SharedArrayBuffer(4096);
  const mr = await pd.registerMr(shared, { access: { remoteRead: true } });
  const worker = new Worker(
    `const { workerData } = require('node:worker_threads');
     const words = new Int32Array(workerData);
     for (let n = 0; ; n++) for (let i = 0; i < words.length; i++) Atomics.add(words, i, 1);`,
    { eval: true, workerData: shared },
  );
  await new Promise((resolve) => worker.once('online', resolve));
  const theirs = await agent.mr({ size: 4096, access: 'LOCAL_WRITE' });
  const before = await guest.counters();
  // One at a time: the READ that finds its response's ICRC wrong would have to be repeated.
  const result = await agent.call<{ completed: number; status: number }>('repeat', {
    qp: theirQp,
    opcode: 'RDMA_READ',
    seconds: 10,
    sge: `${theirs.mr}:0:4096`,
    remote_addr: mr.addr,
    rkey: mr.rkey,
  });
  await worker.terminate();
  expect(result.status).toBe(0);
  expect(result.completed).toBeGreaterThan(100); // Thousands, but on a machine that is overloaded.
  const { duplicateRequest, retransmittedPackets } = await link.device.counters();
  expect({ duplicateRequest, retransmittedPackets }).toEqual({
    duplicateRequest: 0,
    retransmittedPackets: 0,
  });
  expect(difference(before, await guest.counters()).completer_retry_err ?? 0).toBe(0);
  console.log(`${result.completed} READs of changing memory`);
});

// A worker that gets no core for as long as its socket's buffer lasts loses packets there: then once more.
test('the engine in a worker, through the same API: SEND, WRITE, READ with rxe', { retry: 2 }, async () => {
  // An ACK timeout of a second on both sides: so a retransmission shows a fault, not a busy core.
  const patient = { connect: { timeout: 18 }, theirs: { timeout: 18 } };
  await using link = await LinkUp.make(guest, { open: { engine: 'worker' }, ...patient });
  const { agent, pd, cq, qp, theirQp } = link;
  const size = 300_001;
  const ours = new Uint8Array(new SharedArrayBuffer(size));
  const into = new Uint8Array(new SharedArrayBuffer(size));
  fill(ours, 7);
  const access = { remoteRead: true, remoteWrite: true };
  const [mr, intoMr] = [await pd.registerMr(ours, { access }), await pd.registerMr(into, { access })];
  const theirs = await agent.mr({ size, access: ALL });
  await agent.call('post_recv', { qp: theirQp, wr_id: 1, sge: `${theirs.mr}:0:${size}` });
  const digest = sha256(ours);
  qp.postSend({ wrId: 1, opcode: 'SEND', signaled: true, sgList: [{ mr }] });
  expect((await cq.next()).status).toBe('SUCCESS');
  expect(await agent.poll()).toMatchObject([{ status: 0, byteLen: size }]);
  expect(await agent.sha256(theirs.mr)).toBe(digest);
  const remote = { addr: theirs.address, rkey: theirs.rkey };
  qp.postSend({ wrId: 2, opcode: 'RDMA_READ', signaled: true, sgList: [{ mr: intoMr }], remote });
  expect((await cq.next()).status).toBe('SUCCESS');
  expect(sha256(into)).toBe(digest);
  into.fill(0);
  await agent.call('post_send', {
    qp: theirQp,
    opcode: 'RDMA_WRITE',
    wr_id: 3,
    sge: `${theirs.mr}:0:${size}`,
    remote_addr: intoMr.addr,
    rkey: intoMr.rkey,
  });
  expect(await agent.poll()).toMatchObject([{ wrId: 3, status: 0 }]);
  expect(sha256(into)).toBe(digest);
  // An answer that is late on a busy machine is asked for by a probe, one packet that is no retry.
  const { retransmittedPackets, probes, timeouts } = await link.device.counters();
  expect({ resent: retransmittedPackets - probes, timeouts }).toEqual({ resent: 0, timeouts: 0 });
});

test('the port is taken: the error names its owner', async () => {
  await using _first = await openDevice({ address: address.hostIp4 });
  await expect(openDevice({ address: address.hostIp4 })).rejects.toMatchObject({
    errno: 'EADDRINUSE',
    message: expect.stringContaining('this process has it'),
  });
});

test('path MTU above the interface’s is refused, with what would do', async () => {
  const small = new Guest(inject('guest1500'));
  await expect(LinkUp.make(small, { mtu: 4096 })).rejects.toMatchObject({
    attribute: 'pathMtu',
    errno: 'EINVAL',
  });
  await using link = await LinkUp.make(small, { mtu: 1024 });
  expect(link.device.query().activeMtu).toBe(1024);
  expect(readFileSync(`/sys/class/net/${small.address.bridge}/mtu`, 'utf8').trim()).toBe('1500');
});
