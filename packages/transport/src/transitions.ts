/**
 * The state machine of a queue pair as data: the attributes that a transition requires, and those that it may
 * carry. Others are not allowed.
 *
 * Source: the tables of ibv_modify_qp(3) for the required ones, Linux `qp_state_table` (the kernel's
 * contract for every device) for the optional ones, IBTA vol 1 §10.3.1 and §11.2.5.2.
 */
import type { QpState, QpType } from './constants.ts';
import type { QpAttr } from './control.ts';

export type QpAttrName = keyof QpAttr;

export interface Transition {
  readonly required: readonly QpAttrName[];
  readonly optional: readonly QpAttrName[];
}

type From = QpState;
type To = QpState;
type Table = Partial<Record<From, Partial<Record<To, Transition>>>>;

const t = (required: readonly QpAttrName[], optional: readonly QpAttrName[] = []): Transition => ({
  required,
  optional,
});

/** The alternate path is four attributes of one mask bit (IBV_QP_ALT_PATH). */
export const ALT_PATH: readonly QpAttrName[] = ['altAhAttr', 'altPkeyIndex', 'altPortNum', 'altTimeout'];

/** From every state to RESET and, but for RESET, to ERR: always allowed, with nothing but the state. */
const ALWAYS = t([]);

const UD: Table = {
  RESET: { INIT: t(['pkeyIndex', 'portNum', 'qkey']) },
  INIT: { INIT: t([], ['pkeyIndex', 'portNum', 'qkey']), RTR: t([], ['pkeyIndex', 'qkey']) },
  RTR: { RTS: t(['sqPsn'], ['curQpState', 'qkey', 'rateLimit']) },
  RTS: { RTS: t([], ['curQpState', 'qkey', 'rateLimit']), SQD: t([], ['enSqdAsyncNotify']) },
  SQD: { RTS: t([], ['curQpState', 'qkey']), SQD: t([], ['pkeyIndex', 'qkey']) },
  SQE: { RTS: t([], ['curQpState', 'qkey']) },
};

const UC: Table = {
  RESET: { INIT: t(['pkeyIndex', 'portNum', 'qpAccessFlags']) },
  INIT: {
    INIT: t([], ['pkeyIndex', 'portNum', 'qpAccessFlags']),
    RTR: t(['ahAttr', 'pathMtu', 'destQpNum', 'rqPsn'], [...ALT_PATH, 'qpAccessFlags', 'pkeyIndex']),
  },
  RTR: { RTS: t(['sqPsn'], ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState', 'rateLimit']) },
  RTS: {
    RTS: t([], ['curQpState', 'qpAccessFlags', ...ALT_PATH, 'pathMigState', 'rateLimit']),
    SQD: t([], ['enSqdAsyncNotify']),
  },
  SQD: {
    RTS: t([], ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState']),
    SQD: t([], ['ahAttr', ...ALT_PATH, 'qpAccessFlags', 'pkeyIndex', 'pathMigState']),
  },
  SQE: { RTS: t([], ['curQpState', 'qpAccessFlags']) },
};

const RC: Table = {
  RESET: { INIT: t(['pkeyIndex', 'portNum', 'qpAccessFlags']) },
  INIT: {
    INIT: t([], ['pkeyIndex', 'portNum', 'qpAccessFlags']),
    RTR: t(
      ['ahAttr', 'pathMtu', 'destQpNum', 'rqPsn', 'maxDestRdAtomic', 'minRnrTimer'],
      [...ALT_PATH, 'qpAccessFlags', 'pkeyIndex', 'rateLimit'],
    ),
  },
  RTR: {
    RTS: t(
      ['sqPsn', 'timeout', 'retryCnt', 'rnrRetry', 'maxRdAtomic'],
      ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState', 'minRnrTimer', 'rateLimit'],
    ),
  },
  RTS: {
    RTS: t([], ['curQpState', 'qpAccessFlags', ...ALT_PATH, 'pathMigState', 'minRnrTimer', 'rateLimit']),
    SQD: t([], ['enSqdAsyncNotify']),
  },
  SQD: {
    RTS: t([], ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState', 'minRnrTimer']),
    SQD: t(
      [],
      [
        'ahAttr',
        ...ALT_PATH,
        'qpAccessFlags',
        'pkeyIndex',
        'pathMigState',
        'portNum',
        'timeout',
        'retryCnt',
        'rnrRetry',
        'maxRdAtomic',
        'maxDestRdAtomic',
        'minRnrTimer',
      ],
    ),
  },
};

/** Linux `qp_state_table` [IB_QPT_XRC_INI]: RC without what a responder needs. */
const XRC_INI: Table = {
  RESET: { INIT: t(['pkeyIndex', 'portNum', 'qpAccessFlags']) },
  INIT: {
    INIT: t([], ['pkeyIndex', 'portNum', 'qpAccessFlags']),
    RTR: t(['ahAttr', 'pathMtu', 'destQpNum', 'rqPsn'], [...ALT_PATH, 'qpAccessFlags', 'pkeyIndex']),
  },
  RTR: {
    RTS: t(
      ['sqPsn', 'timeout', 'retryCnt', 'rnrRetry', 'maxRdAtomic'],
      ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState', 'rateLimit'],
    ),
  },
  RTS: {
    RTS: t([], ['curQpState', 'qpAccessFlags', ...ALT_PATH, 'pathMigState', 'rateLimit']),
    SQD: t([], ['enSqdAsyncNotify']),
  },
  SQD: {
    RTS: t([], ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState']),
    SQD: t(
      [],
      [
        'portNum',
        'ahAttr',
        'timeout',
        'retryCnt',
        'rnrRetry',
        'maxRdAtomic',
        ...ALT_PATH,
        'qpAccessFlags',
        'pkeyIndex',
        'pathMigState',
      ],
    ),
  },
};

/** Linux `qp_state_table` [IB_QPT_XRC_TGT]: RC without what a requester needs, but for `timeout`. */
const XRC_TGT: Table = {
  RESET: { INIT: t(['pkeyIndex', 'portNum', 'qpAccessFlags']) },
  INIT: {
    INIT: t([], ['pkeyIndex', 'portNum', 'qpAccessFlags']),
    RTR: t(
      ['ahAttr', 'pathMtu', 'destQpNum', 'rqPsn', 'maxDestRdAtomic', 'minRnrTimer'],
      [...ALT_PATH, 'qpAccessFlags', 'pkeyIndex'],
    ),
  },
  RTR: {
    RTS: t(['sqPsn', 'timeout'], ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState', 'minRnrTimer']),
  },
  RTS: {
    RTS: t([], ['curQpState', 'qpAccessFlags', ...ALT_PATH, 'pathMigState', 'minRnrTimer']),
    SQD: t([], ['enSqdAsyncNotify']),
  },
  SQD: {
    RTS: t([], ['curQpState', ...ALT_PATH, 'qpAccessFlags', 'pathMigState', 'minRnrTimer']),
    SQD: t(
      [],
      [
        'portNum',
        'ahAttr',
        'timeout',
        'maxDestRdAtomic',
        ...ALT_PATH,
        'qpAccessFlags',
        'pkeyIndex',
        'minRnrTimer',
        'pathMigState',
      ],
    ),
  },
};

const RAW_PACKET: Table = {
  RESET: { INIT: t(['portNum']) },
  INIT: { INIT: t([]), RTR: t([]) },
  RTR: { RTS: t([], ['rateLimit']) },
  RTS: { RTS: t([], ['rateLimit']), SQD: t([]) },
  SQD: { RTS: t([]), SQD: t([]) },
  SQE: { RTS: t([]) },
};

/**
 * IBV_QP_CAP in every step, which Linux' table has in none: no driver of its resizes (IBTA vol 1 §11.2.5.2). A target queue pair of XRC has
 * no queues. (IBV_QP_RATE_LIMIT of UC, UD and XRC_INI is in the steps to RTS, where RAW_PACKET's is: Linux leaves it to the driver.)
 */
function resizing(table: Table): Table {
  const steps = (row: Partial<Record<To, Transition>>) =>
    Object.entries(row).map(([to, { required, optional }]) => [to, t(required, [...optional, 'cap'])]);
  return Object.fromEntries(
    Object.entries(table).map(([from, row]) => [from, Object.fromEntries(steps(row))]),
  );
}

const RESIZING_UD = resizing(UD);
const TABLES: Record<QpType, Table> = {
  RC: resizing(RC),
  UC: resizing(UC),
  UD: RESIZING_UD,
  GSI: RESIZING_UD,
  RAW_PACKET: resizing(RAW_PACKET),
  XRC_INI: resizing(XRC_INI),
  XRC_TGT,
};

/** The transition of a type from a state to a state, or undefined where it is not allowed. */
export function transition(type: QpType, from: QpState, to: QpState): Transition | undefined {
  const listed = TABLES[type][from]?.[to];
  if (listed) return listed;
  if (to === 'RESET' || (to === 'ERR' && from !== 'RESET')) return ALWAYS;
  return undefined;
}

/** The states that a type may go to from a state, for messages. */
export function statesFrom(type: QpType, from: QpState): QpState[] {
  const all: QpState[] = ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'];
  return all.filter((to) => transition(type, from, to) !== undefined);
}

const CONNECTED_INIT: readonly QpAttrName[] = ['pkeyIndex', 'portNum', 'qpAccessFlags'];
const UC_RTR: readonly QpAttrName[] = [
  ...CONNECTED_INIT,
  'ahAttr',
  'pathMtu',
  'destQpNum',
  'rqPsn',
  ...ALT_PATH,
];
const UC_RTS: readonly QpAttrName[] = [...UC_RTR, 'sqPsn', 'pathMigState', 'rateLimit'];
const RC_RTR: readonly QpAttrName[] = [...UC_RTR, 'maxDestRdAtomic', 'minRnrTimer'];
const RC_RTS: readonly QpAttrName[] = [
  ...RC_RTR,
  'sqPsn',
  'timeout',
  'retryCnt',
  'rnrRetry',
  'maxRdAtomic',
  'rateLimit',
  'pathMigState',
];
const INI_RTS: readonly QpAttrName[] = [...UC_RTS, 'timeout', 'retryCnt', 'rnrRetry', 'maxRdAtomic'];
const TGT_RTS: readonly QpAttrName[] = [...RC_RTR, 'sqPsn', 'timeout', 'pathMigState'];
const UD_INIT: readonly QpAttrName[] = ['pkeyIndex', 'portNum', 'qkey'];
const UD_RTS: readonly QpAttrName[] = [...UD_INIT, 'sqPsn', 'rateLimit'];

const VALID_UD: Record<QpState, readonly QpAttrName[]> = {
  RESET: [],
  INIT: UD_INIT,
  RTR: UD_INIT,
  RTS: UD_RTS,
  SQD: [...UD_RTS, 'sqDraining'],
  SQE: UD_RTS,
  ERR: [],
};

/**
 * Attributes that a query returns in each state, in addition to the state itself and `cap`, which are always returned.
 * Source: the tables of ibv_query_qp(3) as printed by RDMAmojo. The alternate path is there while one is loaded, the state of
 * migration on devices whose paths migrate.
 */
export const VALID_IN_STATE: Record<QpType, Record<QpState, readonly QpAttrName[]>> = {
  RC: {
    RESET: [],
    INIT: CONNECTED_INIT,
    RTR: RC_RTR,
    RTS: RC_RTS,
    SQD: [...RC_RTS, 'sqDraining'],
    SQE: [],
    ERR: [],
  },
  UC: {
    RESET: [],
    INIT: CONNECTED_INIT,
    RTR: UC_RTR,
    RTS: UC_RTS,
    SQD: [...UC_RTS, 'sqDraining'],
    SQE: UC_RTS,
    ERR: [],
  },
  UD: VALID_UD,
  GSI: VALID_UD,
  // The pages have no table of these: what the steps to the state have set.
  XRC_INI: {
    RESET: [],
    INIT: CONNECTED_INIT,
    RTR: UC_RTR,
    RTS: INI_RTS,
    SQD: [...INI_RTS, 'sqDraining'],
    SQE: [],
    ERR: [],
  },
  XRC_TGT: {
    RESET: [],
    INIT: CONNECTED_INIT,
    RTR: RC_RTR,
    RTS: TGT_RTS,
    SQD: [...TGT_RTS, 'sqDraining'],
    SQE: [],
    ERR: [],
  },
  RAW_PACKET: {
    RESET: [],
    INIT: ['portNum'],
    RTR: ['portNum'],
    RTS: ['portNum', 'rateLimit'],
    SQD: ['portNum', 'rateLimit', 'sqDraining'],
    SQE: ['portNum', 'rateLimit'],
    ERR: [],
  },
};
