/** The state of a reliable connection's responder. Plain values only. */
import { psnAdd } from '@node-roce/wire/rules';
import type { ModelMemory } from './memory.ts';
import type { ModelPacket } from './packet.ts';
import { createReceiveQueue, type ReceiveQueue } from './receive-queue.ts';
import type { ModelCompletion, ModelReceiveRequest } from './work.ts';

/** The attributes of the receiving half of any connection. */
export interface ConnectedConfig {
  /** Our own QPN: type 2B windows ask for it. */
  qpn: number;
  /** Bytes. */
  pathMtu: number;
  /** `Access` bits of the queue pair: which remote operations it allows at all. */
  accessFlags: number;
}

/** The common state of the responders of RC and UC. */
export interface ConnectedResponder {
  config: ConnectedConfig;
  memory: ModelMemory;
  state: 'READY' | 'ERR';
  /** The PSN expected next. */
  ePsn: number;
  inProgress: MessageInProgress | undefined;
  receives: ReceiveQueue;
}

/** The attributes of the connection (`ibv_modify_qp` to RTR). */
export interface ResponderConfig extends ConnectedConfig {
  /** QPN that replies go to. */
  destQpn: number;
  /** READs and atomics whose answers are kept for a repetition. */
  maxDestRdAtomic: number;
  /** Timer code of RNR NAKs, 0 … 31. */
  minRnrTimer: number;
  /** Count receives in the AETH (§9.7.7.2); otherwise code 31, no limit. */
  flowControl: boolean;
}

/** A SEND or WRITE of which the FIRST arrived and the LAST did not. */
export interface MessageInProgress {
  kind: 'SEND' | 'WRITE';
  /** Bytes so far. */
  received: number;
  /** WRITE: what its RETH announced. */
  announced: number;
  va: bigint;
  rkey: number;
  /** SEND: the receive it goes to. */
  receive?: ModelReceiveRequest;
}

/** A READ or atomic that was executed, kept in case its answer is lost. */
export interface SavedRequest {
  firstPsn: number;
  lastPsn: number;
  request: ModelPacket;
  /** PSNs that the responder had gone through when it was executed, its own among them: never wraps. */
  passed: number;
  /** Atomics: the value that was answered. */
  original?: bigint;
  /** READs: times that it was repeated after its memory was closed. */
  refused?: number;
}

/** State of a responder: plain values only. */
export interface Responder extends ConnectedResponder {
  config: ResponderConfig;
  /** Messages completed, 24 bits (§9.7.7.1). */
  msn: number;
  /** PSN of the last SEND or WRITE packet executed: what a repeated one is acknowledged with. */
  ackPsn: number;
  /** A NAK or RNR NAK for `ePsn` is out: packets past it are dropped in silence until it arrives. */
  nakOutstanding: boolean;
  saved: SavedRequest[];
  /** PSNs gone through so far: never wraps. */
  passed: number;
  /** XRC: the request at hand names no SRQ of the domain, or another than its message began with. */
  srqIsWrong: boolean;
}

/** The outcome of a request. */
export interface Response {
  replies: ModelPacket[];
  completions: ModelCompletion[];
  /** Why the packet had no effect, if it had none. */
  dropped?: string;
}

export function createResponder(
  config: ResponderConfig,
  memory: ModelMemory,
  firstPsn: number,
  receives = createReceiveQueue(),
): Responder {
  return {
    config,
    memory,
    state: 'READY',
    ePsn: firstPsn,
    msn: 0,
    ackPsn: psnAdd(firstPsn, -1),
    nakOutstanding: false,
    inProgress: undefined,
    receives,
    saved: [],
    passed: 0,
    srqIsWrong: false,
  };
}

/**
 * The error state: nothing is received any more, what was posted completes as flushed. A receive that a message
 * had begun to fill counts as posted. Of an SRQ nothing else is flushed: what waits is for the others (§10.2.9.3).
 */
export function flushReceives(r: ConnectedResponder): ModelCompletion[] {
  const begun = r.inProgress?.receive;
  const own = r.receives.shared ? [] : r.receives.waiting.splice(0);
  const posted = begun === undefined ? own : [begun, ...own];
  r.state = 'ERR';
  r.inProgress = undefined;
  return posted.map(({ wrId }) => ({ wrId, status: 'WR_FLUSH_ERR' }));
}

/** Posts a receive; in the error state it completes at once (§10.8.3.1). */
export function postReceive(
  r: Pick<ConnectedResponder, 'state' | 'receives'>,
  request: ModelReceiveRequest,
): ModelCompletion[] {
  if (r.state === 'ERR' && !r.receives.shared) return [{ wrId: request.wrId, status: 'WR_FLUSH_ERR' }];
  r.receives.waiting.push(request);
  return [];
}
