/** Offsets in a BTH (IBTA vol 1 §9.2), for tests that tamper with packets. */
export const Bth = {
  OPCODE: 0,
  FLAGS: 1,
  PKEY: 2,
  CONGESTION: 4,
  DEST_QP: 5,
  ACK_REQ: 8,
  PSN: 9,
} as const;
