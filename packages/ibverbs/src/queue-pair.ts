/** Queue pairs and shared receive queues: create, modify, query, destroy. */
import { invalid, type QpType, RoceError } from '@node-roce/transport';
import { IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR } from './constants.ts';
import { pointer, status } from './errno.ts';
import { given, type ibv_pd, ibv_qp, ibv_srq, QP_TYPE_CODES, verbsOf } from './objects.ts';
import { fromCap, fromQpAttr, masked, namesOf, toCap } from './qp-attr.ts';
import type { ibv_qp_attr, ibv_qp_init_attr, ibv_srq_attr, ibv_srq_init_attr } from './structs.ts';

const TYPE_NAMES = new Map(Object.entries(QP_TYPE_CODES).map(([name, code]) => [code, name as QpType]));

/**
 * ibv_create_qp(3): in RESET. `qp_init_attr.cap` is set to what was created, at least what was asked for.
 * EINVAL beyond the device (`ibv_query_device`), EOPNOTSUPP for another type than RC, UC and UD.
 */
export function ibv_create_qp(pd: ibv_pd, qp_init_attr: ibv_qp_init_attr): Promise<ibv_qp | null> {
  return pointer(async () => {
    const {
      qp_type,
      send_cq,
      recv_cq,
      srq = null,
      sq_sig_all,
      qp_context,
    } = given('qp_init_attr', qp_init_attr);
    const type = TYPE_NAMES.get(qp_type);
    if (!type) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `qp_type: ${qp_type} is not offered`, {
        errno: 'EOPNOTSUPP',
        attribute: 'qp_type',
        expected: 'IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD',
      });
    }
    if (!send_cq) throw invalid('send_cq', 'none', 'a completion queue');
    if (!recv_cq) throw invalid('recv_cq', 'none', 'a completion queue');
    const qp = await verbsOf('pd', pd).createQp({
      type,
      sendCq: verbsOf('cq', send_cq, 'send_cq'),
      recvCq: verbsOf('cq', recv_cq, 'recv_cq'),
      ...(srq ? { srq: verbsOf('srq', srq) } : {}),
      cap: toCap(qp_init_attr.cap ?? {}),
      sqSigAll: Boolean(sq_sig_all),
      context: qp_context,
    });
    qp_init_attr.cap = fromCap(qp.cap);
    return new ibv_qp(pd, send_cq, recv_cq, srq, qp);
  });
}

/**
 * ibv_modify_qp(3): the attributes that the mask names, one left out counting as 0; all of it or nothing.
 * EINVAL, and `lastError()` names the attribute: missing in the step, not taken by it, or out of range. EOPNOTSUPP for
 * path migration and resizing.
 */
export function ibv_modify_qp(qp: ibv_qp, attr: ibv_qp_attr, attr_mask: number): Promise<number> {
  return status(() => verbsOf('qp', qp).modify(masked(attr, attr_mask)));
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
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', `${attribute}: bursts have no size to choose`, {
        errno: 'EOPNOTSUPP',
        attribute,
        expected: '0',
      });
    }
    await verbsOf('qp', qp).modify({ rateLimit: attr.rate_limit });
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
    const found = await verbsOf('qp', qp).query(namesOf(attr_mask));
    Object.assign(attr, fromQpAttr(found.attr));
    if (!init_attr) return;
    Object.assign(init_attr, {
      qp_context: qp.qp_context,
      send_cq: qp.send_cq,
      recv_cq: qp.recv_cq,
      srq: qp.srq,
      cap: fromCap(found.init.cap),
      qp_type: qp.qp_type,
      sq_sig_all: found.init.sqSigAll ? 1 : 0,
    } satisfies ibv_qp_init_attr);
  });
}

/** ibv_destroy_qp(3): EBUSY while it is in a multicast group. Waits for async events to be acknowledged. */
export function ibv_destroy_qp(qp: ibv_qp): Promise<number> {
  return status(() => verbsOf('qp', qp).close());
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

/** ibv_modify_srq(3): IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT. EINVAL below what is posted. */
export function ibv_modify_srq(srq: ibv_srq, srq_attr: ibv_srq_attr, srq_attr_mask: number): Promise<number> {
  return status(async () => {
    if ((srq_attr_mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) !== 0) {
      throw invalid('srq_attr_mask', `0x${srq_attr_mask.toString(16)}`, 'IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT');
    }
    await verbsOf('srq', srq).modify({
      ...((srq_attr_mask & IBV_SRQ_MAX_WR) !== 0 ? { maxWr: srq_attr.max_wr ?? 0 } : {}),
      ...((srq_attr_mask & IBV_SRQ_LIMIT) !== 0 ? { limit: srq_attr.srq_limit ?? 0 } : {}),
    });
  });
}

/** ibv_query_srq(3): fills `srq_attr`; a limit that was reached reads 0. */
export function ibv_query_srq(srq: ibv_srq, srq_attr: ibv_srq_attr): Promise<number> {
  return status(async () => {
    const { maxWr, maxSge, limit } = await verbsOf('srq', srq).query();
    Object.assign(srq_attr, { max_wr: maxWr, max_sge: maxSge, srq_limit: limit } satisfies ibv_srq_attr);
  });
}

/** ibv_destroy_srq(3): EBUSY while queue pairs use it. Waits for async events to be acknowledged. */
export function ibv_destroy_srq(srq: ibv_srq): Promise<number> {
  return status(() => verbsOf('srq', srq).destroy());
}
