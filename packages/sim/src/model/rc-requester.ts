/**
 * The requester of a reliable connection: responses and time in, completions out
 * (IBTA vol 1 §9.7.6, §9.9.2). Sending is in `rc-requester-transmit.ts`.
 */
import {
  AethKind,
  aethKind,
  aethValue,
  CREDIT_UNLIMITED,
  creditsOf,
  NakCode,
  type OpcodeInfo,
  psnAdd,
  psnDiff,
  rnrTimerMicroseconds,
} from '@node-roce/wire/rules';
import { isLocalOperation } from './local-operations.ts';
import { writeU64 } from './memory.ts';
import { isOfPartition, type ModelPacket, rowOf } from './packet.ts';
import {
  isOutstanding,
  needsResponse,
  nextDeadline,
  type Requester,
  type SendWork,
} from './rc-requester-state.ts';
import { nextWork, planPacket } from './rc-requester-transmit.ts';
import type { ModelRetransmitCause, ModelStatus, ModelWcOpcode } from './verbs.ts';
import type { ModelCompletion, ModelOpcode, ModelSendRequest } from './work.ts';

/** Completion status of a work request that a NAK ended (§9.9.2.4, table 57). */
const NAK_STATUS: Readonly<Record<number, ModelStatus>> = {
  [NakCode.INVALID_REQUEST]: 'REM_INV_REQ_ERR',
  [NakCode.REMOTE_ACCESS_ERROR]: 'REM_ACCESS_ERR',
  [NakCode.REMOTE_OPERATIONAL_ERROR]: 'REM_OP_ERR',
};

/** The opcode of the request's completion. */
const WC_OPCODE: Readonly<Record<ModelOpcode, ModelWcOpcode>> = {
  SEND: 'SEND',
  SEND_WITH_IMM: 'SEND',
  SEND_WITH_INV: 'SEND',
  RDMA_WRITE: 'RDMA_WRITE',
  RDMA_WRITE_WITH_IMM: 'RDMA_WRITE',
  RDMA_READ: 'RDMA_READ',
  ATOMIC_CMP_AND_SWP: 'COMP_SWAP',
  ATOMIC_FETCH_AND_ADD: 'FETCH_ADD',
  FLUSH: 'FLUSH',
  ATOMIC_WRITE: 'ATOMIC_WRITE',
  BIND_MW: 'BIND_MW',
  LOCAL_INV: 'LOCAL_INV',
};

/** Takes one response. @param now µs */
export function receiveResponse(q: Requester, packet: ModelPacket, now: number): ModelCompletion[] {
  const row = rowOf(packet);
  if (q.state === 'ERR' || !row.isResponse || !isOfPartition(packet)) return []; // §9.6.1
  if (packet.aeth !== undefined) takeCredits(q, packet.aeth);
  if (!isAwaited(q, packet.psn)) return [];
  if (row.isReadResponse) return takeReadResponse(q, packet, row, now);
  if (packet.original !== undefined) return takeAtomicResponse(q, packet, packet.original, now);
  const { syndrome } = packet.aeth!;
  switch (aethKind(syndrome)) {
    case AethKind.ACK:
      return takeAck(q, packet.psn, now);
    case AethKind.RNR_NAK:
      return takeRnrNak(q, packet.psn, aethValue(syndrome), now);
    case AethKind.NAK:
      return takeNak(q, packet.psn, syndrome, now);
    default:
      return []; // a reserved syndrome is ignored (§9.7.5.2)
  }
}

/** Time passed: the end of an RNR wait, or the timer. @param now µs */
export function advanceTime(q: Requester, now: number): ModelCompletion[] {
  if (nextDeadline(q) > now) return [];
  if (q.rnrUntil !== undefined) {
    q.rnrUntil = undefined;
    return [];
  }
  return timeOut(q, now);
}

/** §9.7.6.1.1: a response to something sent and not yet acknowledged; any other is a ghost and ignored. */
function isAwaited(q: Requester, psn: number): boolean {
  return psnDiff(psn, q.una) >= 0 && psnDiff(psn, q.sentUpTo) < 0;
}

/** §9.7.7.2.3: MSN plus credits is the last message covered; it only grows. Code 31 lifts the limit for good. */
function takeCredits(q: Requester, aeth: { syndrome: number; msn: number }): void {
  if (q.creditLimit === 'none' || aethKind(aeth.syndrome) !== AethKind.ACK) return;
  if (aethValue(aeth.syndrome) === CREDIT_UNLIMITED) {
    q.creditLimit = 'none';
    return;
  }
  const limit = psnAdd(aeth.msn, creditsOf(aethValue(aeth.syndrome)));
  if (psnDiff(limit, q.creditLimit) > 0) q.creditLimit = limit;
}

/**
 * §9.7.5.1.2: a response acknowledges every SEND and WRITE before it, up to and with `psn`. A READ or
 * atomic is acknowledged by its own response only: there it stops.
 */
function acknowledgeUpTo(q: Requester, psn: number, now: number): ModelCompletion[] {
  const completions: ModelCompletion[] = [];
  while (q.queue.length > 0 && !needsResponse(q.queue[0]) && !isLocalOperation(q.queue[0].request)) {
    const work = q.queue[0];
    if (psnDiff(psn, work.lastPsn) < 0) {
      if (psnDiff(psn, q.una) >= 0) progress(q, psnAdd(psn, 1), now);
      break;
    }
    progress(q, psnAdd(work.lastPsn, 1), now);
    completions.push(...completeOldest(q));
  }
  return completions;
}

/** A READ or atomic that is older than `psn` and unanswered: its response must be lost (§9.7.6.1.2). */
function lostResponseBefore(q: Requester, psn: number): boolean {
  const oldest = q.queue[0];
  return oldest !== undefined && needsResponse(oldest) && psnDiff(psn, oldest.lastPsn) > 0;
}

/** §9.7.6.1: an ACK. Past an unanswered READ or atomic it is an implied NAK. */
function takeAck(q: Requester, psn: number, now: number): ModelCompletion[] {
  const completions = acknowledgeUpTo(q, psn, now);
  return lostResponseBefore(q, psn) ? [...completions, ...takeImpliedNak(q, now)] : completions;
}

/**
 * §9.7.6.1.2: go back once to the response that is missing. More responses past it are ignored:
 * if the retransmission is lost too, the timer finds out.
 */
function takeImpliedNak(q: Requester, now: number): ModelCompletion[] {
  if (q.impliedNakAt === q.una) return [];
  q.impliedNakAt = q.una;
  return goBack(q, now, 'implied-nak');
}

/** §9.7.5.2.3 … .7: everything before the PSN arrived; a sequence error asks again, the others are the end. */
function takeNak(q: Requester, psn: number, syndrome: number, now: number): ModelCompletion[] {
  const completions = acknowledgeUpTo(q, psnAdd(psn, -1), now);
  if (lostResponseBefore(q, psn)) return [...completions, ...takeImpliedNak(q, now)];
  if (syndrome === NakCode.PSN_SEQUENCE_ERROR) return [...completions, ...goBack(q, now, 'sequence-nak')];
  const status = NAK_STATUS[syndrome];
  return status === undefined ? completions : [...completions, ...failOldest(q, status)];
}

/** §9.7.5.2.8: wait at least the time of the code, then go back; a budget of its own. */
function takeRnrNak(q: Requester, psn: number, code: number, now: number): ModelCompletion[] {
  const completions = acknowledgeUpTo(q, psnAdd(psn, -1), now);
  if (lostResponseBefore(q, psn)) return [...completions, ...takeImpliedNak(q, now)];
  if (q.rnrUntil !== undefined) return completions; // a copy: nothing was sent since the first
  if (q.config.rnrRetry !== 7) {
    if (q.rnrRetriesLeft === 0) return [...completions, ...failOldest(q, 'RNR_RETRY_EXC_ERR')];
    q.rnrRetriesLeft--;
  }
  q.rnrUntil = now + rnrTimerMicroseconds(code);
  q.next = q.una;
  q.cause = 'rnr';
  q.timerStart = undefined;
  return completions;
}

/** §9.4.4, §9.7.6.1: the READ's next response; an earlier one is a ghost, a later one an implied NAK. */
function takeReadResponse(
  q: Requester,
  packet: ModelPacket,
  row: OpcodeInfo,
  now: number,
): ModelCompletion[] {
  const completions = acknowledgeUpTo(q, psnAdd(packet.psn, -1), now);
  const work = q.queue[0];
  if (work === undefined || !needsResponse(work)) return [...completions, ...failOldest(q, 'BAD_RESP_ERR')];
  if (packet.psn !== q.una) return [...completions, ...takeImpliedNak(q, now)];
  if (!fitsRead(q, work, packet, row)) return [...completions, ...failOldest(q, 'BAD_RESP_ERR')];
  if (isPlacement(work.request)) {
    progress(q, psnAdd(packet.psn, 1), now);
    return [...completions, ...completeOldest(q)];
  }
  if (work.request.broken) return [...completions, ...failOldest(q, 'LOC_PROT_ERR')];
  work.request.local.set(packet.payload, psnDiff(packet.psn, work.firstPsn) * q.config.pathMtu);
  progress(q, psnAdd(packet.psn, 1), now);
  return row.last ? [...completions, ...completeOldest(q)] : completions;
}

/**
 * §9.7.6.1: a response ends the READ exactly at its last PSN, and has the length of its place. FIRST and
 * MIDDLE are not distinguished, nor LAST and ONLY: a READ that was resumed may begin with any of them.
 */
function fitsRead(q: Requester, work: SendWork, packet: ModelPacket, row: OpcodeInfo): boolean {
  // Annex A19: a FLUSH or ATOMIC WRITE has one response, ONLY, of no bytes.
  if (isPlacement(work.request)) return row.first && row.last && packet.payload.length === 0;
  if (work.request.opcode !== 'RDMA_READ') return false;
  const { pathMtu } = q.config;
  const offset = psnDiff(packet.psn, work.firstPsn) * pathMtu;
  const expected = Math.min(pathMtu, work.request.local.length - offset);
  return row.last === (packet.psn === work.lastPsn) && packet.payload.length === expected;
}

/** FLUSH or ATOMIC WRITE: answered by a READ response of no bytes. */
function isPlacement({ opcode }: ModelSendRequest): boolean {
  return opcode === 'FLUSH' || opcode === 'ATOMIC_WRITE';
}

/** §9.4.5: the value from before the atomic. */
function takeAtomicResponse(
  q: Requester,
  packet: ModelPacket,
  original: bigint,
  now: number,
): ModelCompletion[] {
  const completions = acknowledgeUpTo(q, psnAdd(packet.psn, -1), now);
  const work = q.queue[0];
  if (work === undefined || !needsResponse(work)) return [...completions, ...failOldest(q, 'BAD_RESP_ERR')];
  if (packet.psn !== q.una) return [...completions, ...takeImpliedNak(q, now)];
  if (work.request.opcode === 'RDMA_READ' || isPlacement(work.request)) {
    return [...completions, ...failOldest(q, 'BAD_RESP_ERR')];
  }
  if (work.request.broken) return [...completions, ...failOldest(q, 'LOC_PROT_ERR')];
  writeU64(work.request.local, original);
  progress(q, psnAdd(packet.psn, 1), now);
  return [...completions, ...completeOldest(q)];
}

/** §9.7.6.1.3: nothing was heard for the time-out: send again from the oldest unacknowledged packet. */
export function timeOut(q: Requester, now: number): ModelCompletion[] {
  q.next = q.sentUpTo; // whatever was being repeated is given up
  return goBack(q, now, 'timeout');
}

/**
 * §9.9.2.4.1: back to the oldest unacknowledged packet, as long as there are retries. Already on the way
 * there, or made to wait by an RNR NAK: a second message with the same contents costs nothing.
 */
function goBack(q: Requester, now: number, cause: ModelRetransmitCause): ModelCompletion[] {
  if (q.next === q.una || q.rnrUntil !== undefined) return [];
  if (q.retriesLeft === 0) return failOldest(q, 'RETRY_EXC_ERR');
  q.retriesLeft--;
  q.next = q.una;
  q.cause = cause;
  q.timerStart = now;
  return [];
}

/** Something new was acknowledged: both retry budgets are full again and the timer starts anew (§9.7.6.1.3). */
function progress(q: Requester, una: number, now: number): void {
  q.una = una;
  if (psnDiff(q.next, una) < 0) q.next = una;
  q.retriesLeft = q.config.retryCnt;
  q.rnrRetriesLeft = q.config.rnrRetry;
  q.rnrUntil = undefined;
  q.impliedNakAt = undefined;
  q.timerStart = isOutstanding(q) ? now : undefined;
}

/** §10.8.5: in order; one that was not asked for a completion gives none. */
function completeOldest(q: Requester): ModelCompletion[] {
  const { request } = q.queue.shift()!;
  const completions = request.signaled === false ? [] : [successOf(request)];
  return [...completions, ...completeLocal(q)];
}

export function successOf({ wrId, opcode, local }: ModelSendRequest): ModelCompletion {
  return { wrId, status: 'SUCCESS', opcode: WC_OPCODE[opcode], byteLen: local.length };
}

/** A BIND_MW or LOCAL_INV that was done completes once it is the oldest; one that failed is the end. */
export function completeLocal(q: Requester): ModelCompletion[] {
  const status = q.queue[0]?.localStatus;
  if (status === undefined) return [];
  return status === 'SUCCESS' ? completeOldest(q) : failOldest(q, status);
}

/**
 * §10.2.4, §11.6.2: the message whose packet is next has memory that can't be read: it fails when all before it is
 * done. READs and atomics find out when the answer comes; an ATOMIC WRITE sends its bytes.
 */
export function failBroken(q: Requester): ModelCompletion[] {
  const work = q.queue[nextWork(q)];
  if (work === undefined || isLocalOperation(work.request)) return [];
  if (needsResponse(work) && work.request.opcode !== 'ATOMIC_WRITE') return [];
  if (typeof planPacket(q) === 'string' || !work.request.broken) return [];
  work.localStatus = 'LOC_PROT_ERR';
  return completeLocal(q);
}

/** §10.3.1.7: the oldest fails with the reason, all after it are flushed, unsignaled ones too. */
function failOldest(q: Requester, status: ModelStatus): ModelCompletion[] {
  const failed = q.queue.shift();
  const first: ModelCompletion[] = failed === undefined ? [] : [{ wrId: failed.request.wrId, status }];
  return [...first, ...flushSends(q)];
}

/** The error state: what is posted completes as flushed, nothing is sent or heard any more. */
export function flushSends(q: Requester): ModelCompletion[] {
  const flushed = q.queue.map(
    ({ request }): ModelCompletion => ({ wrId: request.wrId, status: 'WR_FLUSH_ERR' }),
  );
  q.state = 'ERR';
  q.queue = [];
  q.timerStart = undefined;
  q.rnrUntil = undefined;
  return flushed;
}
