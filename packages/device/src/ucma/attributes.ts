/** The attributes of a queue pair that the program moves itself (core/cm.c `ib_cm_init_qp_attr`). */
import { constants } from 'node:os';
import { RDMA_UDP_QKEY } from '@node-roce/rdmacm/parts';
import { Access, type QpAttr } from '@node-roce/verbs-api';
import { Failed } from '../protocol.ts';
import { QpStates } from './abi.ts';

const { EINVAL } = constants.errno;

/** Queue pairs that an id may have, by their number in `enum ibv_qp_type`. */
export const QP_TYPES = { 2: 'RC', 3: 'UC', 4: 'UD' } as const;
export type QpTypeName = (typeof QP_TYPES)[keyof typeof QP_TYPES];

/** The facts about an id that its attributes depend on. */
export interface Side {
  qpType: QpTypeName;
  /** A connection is under way. */
  isConnected: boolean;
  /** READs and atomics that this side serves. */
  served: number;
  /** Returns those of a connection whose peer has stated its terms; throws EINVAL before. */
  steps(): { rtr: QpAttr; rts: QpAttr };
}

const PORT: QpAttr = { pkeyIndex: 0, portNum: 1 };

/** @throws Failed EINVAL for a state without attributes */
export function qpAttributes(state: number, { qpType, isConnected, served, steps }: Side): QpAttr {
  if (qpType === 'UD') return datagramAttributes(state);
  if (state === QpStates.INIT) {
    if (!isConnected) return { ...PORT, qpAccessFlags: 0 };
    const access = served > 0 ? Access.REMOTE_READ | Access.REMOTE_ATOMIC : 0;
    return { ...PORT, qpAccessFlags: Access.REMOTE_WRITE | access };
  }
  if (state !== QpStates.RTR && state !== QpStates.RTS) throw new Failed(EINVAL);
  const { rtr, rts } = steps();
  const { qpState: _state, qpAccessFlags: _access, ...attr } = state === QpStates.RTR ? rtr : rts;
  if (qpType === 'RC') return attr;
  const { maxDestRdAtomic: _dest, maxRdAtomic: _max, minRnrTimer: _rnr, ...rest } = attr;
  const { timeout: _timeout, retryCnt: _retries, rnrRetry: _rnrRetries, ...unreliable } = rest;
  return unreliable;
}

function datagramAttributes(state: number): QpAttr {
  if (state === QpStates.INIT) return { ...PORT, qkey: RDMA_UDP_QKEY };
  return state === QpStates.RTS ? { sqPsn: 0 } : {};
}
