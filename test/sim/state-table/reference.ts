/**
 * The state table of a queue pair as the references print it, written down a second time and by hand: the
 * required attributes are those of ibv_modify_qp(3), the optional ones those of Linux `qp_state_table`
 * (IBTA vol 1 §11.2.5.2). Nothing here comes from packages/transport: the tests compare the one with the other.
 */
import type { QpAttr, QpState, QpType } from '@node-roce/transport';

export const TYPES: readonly QpType[] = ['RC', 'UC', 'UD', 'GSI', 'RAW_PACKET', 'XRC_INI', 'XRC_TGT'];
/** Types without the state SQE: what fails takes them to ERR. */
export const RELIABLE: readonly QpType[] = ['RC', 'XRC_INI', 'XRC_TGT'];
/** Types without queues, which are not resized and not paced. */
export const WITHOUT_QUEUES: readonly QpType[] = ['XRC_TGT'];
export const STATES: readonly QpState[] = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'];

/** The bits of `enum ibv_qp_attr_mask` without IBV_QP_, and the members of `struct ibv_qp_attr` they stand for. */
const members = {
  CUR_STATE: ['curQpState'],
  EN_SQD_ASYNC_NOTIFY: ['enSqdAsyncNotify'],
  ACCESS_FLAGS: ['qpAccessFlags'],
  PKEY_INDEX: ['pkeyIndex'],
  PORT: ['portNum'],
  QKEY: ['qkey'],
  AV: ['ahAttr'],
  PATH_MTU: ['pathMtu'],
  TIMEOUT: ['timeout'],
  RETRY_CNT: ['retryCnt'],
  RNR_RETRY: ['rnrRetry'],
  RQ_PSN: ['rqPsn'],
  MAX_QP_RD_ATOMIC: ['maxRdAtomic'],
  ALT_PATH: ['altAhAttr', 'altPkeyIndex', 'altPortNum', 'altTimeout'],
  MIN_RNR_TIMER: ['minRnrTimer'],
  SQ_PSN: ['sqPsn'],
  MAX_DEST_RD_ATOMIC: ['maxDestRdAtomic'],
  PATH_MIG_STATE: ['pathMigState'],
  CAP: ['cap'],
  DEST_QPN: ['destQpNum'],
  RATE_LIMIT: ['rateLimit'],
} satisfies Record<string, readonly (keyof QpAttr)[]>;

export type Mask = keyof typeof members;
export const MEMBERS: Record<Mask, readonly (keyof QpAttr)[]> = members;

/** Bits that a device without IBV_DEVICE_AUTO_PATH_MIG does not take. */
export const NOT_OFFERED: readonly Mask[] = ['ALT_PATH', 'PATH_MIG_STATE'];

/** `from to: required / optional`. */
const UD = `
  RESET INIT: PKEY_INDEX PORT QKEY /
  INIT INIT:  / PKEY_INDEX PORT QKEY
  INIT RTR:   / PKEY_INDEX QKEY
  RTR RTS:    SQ_PSN / CUR_STATE QKEY
  RTS RTS:    / CUR_STATE QKEY
  RTS SQD:    / EN_SQD_ASYNC_NOTIFY
  SQD RTS:    / CUR_STATE QKEY
  SQD SQD:    / PKEY_INDEX QKEY
  SQE RTS:    / CUR_STATE QKEY
`;

const UC = `
  RESET INIT: PKEY_INDEX PORT ACCESS_FLAGS /
  INIT INIT:  / PKEY_INDEX PORT ACCESS_FLAGS
  INIT RTR:   AV PATH_MTU DEST_QPN RQ_PSN / ALT_PATH ACCESS_FLAGS PKEY_INDEX
  RTR RTS:    SQ_PSN / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
  RTS RTS:    / CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
  RTS SQD:    / EN_SQD_ASYNC_NOTIFY
  SQD RTS:    / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
  SQD SQD:    / AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
  SQE RTS:    / CUR_STATE ACCESS_FLAGS
`;

const RC = `
  RESET INIT: PKEY_INDEX PORT ACCESS_FLAGS /
  INIT INIT:  / PKEY_INDEX PORT ACCESS_FLAGS
  INIT RTR:   AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER / ALT_PATH ACCESS_FLAGS PKEY_INDEX RATE_LIMIT
  RTR RTS:    SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER RATE_LIMIT
  RTS RTS:    / CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER RATE_LIMIT
  RTS SQD:    / EN_SQD_ASYNC_NOTIFY
  SQD RTS:    / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE MIN_RNR_TIMER
  SQD SQD:    / AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE PORT TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC MIN_RNR_TIMER
`;

/** IBV_QPT_RAW_PACKET of ibv_modify_qp(3); IB_QPT_RAW_PACKET of Linux. */
const RAW_PACKET = `
  RESET INIT: PORT /
  INIT INIT:  /
  INIT RTR:   /
  RTR RTS:    / RATE_LIMIT
  RTS RTS:    / RATE_LIMIT
  RTS SQD:    /
  SQD RTS:    /
  SQD SQD:    /
  SQE RTS:    /
`;

/** IB_QPT_XRC_INI of Linux; ibv_modify_qp(3) has no table of it. */
const XRC_INI = `
  RESET INIT: PKEY_INDEX PORT ACCESS_FLAGS /
  INIT INIT:  / PKEY_INDEX PORT ACCESS_FLAGS
  INIT RTR:   AV PATH_MTU DEST_QPN RQ_PSN / ALT_PATH ACCESS_FLAGS PKEY_INDEX
  RTR RTS:    TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
  RTS RTS:    / CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
  RTS SQD:    / EN_SQD_ASYNC_NOTIFY
  SQD RTS:    / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
  SQD SQD:    / PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
`;

/** IB_QPT_XRC_TGT of Linux. */
const XRC_TGT = `
  RESET INIT: PKEY_INDEX PORT ACCESS_FLAGS /
  INIT INIT:  / PKEY_INDEX PORT ACCESS_FLAGS
  INIT RTR:   AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER / ALT_PATH ACCESS_FLAGS PKEY_INDEX
  RTR RTS:    TIMEOUT SQ_PSN / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
  RTS RTS:    / CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
  RTS SQD:    / EN_SQD_ASYNC_NOTIFY
  SQD RTS:    / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
  SQD SQD:    / PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
`;

const TEXTS: Record<QpType, string> = { RC, UC, UD, GSI: UD, RAW_PACKET, XRC_INI, XRC_TGT };

export interface Cell {
  required: Mask[];
  optional: Mask[];
}

/** Steps that take IBV_QP_RATE_LIMIT, which Linux leaves to the driver but for RAW_PACKET. */
const PACING = ['RTR RTS', 'RTS RTS'];

/**
 * @param hasQueues IBV_QP_CAP is in every step (IBTA vol 1 §11.2.5.2; Linux has no driver that resizes), IBV_QP_RATE_LIMIT in those of
 *   `PACING`
 */
function parse(text: string, hasQueues: boolean): Map<string, Cell> {
  const words = (part: string) => part.split(' ').filter(Boolean) as Mask[];
  const lines = text.trim().split('\n');
  return new Map(
    lines.map((line) => {
      const [, step, required, optional] = /^\s*(\w+ \w+):([^/]*)\/(.*)$/.exec(line)!;
      const own: Mask[] = !hasQueues ? [] : PACING.includes(step) ? ['CAP', 'RATE_LIMIT'] : ['CAP'];
      return [step, { required: words(required), optional: [...new Set([...words(optional), ...own])] }];
    }),
  );
}

const TABLES = Object.fromEntries(
  TYPES.map((type) => [type, parse(TEXTS[type], !WITHOUT_QUEUES.includes(type))]),
);

/** The attributes of a step, or undefined where there is no such step. */
export function cellOf(type: QpType, from: QpState, to: QpState): Cell | undefined {
  const listed = TABLES[type].get(`${from} ${to}`);
  if (listed) return listed;
  // RESET from everywhere, ERR from everywhere but RESET, with the state alone.
  return to === 'RESET' || (to === 'ERR' && from !== 'RESET') ? { required: [], optional: [] } : undefined;
}

/** A good value for every attribute, and (second) another good one where there is another. */
export function goodValues(state: QpState, second = false): Record<keyof QpAttr, unknown> {
  const n = second ? 1 : 0;
  const ahAttr = {
    grh: {
      dgid: Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2 + n),
      flowLabel: 5 + n,
      sgidIndex: 0,
      hopLimit: 60 + n,
      trafficClass: 8 * n,
    },
    isGlobal: true,
    dlid: 0,
    sl: n,
    srcPathBits: 0,
    staticRate: 0,
    portNum: 1,
  };
  return {
    qpState: state,
    curQpState: state,
    enSqdAsyncNotify: true,
    qpAccessFlags: 2 + 4 * n,
    pkeyIndex: 0,
    portNum: 1,
    qkey: 0x1111_1111 + n,
    ahAttr,
    pathMtu: 1024 << n,
    timeout: 14 + n,
    retryCnt: 5 + n,
    rnrRetry: 5 + n,
    rqPsn: 100 + n,
    maxRdAtomic: 3 + n,
    altAhAttr: ahAttr,
    altPkeyIndex: 0,
    altPortNum: 1,
    altTimeout: 14,
    minRnrTimer: 12 + n,
    sqPsn: 200 + n,
    maxDestRdAtomic: 7 + n,
    pathMigState: 'MIGRATED',
    cap: { maxSendWr: 8, maxRecvWr: 8, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 },
    destQpNum: 300 + n,
    rateLimit: 1000 * n,
    sqDraining: false,
  };
}
