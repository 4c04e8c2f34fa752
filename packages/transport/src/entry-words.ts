/** The layout of entries of rings: requests (WQE) with their scatter/gather elements, and completions (CQE). */

/** Words of a send queue entry (WQE). */
export const SendWqe = {
  /** `WrOpcode` in the low byte, `SendFlags` above it. */
  OPCODE_FLAGS: 0,
  WR_ID_LOW: 1,
  WR_ID_HIGH: 2,
  /** Number of SGEs; 0 with inline data. */
  SGE_COUNT: 3,
  /** Bytes of the message. */
  LENGTH: 4,
  /** Immediate data in host order as a number, or the rkey to invalidate (SEND_WITH_INV, LOCAL_INV). */
  IMMEDIATE: 5,
  REMOTE_ADDRESS_HIGH: 6,
  REMOTE_ADDRESS_LOW: 7,
  RKEY: 8,
  /** Atomics: compare value, or the value to add. */
  COMPARE_ADD_HIGH: 9,
  COMPARE_ADD_LOW: 10,
  SWAP_HIGH: 11,
  SWAP_LOW: 12,
  /** UD: address handle, remote QPN and Q_Key, in the place of the atomics' operands. */
  ADDRESS_HANDLE: 9,
  REMOTE_QPN: 10,
  REMOTE_QKEY: 11,
  /**
   * BIND_MW: handle of the window, its new rkey in RKEY, the first address in REMOTE_ADDRESS, the range's
   * length, the region's lkey and the `Access` bits. A length of 0 ends the binding of a type 1 window.
   */
  BIND_WINDOW: 5,
  BIND_LENGTH_HIGH: 9,
  BIND_LENGTH_LOW: 10,
  BIND_LKEY: 11,
  BIND_ACCESS: 12,
  /** FLUSH: bytes of the range at the remote address, `FlushType` bits, a `FlushLevel`. */
  FLUSH_LENGTH: 9,
  FLUSH_TYPE: 10,
  FLUSH_LEVEL: 11,
  /** XRC: number of the shared receive queue at the peer. */
  REMOTE_SRQN: 13,
  /** First SGE, or first byte of the inline data. */
  SGE: 16,
} as const;

/** Words of a receive queue entry (WQE). */
export const RecvWqe = { WR_ID_LOW: 0, WR_ID_HIGH: 1, SGE_COUNT: 2, LENGTH: 3, SGE: 4 } as const;

/** Words of a scatter/gather element. */
export const Sge = { ADDRESS_HIGH: 0, ADDRESS_LOW: 1, LENGTH: 2, LKEY: 3 } as const;
export const SGE_WORDS = 4;

/** Words of a completion queue entry (CQE); the fields of `struct ibv_wc`. */
export const Cqe = {
  WR_ID_LOW: 0,
  WR_ID_HIGH: 1,
  /** `WcStatus`. */
  STATUS: 2,
  /** `WcOpcode`; meaningless unless STATUS is SUCCESS (as in ibv_poll_cq(3)), yet always filled. */
  OPCODE: 3,
  BYTE_LEN: 4,
  /** Immediate data, or the invalidated rkey. */
  IMMEDIATE: 5,
  QP_NUM: 6,
  SRC_QP: 7,
  /** `WcFlags`. */
  FLAGS: 8,
  VENDOR_ERR: 9,
  PKEY_INDEX: 10,
  /** Of datagrams `HeaderSl`, else 0. */
  SL: 11,
  /** Time of the completion, ns, in two words: only of queues that were made so. */
  STAMP_LOW: 12,
  STAMP_HIGH: 13,
  /** Of a receive in a tagged buffer the tag of the message, and the application's data in its header: only of queues that were made so. */
  TAG_HIGH: 14,
  TAG_LOW: 15,
  TAG_DATA: 16,
} as const;
/**
 * Which header a datagram came with (IBTA annex A17.4.5.1), where ConnectX reports it: in the service level. Bit 3: UDP; the others: 1 for
 * IPv6, 2 for IPv4. UCX takes the length of a GID from it.
 */
export const HeaderSl = { IPV6: 9, IPV4: 10 } as const;

export const CQE_WORDS = 12;
/** Words of an entry that has its time. */
export const STAMPED_CQE_WORDS = 14;
/** Words of an entry that has its tag. */
export const TAGGED_CQE_WORDS = 17;
