/** Values of other types than C's: each call answers with an errno, NULL or −1, and throws nothing but RoceErrors that it reports so. */
import { expect, test } from 'vitest';
import { good, openPair } from '../testing/pair.ts';
import * as v from './index.ts';

const WRONG: unknown[] = [
  undefined,
  null,
  Number.NaN,
  -1,
  1.5,
  2 ** 53,
  1n << 70n,
  '',
  'x',
  {},
  [],
  [null],
  true,
  { addr: null, length: 8, lkey: 1 },
  [{ addr: Number.NaN, length: 8, lkey: 1 }],
  [{ addr: 0n, length: -8, lkey: 1 }],
];
const text = (value: unknown) =>
  JSON.stringify(value, (_, x) => (typeof x === 'bigint' || Number.isNaN(x) ? String(x) : x)) ?? 'undefined';

async function setUp() {
  const { a, qpA: qp } = await openPair(v.IBV_QPT_RC);
  const { pd, cq, context, mr } = a;
  const made = good(
    await v.ibv_create_qp_ex(context, {
      qp_type: v.IBV_QPT_RC,
      comp_mask: v.IBV_QP_INIT_ATTR_PD | v.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      pd,
      send_cq: cq,
      recv_cq: cq,
      cap: { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 2, max_recv_sge: 1, max_inline_data: 64 },
      send_ops_flags: v.IBV_QP_EX_WITH_FLUSH | v.IBV_QP_EX_WITH_ATOMIC_WRITE | 0x3ff,
    }),
  );
  return { a, qp, pd, cq, context, mr, ex: v.ibv_qp_to_qp_ex(made)! };
}

test('in requests', async () => {
  const { qp, mr } = await setUp();
  const sge = { addr: 0n, length: 8, lkey: mr.lkey };
  const base = { opcode: v.IBV_WR_RDMA_WRITE, wr: { rdma: { remote_addr: 0n, rkey: 1 } }, sg_list: [sge] };
  const bind = { ...base, opcode: v.IBV_WR_BIND_MW };
  for (const x of WRONG) {
    const requests = [
      x,
      ...['wr_id', 'sg_list', 'num_sge', 'opcode', 'send_flags', 'wr'].map((name) => ({
        ...base,
        [name]: x,
      })),
      ...[x, { remote_addr: x, rkey: 1 }, { remote_addr: 1n, rkey: x }].map((rdma) => ({
        ...base,
        wr: { rdma },
      })),
      ...['addr', 'length', 'lkey'].map((name) => ({ ...base, sg_list: [{ ...sge, [name]: x }] })),
      { ...base, sg_list: [x] },
      { ...base, send_flags: v.IBV_SEND_INLINE, sg_list: [{ ...sge, addr: x }] },
      {
        ...base,
        opcode: v.IBV_WR_ATOMIC_FETCH_AND_ADD,
        wr: { atomic: { remote_addr: x, rkey: 1, compare_add: x } },
      },
      { ...base, opcode: v.IBV_WR_SEND_WITH_IMM, imm_data: x },
      { ...bind, bind_mw: x },
      { ...bind, bind_mw: { mw: x, rkey: 1, bind_info: x } },
    ];
    for (const wr of requests) {
      expect(() => v.ibv_post_send(qp, wr as never), `send ${text(wr)}`).not.toThrow();
      expect(() => v.ibv_post_recv(qp, wr as never), `receive ${text(wr)}`).not.toThrow();
    }
  }
});

test('in batches: ibv_wr_complete has the errno, and the next batch is right', async () => {
  const { ex } = await setUp();
  for (const x of WRONG as never[]) {
    const builders: (() => void)[] = [
      () => v.ibv_wr_rdma_write(ex, x, x),
      () => v.ibv_wr_rdma_read(ex, 1, x),
      () => v.ibv_wr_send_imm(ex, x),
      () => v.ibv_wr_send_inv(ex, x),
      () => v.ibv_wr_atomic_cmp_swp(ex, 1, 0n, x, x),
      () => v.ibv_wr_atomic_fetch_add(ex, 1, x, x),
      () => v.ibv_wr_atomic_write(ex, 1, 0n, x),
      () => v.ibv_wr_flush(ex, 1, 0n, x, 1, 0),
      () => v.ibv_wr_bind_mw(ex, x, 1, x),
    ];
    const setters: (() => void)[] = [
      () => v.ibv_wr_set_sge(ex, x, x, x),
      () => v.ibv_wr_set_sge_list(ex, 1, x),
      () => v.ibv_wr_set_sge_list(ex, x, [{ addr: 0n, length: 1, lkey: 1 }]),
      () => v.ibv_wr_set_inline_data(ex, x, 8),
      () => v.ibv_wr_set_inline_data(ex, new Uint8Array(8), x),
      () => v.ibv_wr_set_inline_data_list(ex, 1, x),
      () => v.ibv_wr_set_ud_addr(ex, x, x, x),
      () => v.ibv_wr_set_xrc_srqn(ex, x),
      () => {
        ex.wr_flags = x;
        v.ibv_wr_send(ex);
      },
      () => {
        ex.wr_id = x;
        v.ibv_wr_send(ex);
      },
    ];
    for (const call of [
      ...builders,
      ...setters.map((set) => () => {
        v.ibv_wr_send(ex);
        set();
      }),
    ]) {
      v.ibv_wr_start(ex);
      expect(call, text(x)).not.toThrow();
      let code = -1;
      expect(
        () => {
          code = v.ibv_wr_complete(ex);
        },
        `${call} with ${text(x)}`,
      ).not.toThrow();
      // The queue pair is in RESET, where nothing is posted.
      expect(code).toBeGreaterThan(0);
      ex.wr_id = 0n;
      ex.wr_flags = 0;
    }
  }
});

test('in calls that are awaited', async () => {
  const { a, qp, pd, cq, context, mr } = await setUp();
  const bytes = new Uint8Array(8);
  const advice = (sge: unknown) => v.ibv_advise_mr(pd, 0, 0, [sge as never], 1);
  for (const x of WRONG as never[]) {
    const calls: (() => Promise<unknown>)[] = [
      () => v.ibv_modify_qp(qp, x, v.IBV_QP_STATE | v.IBV_QP_CUR_STATE),
      () => v.ibv_modify_qp(qp, {}, x),
      () => v.ibv_modify_qp(qp, { cap: x }, v.IBV_QP_CAP),
      () => v.ibv_modify_qp(qp, { ah_attr: x }, v.IBV_QP_AV),
      () => v.ibv_modify_qp_rate_limit(qp, x),
      () => v.ibv_modify_qp_rate_limit(qp, { rate_limit: x }),
      () => v.ibv_query_qp(qp, x, 1),
      () => v.ibv_create_qp(pd, x),
      () => v.ibv_create_qp_ex(context, x),
      () => v.ibv_create_qp_ex(context, { qp_type: x, comp_mask: x, pd: x }),
      () => v.ibv_create_srq(pd, x),
      () => v.ibv_create_srq_ex(context, x),
      () => v.ibv_open_xrcd(context, x),
      () => v.ibv_open_qp(context, x),
      () => v.ibv_create_cq_ex(context, x),
      () => v.ibv_create_cq(context, x, null, x, x),
      () => v.ibv_resize_cq(cq, x),
      () => v.ibv_create_ah(pd, x),
      () => v.ibv_create_ah(pd, { is_global: 1, grh: x, port_num: 1 }),
      () => v.ibv_reg_mr(pd, x, 8, 1),
      () => v.ibv_reg_mr(pd, bytes, x, x),
      () => v.ibv_reg_mr_iova(pd, bytes, 8, x, 1),
      () => v.ibv_rereg_mr(mr, x, x, x, 8, 1),
      () => v.ibv_alloc_mw(pd, x),
      () => v.ibv_alloc_td(context, x),
      () => v.ibv_alloc_parent_domain(context, x),
      () => v.ibv_advise_mr(pd, x, x, x, 1),
      () => advice(x),
      () => advice({ addr: x, length: x, lkey: mr.lkey }),
      () => v.ibv_set_ece(qp, x),
      () => v.ibv_create_flow(qp, x),
      () => v.ibv_create_counters(context, x),
      () => v.ibv_query_rt_values_ex(context, x),
      () => v.ibv_query_gid(context, 1, x, {}),
      () => v.ibv_query_gid_table(context, x, 4),
      () => v.ibv_query_gid_table(a.context, [], x),
      () => v.ibv_query_gid_table(x, [], 4),
      () => v.ibv_attach_mcast(qp, x),
    ];
    for (const call of calls)
      await expect(Promise.resolve().then(call), `${call} with ${text(x)}`).resolves.toBeDefined();
  }
});
