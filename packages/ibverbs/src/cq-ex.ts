/** Extended completion queues (ibv_create_cq_ex(3)): completions are looked at one by one, member by member. */
import { invalid, RoceError } from '@node-roce/transport';
import { type CompletionQueue, WorkCompletion, wallClock } from '@node-roce/verbs-api';
import * as c from './constants.ts';
import { createCq } from './create-cq.ts';
import { ibv_parent_domain } from './domains.ts';
import { pointer, statusNow } from './errno.ts';
import { checkKind, given, type ibv_context, ibv_cq, verbsOf } from './objects.ts';
import type { ibv_cq_init_attr_ex } from './structs.ts';

const TIMES = c.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | c.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
/** Members that readers give. Slids and path bits are 0, as RoCE has none. */
const READABLE =
  c.IBV_WC_EX_WITH_BYTE_LEN |
  c.IBV_WC_EX_WITH_IMM |
  c.IBV_WC_EX_WITH_QP_NUM |
  c.IBV_WC_EX_WITH_SRC_QP |
  c.IBV_WC_EX_WITH_SLID |
  c.IBV_WC_EX_WITH_SL |
  c.IBV_WC_EX_WITH_DLID_PATH_BITS |
  c.IBV_WC_EX_WITH_TM_INFO |
  TIMES;

/** `struct ibv_cq_ex`: a completion queue with the completion that is looked at. */
export class ibv_cq_ex extends ibv_cq {
  /** The completion; made once. @internal */
  readonly current = new WorkCompletion();
  readonly #list = [this.current];
  #polling = false;

  /** `wr_id` of the completion that is looked at. */
  get wr_id(): bigint {
    return this.current.wrId;
  }

  /** Its `enum ibv_wc_status`. */
  get status(): number {
    return this.current.statusCode;
  }

  /** Looks at the next completion. @internal */
  poll(first: boolean): void {
    if (first === this.#polling)
      throw invalid('cq', first ? 'a poll is started already' : 'no poll is started', 'ibv_end_poll');
    const found = (this.verbs as CompletionQueue).pollInto(this.#list) === 1;
    // A poll that finds nothing is not started.
    if (first) this.#polling = found;
    if (!found)
      throw new RoceError('ERR_ROCE_CM_STATE', 'there is no completion to read', { errno: 'ENOENT' });
  }

  /** @internal */
  end(): void {
    this.#polling = false;
  }
}

/**
 * ibv_create_cq_ex(3): `wc_flags` are the members that are to be read. EOPNOTSUPP for VLANs and flow tags.
 */
export function ibv_create_cq_ex(
  context: ibv_context,
  cq_attr: ibv_cq_init_attr_ex,
): Promise<ibv_cq_ex | null> {
  return pointer(async () => {
    verbsOf('context', context);
    const { cqe, cq_context, channel = null, comp_vector = 0, ...more } = given('cq_attr', cq_attr);
    const { wc_flags = 0, comp_mask = 0 } = more;
    refuse('wc_flags', Number(wc_flags) & ~READABLE);
    refuse('comp_mask', comp_mask & ~(c.IBV_CQ_INIT_ATTR_MASK_FLAGS | c.IBV_CQ_INIT_ATTR_MASK_PD));
    const parent = (comp_mask & c.IBV_CQ_INIT_ATTR_MASK_PD) !== 0 ? more.parent_domain : null;
    if (parent !== null) checkKind('parent_domain', parent as object, ibv_parent_domain);
    // IBV_CREATE_CQ_ATTR_SINGLE_THREADED changes nothing: each CQ has one thread.
    if ((comp_mask & c.IBV_CQ_INIT_ATTR_MASK_FLAGS) !== 0)
      refuse('flags', (more.flags ?? 0) & ~c.IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    const timestamps = (Number(wc_flags) & TIMES) !== 0;
    const tags = (Number(wc_flags) & c.IBV_WC_EX_WITH_TM_INFO) !== 0;
    const verbs = await createCq(context, cqe, cq_context, channel, comp_vector, { timestamps, tags });
    return new ibv_cq_ex(context, channel, verbs, parent);
  });
}

function refuse(attribute: string, bits: number): void {
  if (bits === 0) return;
  throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `${attribute}: 0x${bits.toString(16)}`, {
    errno: 'EOPNOTSUPP',
    attribute,
  });
}

/** ibv_cq_ex_to_cq(3): the same queue, for what takes an `ibv_cq`. */
export function ibv_cq_ex_to_cq(cq: ibv_cq_ex): ibv_cq {
  return cq;
}

/** ibv_start_poll(3): 0, and the first completion can be read; ENOENT where there is none, EIO where the queue overran. */
export function ibv_start_poll(cq: ibv_cq_ex, attr: { comp_mask?: number } | null = null): number {
  return statusNow(() => {
    checkKind('cq', cq, ibv_cq_ex);
    if (attr?.comp_mask) throw invalid('attr.comp_mask', `0x${attr.comp_mask.toString(16)}`, '0');
    cq.poll(true);
  });
}

/** ibv_next_poll(3): 0, and the next completion can be read; ENOENT where there is none. */
export function ibv_next_poll(cq: ibv_cq_ex): number {
  return statusNow(() => {
    checkKind('cq', cq, ibv_cq_ex);
    cq.poll(false);
  });
}

/** ibv_end_poll(3): has to follow an `ibv_start_poll` that returned 0. */
export function ibv_end_poll(cq: ibv_cq_ex): void {
  cq.end();
}

/** ibv_wc_read_opcode(3): `enum ibv_wc_opcode`; not valid unless the status is IBV_WC_SUCCESS. */
export const ibv_wc_read_opcode = (cq: ibv_cq_ex): number => cq.current.opcodeCode;
/** ibv_wc_read_vendor_err(3): 0. */
export const ibv_wc_read_vendor_err = (cq: ibv_cq_ex): number => cq.current.vendorErr;
/** ibv_wc_read_byte_len(3). */
export const ibv_wc_read_byte_len = (cq: ibv_cq_ex): number => cq.current.byteLen;
/** ibv_wc_read_imm_data(3): the number that travels in network order. */
export const ibv_wc_read_imm_data = (cq: ibv_cq_ex): number => cq.current.immediate;
/** ibv_wc_read_invalidated_rkey(3). */
export const ibv_wc_read_invalidated_rkey = (cq: ibv_cq_ex): number => cq.current.immediate;
/** ibv_wc_read_qp_num(3). */
export const ibv_wc_read_qp_num = (cq: ibv_cq_ex): number => cq.current.qpNum;
/** ibv_wc_read_src_qp(3). */
export const ibv_wc_read_src_qp = (cq: ibv_cq_ex): number => cq.current.srcQp;
/** ibv_wc_read_wc_flags(3): IBV_WC_GRH, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_TM_… */
export const ibv_wc_read_wc_flags = (cq: ibv_cq_ex): number => cq.current.flags;
/** ibv_wc_read_tm_info(3): the tag and the application's data of a message that a tagged buffer got; else 0. */
export function ibv_wc_read_tm_info(cq: ibv_cq_ex, tm_info: { tag?: bigint; priv?: number }): void {
  tm_info.tag = cq.current.tag;
  tm_info.priv = cq.current.tagData;
}
/** ibv_wc_read_slid(3): 0. */
export const ibv_wc_read_slid = (_cq: ibv_cq_ex): number => 0;
/** ibv_wc_read_sl(3): 0. */
export const ibv_wc_read_sl = (_cq: ibv_cq_ex): number => 0;
/** ibv_wc_read_dlid_path_bits(3): 0. */
export const ibv_wc_read_dlid_path_bits = (_cq: ibv_cq_ex): number => 0;
/**
 * ibv_wc_read_completion_ts(3): when the packet arrived that completed it, as the kernel saw it; a completion without a packet, and links
 * without sockets: when it was made. Nanoseconds, of which `hca_core_clock` has a million a millisecond; `ibv_query_rt_values_ex` reads
 * the clock.
 */
export const ibv_wc_read_completion_ts = (cq: ibv_cq_ex): bigint => BigInt(cq.current.timestamp);
/** ibv_wc_read_completion_wallclock_ns(3): the same in nanoseconds since 1970. */
export const ibv_wc_read_completion_wallclock_ns = (cq: ibv_cq_ex): bigint => wallClock(cq.current.timestamp);
