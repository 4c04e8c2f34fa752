/**
 * Quirks of rxe that no fixture shows, each as it happens (docs/quirks.md), and where Linux 6.12 lost them. The packets to UC and UD here are made
 * by the model, one by one, and not by our requester.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Link, openUdpLink } from '@node-roce/link';
import { encodePacket, type ModelPacket } from '@node-roce/sim';
import { Fragment, RegionTable, Tx, TxBatch } from '@node-roce/transport';
import { gidFromText, Opcode, type OpcodeName } from '@node-roce/wire';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { VerbsAgent } from './harness/agent.ts';
import { Ends, gidHex, LinkUp, QKEY } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import { onRelease } from './harness/release.ts';
import { WireCapture } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const OUR_QPN = 0x77;
const LOC_QP_OP_ERR = 2;
const FLUSHED = 5;
/** The status of a send that fails on rxe's own side: 6.12 has its completer flush it. */
const FAILED_HERE = onRelease({ debian12: LOC_QP_OP_ERR, debian13: FLUSHED });
const REM_INV_REQ_ERR = 9;

/** Sends packets as they are, from the BTH through the pad. */
class Sender {
  readonly #link: Link;
  readonly #regions = new RegionTable();
  readonly #peer: number;

  constructor(link: Link) {
    this.#link = link;
    this.#peer = link.add(gidFromText(address.ip4), 0, 64);
  }

  send(packet: ModelPacket): void {
    const bytes = encodePacket(packet);
    const header = Math.min(bytes.length, 12);
    const batch = new TxBatch(this.#regions);
    const region = this.#regions.add(bytes);
    batch.headers.set(bytes.subarray(0, header));
    const slot = { [Tx.HEADER_LENGTH]: header, [Tx.PAYLOAD_LENGTH]: bytes.length - header };
    Object.assign(batch.slots, slot, { [Tx.PEER]: this.#peer, [Tx.SOURCE_PORT]: 0xc000 });
    if (bytes.length > header) {
      batch.slots[Tx.FRAGMENT_COUNT] = 1;
      Object.assign(batch.fragments, {
        [Fragment.REGION]: region,
        [Fragment.OFFSET_LOW]: header,
        [Fragment.LENGTH]: bytes.length - header,
      });
    }
    batch.count = 1;
    expect(this.#link.send(batch, 0)).toBe(1);
    expect(batch.slots[Tx.STATUS]).toBe(0);
    this.#regions.remove(region);
  }
}

const packet = (name: OpcodeName, destQpn: number, psn: number, length: number): ModelPacket => ({
  opcode: Opcode[name],
  destQpn,
  psn,
  ackReq: false,
  solicited: false,
  pkey: 0xffff,
  payload: new Uint8Array(length).fill(psn),
  ...(name.startsWith('UD') ? { deth: { qkey: QKEY, srcQpn: OUR_QPN } } : {}),
});

describe('unreliable', () => {
  let link: Link;
  let sender: Sender;
  beforeAll(async () => {
    link = await openUdpLink({ address: address.hostIp4 });
    sender = new Sender(link);
  });
  afterAll(() => link.close());

  /** A queue pair of rxe's in RTR, with receives of so many bytes, of its own or of an SRQ's. */
  async function receiver(agent: VerbsAgent, type: 'UC' | 'UD', receives: number[], shared = false) {
    const { srq } = shared ? await agent.call<{ srq: number }>('srq', { max_wr: 16 }) : {};
    const { qp, qpn } = await agent.call<{ qp: number; qpn: number }>('qp', { type, srq });
    const key = type === 'UC' ? { access: 'REMOTE_WRITE' } : { qkey: QKEY };
    await agent.call('modify_qp', { qp, state: 'INIT', pkey_index: 0, port: 1, ...key });
    const dgid = gidHex(address.hostIp4);
    const way = { path_mtu: 1024, dest_qpn: OUR_QPN, rq_psn: 100, dgid };
    await agent.call('modify_qp', { qp, state: 'RTR', ...(type === 'UC' ? way : {}) });
    const region = await agent.mr({ size: 65_536, access: 'LOCAL_WRITE,REMOTE_WRITE' });
    for (const [wr_id, bytes] of receives.entries()) {
      const queue = srq === undefined ? { qp } : { srq };
      await agent.call('post_recv', { ...queue, wr_id, sge: `${region.mr}:${wr_id * 4096}:${bytes}` });
    }
    return { qp, qpn, region };
  }

  test('messageAfterABrokenOneIsLost', async () => {
    const agent = await VerbsAgent.start(guest);
    const { qpn } = await receiver(agent, 'UC', [4096, 4096, 4096]);
    sender.send(packet('UC_SEND_FIRST', qpn, 100, 1024));
    // 101 is lost; by the specification, 103 and 104 are messages of their own.
    sender.send(packet('UC_SEND_LAST', qpn, 102, 10));
    sender.send(packet('UC_SEND_ONLY', qpn, 103, 3));
    sender.send(packet('UC_SEND_ONLY', qpn, 104, 4));
    expect(await agent.poll(2, 1000)).toMatchObject([{ wrId: 0, status: 0, byteLen: 4 }]);
    agent.close();
  });

  test('deafAfterABrokenMessage: a WRITE', async () => {
    const agent = await VerbsAgent.start(guest);
    const { qp, qpn, region } = await receiver(agent, 'UC', [4096, 4096]);
    const reth = { va: region.address + 32_768n, rkey: region.rkey, length: 2048 };
    sender.send({ ...packet('UC_RDMA_WRITE_FIRST', qpn, 100, 1024), reth });
    // 101 is lost; what follows are whole messages.
    for (let psn = 102; psn < 110; psn++) sender.send(packet('UC_SEND_ONLY', qpn, psn, 4));
    expect(await agent.poll(1, 500)).toEqual([]);
    expect(await agent.call('query_qp', { qp })).toMatchObject({ state: 'RTR', rqPsn: 101 });
    agent.close();
  });

  test('deafAfterABrokenMessage: a SEND into an SRQ', async () => {
    const agent = await VerbsAgent.start(guest);
    const { qp, qpn } = await receiver(agent, 'UC', [4096, 4096, 4096], true);
    sender.send(packet('UC_SEND_FIRST', qpn, 100, 1024));
    for (let psn = 102; psn < 110; psn++) sender.send(packet('UC_SEND_ONLY', qpn, psn, 4));
    // The broken message's receive completes in error, as the specification has it (§9.9.3, class E).
    expect(await agent.poll(2, 500)).toMatchObject([{ wrId: 0, status: REM_INV_REQ_ERR }]);
    expect(await agent.call('query_qp', { qp })).toMatchObject({ state: 'RTR', rqPsn: 101 });
    agent.close();
  });

  test.each(['UC', 'UD'] as const)('shortReceiveIsOperationalError: %s', async (type) => {
    const agent = await VerbsAgent.start(guest);
    const { qp, qpn } = await receiver(agent, type, [41, 4096]);
    sender.send(packet(`${type}_SEND_ONLY`, qpn, 100, 42));
    // By the specification it is dropped, and the queue pair lives: so does UD of 6.12.
    if (type === 'UD' && onRelease({ debian12: false, debian13: true })) {
      sender.send(packet('UD_SEND_ONLY', qpn, 101, 1));
      expect(await agent.poll(2, 1000)).toMatchObject([{ wrId: 0, status: 0, byteLen: 41 }]);
      expect(await agent.call('query_qp', { qp })).toMatchObject({ state: 'RTR' });
      agent.close();
      return;
    }
    expect(await agent.poll(2, 1000)).toMatchObject([
      { wrId: 0, status: LOC_QP_OP_ERR },
      { wrId: 1, status: FLUSHED },
    ]);
    expect(await agent.call('query_qp', { qp })).toMatchObject({ state: 'ERR' });
    agent.close();
  });
});

test('repeatedReadForgetsItsBeginning', async () => {
  const link = await openUdpLink({ address: address.hostIp4 });
  const agent = await VerbsAgent.start(guest);
  const capture = await WireCapture.start(address);
  try {
    const sender = new Sender(link);
    const { qp, qpn } = await agent.call<{ qp: number; qpn: number }>('qp', { type: 'RC' });
    await agent.call('modify_qp', { qp, state: 'INIT', pkey_index: 0, port: 1, access: 'REMOTE_READ' });
    const way = { path_mtu: 1024, dest_qpn: OUR_QPN, rq_psn: 100, dgid: gidHex(address.hostIp4) };
    await agent.call('modify_qp', { qp, state: 'RTR', ...way, max_dest_rd_atomic: 4, min_rnr_timer: 12 });
    const { address: va, rkey } = await agent.mr({ size: 8192, access: 'LOCAL_WRITE,REMOTE_READ' });
    /** Asks for so many of eight responses from this one on. */
    const read = (first: number, responses: number) =>
      sender.send({
        ...packet('RC_RDMA_READ_REQUEST', qpn, 100 + first, 0),
        reth: { va: va + BigInt(first * 1024), rkey, length: responses * 1024 },
      });
    read(0, 8);
    read(1, 1);
    read(4, 2);
    // By the specification, each is a part of the READ and is served again; rxe serves what lies behind the last one.
    read(2, 1);
    read(0, 8);
    read(4, 4);
    read(7, 1);
    await sleep(500);
    const responses = (await capture.stop()).filter(({ source }) => source === address.ip4);
    const psns = responses.map(({ psn }) => psn - 100);
    expect(psns).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 1, 4, 5, 4, 5, 6, 7, 7]);
  } finally {
    capture.discard();
    agent.close();
    link.close();
  }
});

test('reservedOpcodeIsDropped', async () => {
  const link = await openUdpLink({ address: address.hostIp4 });
  const agent = await VerbsAgent.start(guest);
  const capture = await WireCapture.start(address);
  try {
    const sender = new Sender(link);
    const { qp, qpn } = await agent.call<{ qp: number; qpn: number }>('qp', { type: 'RC' });
    await agent.call('modify_qp', { qp, state: 'INIT', pkey_index: 0, port: 1, access: 'REMOTE_WRITE' });
    const way = { path_mtu: 1024, dest_qpn: OUR_QPN, rq_psn: 100, dgid: gidHex(address.hostIp4) };
    await agent.call('modify_qp', { qp, state: 'RTR', ...way, max_dest_rd_atomic: 4, min_rnr_timer: 12 });
    for (const opcode of [0x15, 0x18, 0x1b, 0x1e, 0x1f])
      sender.send({ ...packet('RC_SEND_ONLY', qpn, 100, 16), opcode, ackReq: true });
    // By the specification, the first of them draws NAK 0x61 and ends the connection.
    await sleep(500);
    expect((await capture.stop()).filter(({ source }) => source === address.ip4)).toEqual([]);
    expect(await agent.call('query_qp', { qp })).toMatchObject({ state: 'RTR', rqPsn: 100 });
  } finally {
    capture.discard();
    agent.close();
    link.close();
  }
});

test('windowBoundsNotChecked', async () => {
  await using link = await LinkUp.make(guest);
  const { agent, qp, cq, theirQp } = link;
  const theirs = await agent.mr({ size: 4096, access: 'LOCAL_WRITE,REMOTE_WRITE,MW_BIND', seed: 1 });
  const { mw } = await agent.call<{ mw: number }>('mw', { type: 2 });
  const range = { offset: 1024, length: 64, access: 'REMOTE_WRITE' };
  const { rkey } = await agent.call<{ rkey: number }>('bind', { mw, qp: theirQp, mr: theirs.mr, ...range });
  expect(await agent.poll()).toMatchObject([{ status: 0, opcode: 'BIND_MW' }]);
  const ours = await link.memory(4096, { seed: 2 });
  const write = (wrId: number, offset: number) =>
    qp.postSend({
      wrId,
      opcode: 'RDMA_WRITE',
      sgList: [{ mr: ours.mr, length: 64 }],
      remote: { addr: theirs.address + BigInt(offset), rkey },
      signaled: true,
    });
  const before = await agent.sha256(theirs.mr, 0, 64);
  write(1, 1024);
  expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS' });
  write(2, 0);
  expect(await cq.next()).toMatchObject({ wrId: 2n, status: 'SUCCESS' });
  expect(await agent.sha256(theirs.mr, 0, 64)).not.toBe(before);
});

test('localInvalidateIsOperationError', async () => {
  await using link = await LinkUp.make(guest);
  const { agent, theirQp } = link;
  const { mw, rkey } = await agent.call<{ mw: number; rkey: number }>('mw', { type: 1 });
  expect(mw).toBeGreaterThanOrEqual(0);
  await agent.call('post_send', { qp: theirQp, opcode: 'LOCAL_INV', wr_id: 1, invalidate_rkey: rkey });
  expect(await agent.poll()).toMatchObject([{ wrId: 1, status: FAILED_HERE }]);
});

test('failedInvalidateIsAcknowledged', async () => {
  // The answer may take longer than a probe waits.
  await using link = await LinkUp.make(guest, { ours: { recovery: { probes: false } } });
  const { agent, qp, cq, theirQp } = link;
  const { rkey } = await agent.mr({ size: 4096, access: 'LOCAL_WRITE,REMOTE_WRITE' });
  for (const wr_id of [7, 8]) await agent.call('post_recv', { qp: theirQp, wr_id });
  const capture = await WireCapture.start(address);
  // A region's key, not a window's: by the specification, NAK 0x62.
  qp.postSend({ wrId: 1, opcode: 'SEND_WITH_INV', invalidateRkey: rkey, signaled: true });
  expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS' });
  expect(await agent.poll(2)).toMatchObject([
    { wrId: 7, status: REM_INV_REQ_ERR },
    { wrId: 8, status: FLUSHED },
  ]);
  expect(await agent.call('query_qp', { qp: theirQp })).toMatchObject({ state: 'ERR' });
  const [, answer] = await capture.stop();
  expect([answer.opcode, answer.payload[12]]).toEqual([0x11, 0x1f]);
  capture.discard();
});

test('lastWqeReachedIsNotRaised', async () => {
  await using ends = await Ends.open(guest);
  const { agent } = ends;
  const { srq } = await agent.call<{ srq: number }>('srq', { max_wr: 8 });
  const { theirQp } = await ends.connect({ theirs: { srq } });
  await agent.call('modify_qp', { qp: theirQp, state: 'ERR' });
  const raised = { event: 'QP_LAST_WQE_REACHED', qp: theirQp };
  expect(await agent.call('async_event', { timeout: 1000 })).toEqual(
    onRelease<object>({ debian12: {}, debian13: raised }),
  );
});

test('topBitQkeyIsSent', async () => {
  await using ends = await Ends.open(guest);
  const { agent, cq } = ends;
  const { qp, theirQp, theirAh } = await ends.datagrams({ qkey: [0x8000_0001, 0x1234] });
  const ours = await ends.memory(100);
  qp.postRecv({ wrId: 1, sgList: [{ mr: ours.mr }] });
  // By the specification this sends 0x1234, which our queue pair would not take.
  const ud = { ah: theirAh, remote_qpn: qp.qpNum, remote_qkey: 0x8000_0001 };
  await agent.call('post_send', { qp: theirQp, opcode: 'SEND', ...ud });
  expect(await agent.poll()).toMatchObject([{ status: 0 }]);
  expect(await cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS' });
});

test.each(['UC', 'UD'] as const)('sendErrorIsFatal: %s', async (type) => {
  await using ends = await Ends.open(guest);
  const { agent } = ends;
  const { qp, theirQp } = type === 'UC' ? await ends.connect({ type }) : await ends.datagrams();
  const { ah } = await agent.call<{ ah: number }>('ah', { dgid: ends.dgid });
  const { mr } = await agent.mr({ size: 64, access: 'LOCAL_WRITE' });
  await agent.call('post_recv', { qp: theirQp, wr_id: 7 });
  const ud = type === 'UD' ? { ah, remote_qpn: qp.qpNum, remote_qkey: QKEY } : {};
  // A key that does not exist: by the specification LOC_PROT_ERR and SQE, where receives go on.
  await agent.call('post_send', { qp: theirQp, wr_id: 1, opcode: 'SEND', sge: `${mr}:0:10:0xbad00`, ...ud });
  expect(await agent.poll(2)).toMatchObject([
    { wrId: 1, status: FAILED_HERE },
    { wrId: 7, status: FLUSHED },
  ]);
  expect(await agent.call('query_qp', { qp: theirQp })).toMatchObject({ state: 'ERR' });
});

test('a datagram longer than the MTU: rxe completes it with success, and sends nothing', async () => {
  await using ends = await Ends.open(guest);
  const { agent } = ends;
  const { qp, theirQp, theirAh } = await ends.datagrams();
  const { mr } = await agent.mr({ size: 8192, access: 'LOCAL_WRITE' });
  const capture = await WireCapture.start(address);
  const ud = { ah: theirAh, remote_qpn: qp.qpNum, remote_qkey: QKEY };
  await agent.call('post_send', { qp: theirQp, wr_id: 1, opcode: 'SEND', sge: `${mr}:0:4097`, ...ud });
  expect(await agent.poll()).toMatchObject([{ wrId: 1, status: 0 }]);
  expect(await capture.stop()).toEqual([]);
  capture.discard();
});
