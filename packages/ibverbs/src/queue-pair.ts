/** Queue pairs and shared receive queues: create, modify, query, destroy. */
import { invalid, type QpType, RoceError } from '@node-roce/transport';
import { integer } from './arguments.ts';
import {
  IBV_QP_CAP,
  IBV_QP_INIT_ATTR_PD,
  IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
  IBV_QP_INIT_ATTR_XRCD,
  IBV_QPT_XRC_RECV,
  IBV_SRQ_LIMIT,
  IBV_SRQ_MAX_WR,
} from './constants.ts';
import { pointer, status, statusNow } from './errno.ts';
import { closeWithoutFlows } from './flow.ts';
import {
  given,
  type ibv_context,
  type ibv_pd,
  ibv_qp,
  ibv_srq,
  QP_TYPE_CODES,
  stateOf,
  verbsOf,
} from './objects.ts';
import { fromCap, fromQpAttr, masked, namesOf, toCap } from './qp-attr.ts';
import type {
  ibv_qp_attr,
  ibv_qp_init_attr,
  ibv_qp_init_attr_ex,
  ibv_srq_attr,
  ibv_srq_init_attr,
} from './structs.ts';
import { allowSendOps, checkSendOps } from './wr.ts';

/** Types that `createQp` makes. */
type MadeType = Exclude<QpType, 'XRC_TGT'>;

const TYPE_NAMES = new Map(Object.entries(QP_TYPE_CODES).map(([name, code]) => [code, name as MadeType]));

/**
 * ibv_create_qp(3): in RESET. `qp_init_attr.cap` is set to what was created, at least what was asked for.
 * EINVAL beyond the device (`ibv_query_device`), EOPNOTSUPP for another type than RC, UC, UD, RAW_PACKET and XRC_SEND, and for that
 * unless the device was opened with `experimental: ['xrc']`; EPERM for RAW_PACKET without CAP_NET_RAW.
 */
export function ibv_create_qp(pd: ibv_pd, qp_init_attr: ibv_qp_init_attr): Promise<ibv_qp | null> {
  return pointer(async () => {
    const {
      qp_type,
      send_cq,
      recv_cq = null,
      srq = null,
      sq_sig_all,
      qp_context,
    } = given('qp_init_attr', qp_init_attr);
    const type = TYPE_NAMES.get(qp_type);
    if (qp_type === IBV_QPT_XRC_RECV)
      throw invalid('qp_type', 'IBV_QPT_XRC_RECV is made in a domain', 'ibv_create_qp_ex with xrcd');
    if (!type) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `qp_type: ${qp_type} is not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'qp_type',
        expected: 'IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND',
      });
    }
    if (!send_cq) throw invalid('send_cq', 'none', 'a completion queue');
    if (!recv_cq && type !== 'XRC_INI') throw invalid('recv_cq', 'none', 'a completion queue');
    const create = verbsOf('pd', pd).createQp({
      type,
      sendCq: verbsOf('cq', send_cq, 'send_cq'),
      ...(recv_cq ? { recvCq: verbsOf('cq', recv_cq, 'recv_cq') } : {}),
      ...(srq ? { srq: verbsOf('srq', srq) } : {}),
      cap: toCap(qp_init_attr.cap ?? {}),
      sqSigAll: Boolean(sq_sig_all),
      context: qp_context,
    });
    const qp = await create.catch((error) => {
      throw error.attribute === 'type' ? renamed(error, 'type', 'qp_type') : error;
    });
    qp_init_attr.cap = fromCap(qp.cap);
    return new ibv_qp(pd, send_cq, recv_cq, srq, qp);
  });
}

/** Sizes of a target queue pair. */
const NO_QUEUES = {
  cap: { maxSendWr: 0, maxRecvWr: 0, maxSendSge: 0, maxRecvSge: 0, maxInlineData: 0 },
  sqSigAll: false,
};

/** Parts of `ibv_qp_init_attr_ex` that are taken. */
const CREATE_EX = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

/** ibv_create_qp_ex(3) of a target queue pair, which has a domain and nothing else. */
function createTarget(context: ibv_context, attr: ibv_qp_init_attr_ex): Promise<ibv_qp | null> {
  return pointer(async () => {
    verbsOf('context', context);
    if (attr.comp_mask !== IBV_QP_INIT_ATTR_XRCD || !attr.xrcd)
      throw invalid('comp_mask', `0x${attr.comp_mask?.toString(16)}`, 'IBV_QP_INIT_ATTR_XRCD, and xrcd');
    const target = await verbsOf('xrcd', attr.xrcd).createTarget({ context: attr.qp_context });
    return new ibv_qp(context, null, null, null, target);
  });
}

/**
 * ibv_create_qp_ex(3): as `ibv_create_qp`, for posting by `ibv_wr_…` with `send_ops_flags`; and IBV_QPT_XRC_RECV in a domain
 * (`xrcd`). EOPNOTSUPP for segmentation of TCP, receive side scaling and flags of creation; EINVAL for operations that there are
 * none of.
 */
export async function ibv_create_qp_ex(
  context: ibv_context,
  attr: ibv_qp_init_attr_ex,
): Promise<ibv_qp | null> {
  if (attr?.qp_type === IBV_QPT_XRC_RECV) return createTarget(context, attr);
  const checked = await pointer(() => {
    verbsOf('context', context);
    const { send_ops_flags = 0, ...more } = given('qp_init_attr_ex', attr);
    const comp_mask = integer('comp_mask', more.comp_mask);
    if ((comp_mask & IBV_QP_INIT_ATTR_PD) === 0 || !attr.pd)
      throw invalid('comp_mask', 'no protection domain', 'IBV_QP_INIT_ATTR_PD, and pd');
    if ((comp_mask & ~CREATE_EX) !== 0) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `comp_mask: 0x${(comp_mask & ~CREATE_EX).toString(16)}`, {
        errno: 'EOPNOTSUPP',
        attribute: 'comp_mask',
        expected: 'IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS',
      });
    }
    const operations = (comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) !== 0 ? Number(send_ops_flags) : 0;
    checkSendOps(operations);
    return { pd: attr.pd, operations };
  });
  if (!checked) return null;
  const qp = await ibv_create_qp(checked.pd, attr as ibv_qp_init_attr);
  if (qp) allowSendOps(qp, checked.operations);
  return qp;
}

/** The same error, with an attribute under the name that it has in C and nowhere else. */
function renamed({ code, message, errno, expected, cause }: RoceError, from: string, to: string): RoceError {
  const suffix = expected === undefined ? '' : ` (expected ${expected})`;
  const text = message.slice(0, message.length - suffix.length).replace(`${from}:`, `${to}:`);
  return new RoceError(code, text, {
    errno,
    attribute: to,
    ...(expected === undefined ? {} : { expected }),
    ...(cause === undefined ? {} : { cause }),
  });
}

/**
 * ibv_modify_qp(3): the attributes that the mask names, one left out counting as 0; all of it or nothing.
 * EINVAL, and `lastError()` names the attribute: missing in the step, not taken by it, out of range, or a size that what
 * is posted does not fit into. EOPNOTSUPP for path migration unless the device was opened with `experimental: ['apm']`. `attr.cap` is set to what a resize came to.
 */
export function ibv_modify_qp(qp: ibv_qp, attr: ibv_qp_attr, attr_mask: number): Promise<number> {
  return status(async () => {
    await stateOf(qp).modify(masked(given('attr', attr), attr_mask));
    if ((attr_mask & IBV_QP_CAP) !== 0) attr.cap = fromCap(qp.verbs.cap);
  });
}

/**
 * ibv_modify_qp_rate_limit(3): kbps, 0 for none; in RTS. The size of bursts can't be chosen: EOPNOTSUPP.
 */
export function ibv_modify_qp_rate_limit(
  qp: ibv_qp,
  attr: { rate_limit: number; max_burst_sz?: number; typical_pkt_sz?: number },
): Promise<number> {
  return status(async () => {
    for (const attribute of ['max_burst_sz', 'typical_pkt_sz'] as const) {
      if (!given('attr', attr)[attribute]) continue;
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `${attribute}: the size of bursts cannot be chosen`, {
        errno: 'EOPNOTSUPP',
        attribute,
        expected: '0',
      });
    }
    await stateOf(qp).modify({ rateLimit: attr.rate_limit });
  });
}

/**
 * ibv_query_qp(3): fills `attr` with all that is valid in the state; the rest is `undefined`. The mask is a hint, and
 * only checked. `init_attr` is filled as it was created.
 */
export function ibv_query_qp(
  qp: ibv_qp,
  attr: ibv_qp_attr,
  attr_mask: number,
  init_attr?: Partial<ibv_qp_init_attr> | null,
): Promise<number> {
  return status(async () => {
    const names = namesOf(attr_mask);
    const target = qp?.target;
    const { attr: found, init = NO_QUEUES } = target
      ? { ...(await target.query()), init: undefined }
      : await verbsOf('qp', qp).query(names);
    Object.assign(given('attr', attr), fromQpAttr(found));
    if (!init_attr) return;
    Object.assign(init_attr, {
      qp_context: qp.qp_context,
      send_cq: qp.send_cq,
      recv_cq: qp.recv_cq,
      srq: qp.srq,
      cap: fromCap(init.cap),
      qp_type: qp.qp_type,
      sq_sig_all: init.sqSigAll ? 1 : 0,
    } satisfies ibv_qp_init_attr);
  });
}

/**
 * ibv_query_qp_data_in_order(3): 0, no promise, for every operation. Packets are placed in the order of their PSNs, but
 * within one the bytes are copied as `memcpy` likes: poll for the completion.
 */
export function ibv_query_qp_data_in_order(qp: ibv_qp, _op: number, _flags: number): number {
  statusNow(() => void stateOf(qp));
  return 0;
}

/** ibv_destroy_qp(3): EBUSY while it is in a multicast group, or has flows. Waits for async events to be acknowledged. */
export function ibv_destroy_qp(qp: ibv_qp): Promise<number> {
  return status(async () => {
    const queues = stateOf(qp);
    await closeWithoutFlows(qp, () => queues.close());
    qp.pd?.gone(qp);
  });
}

/** ibv_create_srq(3): `srq_init_attr.attr` is set to what was created. EINVAL beyond the device. */
export function ibv_create_srq(pd: ibv_pd, srq_init_attr: ibv_srq_init_attr): Promise<ibv_srq | null> {
  return pointer(async () => {
    const { attr, srq_context } = given('srq_init_attr', srq_init_attr);
    const { max_wr = 0, max_sge = 0, srq_limit = 0 } = given('attr', attr);
    const srq = await verbsOf('pd', pd).createSrq({
      maxWr: max_wr,
      maxSge: max_sge,
      limit: srq_limit,
      context: srq_context,
    });
    attr.max_wr = srq.maxWr;
    attr.max_sge = srq.maxSge;
    return new ibv_srq(pd, srq);
  });
}

/** ibv_modify_srq(3): IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT. EINVAL below what is posted, and below a limit that stays. */
export function ibv_modify_srq(srq: ibv_srq, srq_attr: ibv_srq_attr, srq_attr_mask: number): Promise<number> {
  return status(async () => {
    if ((srq_attr_mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) !== 0) {
      throw invalid('srq_attr_mask', `0x${srq_attr_mask.toString(16)}`, 'IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT');
    }
    const { max_wr = 0, srq_limit = 0 } = given('srq_attr', srq_attr);
    await verbsOf('srq', srq).modify({
      ...((srq_attr_mask & IBV_SRQ_MAX_WR) !== 0 ? { maxWr: max_wr } : {}),
      ...((srq_attr_mask & IBV_SRQ_LIMIT) !== 0 ? { limit: srq_limit } : {}),
    });
  });
}

/** ibv_query_srq(3): fills `srq_attr`; a limit that was reached reads 0. */
export function ibv_query_srq(srq: ibv_srq, srq_attr: ibv_srq_attr): Promise<number> {
  return status(async () => {
    const { maxWr, maxSge, limit } = await verbsOf('srq', srq).query();
    const found: ibv_srq_attr = { max_wr: maxWr, max_sge: maxSge, srq_limit: limit };
    Object.assign(given('srq_attr', srq_attr), found);
  });
}

/** ibv_get_srq_num(3): element 0 of `srq_num` is set to the number that requests of XRC name the queue by; to the device's own, of other queues. */
export function ibv_get_srq_num(srq: ibv_srq, srq_num: number[]): number {
  return statusNow(() => {
    const { number, handle } = verbsOf('srq', srq);
    given('srq_num', srq_num)[0] = number ?? handle;
  });
}

/** ibv_destroy_srq(3): EBUSY while queue pairs use it. Waits for async events to be acknowledged. */
export function ibv_destroy_srq(srq: ibv_srq): Promise<number> {
  return status(async () => {
    await verbsOf('srq', srq).destroy();
    srq.pd.gone(srq);
  });
}
