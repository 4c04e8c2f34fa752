/** Two contexts on a network in memory, with the objects of a test of verbs on each. */
import { MemoryNetwork } from '@node-roce/link';
import type { OpenOptions } from '@node-roce/verbs-api';
import { onTestFinished } from 'vitest';
import * as v from '../src/index.ts';

export const REMOTE_ALL =
  v.IBV_ACCESS_LOCAL_WRITE |
  v.IBV_ACCESS_REMOTE_WRITE |
  v.IBV_ACCESS_REMOTE_READ |
  v.IBV_ACCESS_REMOTE_ATOMIC;
export const QKEY = 0x1111_1111;

/** The result of a pointer verb, which a test takes for granted. */
export function good<T>(value: T | null): T {
  if (value === null) throw new Error(`${v.strerror(v.errno)}: ${v.lastError()?.message}`);
  return value;
}

export async function openSide(network: MemoryNetwork, address: string, options: OpenOptions = {}) {
  const [device] = v.ibv_get_device_list();
  const link = network.link(address);
  const context = good(await v.ibv_open_device(device, { ...options, link }));
  onTestFinished(async () => void (await v.ibv_close_device(context)));
  const pd = good(await v.ibv_alloc_pd(context));
  const channel = good(await v.ibv_create_comp_channel(context));
  const cq = good(await v.ibv_create_cq(context, 64, 'my cq', channel, 0));
  const buffer = new Uint8Array(65_536);
  const mr = good(await v.ibv_reg_mr(pd, buffer, buffer.length, REMOTE_ALL | v.IBV_ACCESS_MW_BIND));
  const gid = { raw: new Uint8Array(16) };
  await v.ibv_query_gid(context, 1, 0, gid);
  return { context, pd, channel, cq, buffer, mr, gid };
}

export type Side = Awaited<ReturnType<typeof openSide>>;

export async function createQp(side: Side, qp_type: number, srq: v.ibv_srq | null = null) {
  const cap = { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 };
  const { pd, cq } = side;
  return good(await v.ibv_create_qp(pd, { send_cq: cq, recv_cq: cq, srq, cap, qp_type, sq_sig_all: 0 }));
}

/** RESET to RTS, or to the state before, with the masks that ibv_modify_qp(3) prints for each type. */
export async function connect(
  qp: v.ibv_qp,
  gid: v.ibv_gid,
  dest_qp_num: number,
  last: number = v.IBV_QPS_RTS,
): Promise<void> {
  const rc = qp.qp_type === v.IBV_QPT_RC;
  const ud = qp.qp_type === v.IBV_QPT_UD;
  const attr: v.ibv_qp_attr = {
    qp_state: v.IBV_QPS_INIT,
    port_num: 1,
    qkey: QKEY,
    qp_access_flags: REMOTE_ALL & ~v.IBV_ACCESS_LOCAL_WRITE,
    path_mtu: v.IBV_MTU_1024,
    dest_qp_num,
    rq_psn: 7,
    sq_psn: 7,
    max_dest_rd_atomic: 4,
    max_rd_atomic: 4,
    min_rnr_timer: 12,
    timeout: 14,
    retry_cnt: 6,
    rnr_retry: 6,
    ah_attr: { is_global: 1, port_num: 1, grh: { dgid: gid, hop_limit: 64 } },
  };
  const init = v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT;
  const uc = v.IBV_QP_AV | v.IBV_QP_PATH_MTU | v.IBV_QP_DEST_QPN | v.IBV_QP_RQ_PSN;
  const steps = [
    [v.IBV_QPS_INIT, init | (ud ? v.IBV_QP_QKEY : v.IBV_QP_ACCESS_FLAGS)],
    [
      v.IBV_QPS_RTR,
      v.IBV_QP_STATE | (ud ? 0 : uc) | (rc ? v.IBV_QP_MAX_DEST_RD_ATOMIC | v.IBV_QP_MIN_RNR_TIMER : 0),
    ],
    [
      v.IBV_QPS_RTS,
      v.IBV_QP_STATE |
        v.IBV_QP_SQ_PSN |
        (rc ? v.IBV_QP_TIMEOUT | v.IBV_QP_RETRY_CNT | v.IBV_QP_RNR_RETRY | v.IBV_QP_MAX_QP_RD_ATOMIC : 0),
    ],
  ];
  for (const [qp_state, mask] of steps) {
    if ((await v.ibv_modify_qp(qp, { ...attr, qp_state }, mask)) !== 0) throw v.lastError();
    if (qp_state === last) return;
  }
}

/** Two sides and a queue pair on each, ready to send. */
export async function openPair(qp_type: number) {
  const network = new MemoryNetwork();
  const a = await openSide(network, '10.0.0.1');
  const b = await openSide(network, '10.0.0.2');
  const [qpA, qpB] = [await createQp(a, qp_type), await createQp(b, qp_type)];
  await connect(qpA, b.gid, qpB.qp_num);
  await connect(qpB, a.gid, qpA.qp_num);
  return { network, a, b, qpA, qpB };
}

/** Polls until there are as many completions. */
export async function completions(cq: v.ibv_cq, count: number): Promise<v.ibv_wc[]> {
  const all: v.ibv_wc[] = [];
  for (let turn = 0; all.length < count; turn++) {
    const wc: v.ibv_wc[] = [];
    const found = v.ibv_poll_cq(cq, count - all.length, wc);
    if (found < 0) throw v.lastError();
    all.push(...wc.slice(0, found));
    if (turn > 10_000) throw new Error(`${all.length} completions of ${count}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return all;
}
