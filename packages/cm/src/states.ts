/**
 * The state table of a connection: what each message of the peer, each expiry of its timer and each call of the program does
 * (IBTA vol 1 §12.9.5 to 12.9.8; Linux's choices where the specification leaves one, core/cm.c).
 *
 * A missing cell: a message is counted as unexpected, and a call is refused. An empty cell: nothing happens.
 * `Connection` carries the cells out; it decides alone which input a message is, and which of them are not of this connection.
 */
import type { MessageName } from './messages.ts';

/** States of a connection (§12.9.5, 12.9.6). */
export type CmState =
  /** Nothing of it is kept: before the first message, and after the end. */
  | 'CLOSED'
  /** Initiator: REQ is out; and an MRA came for it. */
  | 'REQ_SENT'
  | 'MRA_REQ_RCVD'
  /** Initiator: REP came, the program has not called `ready`. */
  | 'REP_RCVD'
  /** Listener: REQ came, the program has not accepted. */
  | 'REQ_RCVD'
  /** Listener: REP is out; and an MRA came for it. */
  | 'REP_SENT'
  | 'MRA_REP_RCVD'
  | 'ESTABLISHED'
  | 'DREQ_SENT'
  /** DREQ came, the program has not answered with `disconnect`. */
  | 'DREQ_RCVD'
  | 'TIMEWAIT';

/** Messages by what they mean here. MRA is named by the message that it answers. */
type Arrival =
  | 'REQ'
  | 'REP'
  /** REP whose queue pair or id another connection has. */
  | 'REP_STALE'
  | 'RTU'
  | 'MRA_REQ'
  | 'MRA_REP'
  | 'MRA_LAP'
  | 'REJ'
  /** REJ with the reason STALE_CONNECTION, in states where that differs from other reasons. */
  | 'REJ_STALE'
  | 'DREQ'
  | 'DREP'
  | 'LAP'
  | 'APR'
  /** The first packet of the queue pair: the peer is ready, and its RTU is late or lost (§12.9.7.2.3). */
  | 'DATA'
  /** The peer opens a new connection with the queue pair of this one: it has forgotten this one (§12.9.8.3.1). */
  | 'FORGOTTEN';

/** The timer expired: while retries are left, and when they are used up or none belong to the state. */
type Expiry = 'RETRY' | 'TIMEOUT';

type Call =
  | 'connect'
  | 'accept'
  | 'ready'
  | 'reject'
  | 'disconnect'
  | 'loadPath'
  | 'answerPath'
  /** The program lets the id go; and that of an XRC target, which others may go on with (core/cm.c `cm_destroy_id`). */
  | 'destroy'
  | 'destroyTarget';

export type Input = Arrival | Expiry | Call;

/** Events without the fields of the message: of `disconnected`, its cause. */
export type Report =
  | 'response'
  | 'established'
  | 'rejected'
  | 'unreachable'
  | 'peer-closed'
  | 'timeout'
  | 'stale'
  | 'timewait-exit'
  | 'path-response';

/** One cell, carried out from left to right. */
export interface Cell {
  /** The message that goes out once; or is repeated by the timer until an answer comes, `again` being the one before. */
  readonly send?: MessageName;
  readonly repeat?: MessageName | 'again';
  /** The message before stays, and its timer waits for as long as the MRA asks. */
  readonly wait?: true;
  /** The state to enter. Without `repeat` and `wait`, nothing is repeated any more. */
  readonly next?: CmState;
  /** The event of the program. */
  readonly tell?: Report;
}

type Row = Readonly<Partial<Record<Input, Cell>>>;

// Cells of several states.
const RESPONDS: Cell = { next: 'REP_RCVD', tell: 'response' };
const RESPONDS_STALE: Cell = { send: 'REJ_REP', next: 'CLOSED', tell: 'stale' };
const ESTABLISHES: Cell = { next: 'ESTABLISHED', tell: 'established' };
/** No queue pair has to rest: none was connected. */
const REFUSES: Cell = { next: 'CLOSED', tell: 'rejected' };
const REFUSES_AND_RESTS: Cell = { next: 'TIMEWAIT', tell: 'rejected' };
const PEER_LEAVES: Cell = { next: 'DREQ_RCVD', tell: 'peer-closed' };
const PEER_AGREES: Cell = { next: 'TIMEWAIT', tell: 'peer-closed' };
const DISCONNECTS: Cell = { repeat: 'DREQ', next: 'DREQ_SENT' };
const AGREES: Cell = { send: 'DREP', next: 'TIMEWAIT' };
const REJECTS_REQ: Cell = { send: 'REJ_REQ', next: 'CLOSED' };
const REJECTS_REP: Cell = { send: 'REJ_REP', next: 'CLOSED' };
const REJECTS: Cell = { send: 'REJ_OTHER', next: 'CLOSED' };
const REJECTS_AND_RESTS: Cell = { send: 'REJ_OTHER', next: 'TIMEWAIT' };
/** A REJ for a timeout names the connection by CA GUID, since the peer may not know our id (§12.6.7.2). */
const TAKES_BACK: Cell = { send: 'REJ_TIMEOUT', next: 'CLOSED' };
/** The peer may have heard us, and only its answers be lost (§12.9.7.1.2, 12.9.7.2.2). */
const GIVES_UP_REQ: Cell = { send: 'REJ_TIMEOUT', next: 'CLOSED', tell: 'unreachable' };
const GIVES_UP_REP: Cell = { send: 'REJ_TIMEOUT', next: 'TIMEWAIT', tell: 'unreachable' };
const AGAIN: Cell = { repeat: 'again' };

export const STATES: Readonly<Record<CmState, Row>> = {
  CLOSED: {
    connect: { repeat: 'REQ', next: 'REQ_SENT' },
  },

  // ------------------------------------------------------------ the initiator
  REQ_SENT: {
    REP: RESPONDS,
    REP_STALE: RESPONDS_STALE,
    MRA_REQ: { wait: true, next: 'MRA_REQ_RCVD' },
    REJ: REFUSES,
    REJ_STALE: REFUSES_AND_RESTS,
    RETRY: AGAIN,
    TIMEOUT: GIVES_UP_REQ,
    reject: REJECTS,
    destroy: TAKES_BACK,
  },
  // A second MRA does not prolong the wait; the next repetition may bring another one, which shows that the peer is alive (§12.9.5).
  MRA_REQ_RCVD: {
    REP: RESPONDS,
    REP_STALE: RESPONDS_STALE,
    REJ: REFUSES,
    REJ_STALE: REFUSES_AND_RESTS,
    RETRY: { repeat: 'again', next: 'REQ_SENT' },
    TIMEOUT: GIVES_UP_REQ,
    reject: REJECTS,
    destroy: TAKES_BACK,
  },
  REP_RCVD: {
    REP: { send: 'MRA_REP' },
    REJ: REFUSES_AND_RESTS,
    ready: { send: 'RTU', next: 'ESTABLISHED', tell: 'established' },
    reject: REJECTS_REP,
    destroy: REJECTS_REP,
  },

  // ------------------------------------------------------------- the listener
  // Whatever the reason of a REJ: no queue pair of ours was named yet, so none has to rest (core/cm.c rests where it is stale).
  REQ_RCVD: {
    REQ: { send: 'MRA_REQ' },
    REJ: REFUSES,
    accept: { repeat: 'REP', next: 'REP_SENT' },
    reject: REJECTS_REQ,
    destroy: REJECTS_REQ,
  },
  // A copy of REQ is unexpected from here on: the timer repeats REP.
  REP_SENT: {
    RTU: ESTABLISHES,
    DATA: ESTABLISHES,
    MRA_REP: { wait: true, next: 'MRA_REP_RCVD' },
    REJ: REFUSES,
    REJ_STALE: REFUSES_AND_RESTS,
    DREQ: PEER_LEAVES,
    RETRY: AGAIN,
    TIMEOUT: GIVES_UP_REP,
    reject: REJECTS_AND_RESTS,
    destroy: REJECTS_AND_RESTS,
  },
  MRA_REP_RCVD: {
    RTU: ESTABLISHES,
    DATA: ESTABLISHES,
    REJ: REFUSES,
    REJ_STALE: REFUSES_AND_RESTS,
    DREQ: PEER_LEAVES,
    RETRY: { repeat: 'again', next: 'REP_SENT' },
    TIMEOUT: GIVES_UP_REP,
    reject: REJECTS_AND_RESTS,
    destroy: REJECTS_AND_RESTS,
  },

  // --------------------------------------------------------------- both sides
  // Only a LAP is repeated here. Without its answer the connection goes on without that path (§12.9.8.1).
  ESTABLISHED: {
    // RTU was lost (§12.9.8.1).
    REP: { send: 'RTU' },
    REJ: REFUSES_AND_RESTS,
    DREQ: PEER_LEAVES,
    FORGOTTEN: DISCONNECTS,
    // `AlternatePaths` has the APR: that of the program, or one that refuses the path.
    LAP: {},
    answerPath: {},
    MRA_LAP: { wait: true },
    APR: { next: 'ESTABLISHED', tell: 'path-response' },
    RETRY: AGAIN,
    TIMEOUT: { next: 'ESTABLISHED', tell: 'path-response' },
    loadPath: { repeat: 'LAP' },
    disconnect: DISCONNECTS,
    destroy: DISCONNECTS,
    destroyTarget: { next: 'CLOSED' },
  },
  DREQ_SENT: {
    // The peer has no such connection: an answer to DREQ, too.
    REJ: PEER_AGREES,
    // Both sides ended it at once: the program need not be asked.
    DREQ: { send: 'DREP', next: 'TIMEWAIT', tell: 'peer-closed' },
    DREP: PEER_AGREES,
    RETRY: AGAIN,
    TIMEOUT: { next: 'TIMEWAIT', tell: 'timeout' },
  },
  DREQ_RCVD: {
    FORGOTTEN: AGREES,
    disconnect: AGREES,
    destroy: AGREES,
  },
  TIMEWAIT: {
    REQ: { send: 'REJ_STALE' },
    DREQ: { send: 'DREP' },
    // Both sides ended it at once.
    DREP: {},
    TIMEOUT: { next: 'CLOSED', tell: 'timewait-exit' },
  },
};
