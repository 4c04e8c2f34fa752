/** The state of a reliable connection's requester. Plain values only: a structured clone is a copy. */
import { ackTimeoutMicroseconds, psnAdd, psnDiff } from '@node-roce/wire/rules';
import { isLocalOperation } from './local-operations.ts';
import { packetCount } from './message-packets.ts';
import type { ModelRetransmitCause, ModelStatus } from './verbs.ts';
import type { ModelCompletion, ModelSendRequest } from './work.ts';

/** The attributes of the connection (`ibv_modify_qp` to RTS). */
export interface RequesterConfig {
  /** QPN that requests go to. */
  destQpn: number;
  /** Bytes. */
  pathMtu: number;
  /** Local ACK timeout code, 0 … 31; 0: no timer. */
  timeout: number;
  /** Repetitions for a timeout, a sequence NAK or an implied NAK, 0 … 7. */
  retryCnt: number;
  /** Repetitions for RNR NAKs, 0 … 6; 7: without end. */
  rnrRetry: number;
  /** READs and atomics outstanding at once. */
  maxRdAtomic: number;
  /** Obey the credits in AETHs (§9.7.7.2). */
  flowControl: boolean;
  /** PSNs that may be sent and unacknowledged. A message or READ that has begun may go past it by its READ's responses. */
  window: number;
  /** The timer's k: it fires k · T after the oldest unacknowledged packet was sent or made progress; 1 … 4 (§9.7.6.1.3). */
  timerFactor: number;
}

/** A posted work request with the PSNs it was given. */
export interface SendWork {
  request: ModelSendRequest;
  firstPsn: number;
  /** Of a READ: of its last response. Without packets, the one before `firstPsn`. */
  lastPsn: number;
  /** BIND_MW, LOCAL_INV: what came of it, once it was done. Others: why it fails, once its turn comes. */
  localStatus?: ModelStatus;
  /** Number of the message, from 1, 24 bits: what the responder's MSN will be when it is done (§9.7.7.2.2). */
  ssn: number;
}

export interface Requester {
  config: RequesterConfig;
  state: 'READY' | 'ERR';
  /** SQD: no request is begun (§10.3.1.5). */
  draining: boolean;
  /** Posted and not completed, oldest first. */
  queue: SendWork[];
  /** PSN the next posted request starts at. */
  postPsn: number;
  /** Messages posted, 24 bits. */
  posted: number;
  /** Oldest PSN not acknowledged. */
  una: number;
  /** PSN of the packet to send next: behind `sentUpTo` during a go-back-N. */
  next: number;
  /** Why it last went back. */
  cause: ModelRetransmitCause;
  /** One past the highest PSN ever sent. */
  sentUpTo: number;
  retriesLeft: number;
  rnrRetriesLeft: number;
  /** When the timer was started, µs; `undefined`: it is not running. */
  timerStart: number | undefined;
  /** Nothing is sent before this time, µs, because of an RNR NAK. */
  rnrUntil: number | undefined;
  /** The missing response for which an implied NAK has already caused a go-back-N. */
  impliedNakAt: number | undefined;
  /** Last message that credits cover (LSN, §9.7.7.2.2), or no limit. */
  creditLimit: number | 'none';
}

export function createRequester(config: RequesterConfig, firstPsn: number): Requester {
  return {
    config,
    state: 'READY',
    draining: false,
    queue: [],
    postPsn: firstPsn,
    posted: 0,
    una: firstPsn,
    next: firstPsn,
    cause: 'timeout',
    sentUpTo: firstPsn,
    retriesLeft: config.retryCnt,
    rnrRetriesLeft: config.rnrRetry,
    timerStart: undefined,
    rnrUntil: undefined,
    impliedNakAt: undefined,
    creditLimit: config.flowControl ? 0 : 'none',
  };
}

/** READ, COMPARE SWAP, FETCH ADD, ATOMIC WRITE or FLUSH: completed by a response of its own, counted against `maxRdAtomic`. */
export function needsResponse({ request: { opcode } }: SendWork): boolean {
  return opcode === 'RDMA_READ' || opcode === 'FLUSH' || opcode.startsWith('ATOMIC_');
}

/** SEND, or WRITE with immediate: takes a receive at the peer, so credits count it. */
export function consumesReceive({ request: { opcode } }: SendWork): boolean {
  return opcode.startsWith('SEND') || opcode === 'RDMA_WRITE_WITH_IMM';
}

/** PSNs a request takes: packets sent, or for a READ packets that answer it (§9.7.3.1, §9.7.3.2). */
function psnsOf(request: ModelSendRequest, pathMtu: number): number {
  if (isLocalOperation(request)) return 0;
  if (request.opcode === 'FLUSH' || request.opcode.startsWith('ATOMIC_')) return 1;
  return packetCount(request.local.length, pathMtu);
}

/** Posts a request; in the error state it completes at once as flushed (§10.8.3.1). */
export function postSend(q: Requester, request: ModelSendRequest): ModelCompletion[] {
  if (q.state === 'ERR') return [{ wrId: request.wrId, status: 'WR_FLUSH_ERR' }];
  const firstPsn = q.postPsn;
  q.postPsn = psnAdd(firstPsn, psnsOf(request, q.config.pathMtu));
  if (!isLocalOperation(request)) q.posted = psnAdd(q.posted, 1);
  q.queue.push({ request, firstPsn, lastPsn: psnAdd(q.postPsn, -1), ssn: q.posted });
  return [];
}

/** A packet of it was sent, or it was done without one. */
export function isBegun(q: Requester, { request, firstPsn, localStatus }: SendWork): boolean {
  return isLocalOperation(request) ? localStatus !== undefined : psnDiff(q.sentUpTo, firstPsn) > 0;
}

/** Something was sent that is not acknowledged. */
export function isOutstanding(q: Requester): boolean {
  return psnDiff(q.sentUpTo, q.una) > 0;
}

/** When something is due of its own: end of an RNR wait, or the timer; µs, `Infinity` for never. */
export function nextDeadline(q: Requester): number {
  if (q.state === 'ERR') return Number.POSITIVE_INFINITY;
  if (q.rnrUntil !== undefined) return q.rnrUntil;
  if (q.timerStart === undefined || !isOutstanding(q)) return Number.POSITIVE_INFINITY;
  return q.timerStart + q.config.timerFactor * ackTimeoutMicroseconds(q.config.timeout);
}
