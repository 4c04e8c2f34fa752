/**
 * Names and numbers of `<infiniband/verbs.h>` that the model uses: a table of its own, so that an error in the engine's
 * does not show in both.
 */

/** `enum ibv_access_flags` (ibv_reg_mr(3)). */
export const ModelAccess = {
  LOCAL_WRITE: 1 << 0,
  REMOTE_WRITE: 1 << 1,
  REMOTE_READ: 1 << 2,
  REMOTE_ATOMIC: 1 << 3,
  MW_BIND: 1 << 4,
  ZERO_BASED: 1 << 5,
  FLUSH_GLOBAL: 1 << 8,
  FLUSH_PERSISTENT: 1 << 9,
} as const;

/** The values of `enum ibv_wc_status` that a device without EE contexts and RDDs gives (ibv_poll_cq(3)). */
export type ModelStatus =
  | 'SUCCESS'
  | 'LOC_LEN_ERR'
  | 'LOC_QP_OP_ERR'
  | 'LOC_PROT_ERR'
  | 'WR_FLUSH_ERR'
  | 'MW_BIND_ERR'
  | 'BAD_RESP_ERR'
  | 'LOC_ACCESS_ERR'
  | 'REM_INV_REQ_ERR'
  | 'REM_ACCESS_ERR'
  | 'REM_OP_ERR'
  | 'RETRY_EXC_ERR'
  | 'RNR_RETRY_EXC_ERR';

/** `enum ibv_wc_opcode`. */
export type ModelWcOpcode =
  | 'SEND'
  | 'RDMA_WRITE'
  | 'RDMA_READ'
  | 'COMP_SWAP'
  | 'FETCH_ADD'
  | 'BIND_MW'
  | 'LOCAL_INV'
  | 'FLUSH'
  | 'ATOMIC_WRITE'
  | 'RECV'
  | 'RECV_RDMA_WITH_IMM';

/** Causes of a requester's retransmission (IBTA vol 1 §9.7.6). */
export type ModelRetransmitCause = 'timeout' | 'sequence-nak' | 'implied-nak' | 'rnr';
