/** Extended completion queues: ibv_create_cq_ex(3). */
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { expect, test } from 'vitest';
import { turns } from '../../verbs-api/testing/clock.ts';
import { connect, good, openSide, QKEY, type Side } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL, ENOENT, EOPNOTSUPP } = constants.errno;

const createEx = async (side: Side, more: Partial<v.ibv_cq_init_attr_ex> = {}) =>
  v.ibv_create_cq_ex(side.context, { cqe: 16, wc_flags: v.IBV_WC_STANDARD_FLAGS, ...more });

async function openLoop(type: number, more: Partial<v.ibv_cq_init_attr_ex> = {}) {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  const cq = good(await createEx(side, more));
  const cap = { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 32 };
  const qp = good(
    await v.ibv_create_qp(side.pd, { send_cq: side.cq, recv_cq: v.ibv_cq_ex_to_cq(cq), cap, qp_type: type }),
  );
  await connect(qp, side.gid, qp.qp_num);
  const receive = (wr_id: number) =>
    v.ibv_post_recv(qp, { wr_id, sg_list: [{ addr: side.buffer, length: 256, lkey: side.mr.lkey }] });
  return { side, cq, qp, receive };
}

/** Starts a poll once there is something. */
async function start(cq: v.ibv_cq_ex) {
  for (let turn = 0; turn < 1000; turn++) {
    const code = v.ibv_start_poll(cq);
    if (code !== ENOENT) return code;
    await new Promise((resolve) => setImmediate(resolve));
  }
  return ENOENT;
}

test('completions are looked at one by one, and then there are no more', async () => {
  const { side, cq, qp, receive } = await openLoop(v.IBV_QPT_UD);
  for (let i = 0; i < 2; i++) receive(10 + i);
  const ah = good(
    await v.ibv_create_ah(side.pd, { is_global: 1, port_num: 1, grh: { dgid: side.gid, hop_limit: 1 } }),
  );
  const ud = { ah, remote_qpn: qp.qp_num, remote_qkey: QKEY };
  const send = (opcode: number, imm_data: number, length: number) =>
    v.ibv_post_send(qp, {
      opcode,
      imm_data,
      send_flags: v.IBV_SEND_INLINE,
      sg_list: [{ addr: new Uint8Array(length), length }],
      wr: { ud },
    });
  send(v.IBV_WR_SEND, 0, 5);
  send(v.IBV_WR_SEND_WITH_IMM, 0x1234, 7);
  await turns();
  const read = () => ({
    wr_id: cq.wr_id,
    status: cq.status,
    opcode: v.ibv_wc_read_opcode(cq),
    byte_len: v.ibv_wc_read_byte_len(cq),
    imm: v.ibv_wc_read_imm_data(cq),
    qp_num: v.ibv_wc_read_qp_num(cq),
    src_qp: v.ibv_wc_read_src_qp(cq),
    flags: v.ibv_wc_read_wc_flags(cq),
    rest: [
      v.ibv_wc_read_vendor_err(cq),
      v.ibv_wc_read_slid(cq),
      v.ibv_wc_read_sl(cq),
      v.ibv_wc_read_dlid_path_bits(cq),
    ],
  });
  const common = {
    status: v.IBV_WC_SUCCESS,
    opcode: v.IBV_WC_RECV,
    qp_num: qp.qp_num,
    src_qp: qp.qp_num,
    rest: [0, 0, 0, 0],
  };
  expect(await start(cq)).toBe(0);
  expect(read()).toEqual({ ...common, wr_id: 10n, byte_len: 45, imm: 0, flags: v.IBV_WC_GRH });
  expect(v.ibv_next_poll(cq)).toBe(0);
  const flags = v.IBV_WC_GRH | v.IBV_WC_WITH_IMM;
  expect(read()).toEqual({ ...common, wr_id: 11n, byte_len: 47, imm: 0x1234, flags });
  expect(v.ibv_next_poll(cq)).toBe(ENOENT);
  v.ibv_end_poll(cq);
  expect(v.ibv_start_poll(cq)).toBe(ENOENT);
  // Nothing was started, so nothing has to be ended.
  receive(12);
  send(v.IBV_WR_SEND, 0, 1);
  expect(await start(cq)).toBe(0);
  expect(cq.wr_id).toBe(12n);
  v.ibv_end_poll(cq);
});

test('polls begin and end in turn', async () => {
  const { cq, qp, receive } = await openLoop(v.IBV_QPT_RC);
  expect(v.ibv_next_poll(cq)).toBe(EINVAL);
  for (let i = 0; i < 2; i++) receive(i);
  expect(await v.ibv_modify_qp(qp, { qp_state: v.IBV_QPS_ERR }, v.IBV_QP_STATE)).toBe(0);
  expect(await start(cq)).toBe(0);
  expect(cq.status).toBe(v.IBV_WC_WR_FLUSH_ERR);
  expect(v.ibv_start_poll(cq)).toBe(EINVAL);
  expect(v.ibv_next_poll(cq)).toBe(0);
  v.ibv_end_poll(cq);
  expect(v.ibv_start_poll(cq, { comp_mask: 1 })).toBe(EINVAL);
});

test('it is a completion queue: events, resizing, polling as usual', async () => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  const cq = good(await createEx(side, { channel: side.channel, cq_context: 'mine' }));
  expect(cq.cq_context).toBe('mine');
  expect(v.ibv_req_notify_cq(cq, 0)).toBe(0);
  expect(await v.ibv_resize_cq(cq, 100)).toBe(0);
  expect(cq.cqe).toBeGreaterThanOrEqual(100);
  expect(v.ibv_poll_cq(cq, 1, [])).toBe(0);
  expect(await v.ibv_destroy_cq(cq)).toBe(0);
});

test.each([
  [{ wc_flags: v.IBV_WC_EX_WITH_CVLAN }, EOPNOTSUPP, 'wc_flags'],
  [{ wc_flags: v.IBV_WC_EX_WITH_FLOW_TAG }, EOPNOTSUPP, 'wc_flags'],
  [{ comp_mask: v.IBV_CQ_INIT_ATTR_MASK_PD }, EINVAL, 'parent_domain'],
  [{ comp_mask: 1 << 5 }, EOPNOTSUPP, 'comp_mask'],
  [
    { comp_mask: v.IBV_CQ_INIT_ATTR_MASK_FLAGS, flags: v.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN },
    EOPNOTSUPP,
    'flags',
  ],
  [{ comp_vector: 1 }, EINVAL, 'comp_vector'],
  [{ cqe: 0 }, EINVAL, 'cqe'],
])('%j is refused', async (change, code, attribute) => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  expect(await createEx(side, change)).toBeNull();
  expect([v.errno, v.lastError()?.attribute]).toEqual([code, attribute]);
});

test('completion timestamps are of the clock that ibv_query_rt_values_ex reads, and of the wall clock', async () => {
  const wc_flags = v.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | v.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  const { side, cq, qp, receive } = await openLoop(v.IBV_QPT_RC, { wc_flags });
  const clock = async () => {
    const values: v.ibv_values_ex = { comp_mask: v.IBV_VALUES_MASK_RAW_CLOCK };
    expect(await v.ibv_query_rt_values_ex(side.context, values)).toBe(0);
    const { tv_sec, tv_nsec } = values.raw_clock!;
    return BigInt(tv_sec) * 1_000_000_000n + BigInt(tv_nsec);
  };
  receive(1);
  const before = await clock();
  expect(await v.ibv_modify_qp(qp, { qp_state: v.IBV_QPS_ERR }, v.IBV_QP_STATE)).toBe(0);
  expect(await start(cq)).toBe(0);
  const timestamp = v.ibv_wc_read_completion_ts(cq);
  expect(timestamp).toBeGreaterThan(before - 1_000_000n);
  expect(timestamp).toBeLessThan((await clock()) + 1_000_000n);
  const elapsed = Date.now() - Number(v.ibv_wc_read_completion_wallclock_ns(cq) / 1_000_000n);
  expect(elapsed).toBeGreaterThan(-5);
  expect(elapsed).toBeLessThan(Number(((await clock()) - timestamp) / 1_000_000n) + 5);
  v.ibv_end_poll(cq);
});

test('ibv_query_rt_values_ex refuses values that it does not know', async () => {
  const { context } = await openSide(new MemoryNetwork(), '10.0.0.1');
  expect(await v.ibv_query_rt_values_ex(context, { comp_mask: 2 })).toBe(EINVAL);
  expect(v.lastError()?.attribute).toBe('values.comp_mask');
  const values = { comp_mask: 0 };
  expect(await v.ibv_query_rt_values_ex(context, values)).toBe(0);
  expect(values).toEqual({ comp_mask: 0 });
});

test('one thread is what there is', async () => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  const flags = v.IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  expect(await createEx(side, { comp_mask: v.IBV_CQ_INIT_ATTR_MASK_FLAGS, flags })).not.toBeNull();
});
