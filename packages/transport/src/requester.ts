/**
 * The requester: what of the send queue goes when. What is said of windows, credits and going back is of
 * reliable connections; UC and UD send each packet once and complete an entry when the link has taken it.
 *
 * The cursor says what goes next: an entry, a packet in it and its PSN. It runs ahead of `unackedPsn` by
 * what is out; to go back (timeout, NAK) is to put the cursor at `unackedPsn`, which always lies in the
 * oldest incomplete entry, because an entry leaves the queue when its last packet is acknowledged.
 *
 * `send-entry.ts` starts entries, `request-packets.ts` writes the packets.
 */
import { PSN_MASK, psnDiff } from '@node-roce/wire';
import type { TxBatch } from './batch.ts';
import { QpStateCode } from './constants.ts';
import type { Core } from './core.ts';
import { mayPace, pace } from './pacing.ts';
import type { QueuePair } from './qp.ts';
import { armTimers, goBack, seekUnacked, WINDOW_MAX, WINDOW_START } from './recovery.ts';
import { writeRequest } from './request-packets.ts';
import { SendWqe } from './rings.ts';
import { isResponded, startEntry } from './send-entry.ts';

/** What stays behind `unackedPsn` has to be told from what is ahead: a quarter of the PSN space. */
const PSN_SPAN = 1 << 22;

/** RTS: a fresh send side. Entries posted before are not possible: posting needs RTS. */
export function startRequester(qp: QueuePair, psn: number): void {
  qp.sendPsn = qp.cursorPsn = qp.unackedPsn = psn;
  qp.window = WINDOW_START;
  qp.windowThreshold = WINDOW_MAX;
  qp.windowCredit = 0;
  qp.recoveryPsn = -1;
  qp.impliedNakPsn = -1;
  qp.timedPsn = -1;
  qp.roundTrip = 0;
  qp.roundTripDeviation = 0;
  qp.probeBackoff = 0;
  qp.sinceAckReq = 0;
  qp.sendSsn = 0;
  qp.creditLimit = 0;
  qp.creditLimited = qp.reliable;
  qp.paceNext = 0;
  qp.cursorPacket = 0;
  qp.lastResponded = (qp.sqHead - 1) | 0;
  qp.sqCursor = qp.sqStarted = qp.sqHead;
  qp.failedStatus = 0;
  qp.drained = false;
}

/**
 * The oldest unacknowledged PSN lies in the oldest incomplete entry; the cursor is not behind it and not
 * beyond what was sent; entries are head ≤ cursor ≤ started ≤ posted.
 */
export function checkRequester(core: Core, qp: QueuePair): void {
  const { sq, sqHead, sqCursor, sqStarted, unackedPsn, cursorPsn, sendPsn } = qp;
  if (qp.state !== QpStateCode.RTS && qp.state !== QpStateCode.SQD) return;
  const posted = (sq.producer - sqHead) | 0;
  const started = (sqStarted - sqHead) | 0;
  const cursor = (sqCursor - sqHead) | 0;
  if (posted < 0 || posted > sq.capacity) core.bug(qp, `${posted} entries are posted`);
  else if (started < 0 || started > posted) core.bug(qp, `${started} of ${posted} entries are started`);
  else if (cursor < 0 || cursor > started) core.bug(qp, `the cursor is ${cursor} past the oldest entry`);
  if (!qp.reliable) return;
  const out = psnDiff(sendPsn, unackedPsn);
  const done = psnDiff(cursorPsn, unackedPsn);
  if (out < 0 || done < 0 || done > out) core.bug(qp, `cursor at ${done} of ${out} PSNs out`);
  if (started > 0 && out > 0) {
    const at = sqHead & (sq.capacity - 1);
    const inHead = psnDiff(unackedPsn, qp.wqePsn[at]);
    if (inHead < 0 || inHead >= Math.max(1, qp.wqePackets[at]))
      core.bug(qp, `unacked PSN is ${inHead} in the oldest entry`);
  }
}

/** Adds up to `budget` request packets to the batch. */
export function transmitRequests(core: Core, qp: QueuePair, batch: TxBatch, budget: number): number {
  if (qp.state !== QpStateCode.RTS && qp.state !== QpStateCode.SQD) return 0;
  if (qp.rnrDeadline !== Number.POSITIVE_INFINITY) return 0;
  const wasIdle = qp.unackedPsn === qp.sendPsn;
  let sent = 0;
  while (sent < budget && !batch.full) {
    if (qp.sqCursor === qp.sqStarted) {
      if (qp.failedStatus !== 0 || qp.state === QpStateCode.SQD) break;
      const posted = qp.sq.producer;
      if (qp.sqCursor === posted && !qp.sq.sleep(posted)) break;
      if (!startEntry(core, qp)) break;
      if (qp.sqCursor === qp.sqStarted) continue;
    }
    const out = psnDiff(qp.cursorPsn, qp.unackedPsn);
    if (qp.reliable && (out - qp.readPackets >= qp.window || out >= PSN_SPAN)) break;
    if (qp.rateLimit !== 0 && !mayPace(core, qp)) break;
    if (!transmitOne(core, qp, batch, out)) break;
    if (qp.rateLimit !== 0) pace(qp, batch);
    sent++;
  }
  if (!qp.reliable) {
    if (sent > 0 && !qp.unconfirmed) {
      qp.unconfirmed = true;
      core.unconfirmed.push(qp);
    }
    return sent;
  }
  if (sent > 0 && (wasIdle || qp.retryDeadline === Number.POSITIVE_INFINITY)) armTimers(core, qp);
  return sent;
}

/** Adds the packet under the cursor and moves on. False if it can't go now. */
function transmitOne(core: Core, qp: QueuePair, batch: TxBatch, out: number): boolean {
  const psns = writeRequest(core, qp, batch, out);
  if (psns === 0) return false;
  advanceCursor(core, qp, psns);
  return true;
}

function advanceCursor(core: Core, qp: QueuePair, psns: number): void {
  const at = qp.sqCursor & (qp.sq.capacity - 1);
  const psn = qp.cursorPsn;
  qp.cursorPsn = (qp.cursorPsn + psns) & PSN_MASK;
  qp.cursorPacket += psns;
  if (psnDiff(qp.cursorPsn, qp.sendPsn) > 0) qp.sendPsn = qp.cursorPsn;
  else core.retransmitted(qp, psn);
  if (qp.cursorPacket < qp.wqePackets[at]) return;
  // Local operations behind it were done when they were started.
  do qp.sqCursor = (qp.sqCursor + 1) | 0;
  while (qp.sqCursor !== qp.sqStarted && qp.wqePackets[qp.sqCursor & (qp.sq.capacity - 1)] === 0);
  qp.cursorPacket = 0;
  qp.gatherSge = 0;
  qp.gatherOffset = 0;
}

/**
 * Sends the oldest unacknowledged packet once more, for an answer: a lost tail draws no NAK. It costs no
 * retry; the rule's timer runs on.
 */
export function transmitProbe(core: Core, qp: QueuePair, batch: TxBatch): number {
  qp.probing = false;
  if (qp.unackedPsn === qp.sendPsn || psnDiff(qp.cursorPsn, qp.unackedPsn) <= 0) return 0;
  if (batch.full) {
    qp.probing = true;
    return 0;
  }
  const responded = isResponded(qp.sq.words[qp.sq.wordOf(qp.sqHead) + SendWqe.OPCODE_FLAGS] & 0xff);
  if (responded) {
    // The request itself goes again, and all after it: its responses are what is missing.
    goBack(core, qp, 'adaptive');
    return 0;
  }
  const { sqCursor, cursorPacket, cursorPsn, gatherSge, gatherOffset, readPackets, rdCount, rdHead } = qp;
  const { readBudget } = core;
  const { retransmitCause } = qp;
  qp.retransmitCause = 'adaptive';
  seekUnacked(core, qp);
  qp.sinceAckReq = WINDOW_MAX;
  const sent = transmitOne(core, qp, batch, 0);
  qp.retransmitCause = retransmitCause;
  if (!sent) return 0;
  qp.probePsn = qp.unackedPsn;
  qp.timedPsn = -1;
  qp.sqCursor = sqCursor;
  qp.cursorPacket = cursorPacket;
  qp.cursorPsn = cursorPsn;
  qp.gatherSge = gatherSge;
  qp.gatherOffset = gatherOffset;
  qp.readPackets = readPackets;
  qp.rdCount = rdCount;
  qp.rdHead = rdHead;
  core.readBudget = readBudget;
  return 1;
}
