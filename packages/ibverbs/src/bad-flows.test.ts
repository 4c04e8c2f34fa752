/** Failures, after the bad flows that rdma-core's own tests go through: the code or status that each ends with. */
import { constants } from 'node:os';
import { describe, expect, test } from 'vitest';
import { completions, good, openPair } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL, ENOMEM } = constants.errno;
type PairOfSides = Awaited<ReturnType<typeof openPair>>;

/** The status of one request of A. */
async function statusOf({ a, qpA }: PairOfSides, wr: v.ibv_send_wr): Promise<string> {
  expect(v.ibv_post_send(qpA, { ...wr, send_flags: v.IBV_SEND_SIGNALED })).toBe(0);
  return v.ibv_wc_status_str((await completions(a.cq, 1))[0].status);
}

const write = ({ a, b }: PairOfSides, rkey: number): v.ibv_send_wr => ({
  opcode: v.IBV_WR_RDMA_WRITE,
  sg_list: [{ addr: a.buffer, length: 8, lkey: a.mr.lkey }],
  wr: { rdma: { remote_addr: b.mr.addr, rkey } },
});

describe('atomics', () => {
  const atomic = (pair: PairOfSides, change: { lkey?: number; rkey?: number; at?: bigint } = {}) => ({
    opcode: v.IBV_WR_ATOMIC_FETCH_AND_ADD,
    sg_list: [{ addr: pair.a.buffer, length: 8, lkey: change.lkey ?? pair.a.mr.lkey }],
    wr: {
      atomic: {
        remote_addr: pair.b.mr.addr + (change.at ?? 0n),
        rkey: change.rkey ?? pair.b.mr.rkey,
        compare_add: 1n,
      },
    },
  });
  const words = (pair: PairOfSides) => new DataView(pair.b.buffer.buffer).getBigUint64(0, true);

  test('with good keys, address and rights succeed', async () => {
    const pair = await openPair(v.IBV_QPT_RC);
    expect(await statusOf(pair, atomic(pair))).toBe('success');
    expect(words(pair)).toBe(1n);
  });

  test.each([
    ['lkey', { lkey: 5 }, 'local protection error'],
    ['rkey', { rkey: 5 }, 'remote access error'],
    ['address that is not aligned', { at: 4n }, 'remote invalid request error'],
  ])('a wrong %s', async (_what, change, status) => {
    const pair = await openPair(v.IBV_QPT_RC);
    expect(await statusOf(pair, atomic(pair, change))).toBe(status);
    expect(pair.qpA.state).toBe(v.IBV_QPS_ERR);
    expect(words(pair)).toBe(0n);
  });

  test('a queue pair without the right', async () => {
    const pair = await openPair(v.IBV_QPT_RC);
    const attr = { qp_access_flags: v.IBV_ACCESS_REMOTE_WRITE };
    expect(await v.ibv_modify_qp(pair.qpB, attr, v.IBV_QP_ACCESS_FLAGS)).toBe(0);
    expect(await statusOf(pair, atomic(pair))).toBe('remote invalid request error');
    expect(words(pair)).toBe(0n);
  });

  test('a region without the right', async () => {
    const pair = await openPair(v.IBV_QPT_RC);
    const access = v.IBV_ACCESS_LOCAL_WRITE | v.IBV_ACCESS_REMOTE_WRITE;
    const { b } = pair;
    expect(await v.ibv_rereg_mr(b.mr, v.IBV_REREG_MR_CHANGE_ACCESS, null, null, 0, access)).toBe(0);
    expect(await statusOf(pair, atomic(pair))).toBe('remote access error');
    expect(words(pair)).toBe(0n);
  });
});

describe('memory windows of type 2', () => {
  async function bound() {
    const pair = await openPair(v.IBV_QPT_RC);
    const { b, qpB } = pair;
    const mw = good(await v.ibv_alloc_mw(b.pd, v.IBV_MW_TYPE_2));
    const rkey = v.ibv_inc_rkey(mw.rkey);
    const bind_info = {
      mr: b.mr,
      addr: b.mr.addr,
      length: 64,
      mw_access_flags: v.IBV_ACCESS_REMOTE_WRITE,
    };
    const send_flags = v.IBV_SEND_SIGNALED;
    v.ibv_post_send(qpB, { opcode: v.IBV_WR_BIND_MW, send_flags, bind_mw: { mw, rkey, bind_info } });
    await completions(b.cq, 1);
    expect(await statusOf(pair, write(pair, rkey))).toBe('success');
    return { ...pair, pair, mw, rkey };
  }

  test('invalidated by its owner', async () => {
    const { pair, b, qpB, rkey } = await bound();
    const send_flags = v.IBV_SEND_SIGNALED;
    v.ibv_post_send(qpB, { opcode: v.IBV_WR_LOCAL_INV, send_flags, invalidate_rkey: rkey });
    expect((await completions(b.cq, 1))[0].status).toBe(v.IBV_WC_SUCCESS);
    expect(await statusOf(pair, write(pair, rkey))).toBe('remote access error');
  });

  test('invalidated by the peer', async () => {
    const { pair, qpB, rkey } = await bound();
    v.ibv_post_recv(qpB, {});
    expect(await statusOf(pair, { opcode: v.IBV_WR_SEND_WITH_INV, invalidate_rkey: rkey })).toBe('success');
    expect(await statusOf(pair, write(pair, rkey))).toBe('remote access error');
  });

  test('deallocated', async () => {
    const { pair, mw, rkey } = await bound();
    expect(await v.ibv_dealloc_mw(mw)).toBe(0);
    expect(await statusOf(pair, write(pair, rkey))).toBe('remote access error');
  });
});

describe('receives', () => {
  test('a full queue, and a list with more elements than it takes', async () => {
    const { b, qpB } = await openPair(v.IBV_QPT_RC);
    const sge = { addr: b.buffer, length: 8, lkey: b.mr.lkey };
    const init: Partial<v.ibv_qp_init_attr> = {};
    await v.ibv_query_qp(qpB, {}, v.IBV_QP_CAP, init);
    const { max_recv_wr = 0, max_recv_sge = 0 } = init.cap!;
    const bad: (v.ibv_recv_wr | null)[] = [];
    const large = { sg_list: Array(max_recv_sge + 1).fill(sge) };
    expect(v.ibv_post_recv(qpB, large, bad)).toBe(EINVAL);
    expect(bad[0]).toBe(large);
    for (let i = 0; i < max_recv_wr; i++) expect(v.ibv_post_recv(qpB, { sg_list: [sge] })).toBe(0);
    expect(v.ibv_post_recv(qpB, { sg_list: [sge] })).toBe(ENOMEM);
  });

  test('too small for the message, and none at all', async () => {
    const pair = await openPair(v.IBV_QPT_RC);
    const { a, b, qpA, qpB } = pair;
    v.ibv_post_recv(qpB, { sg_list: [{ addr: b.buffer, length: 4, lkey: b.mr.lkey }] });
    const send = { opcode: v.IBV_WR_SEND, sg_list: [{ addr: a.buffer, length: 8, lkey: a.mr.lkey }] };
    expect(await statusOf(pair, send)).toBe('remote invalid request error');
    expect((await completions(b.cq, 1))[0].status).toBe(v.IBV_WC_LOC_LEN_ERR);

    const other = await openPair(v.IBV_QPT_RC);
    const sqd = { qp_state: v.IBV_QPS_SQD, rnr_retry: 1, min_rnr_timer: 1 };
    expect(await v.ibv_modify_qp(other.qpA, sqd, v.IBV_QP_STATE)).toBe(0);
    expect(await v.ibv_modify_qp(other.qpA, { rnr_retry: 1 }, v.IBV_QP_RNR_RETRY)).toBe(0);
    expect(await v.ibv_modify_qp(other.qpB, { min_rnr_timer: 1 }, v.IBV_QP_MIN_RNR_TIMER)).toBe(0);
    expect(await v.ibv_modify_qp(other.qpA, { qp_state: v.IBV_QPS_RTS }, v.IBV_QP_STATE)).toBe(0);
    expect(await statusOf(other, { opcode: v.IBV_WR_SEND })).toBe('RNR retry counter exceeded');
    expect(qpA.state).toBe(v.IBV_QPS_ERR);
  });
});

test('requests that are posted when the error comes are flushed, in order, on both queues', async () => {
  const pair = await openPair(v.IBV_QPT_RC);
  const { a, qpA } = pair;
  for (const wr_id of [1, 2]) v.ibv_post_recv(qpA, { wr_id });
  const bad = { ...write(pair, 5), wr_id: 3, next: { ...write(pair, pair.b.mr.rkey), wr_id: 4 } };
  expect(v.ibv_post_send(qpA, bad)).toBe(0);
  const found = (await completions(a.cq, 4)).map((wc) => [wc.wr_id, wc.status] as const);
  const sends = found.filter(([id]) => id > 2n);
  const receives = found.filter(([id]) => id < 3n);
  expect(sends).toEqual([
    [3n, v.IBV_WC_REM_ACCESS_ERR],
    [4n, v.IBV_WC_WR_FLUSH_ERR],
  ]);
  expect(receives).toEqual([
    [1n, v.IBV_WC_WR_FLUSH_ERR],
    [2n, v.IBV_WC_WR_FLUSH_ERR],
  ]);
});
