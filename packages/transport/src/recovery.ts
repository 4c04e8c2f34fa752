/**
 * Recovery: going back, the window, and the timers of a requester (IBTA vol 1 §9.7.6).
 */
import { ackTimeoutMicroseconds, psnDiff } from '@node-roce/wire';
import { type RetransmitCause, WcStatus } from './constants.ts';
import type { Core } from './core.ts';
import type { QueuePair } from './qp.ts';
import { seekGather } from './sge.ts';

/** The retry timer runs `RETRY_TIMER_FACTOR` · 4.096 µs · 2^timeout; the rule allows 1 … 4 (§9.7.6.1.3). */
export const RETRY_TIMER_FACTOR = 2;

/** Packets out at the start, and at most. */
export const WINDOW_START = 32;
export const WINDOW_MAX = 512;
const WINDOW_MIN = 2;

/** A lost tail draws no NAK, so the oldest packet goes again when an answer is overdue, not before this. */
const PROBE_MIN = 8_000;
/** Overdue: the usual round trip and so many times its usual deviation (as RFC 6298 has it for TCP). */
const PROBE_DEVIATIONS = 4;

/** Puts the cursor at the oldest PSN that is not acknowledged. */
export function seekUnacked(core: Core, qp: QueuePair): void {
  core.releaseReads(qp);
  qp.sqCursor = qp.sqHead;
  qp.cursorPsn = qp.unackedPsn;
  qp.sinceAckReq = 0;
  if (qp.sqHead === qp.sqStarted) {
    qp.cursorPacket = 0;
    return;
  }
  const at = qp.sqHead & (qp.sq.capacity - 1);
  qp.cursorPacket = psnDiff(qp.unackedPsn, qp.wqePsn[at]);
  const w = qp.sq.wordOf(qp.sqHead);
  seekGather(qp, w, qp.cursorPacket * qp.pathMtu);
}

/** Sends everything from the oldest unacknowledged PSN again. */
export function goBack(core: Core, qp: QueuePair, cause: RetransmitCause): void {
  qp.retransmitCause = cause;
  qp.timedPsn = -1;
  // What followed a probe goes again as it is: its answer says nothing more.
  qp.probePsn = -1;
  seekUnacked(core, qp);
  core.schedule(qp);
}

/** A loss was seen: half the window, once for all that was out. */
export function reduceWindow(qp: QueuePair, timedOut: boolean): void {
  if (!timedOut && qp.recoveryPsn >= 0 && psnDiff(qp.unackedPsn, qp.recoveryPsn) < 0) return;
  qp.recoveryPsn = qp.sendPsn;
  qp.windowThreshold = Math.max(WINDOW_MIN, qp.window >> 1);
  qp.window = timedOut ? WINDOW_MIN : qp.windowThreshold;
  qp.windowCredit = 0;
}

/** Packets were acknowledged: the window doubles a round trip below the threshold, then grows by one. */
export function growWindow(qp: QueuePair, packets: number): void {
  if (qp.window >= WINDOW_MAX) return;
  if (qp.window < qp.windowThreshold) {
    qp.window = Math.min(qp.window + packets, qp.windowThreshold);
    return;
  }
  qp.windowCredit += packets;
  if (qp.windowCredit >= qp.window) {
    qp.windowCredit -= qp.window;
    qp.window = Math.min(qp.window + 1, WINDOW_MAX);
  }
}

/** Starts, restarts or stops the timers after something was sent or acknowledged. */
export function armTimers(core: Core, qp: QueuePair): void {
  if (qp.unackedPsn === qp.sendPsn || qp.timeout === 0) {
    qp.retryDeadline = qp.probeDeadline = Number.POSITIVE_INFINITY;
    return;
  }
  qp.retryDeadline = core.now + RETRY_TIMER_FACTOR * ackTimeoutMicroseconds(qp.timeout);
  armProbe(core, qp);
  core.deadlines.update(qp);
}

export function armProbe(core: Core, qp: QueuePair): void {
  const overdue = qp.roundTrip + PROBE_DEVIATIONS * qp.roundTripDeviation;
  const interval = Math.max(PROBE_MIN, overdue) * 2 ** qp.probeBackoff;
  const at = core.now + interval;
  // Where the rule's own timer is as quick, it needs no help.
  qp.probeDeadline = qp.roundTrip > 0 && at < qp.retryDeadline ? at : Number.POSITIVE_INFINITY;
}

/** The oldest entry can't go on: it completes with this status, the rest is flushed. */
export function failHead(core: Core, qp: QueuePair, status: number): void {
  core.completeSend(qp, status);
  if (qp.reliable) core.toError(qp);
  else core.toSendError(qp);
}

/** A timer of the requester has come. At most one retry a call (see the pump's order in docs/run-loop.md). */
export function requesterTimers(core: Core, qp: QueuePair): void {
  const { now } = core;
  if (qp.paceDeadline <= now) {
    qp.paceDeadline = Number.POSITIVE_INFINITY;
    core.schedule(qp);
  }
  if (qp.rnrDeadline <= now) {
    qp.rnrDeadline = Number.POSITIVE_INFINITY;
    core.schedule(qp);
  }
  if (qp.retryDeadline <= now) {
    qp.counters.timeouts++;
    if (qp.retriesLeft === 0) {
      qp.counters.retryExceededErr++;
      failHead(core, qp, WcStatus.RETRY_EXC_ERR);
      return;
    }
    qp.retriesLeft--;
    qp.counters.retries++;
    qp.impliedNakPsn = -1;
    reduceWindow(qp, true);
    goBack(core, qp, 'timeout');
    qp.retryDeadline = now + RETRY_TIMER_FACTOR * ackTimeoutMicroseconds(qp.timeout);
    qp.probeDeadline = Number.POSITIVE_INFINITY;
  } else if (qp.probeDeadline <= now) {
    qp.probeBackoff++;
    qp.counters.probes++;
    qp.probing = true;
    armProbe(core, qp);
    core.schedule(qp);
  }
}
