/**
 * The state tables of a connection (IBTA vol 1 §12.9.5 to §12.9.7): what a message does in a state, what a call of the
 * program does, what an expired timer does. A cell that is not there: the message is dropped with a complaint, the
 * call is refused. An empty cell: a late copy, dropped in silence.
 */

export type CmRole = 'active' | 'passive';

export type CmState =
  | 'REQ_SENT'
  /** The peer sent MRA for the REQ. */
  | 'REP_WAIT'
  | 'REP_RCVD'
  | 'MRA_REP_SENT'
  | 'REQ_RCVD'
  | 'MRA_REQ_SENT'
  | 'REP_SENT'
  /** The peer sent MRA for the REP. */
  | 'RTU_WAIT'
  | 'ESTABLISHED'
  | 'DREQ_SENT'
  | 'DREQ_RCVD'
  | 'TIMEWAIT';

/** Where a connection ends: nothing of it is kept. */
export type CmTarget = CmState | 'IDLE';

export type CmEventKind =
  | 'request'
  | 'reply'
  | 'established'
  | 'rejected'
  | 'unreachable'
  /** The peer's DREQ: the program answers with `disconnect`. */
  | 'disconnecting'
  | 'disconnected'
  /** The last that a connection reports. */
  | 'gone';

/** Inputs of a connection. MRA by what it answers; DATA: the first packet on the queue pair (§12.9.8.1). */
export type CmInput = 'REQ' | 'REP' | 'RTU' | 'MRA_REQ' | 'MRA_REP' | 'REJ' | 'DREQ' | 'DREP' | 'DATA';

export interface CmCell {
  to?: CmTarget;
  answer?: 'RTU' | 'DREP' | 'MRA' | 'REJ_STALE';
  event?: CmEventKind;
}

const LATE: CmCell = {};
const ENDS: CmCell = { to: 'TIMEWAIT', event: 'rejected' };
const GIVES_UP: CmCell = { to: 'IDLE', event: 'rejected' };
const CLOSES: CmCell = { to: 'DREQ_RCVD', event: 'disconnecting' };
const BEGINS: CmCell = { to: 'ESTABLISHED', event: 'established' };

/** Message by state. A REQ here has the communication id and CA GUID of this connection's own. */
export const ON_INPUT: Record<CmState, Partial<Record<CmInput, CmCell>>> = {
  REQ_SENT: { REP: { to: 'REP_RCVD', event: 'reply' }, MRA_REQ: { to: 'REP_WAIT' }, REJ: GIVES_UP },
  REP_WAIT: { REP: { to: 'REP_RCVD', event: 'reply' }, MRA_REQ: { to: 'REP_WAIT' }, REJ: GIVES_UP },
  REP_RCVD: { REP: LATE, MRA_REQ: LATE, REJ: ENDS },
  MRA_REP_SENT: { REP: { answer: 'MRA' }, MRA_REQ: LATE, REJ: ENDS },
  REQ_RCVD: { REQ: LATE, REJ: GIVES_UP },
  MRA_REQ_SENT: { REQ: { answer: 'MRA' }, REJ: GIVES_UP },
  REP_SENT: { REQ: LATE, RTU: BEGINS, MRA_REP: { to: 'RTU_WAIT' }, REJ: ENDS, DREQ: CLOSES, DATA: BEGINS },
  RTU_WAIT: { REQ: LATE, RTU: BEGINS, MRA_REP: { to: 'RTU_WAIT' }, REJ: ENDS, DREQ: CLOSES, DATA: BEGINS },
  // A copy of the REP means that the RTU was lost (§12.9.8.1).
  ESTABLISHED: {
    REQ: LATE,
    REP: { answer: 'RTU' },
    RTU: LATE,
    MRA_REQ: LATE,
    MRA_REP: LATE,
    REJ: ENDS,
    DREQ: CLOSES,
    DATA: LATE,
  },
  // Both sides disconnect: each answers the other's DREQ.
  DREQ_SENT: {
    REQ: LATE,
    REP: LATE,
    RTU: LATE,
    MRA_REQ: LATE,
    MRA_REP: LATE,
    REJ: ENDS,
    DREQ: CLOSES,
    DREP: { to: 'TIMEWAIT', event: 'disconnected' },
    DATA: LATE,
  },
  DREQ_RCVD: {
    REQ: LATE,
    REP: LATE,
    RTU: LATE,
    MRA_REQ: LATE,
    MRA_REP: LATE,
    REJ: LATE,
    DREQ: LATE,
    DREP: { to: 'TIMEWAIT', event: 'disconnected' },
    DATA: LATE,
  },
  TIMEWAIT: {
    REQ: { answer: 'REJ_STALE' },
    REP: LATE,
    RTU: LATE,
    MRA_REQ: LATE,
    MRA_REP: LATE,
    REJ: LATE,
    DREQ: { answer: 'DREP' },
    DREP: LATE,
    DATA: LATE,
  },
};

/** The side that a message goes to; the others go to both. */
export const ROLE_OF: Partial<Record<CmInput, CmRole>> = {
  REQ: 'passive',
  REP: 'active',
  RTU: 'passive',
  MRA_REQ: 'active',
  MRA_REP: 'passive',
};

export type CmCall = 'mra' | 'accept' | 'ready' | 'reject' | 'disconnect';

/** The message that a call sends, and the state after it. `message` in MRA and REJ: 0 REQ, 1 REP, 2 other (§12.6.6, §12.6.7). */
export interface CmCallCell {
  send: 'MRA' | 'REP' | 'RTU' | 'REJ' | 'DREQ' | 'DREP';
  to: CmTarget;
  message?: number;
  /** The reason that this state prescribes, whatever the program gives. */
  reason?: number;
}

const REJECTS_REQ: CmCallCell = { send: 'REJ', message: 0, to: 'IDLE' };
const REJECTS_REP: CmCallCell = { send: 'REJ', message: 1, to: 'TIMEWAIT' };
const ACCEPTS: CmCallCell = { send: 'REP', to: 'REP_SENT' };
const STARTS: CmCallCell = { send: 'RTU', to: 'ESTABLISHED' };
/** The REQ's sender gives up: REJ with reason timeout, which names the connection by CA GUID and its own id. */
const TAKES_BACK: CmCallCell = { send: 'REJ', message: 2, reason: 4, to: 'IDLE' };
const TEARS_DOWN: CmCallCell = { send: 'REJ', message: 2, to: 'TIMEWAIT' };

export const ON_CALL: Record<CmState, Partial<Record<CmCall, CmCallCell>>> = {
  REQ_SENT: { reject: TAKES_BACK },
  REP_WAIT: { reject: TAKES_BACK },
  REP_RCVD: { mra: { send: 'MRA', message: 1, to: 'MRA_REP_SENT' }, ready: STARTS, reject: REJECTS_REP },
  MRA_REP_SENT: { ready: STARTS, reject: REJECTS_REP },
  REQ_RCVD: { mra: { send: 'MRA', message: 0, to: 'MRA_REQ_SENT' }, accept: ACCEPTS, reject: REJECTS_REQ },
  MRA_REQ_SENT: { accept: ACCEPTS, reject: REJECTS_REQ },
  REP_SENT: { reject: TEARS_DOWN },
  RTU_WAIT: { reject: TEARS_DOWN },
  ESTABLISHED: { disconnect: { send: 'DREQ', to: 'DREQ_SENT' } },
  DREQ_SENT: {},
  DREQ_RCVD: { disconnect: { send: 'DREP', to: 'TIMEWAIT' } },
  TIMEWAIT: {},
};

/** The states with a message that is retransmitted, and the transitions when the retries are used up (§12.9.6, §12.9.7). */
export const ON_TIMEOUT: Partial<Record<CmState, { send?: 'REJ'; to: CmTarget; event: CmEventKind }>> = {
  REQ_SENT: { send: 'REJ', to: 'IDLE', event: 'unreachable' },
  REP_WAIT: { send: 'REJ', to: 'IDLE', event: 'unreachable' },
  REP_SENT: { send: 'REJ', to: 'TIMEWAIT', event: 'unreachable' },
  RTU_WAIT: { send: 'REJ', to: 'TIMEWAIT', event: 'unreachable' },
  DREQ_SENT: { to: 'TIMEWAIT', event: 'disconnected' },
};
