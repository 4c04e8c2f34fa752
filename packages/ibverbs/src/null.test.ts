/** NULL, which a call that failed returned, and structs of another kind: EINVAL that names the argument, where C has undefined behaviour. */
import { constants } from 'node:os';
import { expect, test } from 'vitest';
import { openPair } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL } = constants.errno;
const NULL = null as never;

test.each<[string, (...args: never[]) => unknown]>([
  ['device', v.ibv_open_device],
  ['context', v.ibv_close_device],
  ['context', v.ibv_query_device],
  ['context', (context: v.ibv_context) => v.ibv_query_device_ex(context, null, {})],
  ['context', (context: v.ibv_context) => v.ibv_query_port(context, 1, {})],
  ['context', v.ibv_alloc_pd],
  ['context', v.ibv_create_comp_channel],
  ['context', v.ibv_get_async_event],
  ['pd', v.ibv_dealloc_pd],
  ['pd', (pd: v.ibv_pd) => v.ibv_reg_mr(pd, new Uint8Array(8), 8, 0)],
  ['pd', (pd: v.ibv_pd) => v.ibv_alloc_mw(pd, v.IBV_MW_TYPE_1)],
  [
    'pd',
    (pd: v.ibv_pd) =>
      v.ibv_create_ah(pd, { is_global: 1, port_num: 1, grh: { dgid: { raw: new Uint8Array(16) } } }),
  ],
  ['pd', (pd: v.ibv_pd) => v.ibv_create_srq(pd, { attr: { max_wr: 1 } })],
  ['mr', v.ibv_dereg_mr],
  ['mw', v.ibv_dealloc_mw],
  ['channel', v.ibv_destroy_comp_channel],
  ['channel', (channel: v.ibv_comp_channel) => v.ibv_get_cq_event(channel, [])],
  ['cq', v.ibv_destroy_cq],
  ['cq', (cq: v.ibv_cq) => v.ibv_resize_cq(cq, 9)],
  ['cq', (cq: v.ibv_cq) => v.ibv_poll_cq(cq, 1, [])],
  ['cq', (cq: v.ibv_cq) => v.ibv_req_notify_cq(cq, 0)],
  ['qp', v.ibv_destroy_qp],
  ['qp', (qp: v.ibv_qp) => v.ibv_modify_qp(qp, {}, 0)],
  ['qp', (qp: v.ibv_qp) => v.ibv_query_qp(qp, {}, 0)],
  ['qp', (qp: v.ibv_qp) => v.ibv_post_send(qp, { opcode: v.IBV_WR_SEND })],
  ['qp', (qp: v.ibv_qp) => v.ibv_post_recv(qp, {})],
  ['qp', (qp: v.ibv_qp) => v.ibv_attach_mcast(qp, { raw: new Uint8Array(16) }, 0)],
  ['srq', v.ibv_destroy_srq],
  ['srq', (srq: v.ibv_srq) => v.ibv_get_srq_num(srq, [])],
  ['srq', (srq: v.ibv_srq) => v.ibv_post_srq_recv(srq, {})],
  ['srq', (srq: v.ibv_srq) => v.ibv_modify_srq(srq, {}, 0)],
  ['ah', v.ibv_destroy_ah],
  ['id', v.rdma_destroy_id],
  ['id', (id: v.rdma_cm_id) => v.rdma_bind_addr(id, { address: '10.0.0.1' })],
  ['id', (id: v.rdma_cm_id) => v.rdma_resolve_addr(id, null, { address: '10.0.0.1' })],
  ['id', v.rdma_resolve_route],
  ['id', (id: v.rdma_cm_id) => v.rdma_create_qp(id, null, {})],
  ['id', v.rdma_destroy_qp],
  ['id', v.rdma_connect],
  ['id', (id: v.rdma_cm_id) => v.rdma_listen(id, 1)],
  ['id', v.rdma_accept],
  ['id', v.rdma_reject],
  ['id', v.rdma_disconnect],
  ['id', (id: v.rdma_cm_id) => v.rdma_join_multicast(id, { address: '239.0.0.1' })],
  ['id', (id: v.rdma_cm_id) => v.rdma_set_option(id, 0, 0, 1)],
  ['listen', (listen: v.rdma_cm_id) => v.rdma_get_request(listen, [])],
  ['channel', (channel: v.rdma_event_channel) => v.rdma_get_cm_event(channel, [])],
])('%s is NULL, or of another kind: %o', async (name, call) => {
  for (const wrong of [null, undefined, {}, 1]) {
    const result = await call(wrong as never);
    expect([null, -1, EINVAL]).toContain(result);
    expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, name]);
  }
});

test('structs that a call reads or fills', async () => {
  const { a, qpA } = await openPair(v.IBV_QPT_RC);
  const refused = async (call: unknown, attribute: string) => {
    expect([null, EINVAL]).toContain(await call);
    expect(v.lastError()?.attribute).toBe(attribute);
  };
  await refused(v.ibv_create_qp(a.pd, NULL), 'qp_init_attr');
  await refused(
    v.ibv_create_qp(a.pd, { send_cq: NULL, recv_cq: a.cq, qp_type: v.IBV_QPT_RC, cap: {} }),
    'send_cq',
  );
  await refused(v.ibv_create_srq(a.pd, NULL), 'srq_init_attr');
  await refused(v.ibv_create_srq(a.pd, {} as never), 'attr');
  await refused(v.ibv_post_send(qpA, NULL), 'wr');
  await refused(v.ibv_query_device(a.context, NULL), 'device_attr');
  await refused(v.ibv_query_port(a.context, 1, NULL), 'port_attr');
  await refused(v.ibv_modify_qp_rate_limit(qpA, NULL), 'attr');
  const srq = (await v.ibv_create_srq(a.pd, { attr: { max_wr: 1, max_sge: 1 } }))!;
  await refused(v.ibv_modify_srq(srq, NULL, v.IBV_SRQ_LIMIT), 'srq_attr');
  await refused(v.ibv_query_srq(srq, NULL), 'srq_attr');
  await refused(v.ibv_query_gid_ex(a.context, 1, 0, NULL), 'entry');
  expect(await v.ibv_query_gid(a.context, 1, 0, NULL)).toBe(-1);
  expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, 'gid']);
  expect(await v.ibv_query_pkey(a.context, 1, 0, NULL)).toBe(-1);
  expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, 'pkey']);
  await refused(v.ibv_wr_complete(NULL), 'qp');
  for (const mr of [NULL, {} as never]) {
    expect(await v.ibv_rereg_mr(mr, v.IBV_REREG_MR_CHANGE_ACCESS, null, null, 0, 0)).toBe(
      v.IBV_REREG_MR_ERR_INPUT,
    );
    expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, 'mr']);
  }
  const mw = (await v.ibv_alloc_mw(a.pd, v.IBV_MW_TYPE_1))!;
  await refused(v.ibv_bind_mw(qpA, mw, NULL), 'mw_bind');
  await refused(v.ibv_bind_mw(qpA, mw, {} as never), 'bind_info');
  await refused(v.ibv_bind_mw(qpA, mw, { bind_info: { mr: NULL, addr: 0n, length: 8 } }), 'bind_info.mr');
});
