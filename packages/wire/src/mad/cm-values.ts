/** Values of fields in the connection manager's messages (IBTA vol 1 §12.6; Linux ib_cm.h). */

/** `transportService` of a REQ. */
export const CmTransport = { RC: 0, UC: 1, RD: 2, /** As in `extendedTransport`. */ OTHER: 3 } as const;

/** `extendedTransport` of a REQ whose `transportService` is OTHER (IBTA vol 1 annex A14). */
export const CmExtendedTransport = { XRC: 1 } as const;

/** `messageMraed` of an MRA. */
export const CmMraMessage = { REQ: 0, REP: 1, LAP: 2 } as const;

/** `messageRejected` of a REJ. */
export const CmRejMessage = { REQ: 0, REP: 1, /** No message, or another one. */ OTHER: 2 } as const;

/** `reason` of a REJ (§12.6.7.2). */
export const CmRejReason = {
  NO_QP: 1,
  NO_EEC: 2,
  NO_RESOURCES: 3,
  TIMEOUT: 4,
  UNSUPPORTED: 5,
  INVALID_COMM_ID: 6,
  INVALID_COMM_INSTANCE: 7,
  INVALID_SERVICE_ID: 8,
  INVALID_TRANSPORT_TYPE: 9,
  STALE_CONNECTION: 10,
  RDC_NOT_EXIST: 11,
  INVALID_GID: 12,
  INVALID_LID: 13,
  INVALID_SL: 14,
  INVALID_TRAFFIC_CLASS: 15,
  INVALID_HOP_LIMIT: 16,
  INVALID_PACKET_RATE: 17,
  INVALID_ALT_GID: 18,
  INVALID_ALT_LID: 19,
  INVALID_ALT_SL: 20,
  INVALID_ALT_TRAFFIC_CLASS: 21,
  INVALID_ALT_HOP_LIMIT: 22,
  INVALID_ALT_PACKET_RATE: 23,
  PORT_CM_REDIRECT: 24,
  PORT_REDIRECT: 25,
  INVALID_MTU: 26,
  INSUFFICIENT_RESP_RESOURCES: 27,
  CONSUMER_DEFINED: 28,
  INVALID_RNR_RETRY: 29,
  DUPLICATE_LOCAL_COMM_ID: 30,
  INVALID_CLASS_VERSION: 31,
  INVALID_FLOW_LABEL: 32,
  INVALID_ALT_FLOW_LABEL: 33,
  VENDOR_OPTION_NOT_SUPPORTED: 35,
} as const;

/** `status` of a SIDR_REP. */
export const CmSidrStatus = {
  SUCCESS: 0,
  UNSUPPORTED: 1,
  REJECT: 2,
  NO_QP: 3,
  REDIRECT: 4,
  UNSUPPORTED_VERSION: 5,
} as const;

/** `status` of an APR. */
export const CmAprStatus = {
  SUCCESS: 0,
  INVALID_COMM_ID: 1,
  UNSUPPORTED: 2,
  REJECTED: 3,
  REDIRECT: 4,
  IS_CURRENT: 5,
  INVALID_QPN: 6,
  INVALID_LID: 7,
  INVALID_GID: 8,
  INVALID_FLOW_LABEL: 9,
  INVALID_TRAFFIC_CLASS: 10,
  INVALID_HOP_LIMIT: 11,
  INVALID_PACKET_RATE: 12,
  INVALID_SL: 13,
} as const;
