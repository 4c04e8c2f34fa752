/** State and times of one connection of the model. */
import type { CmMessageOf } from './mad.ts';
import type { CmRole, CmState } from './states.ts';

/** Times of CM: 4.096 µs · 2^exponent (IBTA vol 1 §12.7.22); in µs. */
export const exponentUs = (exponent: number): number => 4.096 * 2 ** exponent;

/** A message that waits for its answer, and is retransmitted until one comes. */
export interface CmAwaiting {
  bytes: Uint8Array;
  /** µs from one sending to the next. */
  interval: number;
  retriesLeft: number;
  /** µs. */
  at: number;
}

export interface CmConnection {
  readonly handle: number;
  readonly role: CmRole;
  state: CmState;
  readonly localId: number;
  /** 0 while not known. */
  remoteId: number;
  remoteGuid: bigint;
  remoteQpn: number;
  localQpn: number;
  /** GID that messages go to. */
  peer: Uint8Array;
  readonly tid: bigint;
  /** The transaction of the peer's DREQ. */
  dreqTid: bigint;
  /** µs from one sending of a REQ, REP or DREQ of this side to the next. */
  readonly interval: number;
  readonly maxRetries: number;
  /** µs. */
  readonly packetLifetime: number;
  readonly timewait: number;
  awaiting: CmAwaiting | undefined;
  /** LAP on its way, in addition to the state. */
  lap: CmAwaiting | undefined;
  /** End of TIMEWAIT, µs. */
  timewaitEnds: number;
  /** The service timeout of its last MRA: exponent. */
  mra: number;
  /** The RTU, for copies of the REP. */
  rtu: Uint8Array | undefined;
  /** The program has destroyed it: no event is reported any more. */
  destroyed: boolean;
}

/** The connection that a REQ of the peer begins: intervals are those that the REQ asks for (§12.7.28 to §12.7.30). */
export function passiveConnection(
  handle: number,
  localId: number,
  req: CmMessageOf<'REQ'>,
  peer: Uint8Array,
): CmConnection {
  return {
    handle,
    role: 'passive',
    state: 'REQ_RCVD',
    localId,
    remoteId: req.localId,
    remoteGuid: req.caGuid,
    remoteQpn: req.qpn,
    localQpn: 0,
    peer,
    tid: req.tid,
    interval: exponentUs(req.localResponseTimeout),
    maxRetries: req.maxCmRetries,
    packetLifetime: exponentUs(Math.max(req.primaryAckTimeout - 1, 0)),
    timewait: exponentUs(req.primaryAckTimeout),
    ...UNUSED,
  };
}

/** The connection that a REQ of our own begins. */
export function activeConnection(
  handle: number,
  req: { localId: number; qpn: number; maxCmRetries: number; remoteResponseTimeout: number } & {
    primaryAckTimeout: number;
  },
  tid: bigint,
  peer: Uint8Array,
): CmConnection {
  const packetLifetime = exponentUs(Math.max(req.primaryAckTimeout - 1, 0));
  return {
    handle,
    role: 'active',
    state: 'REQ_SENT',
    localId: req.localId,
    remoteId: 0,
    remoteGuid: 0n,
    remoteQpn: 0,
    localQpn: req.qpn,
    peer,
    tid,
    interval: 2 * packetLifetime + exponentUs(req.remoteResponseTimeout),
    maxRetries: req.maxCmRetries,
    packetLifetime,
    timewait: exponentUs(req.primaryAckTimeout),
    ...UNUSED,
  };
}

const UNUSED = {
  dreqTid: 0n,
  awaiting: undefined,
  lap: undefined,
  timewaitEnds: 0,
  mra: 0,
  rtu: undefined,
  destroyed: false,
};

/** A message of a connection that was sent now. */
export const awaitingAnswer = (
  { interval, maxRetries }: CmConnection,
  bytes: Uint8Array,
  now: number,
): CmAwaiting => ({ bytes, interval, retriesLeft: maxRetries, at: now + interval });
