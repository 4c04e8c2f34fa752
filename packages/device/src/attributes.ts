/** Attributes of verbs in messages: as the library writes them, and as it reads them. */
import * as v from '@node-roce/ibverbs';
import type { Reader, Writer } from './protocol.ts';
import type { WorkQueue } from './shared-rings.ts';

/** Bits of a flow label; more are cut off, as the kernel does. */
const FLOW_LABEL = 0xf_ffff;

export function addressOf(from: Reader): v.ibv_ah_attr {
  const dgid = { raw: from.bytes(16) };
  const [flow, sgid_index, hop_limit, traffic_class] = [from.u32(), from.u32(), from.u32(), from.u32()];
  const [dlid, sl, src_path_bits, static_rate] = [from.u32(), from.u32(), from.u32(), from.u32()];
  const [is_global, port_num] = [from.u32(), from.u32()];
  const grh = { dgid, flow_label: flow & FLOW_LABEL, sgid_index, hop_limit, traffic_class };
  return { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num };
}

export function writeAddress(to: Writer, attr: v.ibv_ah_attr | undefined): void {
  const { dgid, flow_label, sgid_index, hop_limit, traffic_class } = attr?.grh ?? {};
  to.bytes(dgid?.raw ?? new Uint8Array(16)).u32(flow_label, sgid_index, hop_limit, traffic_class);
  to.u32(attr?.dlid, attr?.sl, attr?.src_path_bits, attr?.static_rate);
  to.u32(Number(attr?.is_global ?? 0), attr?.port_num);
}

export const capOf = (from: Reader): Required<v.ibv_qp_cap> => ({
  max_send_wr: from.u32(),
  max_recv_wr: from.u32(),
  max_send_sge: from.u32(),
  max_recv_sge: from.u32(),
  max_inline_data: from.u32(),
});

export const writeCap = (to: Writer, cap: v.ibv_qp_cap | undefined) =>
  to.u32(cap?.max_send_wr, cap?.max_recv_wr, cap?.max_send_sge, cap?.max_recv_sge, cap?.max_inline_data);

/** Where a work queue lies. */
export function writeQueue(to: Writer, { id, shape: { offset, capacity, stride } }: WorkQueue): void {
  to.u32(id, offset, capacity, stride);
}

export function operationOf(from: Reader): v.ibv_ops_wr {
  const wr_id = from.u64();
  const [opcode, flags, unexpected_cnt, handle] = [from.u32(), from.u32(), from.u32(), from.u32()];
  if (opcode !== v.IBV_WR_TAG_ADD) return { wr_id, opcode, flags, tm: { unexpected_cnt, handle } };
  const [recv_wr_id, tag, mask] = [from.u64(), from.u64(), from.u64()];
  const sg_list: v.ibv_sge[] = [];
  for (let left = from.u32(); left > 0; left--)
    sg_list.push({ addr: from.u64(), length: from.u32(), lkey: from.u32() });
  return { wr_id, opcode, flags, tm: { unexpected_cnt, add: { recv_wr_id, tag, mask, sg_list } } };
}

export function attributesOf(from: Reader): v.ibv_qp_attr {
  const [qp_state, cur_qp_state, path_mtu, path_mig_state] = [from.u32(), from.u32(), from.u32(), from.u32()];
  const [qkey, rq_psn, sq_psn, dest_qp_num] = [from.u32(), from.u32(), from.u32(), from.u32()];
  const [qp_access_flags, pkey_index] = [from.u32(), from.u32()];
  const [en_sqd_async_notify, max_rd_atomic] = [from.u32(), from.u32()];
  const [max_dest_rd_atomic, min_rnr_timer, port_num] = [from.u32(), from.u32(), from.u32()];
  const [timeout, retry_cnt, rnr_retry, rate_limit] = [from.u32(), from.u32(), from.u32(), from.u32()];
  const cap = capOf(from);
  return {
    ...{ qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num },
    ...{ qp_access_flags, pkey_index, en_sqd_async_notify, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer },
    ...{ port_num, timeout, retry_cnt, rnr_retry, rate_limit, cap, ah_attr: addressOf(from) },
  };
}
