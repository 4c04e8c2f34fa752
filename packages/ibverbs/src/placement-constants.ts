/**
 * FLUSH and ATOMIC_WRITE: the constants that `<infiniband/verbs.h>` has since rdma-core 45 (ATOMIC_WRITE: 44), with their
 * values there.
 */

/** Of `device_cap_flags_ex`: peers may flush to visibility. */
export const IBV_DEVICE_FLUSH_GLOBAL = 1n << 38n;
/** Of `device_cap_flags_ex`: peers may flush to persistence. */
export const IBV_DEVICE_FLUSH_PERSISTENT = 1n << 39n;
/** Of `device_cap_flags_ex`. */
export const IBV_DEVICE_ATOMIC_WRITE = 1n << 40n;
/** Of `enum ibv_access_flags`: a right of regions and queue pairs. */
export const IBV_ACCESS_FLUSH_GLOBAL = 1 << 8;
/** Of `enum ibv_access_flags`. */
export const IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9;
/** Of `enum ibv_wr_opcode`. */
export const IBV_WR_FLUSH = 14;
/** Of `enum ibv_wr_opcode`. */
export const IBV_WR_ATOMIC_WRITE = 15;
/** Of `enum ibv_wc_opcode`. */
export const IBV_WC_FLUSH = 8;
/** Of `enum ibv_wc_opcode`. */
export const IBV_WC_ATOMIC_WRITE = 9;
/** Of `enum ibv_qp_create_send_ops_flags`. */
export const IBV_QP_EX_WITH_FLUSH = 1 << 11;
/** Of `enum ibv_qp_create_send_ops_flags`. */
export const IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12;
/** Of `enum ibv_placement_type`. */
export const IBV_FLUSH_GLOBAL = 1 << 0;
/** Of `enum ibv_placement_type`. */
export const IBV_FLUSH_PERSISTENT = 1 << 1;
/** Of `enum ibv_selectivity_level`. */
export const IBV_FLUSH_RANGE = 0;
/** Of `enum ibv_selectivity_level`. */
export const IBV_FLUSH_MR = 1;
