/**
 * The completer of a reliable connection: takes responses, completes send entries, and decides what
 * has to be sent again (IBTA vol 1 §9.7.5, §9.7.6; the rules' tests are listed in docs/rules.md).
 */
import {
  AethKind,
  aethKind,
  aethMsn,
  aethSyndrome,
  aethValue,
  atomicAckHigh,
  atomicAckLow,
  BTH_BYTES,
  CREDIT_UNLIMITED,
  creditsOf,
  NakCode,
  OperationBits,
  psnAdd,
  psnDiff,
  rnrTimerMicroseconds,
} from '@node-roce/wire';
import { QpStateCode, type RetransmitCause, WcStatus, WrOpcode } from './constants.ts';
import type { Core } from './core.ts';
import type { InboundPacket } from './inbound.ts';
import type { QueuePair } from './qp.ts';
import { armTimers, failHead, goBack, growWindow, reduceWindow, seekUnacked } from './recovery.ts';
import { SendWqe } from './rings.ts';
import { Scattered } from './scatter.ts';
import { isResponded } from './send-entry.ts';
import { scatterResponse } from './sge.ts';

/** `rnr_retry` and rxe's reading of `retry_cnt` both have 7; only here does it mean for ever. */
const RNR_RETRY_INFINITE = 7;

/** The operation of the oldest incomplete entry. */
function headOpcode(qp: QueuePair): number {
  return qp.sq.words[qp.sq.wordOf(qp.sqHead) + SendWqe.OPCODE_FLAGS] & 0xff;
}

/** One response. */
export function receiveResponse(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, slab, at, psn } = packet;
  // For a PSN that is not out: a ghost, of a request answered before or never sent (§9.7.5.1.1).
  if (psnDiff(psn, qp.sendPsn) >= 0 || psnDiff(psn, qp.unackedPsn) < 0) {
    if (psnDiff(psn, qp.sendPsn) < 0 && info.operation === OperationBits.ACKNOWLEDGE) {
      takeCredits(core, qp, aethSyndrome(slab, at + BTH_BYTES), aethMsn(slab, at + BTH_BYTES));
    }
    core.counters.staleResponses++;
    return;
  }
  switch (info.operation) {
    case OperationBits.ACKNOWLEDGE:
      receiveAck(core, qp, aethSyndrome(slab, at + BTH_BYTES), aethMsn(slab, at + BTH_BYTES), psn);
      return;
    case OperationBits.ATOMIC_ACKNOWLEDGE:
      receiveAtomic(core, qp, packet);
      return;
    default:
      receiveRead(core, qp, packet);
  }
}

function receiveAck(core: Core, qp: QueuePair, syndrome: number, msn: number, psn: number): void {
  const kind = aethKind(syndrome);
  if (kind === AethKind.ACK) {
    const reached = acknowledge(core, qp, psn);
    takeCredits(core, qp, syndrome, msn);
    if (!reached) impliedNak(core, qp);
    settle(core, qp);
    return;
  }
  // A NAK acknowledges everything before the PSN it names (§9.7.5.2.8).
  const before = psnAdd(psn, -1);
  const reached = psnDiff(before, qp.unackedPsn) < 0 || acknowledge(core, qp, before);
  // The completion queue overran with what was acknowledged: all is flushed, nothing is left to fail.
  if (qp.state === QpStateCode.ERR) return;
  if (!reached) {
    // READ or atomic results are missing before it; they come first.
    impliedNak(core, qp);
    settle(core, qp);
    return;
  }
  if (kind === AethKind.RNR_NAK) {
    receiveRnrNak(core, qp, aethValue(syndrome));
    return;
  }
  switch (syndrome) {
    case NakCode.PSN_SEQUENCE_ERROR:
      // The cursor may stand there already, when the NAK came twice or the timer was quicker.
      if (qp.cursorPsn !== qp.unackedPsn) {
        qp.counters.receivedSeqErr++;
        if (qp.retriesLeft > 0) qp.counters.sequenceNakRetries++;
        retry(core, qp, 'sequence-nak');
      }
      settle(core, qp);
      return;
    case NakCode.INVALID_REQUEST:
      qp.counters.receivedInvalidRequest++;
      failHead(core, qp, WcStatus.REM_INV_REQ_ERR);
      return;
    case NakCode.REMOTE_ACCESS_ERROR:
      qp.counters.receivedAccessErr++;
      failHead(core, qp, WcStatus.REM_ACCESS_ERR);
      return;
    case NakCode.REMOTE_OPERATIONAL_ERROR:
      qp.counters.receivedOperationalErr++;
      failHead(core, qp, WcStatus.REM_OP_ERR);
      return;
    case NakCode.INVALID_RD_REQUEST:
      failHead(core, qp, WcStatus.REM_INV_RD_REQ_ERR);
      return;
    default:
      // A reserved code (§9.7.5.2.8): an answer that can't be understood.
      failHead(core, qp, WcStatus.BAD_RESP_ERR);
  }
}

function receiveRnrNak(core: Core, qp: QueuePair, code: number): void {
  qp.counters.receivedRnrErr++;
  if (qp.rnrDeadline !== Number.POSITIVE_INFINITY) return; // Waiting for this very reason.
  if (qp.rnrRetriesLeft === 0) {
    qp.counters.rnrRetryExceededErr++;
    failHead(core, qp, WcStatus.RNR_RETRY_EXC_ERR);
    return;
  }
  if (qp.rnrRetry !== RNR_RETRY_INFINITE) qp.rnrRetriesLeft--;
  qp.retransmitCause = 'rnr';
  qp.timedPsn = -1;
  qp.probePsn = -1;
  seekUnacked(core, qp);
  qp.rnrDeadline = core.now + rnrTimerMicroseconds(code);
  // The peer is there and has answered: the other timer stands still meanwhile.
  qp.retryDeadline = Number.POSITIVE_INFINITY;
  qp.probeDeadline = Number.POSITIVE_INFINITY;
  core.deadlines.update(qp);
}

/** A READ response: the next one that is missing, or evidence that it was lost. */
function receiveRead(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, slab, at, psn, payload } = packet;
  if (!reachResponded(core, qp, psn)) return;
  if (headOpcode(qp) !== WrOpcode.RDMA_READ) {
    failHead(core, qp, WcStatus.BAD_RESP_ERR);
    return;
  }
  const aeth = info.offsets.aeth;
  if (aeth >= 0) {
    if (aethKind(aethSyndrome(slab, at + aeth)) !== AethKind.ACK) {
      failHead(core, qp, WcStatus.BAD_RESP_ERR);
      return;
    }
    takeCredits(core, qp, aethSyndrome(slab, at + aeth), aethMsn(slab, at + aeth));
  }
  const w = qp.sq.wordOf(qp.sqHead);
  const ring = qp.sqHead & (qp.sq.capacity - 1);
  const index = psnDiff(psn, qp.wqePsn[ring]);
  const offset = index * qp.pathMtu;
  const expected = Math.min(qp.pathMtu, qp.sq.words[w + SendWqe.LENGTH] - offset);
  // FIRST or MIDDLE, LAST or ONLY: rxe resumes a READ with MIDDLE (docs/quirks.md). Where a response
  // ends a request is known by its PSN.
  const ends = qp.rdCount > 0 && qp.rdEnds[qp.rdHead & 127] === psn;
  if (payload !== expected || (qp.rdCount > 0 && ends !== info.last)) {
    failHead(core, qp, WcStatus.BAD_RESP_ERR);
    return;
  }
  const done = scatterResponse(core, qp, offset, at + info.headerLength, payload);
  if (done !== Scattered.OK) {
    failHead(core, qp, WcStatus.LOC_PROT_ERR);
    return;
  }
  progress(core, qp, psnAdd(psn, 1));
  if (index === qp.wqePackets[ring] - 1) core.completeOldest(qp);
  settle(core, qp);
}

function receiveAtomic(core: Core, qp: QueuePair, { info, slab, at, psn }: InboundPacket): void {
  const offset = info.offsets.atomicAckEth;
  if (!reachResponded(core, qp, psn)) return;
  const opcode = headOpcode(qp);
  if (opcode !== WrOpcode.ATOMIC_CMP_AND_SWP && opcode !== WrOpcode.ATOMIC_FETCH_AND_ADD) {
    failHead(core, qp, WcStatus.BAD_RESP_ERR);
    return;
  }
  const syndrome = aethSyndrome(slab, at + BTH_BYTES);
  if (aethKind(syndrome) !== AethKind.ACK) {
    failHead(core, qp, WcStatus.BAD_RESP_ERR);
    return;
  }
  takeCredits(core, qp, syndrome, aethMsn(slab, at + BTH_BYTES));
  // The result is a number in the program's memory, so it goes there in the machine's byte order:
  // turned around in the slab, then copied like any payload.
  const high = atomicAckHigh(slab, at + offset);
  const low = atomicAckLow(slab, at + offset);
  writeHost64(slab, at + offset, high, low);
  if (scatterResponse(core, qp, 0, at + offset, 8) !== Scattered.OK) {
    failHead(core, qp, WcStatus.LOC_PROT_ERR);
    return;
  }
  progress(core, qp, psnAdd(psn, 1));
  core.completeOldest(qp);
  settle(core, qp);
}

/**
 * Brings the oldest entry to the READ or atomic that a response with this PSN belongs to. A response
 * acknowledges what was sent before its request; but responses that are missing before it were lost.
 */
function reachResponded(core: Core, qp: QueuePair, psn: number): boolean {
  if (psn !== qp.unackedPsn) {
    const reached = acknowledge(core, qp, psnAdd(psn, -1));
    if (!reached || psn !== qp.unackedPsn) {
      impliedNak(core, qp);
      settle(core, qp);
      return false;
    }
  }
  return true;
}

/**
 * Acknowledges everything up to `psn`. False if it reaches past a READ or atomic that was not answered:
 * its response is lost (implied NAK, §9.7.5.1.5 and §9.7.6.2).
 */
function acknowledge(core: Core, qp: QueuePair, psn: number): boolean {
  while (qp.sqHead !== qp.sqStarted) {
    const ring = qp.sqHead & (qp.sq.capacity - 1);
    if (psnDiff(psn, qp.unackedPsn) < 0) return true;
    if (isResponded(headOpcode(qp))) return false;
    const last = psnAdd(qp.wqePsn[ring], qp.wqePackets[ring] - 1);
    if (psnDiff(psn, last) < 0) {
      progress(core, qp, psnAdd(psn, 1));
      return true;
    }
    progress(core, qp, psnAdd(last, 1));
    core.completeOldest(qp);
  }
  return true;
}

/** Everything before `psn` is acknowledged: retries start anew, the window may grow. */
function progress(core: Core, qp: QueuePair, psn: number): void {
  const packets = psnDiff(psn, qp.unackedPsn);
  qp.unackedPsn = psn;
  qp.retriesLeft = qp.retryCnt;
  qp.rnrRetriesLeft = qp.rnrRetry;
  qp.impliedNakPsn = -1;
  qp.probeBackoff = 0;
  qp.progressed = true;
  growWindow(qp, packets);
  if (qp.timedPsn >= 0 && psnDiff(psn, qp.timedPsn) > 0) {
    sampleRoundTrip(qp, Math.max(1, core.now - qp.timedAt));
    qp.timedPsn = -1;
  }
  while (qp.rdCount > 0 && psnDiff(psn, qp.rdEnds[qp.rdHead & 127]) > 0) {
    qp.rdHead++;
    qp.rdCount--;
  }
  if (qp.readPackets > 0) {
    const answered = Math.min(packets, qp.readPackets);
    qp.readPackets -= answered;
    core.readBudget += answered * qp.readCharge;
  }
}

/** Smooths the round trip and its deviation as TCP does (RFC 6298 §2). */
function sampleRoundTrip(qp: QueuePair, sample: number): void {
  if (qp.roundTrip === 0) {
    qp.roundTrip = sample;
    qp.roundTripDeviation = sample / 2;
    return;
  }
  qp.roundTripDeviation += (Math.abs(sample - qp.roundTrip) - qp.roundTripDeviation) / 4;
  qp.roundTrip += (sample - qp.roundTrip) / 8;
}

/** After a response: the cursor, the timers and the turn to send. */
function settle(core: Core, qp: QueuePair): void {
  if (!qp.progressed || qp.state === QpStateCode.ERR) return;
  qp.progressed = false;
  // Acknowledged beyond where the cursor had gone back to: what was sent before arrived after all.
  if (psnDiff(qp.cursorPsn, qp.unackedPsn) < 0) {
    seekUnacked(core, qp);
  } else if (qp.probePsn >= 0 && psnDiff(qp.unackedPsn, qp.probePsn) === 1 && qp.unackedPsn !== qp.sendPsn) {
    // The probe was taken and nothing after it: all that followed is lost.
    reduceWindow(qp, false);
    goBack(core, qp, 'adaptive');
  }
  qp.probePsn = -1;
  if (qp.rnrDeadline !== Number.POSITIVE_INFINITY && qp.unackedPsn === qp.sendPsn) {
    qp.rnrDeadline = Number.POSITIVE_INFINITY;
  }
  if (qp.failedStatus !== 0 && qp.sqHead === qp.failedIndex) {
    failHead(core, qp, qp.failedStatus);
    return;
  }
  armTimers(core, qp);
  checkDrained(core, qp);
  core.schedule(qp);
}

/** SQD: everything that was started is done; said once, if it was asked for (IBTA vol 1 §10.3.1.6). */
export function checkDrained(core: Core, qp: QueuePair): void {
  if (qp.state !== QpStateCode.SQD || qp.drained || qp.sqHead !== qp.sqStarted) return;
  qp.drained = true;
  if (qp.notifyDrained) core.event({ type: 'SQ_DRAINED', qpn: qp.qpn });
}

/** A response was lost: ask again, once for each place where it is missing. */
function impliedNak(core: Core, qp: QueuePair): void {
  if (qp.impliedNakPsn === qp.unackedPsn || psnDiff(qp.cursorPsn, qp.unackedPsn) <= 0) return;
  qp.counters.impliedNakSeqErr++;
  retry(core, qp, 'implied-nak');
  qp.impliedNakPsn = qp.unackedPsn;
}

/** Goes back for a NAK, said or implied: it counts against `retry_cnt` as a timeout does. */
function retry(core: Core, qp: QueuePair, cause: RetransmitCause): void {
  if (qp.retriesLeft === 0) {
    qp.counters.retryExceededErr++;
    failHead(core, qp, WcStatus.RETRY_EXC_ERR);
    return;
  }
  qp.retriesLeft--;
  qp.counters.retries++;
  reduceWindow(qp, false);
  goBack(core, qp, cause);
  armTimers(core, qp);
}

/**
 * End-to-end credits of an AETH: how far requests that take a receive may go (§9.7.7.2). The limit only grows, and code 31
 * lifts it for good: so an old ACK, or one that somebody else made up, holds nothing back.
 */
function takeCredits(core: Core, qp: QueuePair, syndrome: number, msn: number): void {
  if (!qp.creditLimited || aethKind(syndrome) !== AethKind.ACK) return;
  const code = aethValue(syndrome);
  if (code === CREDIT_UNLIMITED) qp.creditLimited = false;
  else {
    const limit = psnAdd(msn, creditsOf(code));
    if (psnDiff(limit, qp.creditLimit) <= 0) return;
    qp.creditLimit = limit;
  }
  core.schedule(qp);
}

function writeHost64(bytes: Uint8Array, at: number, high: number, low: number): void {
  for (let i = 0; i < 4; i++) {
    bytes[at + i] = low >>> (8 * i);
    bytes[at + 4 + i] = high >>> (8 * i);
  }
}
