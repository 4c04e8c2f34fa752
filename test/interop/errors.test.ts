/** Failures, and the reports of both sides. Where rxe deviates from the specification: docs/quirks.md. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { SendWr } from '@node-roce/verbs-api';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { LinkUp } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import { onRelease } from './harness/release.ts';
import { WireCapture, type WirePacket } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const ACK = 0x11;
const FLUSHED = 5;
/** Of tests that count packets: rxe under emulation may answer later than a probe waits. */
const NO_PROBES = { probes: false };

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

const naks = (packets: WirePacket[]) =>
  packets
    .filter((p) => p.opcode === ACK && p.payload[12] >> 5 !== 0)
    .map((p) => ({ source: p.source, syndrome: p.payload[12], psn: p.psn }));

interface Bad {
  what: string;
  access: string;
  /** Changes to a good WRITE or READ of 100 bytes. */
  opcode: 'RDMA_WRITE' | 'RDMA_READ';
  offset?: number;
  keyXor?: number;
}

const bad: Bad[] = [
  { what: 'WRITE with a bad rkey', opcode: 'RDMA_WRITE', access: 'rw', keyXor: 0x00ff_ff00 },
  { what: 'READ with a bad rkey', opcode: 'RDMA_READ', access: 'rw', keyXor: 0x00ff_ff00 },
  { what: 'WRITE out of bounds', opcode: 'RDMA_WRITE', access: 'rw', offset: 4096 - 99 },
  { what: 'READ out of bounds', opcode: 'RDMA_READ', access: 'rw', offset: 4096 - 99 },
  { what: 'WRITE without permission', opcode: 'RDMA_WRITE', access: 'r' },
  { what: 'READ without permission', opcode: 'RDMA_READ', access: 'w' },
];

describe.each(bad)('$what', ({ opcode, access, offset = 0, keyXor = 0 }) => {
  test('ours to rxe: REM_ACCESS_ERR here, flush, both queue pairs in ERR', async () => {
    await using link = await LinkUp.make(guest);
    const { agent, qp, cq, theirQp } = link;
    const flags = [
      'LOCAL_WRITE',
      access.includes('r') ? 'REMOTE_READ' : '',
      access.includes('w') ? 'REMOTE_WRITE' : '',
    ];
    const theirs = await agent.mr({ size: 4096, access: flags.filter(Boolean).join(','), seed: 1 });
    const before = await agent.sha256(theirs.mr);
    await agent.call('post_recv', { qp: theirQp, wr_id: 77 });
    const ours = await link.memory(4096, { seed: 2 });
    const remote = { addr: theirs.address + BigInt(offset), rkey: (theirs.rkey ^ keyXor) >>> 0 };
    capture = await WireCapture.start(address);
    const good: SendWr = { opcode: 'SEND', sgList: [{ mr: ours.mr, length: 4 }] };
    qp.postSend([
      { wrId: 1, opcode, sgList: [{ mr: ours.mr, length: 100 }], remote, signaled: true },
      { wrId: 2, ...good },
    ]);
    expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'REM_ACCESS_ERR' });
    expect(await cq.next()).toMatchObject({ wrId: 2n, status: 'WR_FLUSH_ERR' });
    expect((await qp.query()).attr.qpState).toBe('ERR');
    expect(await agent.poll()).toMatchObject([{ wrId: 77, status: FLUSHED }]);
    expect(await agent.call('query_qp', { qp: theirQp })).toMatchObject({ state: 'ERR' });
    expect(await agent.sha256(theirs.mr)).toBe(before);
    expect(naks(await capture.stop())).toEqual([{ source: address.ip4, syndrome: 0x62, psn: qp.initialPsn }]);
  });

  test('rxe to us: NAK 0x62 at its PSN, REM_ACCESS_ERR there, flush here', async () => {
    await using link = await LinkUp.make(guest, { psn: [1, 0x777777] });
    const { agent, qp, cq, theirQp } = link;
    const all = await link.memory(8192, { seed: 3 });
    const region = await link.pd.registerMr(all.bytes.subarray(0, 4096), {
      access: { remoteRead: access.includes('r'), remoteWrite: access.includes('w') },
    });
    const digest = all.sha256;
    qp.postRecv({ wrId: 77 });
    const theirs = await agent.mr({ size: 4096, access: 'LOCAL_WRITE' });
    capture = await WireCapture.start(address);
    await agent.call('post_send', {
      qp: theirQp,
      opcode,
      wr_id: 1,
      sge: `${theirs.mr}:0:100`,
      remote_addr: region.addr + BigInt(offset),
      rkey: (region.rkey ^ keyXor) >>> 0,
    });
    expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 10 }]);
    expect(await agent.call('query_qp', { qp: theirQp })).toMatchObject({ state: 'ERR' });
    expect(await cq.next()).toMatchObject({ wrId: 77n, status: 'WR_FLUSH_ERR' });
    expect((await qp.query()).attr.qpState).toBe('ERR');
    expect(all.sha256).toBe(digest);
    expect(naks(await capture.stop())).toEqual([{ source: address.hostIp4, syndrome: 0x62, psn: 0x777777 }]);
  });
});

test('receive missing, then posted: rxe waits for the time in our RNR NAK', async () => {
  await using link = await LinkUp.make(guest, { connect: { minRnrTimer: 20 } });
  const { agent, qp, cq, theirQp } = link;
  const theirs = await agent.mr({ size: 8192, access: 'LOCAL_WRITE', seed: 5 });
  const ours = await link.memory(8192);
  capture = await WireCapture.start(address);
  await agent.call('post_send', { qp: theirQp, opcode: 'SEND', wr_id: 1, sge: `${theirs.mr}:0:8000` });
  expect(await agent.poll(1, 200)).toEqual([]);
  qp.postRecv({ wrId: 2, sgList: [{ mr: ours.mr }] });
  expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 0 }]);
  expect(await cq.next()).toMatchObject({ wrId: 2n, status: 'SUCCESS', byteLen: 8000 });
  expect(await agent.sha256(theirs.mr, 0, 8000)).toBe(
    (await import('./harness/connect.ts')).sha256(ours.bytes.subarray(0, 8000)),
  );
  const said = naks(await capture.stop());
  expect(said.length).toBeGreaterThan(0);
  expect(said.every((n) => n.syndrome === (0x20 | 20) && n.source === address.hostIp4)).toBe(true);
});

test('receive missing at rxe, then posted: we wait for the time in its RNR NAK', async () => {
  await using link = await LinkUp.make(guest, {
    theirs: { min_rnr_timer: 20 },
    ours: { recovery: NO_PROBES },
  });
  const { agent, qp, cq, theirQp } = link;
  const theirs = await agent.mr({ size: 8192, access: 'LOCAL_WRITE' });
  const ours = await link.memory(8192, { seed: 6 });
  capture = await WireCapture.start(address);
  qp.postSend({ wrId: 1, opcode: 'SEND', signaled: true, sgList: [{ mr: ours.mr, length: 8000 }] });
  await sleep(200);
  expect(cq.poll()).toEqual([]);
  await agent.call('post_recv', { qp: theirQp, wr_id: 2, sge: `${theirs.mr}:0:8192` });
  expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS' });
  expect(await agent.poll()).toMatchObject([{ wrId: 2, status: 0, byteLen: 8000 }]);
  const packets = await capture.stop();
  const rnr = packets.filter((p) => p.opcode === ACK && p.payload[12] === (0x20 | 20));
  expect(rnr.length).toBeGreaterThan(1);
  // 10.24 ms at least between an RNR NAK and the first retransmitted packet.
  for (const nak of rnr) {
    const again = packets.find((p) => p.time > nak.time && p.source === address.hostIp4 && p.psn === nak.psn);
    expect((again?.time ?? 1e12) - nak.time).toBeGreaterThan(0.0102);
  }
});

test('receive never posted at rxe: RNR_RETRY_EXC_ERR after 1 + rnr_retry sends', async () => {
  await using link = await LinkUp.make(guest, {
    connect: { rnrRetry: 3 },
    theirs: { min_rnr_timer: 20 },
    ours: { recovery: NO_PROBES },
  });
  const { qp, cq } = link;
  const ours = await link.memory(64);
  capture = await WireCapture.start(address);
  qp.postSend({ wrId: 1, opcode: 'SEND', sgList: [{ mr: ours.mr, length: 8 }] });
  expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'RNR_RETRY_EXC_ERR' });
  expect((await qp.query()).attr.qpState).toBe('ERR');
  const packets = await capture.stop();
  expect(packets.filter((p) => p.source === address.hostIp4).length).toBe(4);
});

test('receive never posted here: rxe gives up with status 13', async () => {
  await using link = await LinkUp.make(guest, { theirs: { rnr_retry: 3 } });
  const { agent, theirQp } = link;
  const theirs = await agent.mr({ size: 64, access: 'LOCAL_WRITE' });
  await agent.call('post_send', { qp: theirQp, opcode: 'SEND', wr_id: 1, sge: `${theirs.mr}:0:8` });
  expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 13 }]);
});

test('a message longer than rxe’s receive: REM_OP_ERR here (a quirk), LOC_QP_OP_ERR there', async () => {
  await using link = await LinkUp.make(guest);
  const { agent, qp, cq, theirQp } = link;
  const theirs = await agent.mr({ size: 4096, access: 'LOCAL_WRITE' });
  await agent.call('post_recv', { qp: theirQp, wr_id: 3, sge: `${theirs.mr}:0:100` });
  const ours = await link.memory(4096);
  qp.postSend({ wrId: 1, opcode: 'SEND', sgList: [{ mr: ours.mr, length: 101 }] });
  expect((await cq.next()).status).toBe('REM_OP_ERR');
  expect(await agent.poll()).toMatchObject([{ wrId: 3, status: 2 }]);
});

test('a message longer than our receive: NAK 0x61 as the specification has it, LOC_LEN_ERR here', async () => {
  await using link = await LinkUp.make(guest);
  const { agent, qp, cq, theirQp } = link;
  const theirs = await agent.mr({ size: 4096, access: 'LOCAL_WRITE' });
  const ours = await link.memory(100);
  qp.postRecv({ wrId: 3, sgList: [{ mr: ours.mr }] });
  capture = await WireCapture.start(address);
  await agent.call('post_send', { qp: theirQp, opcode: 'SEND', wr_id: 1, sge: `${theirs.mr}:0:101` });
  expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 9 }]);
  expect((await cq.next()).status).toBe('LOC_LEN_ERR');
  expect(ours.guardsIntact).toBe(true);
  expect(naks(await capture.stop()).map((n) => n.syndrome)).toEqual([0x61]);
});

test('peer gone: RETRY_EXC_ERR after 1 + retry_cnt sends and (retry_cnt + 1) · 2 · T', async () => {
  await using link = await LinkUp.make(guest, {
    connect: { timeout: 14, retryCnt: 3 },
    ours: { recovery: NO_PROBES },
  });
  const { agent, qp, cq, theirQp } = link;
  await agent.call('destroy_qp', { qp: theirQp });
  const ours = await link.memory(64);
  const theirKey = { addr: 0x1000n, rkey: 1 };
  capture = await WireCapture.start(address);
  const start = performance.now();
  qp.postSend({ wrId: 1, opcode: 'RDMA_WRITE', sgList: [{ mr: ours.mr, length: 8 }], remote: theirKey });
  expect((await cq.next()).status).toBe('RETRY_EXC_ERR');
  const took = performance.now() - start;
  expect(took).toBeGreaterThan(4 * 2 * 67.1);
  expect((await qp.query()).attr.qpState).toBe('ERR');
  expect((await capture.stop()).filter((p) => p.source === address.hostIp4).length).toBe(4);
});

test('we are gone: rxe gives up with status 12', async () => {
  await using link = await LinkUp.make(guest, { theirs: { retry_cnt: 2, timeout: 12 } });
  const { agent, qp, theirQp } = link;
  await qp.close();
  const theirs = await agent.mr({ size: 64, access: 'LOCAL_WRITE' });
  await agent.call('post_send', { qp: theirQp, opcode: 'SEND', wr_id: 1, sge: `${theirs.mr}:0:8` });
  expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 12 }]);
});

test('an ATOMIC_WRITE to rxe: Linux 6.1 answers nothing, 6.12 does it', async () => {
  await using link = await LinkUp.make(guest, { connect: { retryCnt: 2 } });
  const ours = await link.memory(64);
  const theirs = await link.agent.mr({ size: 64, access: 'LOCAL_WRITE,REMOTE_WRITE' });
  const remote = { addr: theirs.address, rkey: theirs.rkey };
  link.qp.postSend({
    wrId: 1,
    opcode: 'ATOMIC_WRITE',
    sgList: [{ mr: ours.mr, length: 8 }],
    remote,
    signaled: true,
  });
  const status = onRelease({ debian12: 'RETRY_EXC_ERR', debian13: 'SUCCESS' });
  expect(await link.cq.next()).toMatchObject({ wrId: 1n, status });
});
