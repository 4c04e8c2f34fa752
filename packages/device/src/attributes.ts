/** Attributes of verbs in messages, and as verbs-api has them. */
import {
  IBV_DEVICE_MANAGED_FLOW_STEERING,
  IBV_OPS_SIGNALED,
  IBV_OPS_TM_SYNC,
  IBV_QPT_RAW_PACKET,
  IBV_QPT_RC,
  IBV_QPT_UC,
  IBV_QPT_UD,
  IBV_WR_TAG_ADD,
  IBV_WR_TAG_DEL,
  IBV_WR_TAG_SYNC,
  type ibv_ah_attr,
  type ibv_qp_attr,
} from '@node-roce/ibverbs';
import {
  deviceAttr,
  fromAhAttr,
  fromCap,
  fromQpAttr,
  masked,
  portAttr,
  tagCaps,
} from '@node-roce/ibverbs/parts';
import type { Device, QpAttr, QueuePair, TagOp } from '@node-roce/verbs-api';
import { MAX_BYTES, MAX_MAPPINGS } from './memory.ts';
import type { Decoded, GROUPS, Reply, Request } from './messages.ts';
import { gidTableLength } from './system-files.ts';

/** Bits of a flow label; more are cut off, as the kernel does. */
const FLOW_LABEL = 0xf_ffff;

/** Types of queue pairs whose entries the library writes. */
export const QP_TYPES = {
  [IBV_QPT_RC]: 'RC',
  [IBV_QPT_UC]: 'UC',
  [IBV_QPT_UD]: 'UD',
  [IBV_QPT_RAW_PACKET]: 'RAW_PACKET',
} as const;

type Address = Decoded<(typeof GROUPS)['address']>;

/** `struct ibv_ah_attr`. */
export function addressOf({
  dgid,
  flow_label,
  sgid_index,
  hop_limit,
  traffic_class,
  ...rest
}: Address): ibv_ah_attr {
  const flow = flow_label & FLOW_LABEL;
  return { grh: { dgid: { raw: dgid }, flow_label: flow, sgid_index, hop_limit, traffic_class }, ...rest };
}

function addressFrom(attr: QpAttr['ahAttr']): Partial<Address> {
  if (!attr) return {};
  const { grh, is_global, ...rest } = fromAhAttr(attr);
  const { dgid, ...route } = grh ?? {};
  return { ...rest, ...route, dgid: dgid?.raw ?? new Uint8Array(16), is_global: Number(is_global) };
}

/** The attributes that the program's mask names. */
export function qpAttr({ mask, attr, cap, ah_attr }: Request<'MODIFY_QP'>): QpAttr {
  return masked({ ...attr, cap, ah_attr: addressOf(ah_attr) } satisfies ibv_qp_attr, mask);
}

export function qpReply({ attr, init }: Awaited<ReturnType<QueuePair['query']>>): Reply<'QUERY_QP'> {
  return {
    attr: fromQpAttr(attr),
    cap: fromCap(init.cap),
    ah_attr: addressFrom(attr.ahAttr),
    sq_sig_all: Number(init.sqSigAll),
  };
}

/** An operation on a list of tags; undefined for another opcode. */
export function operationOf(request: Request<'POST_SRQ_OP'>): TagOp | undefined {
  const { wr_id: wrId, opcode, flags } = request;
  const handled = (flags & IBV_OPS_TM_SYNC) !== 0 ? { handled: request.unexpected_cnt } : {};
  const common = { wrId, signaled: (flags & IBV_OPS_SIGNALED) !== 0, ...handled };
  if (opcode === IBV_WR_TAG_SYNC) return { ...common, opcode: 'TAG_SYNC' };
  if (opcode === IBV_WR_TAG_DEL) return { ...common, opcode: 'TAG_DEL', handle: request.tag_handle };
  if (opcode !== IBV_WR_TAG_ADD) return undefined;
  const { recv_wr_id: recvWrId, tag, mask, sges: sgList } = request;
  return { ...common, opcode: 'TAG_ADD', recvWrId, tag, mask, sgList };
}

/** The device's own numbers, for programs. */
export function deviceReply(device: Device): Reply<'QUERY_DEVICE'> {
  const attr = deviceAttr(device);
  const tags = tagCaps(device);
  return {
    ...attr,
    // A program has less than the engine: its memory is one file.
    max_mr_size: attr.max_mr_size < BigInt(MAX_BYTES) ? attr.max_mr_size : BigInt(MAX_BYTES),
    max_mr: Math.min(attr.max_mr, MAX_MAPPINGS),
    // The library has no ibv_create_flow: programs that look are to leave it out.
    device_cap_flags: attr.device_cap_flags & ~IBV_DEVICE_MANAGED_FLOW_STEERING,
    tm_max_rndv_hdr_size: tags.max_rndv_hdr_size,
    tm_max_num_tags: tags.max_num_tags,
    tm_flags: tags.flags,
    tm_max_ops: tags.max_ops,
    tm_max_sge: tags.max_sge,
  };
}

export async function portReply(device: Device): Promise<Reply<'QUERY_PORT'>> {
  const attr = await portAttr(device);
  return { ...attr, gid_tbl_len: gidTableLength(attr.gid_tbl_len) };
}
