/** The constants of `<infiniband/verbs.h>` that cross the engine's border, with their values there. */
import { FlushPlacement, FlushSelectivity } from '@node-roce/wire';

/** `enum ibv_qp_state`. */
export const QpStateCode = { RESET: 0, INIT: 1, RTR: 2, RTS: 3, SQD: 4, SQE: 5, ERR: 6 } as const;
/** States of a queue pair (IBTA vol 1 §10.3.1), as `enum ibv_qp_state` has them. */
export type QpState = keyof typeof QpStateCode;
export const QP_STATES = Object.keys(QpStateCode) as QpState[];

/**
 * Transport service types. GSI is QP1; RAW_PACKET sends and takes whole Ethernet frames; XRC_INI sends to the shared receive
 * queues of a domain, which XRC_TGT receives for (IBTA vol 1 annex A14).
 */
export type QpType = 'RC' | 'UC' | 'UD' | 'GSI' | 'RAW_PACKET' | 'XRC_INI' | 'XRC_TGT';

/** Parts of the specification that no other implementation has confirmed: refused unless a device is opened with them. */
export const EXPERIMENTAL = ['xrc', 'apm'] as const;
/** One of them, by name. */
export type Experimental = (typeof EXPERIMENTAL)[number];

/** States of path migration, in the order of `enum ibv_mig_state`. */
export const MIG_STATES = ['MIGRATED', 'REARM', 'ARMED'] as const;
/** One of them (IBTA vol 1 §17.2.8). */
export type MigState = (typeof MIG_STATES)[number];

/** `enum ibv_wr_opcode`. */
export const WrOpcode = {
  RDMA_WRITE: 0,
  RDMA_WRITE_WITH_IMM: 1,
  SEND: 2,
  SEND_WITH_IMM: 3,
  RDMA_READ: 4,
  ATOMIC_CMP_AND_SWP: 5,
  ATOMIC_FETCH_AND_ADD: 6,
  LOCAL_INV: 7,
  BIND_MW: 8,
  SEND_WITH_INV: 9,
  FLUSH: 14,
  ATOMIC_WRITE: 15,
} as const;
/** Operations of the send queue by name. */
export type WrOpcodeName = keyof typeof WrOpcode;

/** `enum ibv_send_flags`. */
export const SendFlags = { FENCE: 1, SIGNALED: 2, SOLICITED: 4, INLINE: 8 } as const;

/** `enum ibv_access_flags`. */
export const Access = {
  LOCAL_WRITE: 1,
  REMOTE_WRITE: 2,
  REMOTE_READ: 4,
  REMOTE_ATOMIC: 8,
  MW_BIND: 16,
  ZERO_BASED: 32,
  /** A FLUSH may make written data visible, or persistent (IBTA vol 1 annex A19). */
  FLUSH_GLOBAL: 256,
  FLUSH_PERSISTENT: 512,
} as const;

/** Guarantees that a FLUSH asks for, as in its header and in `ibv_wr_flush`. */
export const FlushType = {
  GLOBAL: FlushPlacement.GLOBAL_VISIBILITY,
  PERSISTENT: FlushPlacement.PERSISTENCE,
} as const;
/** Memory that a FLUSH covers: a range, or all of the region. */
export const FlushLevel = { RANGE: FlushSelectivity.RANGE, MR: FlushSelectivity.MEMORY_REGION } as const;

/** `enum ibv_wc_status`. */
export const WcStatus = {
  SUCCESS: 0,
  LOC_LEN_ERR: 1,
  LOC_QP_OP_ERR: 2,
  LOC_EEC_OP_ERR: 3,
  LOC_PROT_ERR: 4,
  WR_FLUSH_ERR: 5,
  MW_BIND_ERR: 6,
  BAD_RESP_ERR: 7,
  LOC_ACCESS_ERR: 8,
  REM_INV_REQ_ERR: 9,
  REM_ACCESS_ERR: 10,
  REM_OP_ERR: 11,
  RETRY_EXC_ERR: 12,
  RNR_RETRY_EXC_ERR: 13,
  LOC_RDD_VIOL_ERR: 14,
  REM_INV_RD_REQ_ERR: 15,
  REM_ABORT_ERR: 16,
  INV_EECN_ERR: 17,
  INV_EEC_STATE_ERR: 18,
  FATAL_ERR: 19,
  RESP_TIMEOUT_ERR: 20,
  GENERAL_ERR: 21,
  TM_ERR: 22,
  TM_RNDV_INCOMPLETE: 23,
} as const;
/** How a work request ended, by name (IBTA vol 1 §11.6.2). */
export type WcStatusName = keyof typeof WcStatus;
export const WC_STATUS_NAMES = Object.keys(WcStatus) as WcStatusName[];

/** `enum ibv_wc_opcode`. */
export const WcOpcode = {
  SEND: 0,
  RDMA_WRITE: 1,
  RDMA_READ: 2,
  COMP_SWAP: 3,
  FETCH_ADD: 4,
  BIND_MW: 5,
  LOCAL_INV: 6,
  FLUSH: 8,
  ATOMIC_WRITE: 9,
  RECV: 128,
  RECV_RDMA_WITH_IMM: 129,
  TM_ADD: 130,
  TM_DEL: 131,
  TM_SYNC: 132,
  TM_RECV: 133,
  TM_NO_TAG: 134,
} as const;
/** The completed operation, by name. */
export type WcOpcodeName = keyof typeof WcOpcode;

/** `enum ibv_wc_flags`. */
export const WcFlags = {
  GRH: 1,
  WITH_IMM: 2,
  WITH_INV: 8,
  /** Unexpected messages wait for the program. */
  TM_SYNC_REQ: 16,
  /** A tagged buffer was consumed; its data is there. */
  TM_MATCH: 32,
  TM_DATA_VALID: 64,
} as const;

/**
 * Why a requester sends a packet again (IBTA vol 1 §9.7.6): its timer ran out; a NAK "PSN sequence error"; a response
 * that came while an earlier one was missing; an RNR NAK, after its wait; or its own probe, because an answer was
 * overdue though the timer still ran.
 */
export type RetransmitCause = 'timeout' | 'sequence-nak' | 'implied-nak' | 'rnr' | 'probe';
