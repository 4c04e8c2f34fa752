/** `struct ibv_qp_attr` with its mask, and what verbs-api has for it. */
import { invalid, MIG_STATES, QP_STATES, type QpAttr, type QpCap } from '@node-roce/transport';
import { PATH_MTUS } from '@node-roce/wire';
import { fromAhAttr, toAhAttr } from './address.ts';
import { integer } from './arguments.ts';
import * as c from './constants.ts';
import type { ibv_qp_attr, ibv_qp_cap } from './structs.ts';

/** The attribute of each bit of the mask, in both APIs. */
const BITS: readonly [bit: number, members: readonly Member[]][] = [
  [c.IBV_QP_STATE, ['qp_state']],
  [c.IBV_QP_CUR_STATE, ['cur_qp_state']],
  [c.IBV_QP_EN_SQD_ASYNC_NOTIFY, ['en_sqd_async_notify']],
  [c.IBV_QP_ACCESS_FLAGS, ['qp_access_flags']],
  [c.IBV_QP_PKEY_INDEX, ['pkey_index']],
  [c.IBV_QP_PORT, ['port_num']],
  [c.IBV_QP_QKEY, ['qkey']],
  [c.IBV_QP_AV, ['ah_attr']],
  [c.IBV_QP_PATH_MTU, ['path_mtu']],
  [c.IBV_QP_TIMEOUT, ['timeout']],
  [c.IBV_QP_RETRY_CNT, ['retry_cnt']],
  [c.IBV_QP_RNR_RETRY, ['rnr_retry']],
  [c.IBV_QP_RQ_PSN, ['rq_psn']],
  [c.IBV_QP_MAX_QP_RD_ATOMIC, ['max_rd_atomic']],
  [c.IBV_QP_ALT_PATH, ['alt_ah_attr', 'alt_pkey_index', 'alt_port_num', 'alt_timeout']],
  [c.IBV_QP_MIN_RNR_TIMER, ['min_rnr_timer']],
  [c.IBV_QP_SQ_PSN, ['sq_psn']],
  [c.IBV_QP_MAX_DEST_RD_ATOMIC, ['max_dest_rd_atomic']],
  [c.IBV_QP_PATH_MIG_STATE, ['path_mig_state']],
  [c.IBV_QP_CAP, ['cap']],
  [c.IBV_QP_DEST_QPN, ['dest_qp_num']],
  [c.IBV_QP_RATE_LIMIT, ['rate_limit']],
];

type Member = Exclude<keyof ibv_qp_attr, 'sq_draining'>;

const KNOWN = BITS.reduce((mask, [bit]) => mask | bit, 0);

/** `rq_psn` to `rqPsn`. */
const camel = (name: string) =>
  name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()) as keyof QpAttr;

/** The attributes that the mask names; EINVAL for a bit that stands for none. */
export function masked(attr: ibv_qp_attr, mask: number): QpAttr {
  return Object.fromEntries(membersOf(mask).map((member) => [camel(member), memberValue(attr, member)]));
}

/** The names in verbs-api of the members in the mask. */
export function namesOf(mask: number): (keyof QpAttr)[] {
  return membersOf(mask).map(camel);
}

function membersOf(mask: number): Member[] {
  if ((integer('attr_mask', mask) & ~KNOWN) !== 0) {
    throw invalid('attr_mask', `unknown bits 0x${(mask & ~KNOWN).toString(16)}`, 'IBV_QP_… bits');
  }
  return BITS.flatMap(([bit, members]) => ((mask & bit) !== 0 ? members : []));
}

/** A member as verbs-api has it. An absent one is 0, as in C; the engine names one that is out of range. */
function memberValue(attr: ibv_qp_attr, member: Member): unknown {
  switch (member) {
    case 'qp_state':
    case 'cur_qp_state':
      return QP_STATES[attr[member] ?? 0] ?? attr[member];
    case 'path_mtu':
      return pathMtu(attr.path_mtu);
    case 'path_mig_state':
      return MIG_STATES[attr.path_mig_state ?? 0] ?? attr.path_mig_state;
    case 'ah_attr':
    case 'alt_ah_attr':
      return toAhAttr(attr[member]);
    case 'en_sqd_async_notify':
      return Boolean(attr.en_sqd_async_notify);
    case 'cap':
      return toCap(attr.cap ?? {});
    default:
      return attr[member] ?? 0;
  }
}

/** Bytes of an `enum ibv_mtu`. A number of bytes, the usual mistake, is refused with the name that it should be. */
function pathMtu(code = 0): number {
  const bytes = PATH_MTUS[code - 1];
  if (bytes !== undefined) return bytes;
  const meant = PATH_MTUS.includes(code as never) ? `IBV_MTU_${code}` : 'IBV_MTU_256 (1) … IBV_MTU_4096 (5)';
  throw invalid('path_mtu', `${code} is not an enum ibv_mtu`, meant);
}

export function toCap(cap: ibv_qp_cap): QpCap {
  return {
    maxSendWr: cap.max_send_wr ?? 0,
    maxRecvWr: cap.max_recv_wr ?? 0,
    maxSendSge: cap.max_send_sge ?? 0,
    maxRecvSge: cap.max_recv_sge ?? 0,
    maxInlineData: cap.max_inline_data ?? 0,
  };
}

export function fromCap(cap: Readonly<QpCap>): Required<ibv_qp_cap> {
  return {
    max_send_wr: cap.maxSendWr,
    max_recv_wr: cap.maxRecvWr,
    max_send_sge: cap.maxSendSge,
    max_recv_sge: cap.maxRecvSge,
    max_inline_data: cap.maxInlineData,
  };
}

/** The values of a query; `undefined` where one is not valid. */
export function fromQpAttr(attr: QpAttr): ibv_qp_attr {
  const stateCode = (state: QpAttr['qpState']) =>
    state === undefined ? undefined : QP_STATES.indexOf(state);
  return {
    qp_state: stateCode(attr.qpState),
    cur_qp_state: stateCode(attr.curQpState),
    path_mtu: attr.pathMtu === undefined ? undefined : PATH_MTUS.indexOf(attr.pathMtu as never) + 1,
    path_mig_state: attr.pathMigState === undefined ? undefined : MIG_STATES.indexOf(attr.pathMigState),
    qkey: attr.qkey,
    rq_psn: attr.rqPsn,
    sq_psn: attr.sqPsn,
    dest_qp_num: attr.destQpNum,
    qp_access_flags: attr.qpAccessFlags,
    cap: attr.cap && fromCap(attr.cap),
    ah_attr: attr.ahAttr && fromAhAttr(attr.ahAttr),
    alt_ah_attr: attr.altAhAttr && fromAhAttr(attr.altAhAttr),
    pkey_index: attr.pkeyIndex,
    alt_pkey_index: attr.altPkeyIndex,
    en_sqd_async_notify: undefined,
    sq_draining: attr.sqDraining === undefined ? undefined : Number(attr.sqDraining),
    max_rd_atomic: attr.maxRdAtomic,
    max_dest_rd_atomic: attr.maxDestRdAtomic,
    min_rnr_timer: attr.minRnrTimer,
    port_num: attr.portNum,
    timeout: attr.timeout,
    retry_cnt: attr.retryCnt,
    rnr_retry: attr.rnrRetry,
    alt_port_num: attr.altPortNum,
    alt_timeout: attr.altTimeout,
    rate_limit: attr.rateLimit,
  };
}
