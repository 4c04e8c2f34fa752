/**
 * Deviations of the real rxe (Linux 6.1) from the specification: one row a quirk, by rule.
 * The replay of the captures (test/sim/model-replay.test.ts) allows these deviations and no others, and fails
 * when one of them no longer shows. docs/quirks.md describes them.
 */

export interface Quirk {
  side: 'responder' | 'requester';
  /** Section of IBTA vol 1. */
  rule: string;
  /** The model's clause that does it by the rule. */
  clause: string;
  /** rxe's behaviour instead. */
  rxe: string;
  /** Fixtures in which it shows; none: it shows in test/interop/quirks.test.ts, on the real rxe. */
  captures: readonly string[];
}

export const QUIRKS = {
  resumedReadIsMiddle: {
    side: 'responder',
    rule: '§9.4.4',
    clause: 'readResponses',
    rxe: 'A READ that asks again for the rest is answered from MIDDLE on, as if the first request went on.',
    captures: ['loss10_B_read'],
  },
  sequenceNakAfterRnrNak: {
    side: 'responder',
    rule: '§9.7.5.2.8',
    clause: 'checkPsn',
    rxe: 'Packets that follow one that drew an RNR NAK draw a NAK 0x60 with the same PSN.',
    captures: ['err_rnr_then_ok'],
  },
  shortReceiveIsOperationalError: {
    side: 'responder',
    rule: '§9.7.4.1.6',
    clause: 'checkLength',
    rxe: 'A message longer than the receive draws NAK 0x63 and completes LOC_QP_OP_ERR, not 0x61 and LOC_LEN_ERR.',
    captures: ['err_recv_too_small'],
  },
  invalidateFlagIsTheKernels: {
    side: 'responder',
    rule: '§11.4.2.1',
    clause: 'receiveCompletion',
    rxe: "A receive whose SEND invalidated a key has the kernel's flag (4) in wc_flags, not IBV_WC_WITH_INV (8).",
    captures: ['err_mw_invalidated', 'op_all'],
  },
  repeatedReadForgetsItsBeginning: {
    side: 'responder',
    rule: '§9.7.5.1.5',
    clause: 'repeatRead',
    rxe: 'A READ that was asked for a later part again is served from there on only: what asks for earlier parts is dropped.',
    captures: [],
  },
  reservedOpcodeIsDropped: {
    side: 'responder',
    rule: '§9.7.4.1.3',
    clause: 'checkOperationAllowed',
    rxe: 'A request with a reserved opcode is dropped in silence, not refused with NAK 0x61.',
    captures: [],
  },
  windowBoundsNotChecked: {
    side: 'responder',
    rule: '§10.6.7.2',
    clause: 'checkAccess',
    rxe: 'Access through a window is checked against the bounds of its region, not its own (check_rkey in rxe_resp.c).',
    captures: [],
  },
  messageAfterABrokenOneIsLost: {
    side: 'responder',
    rule: '§9.8.2.2',
    clause: 'checkUcSequence',
    rxe: 'UC: the FIRST or ONLY that ends a message of which packets are missing is dropped too (do_class_d1e_error).',
    captures: [],
  },
  deafAfterABrokenMessage: {
    side: 'responder',
    rule: '§9.8.2.2',
    clause: 'checkUcSequence',
    rxe: 'UC: after a WRITE of which packets are missing, or any such message on an SRQ, nothing is received any more.',
    captures: [],
  },
  failedInvalidateIsAcknowledged: {
    side: 'responder',
    rule: '§9.4.1.1',
    clause: 'executeInvalidate',
    rxe: 'A SEND whose invalidation fails is acknowledged; its receive completes REM_INV_REQ_ERR and the queue pair ends.',
    captures: [],
  },
  lastWqeReachedIsNotRaised: {
    side: 'responder',
    rule: '§11.6.3',
    clause: 'noteLastWqe',
    rxe: 'A queue pair with an SRQ that goes to the error state raises no QP_LAST_WQE_REACHED.',
    captures: [],
  },
  repeatedFlushIsNotAnswered: {
    side: 'responder',
    rule: '§9.7.5.1.5',
    clause: 'repeatPlacement',
    rxe: 'A repeated FLUSH is dropped, its answer remembered or not; a repeated ATOMIC_WRITE is answered (Linux 6.12).',
    captures: [],
  },
  flushOfARegionHasALength: {
    side: 'responder',
    rule: 'annex A19',
    clause: 'checkMessageLength',
    rxe: 'A FLUSH of a whole region whose range is of more than 2^31 bytes draws NAK 0x61 (Linux 6.12).',
    captures: [],
  },
  flushIsCoveredTwice: {
    side: 'requester',
    rule: 'annex A17.3.3',
    clause: 'requestOfOne',
    rxe: 'The ICRC of a FLUSH covers BTH to RETH twice; its responder takes no other (Linux 6.12).',
    captures: [],
  },
  flushIsNotCounted: {
    side: 'requester',
    rule: 'annex A19',
    clause: 'tooManyReads',
    rxe: 'FLUSHes do not count against max_rd_atomic (Linux 6.12).',
    captures: [],
  },
  placementResendHasNoAddress: {
    side: 'requester',
    rule: '§9.7.5.1.1',
    clause: 'requestOfOne',
    rxe: 'A FLUSH or ATOMIC_WRITE that is retransmitted has the address 0 (Linux 6.12).',
    captures: [],
  },
  timerRoundedDown: {
    side: 'requester',
    rule: '§9.7.6.1.3',
    clause: 'timeOut',
    rxe: 'The time-out is rounded down to jiffies (4 ms there): 67.1 ms becomes 64, and the timer can fire before T.',
    captures: ['blackhole_timeout', 'loss5_both_rc_pingpong'],
  },
  timerNotRestarted: {
    side: 'requester',
    rule: '§9.7.6.1.3',
    clause: 'timeOut',
    rxe: 'The timer that runs is not started anew when an ACK makes progress: it can fire before T has passed since.',
    captures: ['loss25_B_acks'],
  },
  localInvalidateIsOperationError: {
    side: 'requester',
    rule: '§11.6.2',
    clause: 'executeLocalInvalidate',
    rxe: 'A LOCAL_INV that fails completes with LOC_QP_OP_ERR, not MW_BIND_ERR (rxe_do_local_ops in rxe_req.c).',
    captures: [],
  },
  topBitQkeyIsSent: {
    side: 'requester',
    rule: '§10.2.5',
    clause: 'effectiveQkey',
    rxe: 'A Q_Key whose top bit is set is sent as it is, not the queue pair’s own in its place.',
    captures: [],
  },
  sendErrorIsFatal: {
    side: 'requester',
    rule: '§10.3.1.6',
    clause: 'stopSending',
    rxe: 'UC and UD: a send that fails on its own side is LOC_QP_OP_ERR and ends the queue pair: ERR, not SQE.',
    captures: [],
  },
  gsiAsksForAcks: {
    side: 'requester',
    rule: '§9.2',
    clause: 'datagram',
    rxe: 'Datagrams of QP1 carry AckReq, though nothing acknowledges one.',
    captures: ['cm_rdma_client', 'cm_rping', 'cm_rping_ipv6', 'cm_rping_refused', 'cm_ucmatose'],
  },
} as const satisfies Record<string, Quirk>;

export type QuirkName = keyof typeof QUIRKS;
