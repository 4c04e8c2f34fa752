/**
 * The requester: turns send entries into packets. What is said of windows, credits and going back is of
 * reliable connections; UC and UD send each packet once and complete an entry when the link has taken it.
 *
 * The cursor says what goes next: an entry, a packet in it and its PSN. It runs ahead of `unackedPsn` by
 * what is out; to go back (timeout, NAK) is to put the cursor at `unackedPsn`, which always lies in the
 * oldest incomplete entry, because an entry leaves the queue when its last packet is acknowledged.
 */
import {
  ATOMIC_ETH_BYTES,
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  DETH_BYTES,
  IETH_BYTES,
  IMM_DT_BYTES,
  Opcode,
  PSN_MASK,
  psnAdd,
  psnDiff,
  RETH_BYTES,
  writeAtomicEth,
  writeBth,
  writeDeth,
  writeIeth,
  writeImmDt,
  writeReth,
} from '@node-roce/wire';
import type { AddressHandle } from './addresses.ts';
import { TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';
import { Access, QpStateCode, type QpType, SendFlags, WcStatus, WrOpcode } from './constants.ts';
import type { Core } from './core.ts';
import { mayPace, pace, pacedAckInterval } from './pacing.ts';
import type { QueuePair } from './qp.ts';
import { armTimers, failHead, goBack, seekUnacked, WINDOW_MAX, WINDOW_START } from './recovery.ts';
import { SendWqe } from './rings.ts';
import { addFragment, checkList, gather } from './sge.ts';
import { executeLocal, isLocal } from './windows.ts';

/** P_Key of a RoCE port: the default partition, full member. */
export const DEFAULT_PKEY = 0xffff;

/** What stays behind `unackedPsn` has to be told from what is ahead: a quarter of the PSN space. */
const PSN_SPAN = 1 << 22;

/** Responses that one READ request asks for, at most. */
const READ_CHUNK_MAX = 64;

/**
 * What a datagram with this much payload is charged against a socket's receive buffer: the kernel's
 * buffer for it is the next power of two, plus its bookkeeping (measured: 4112 B → 8520, 1040 → 2315).
 */
export function receiveCharge(pathMtu: number): number {
  return 2 * pathMtu + 512;
}

/** Splits READs so that a receive buffer of `budget` bytes holds the responses of two requests. */
export function readChunkFor(pathMtu: number, budget: number): number {
  return Math.min(READ_CHUNK_MAX, Math.max(1, Math.floor(budget / 2 / receiveCharge(pathMtu))));
}

/** READ or atomic: answered by a response of its own, not by an ACK. */
export function isResponded(opcode: number): boolean {
  return (
    opcode === WrOpcode.RDMA_READ ||
    opcode === WrOpcode.ATOMIC_CMP_AND_SWP ||
    opcode === WrOpcode.ATOMIC_FETCH_AND_ADD
  );
}

function isWrite(opcode: number): boolean {
  return opcode === WrOpcode.RDMA_WRITE || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
}

/** Takes a receive entry at the peer, so it counts against credits. */
function takesReceive(opcode: number): boolean {
  return (
    opcode === WrOpcode.SEND ||
    opcode === WrOpcode.SEND_WITH_IMM ||
    opcode === WrOpcode.SEND_WITH_INV ||
    opcode === WrOpcode.RDMA_WRITE_WITH_IMM
  );
}

const UD_OPCODES = [WrOpcode.SEND, WrOpcode.SEND_WITH_IMM];
const UC_OPCODES = [
  ...UD_OPCODES,
  WrOpcode.RDMA_WRITE,
  WrOpcode.RDMA_WRITE_WITH_IMM,
  WrOpcode.LOCAL_INV,
  WrOpcode.BIND_MW,
];
/** The operations of each type (ibv_post_send(3)). UC has no opcode for SEND_WITH_INV (IBTA vol 1 §9.2). */
const OFFERED: Record<QpType, ReadonlySet<number>> = {
  RC: new Set(Object.values(WrOpcode)),
  UC: new Set<number>(UC_OPCODES),
  UD: new Set<number>(UD_OPCODES),
  GSI: new Set<number>(UD_OPCODES),
};

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
 * Gives the entry under the cursor its PSNs, or does it at once if it is local. False if it can't start
 * now: fence, credits, or a failure that waits for the entries before it.
 */
function startEntry(core: Core, qp: QueuePair): boolean {
  const ring = qp.sq;
  const index = qp.sqCursor;
  const w = ring.wordOf(index);
  const words = ring.words;
  const opcode = words[w + SendWqe.OPCODE_FLAGS] & 0xff;
  const flags = words[w + SendWqe.OPCODE_FLAGS] >>> 8;
  if ((flags & SendFlags.FENCE) !== 0 && fenceHolds(qp, opcode)) return false;

  let status = checkEntry(core, qp, w, opcode, flags);
  if (status === WcStatus.SUCCESS && isLocal(opcode)) {
    status = executeLocal(core, qp, w, opcode);
    if (status === WcStatus.SUCCESS) {
      finishLocal(core, qp);
      return true;
    }
  }
  if (status !== WcStatus.SUCCESS) {
    qp.failedIndex = index;
    qp.failedStatus = status;
    if (index === qp.sqHead) failHead(core, qp, status);
    return false;
  }
  // One request may go past the limit, and asks for the ACK that moves it (§9.7.7.2.5). And one may always be
  // out: an ACK whose credits make no sense, or one that was lost, must not be the last that is heard.
  const past = qp.creditLimited && psnDiff(qp.sendSsn, qp.creditLimit) > 0;
  if (takesReceive(opcode) && past && qp.unackedPsn !== qp.sendPsn) return false;

  const at = index & (ring.capacity - 1);
  const length = words[w + SendWqe.LENGTH];
  qp.wqePsn[at] = qp.cursorPsn;
  qp.wqePackets[at] =
    opcode >= WrOpcode.ATOMIC_CMP_AND_SWP && isResponded(opcode)
      ? 1
      : Math.max(1, Math.ceil(length / qp.pathMtu));
  qp.sendSsn = (qp.sendSsn + 1) & PSN_MASK;
  if (isResponded(opcode)) qp.lastResponded = index;
  qp.sqStarted = (index + 1) | 0;
  qp.gatherSge = 0;
  qp.gatherOffset = 0;
  return true;
}

/** A fenced entry waits for the READs and atomics before it (§10.8.3.3); a LOCAL_INV for all before it (§10.6.5.1). */
function fenceHolds(qp: QueuePair, opcode: number): boolean {
  if (opcode === WrOpcode.LOCAL_INV) return qp.sqCursor !== qp.sqHead;
  return ((qp.sqHead - qp.lastResponded) | 0) <= 0;
}

/** A local operation is done; it completes in its turn. */
function finishLocal(core: Core, qp: QueuePair): void {
  const index = qp.sqCursor;
  const at = index & (qp.sq.capacity - 1);
  qp.wqePsn[at] = qp.cursorPsn;
  qp.wqePackets[at] = 0;
  qp.sqCursor = qp.sqStarted = (index + 1) | 0;
  if (index === qp.sqHead) core.completeOldest(qp);
}

function checkEntry(core: Core, qp: QueuePair, w: number, opcode: number, flags: number): number {
  const words = qp.sq.words;
  const length = words[w + SendWqe.LENGTH];
  const count = words[w + SendWqe.SGE_COUNT];
  if (!OFFERED[qp.type].has(opcode)) return WcStatus.LOC_QP_OP_ERR;
  if (isLocal(opcode)) return WcStatus.SUCCESS;
  if (length > (qp.datagram ? qp.pathMtu : core.limits.maxMessageSize)) return WcStatus.LOC_LEN_ERR;
  if (qp.datagram) {
    const ah = core.addresses.ah(words[w + SendWqe.ADDRESS_HANDLE]);
    if (ah?.pd !== qp.pd) return WcStatus.LOC_QP_OP_ERR;
  }
  if (isResponded(opcode)) {
    if (qp.maxRdAtomic === 0) return WcStatus.LOC_QP_OP_ERR;
    if (opcode !== WrOpcode.RDMA_READ && length !== 8) return WcStatus.LOC_LEN_ERR;
  }
  if ((flags & SendFlags.INLINE) !== 0) {
    return length <= qp.cap.maxInlineData && !isResponded(opcode) ? WcStatus.SUCCESS : WcStatus.LOC_QP_OP_ERR;
  }
  if (count > qp.cap.maxSendSge) return WcStatus.LOC_QP_OP_ERR;
  const access = isResponded(opcode) ? Access.LOCAL_WRITE : 0;
  const total = checkList(core, qp.pd, qp.sq, w + SendWqe.SGE, count, access);
  if (total < 0) return WcStatus.LOC_PROT_ERR;
  return total === length ? WcStatus.SUCCESS : WcStatus.LOC_LEN_ERR;
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
    const packets = transmitOne(core, qp, batch, out);
    if (packets === 0) break;
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

/** Adds the packet under the cursor; returns the PSNs it takes, 0 if it can't go now. */
function transmitOne(core: Core, qp: QueuePair, batch: TxBatch, out: number): number {
  const w = qp.sq.wordOf(qp.sqCursor);
  const words = qp.sq.words;
  const opcode = words[w + SendWqe.OPCODE_FLAGS] & 0xff;
  if (isResponded(opcode)) {
    const psns =
      opcode === WrOpcode.RDMA_READ ? transmitRead(core, qp, batch, w) : transmitAtomic(qp, batch, w, opcode);
    if (psns > 0) advanceCursor(core, qp, psns);
    return psns;
  }

  const at = qp.sqCursor & (qp.sq.capacity - 1);
  const flags = words[w + SendWqe.OPCODE_FLAGS] >>> 8;
  const length = words[w + SendWqe.LENGTH];
  const first = qp.cursorPacket === 0;
  const last = qp.cursorPacket === qp.wqePackets[at] - 1;
  const start = qp.cursorPacket * qp.pathMtu;
  const size = last ? length - start : qp.pathMtu;
  const fragments = batch.fragmentCount;

  const ah = qp.datagram ? core.addresses.ah(words[w + SendWqe.ADDRESS_HANDLE]) : undefined;
  if (qp.datagram && !ah) return failCursor(core, qp, WcStatus.LOC_QP_OP_ERR);
  if ((flags & SendFlags.INLINE) !== 0) {
    if (size > 0) addFragment(batch, qp.sqRegion, (w + SendWqe.SGE) * 4 + start, size);
  } else if (!gather(core, qp, batch, w, size)) {
    batch.fragmentCount = fragments;
    return failCursor(core, qp, WcStatus.LOC_PROT_ERR);
  }

  qp.sinceAckReq++;
  const atLimit = out - qp.readPackets + 1 >= qp.window;
  const enough = qp.rateLimit === 0 ? Math.max(4, qp.window >> 2) : pacedAckInterval(qp);
  const ackReq = qp.reliable && (last || atLimit || qp.sinceAckReq >= enough);
  const pad = -size & 3;
  const solicited = last && (flags & SendFlags.SOLICITED) !== 0 && takesReceive(opcode);

  const header = batch.headers;
  const base = batch.count * TX_HEADER_STRIDE;
  let o = base + BTH_BYTES;
  let destQpn = qp.destQpn;
  if (qp.datagram) {
    destQpn = words[w + SendWqe.REMOTE_QPN];
    // The top bit asks for the Q_Key of the sender's own context (IBTA vol 1 §10.2.5).
    const qkey = words[w + SendWqe.REMOTE_QKEY];
    writeDeth(header, o, qkey >>> 31 === 1 ? qp.qkey : qkey, qp.qpn);
    o += DETH_BYTES;
  }
  let wireOpcode: number;
  if (isWrite(opcode)) {
    wireOpcode = first
      ? last
        ? Opcode.RC_RDMA_WRITE_ONLY
        : Opcode.RC_RDMA_WRITE_FIRST
      : last
        ? Opcode.RC_RDMA_WRITE_LAST
        : Opcode.RC_RDMA_WRITE_MIDDLE;
    if (first) {
      const high = words[w + SendWqe.REMOTE_ADDRESS_HIGH];
      writeReth(header, o, high, words[w + SendWqe.REMOTE_ADDRESS_LOW], words[w + SendWqe.RKEY], length);
      o += RETH_BYTES;
    }
    if (last && opcode === WrOpcode.RDMA_WRITE_WITH_IMM) {
      wireOpcode++;
      writeImmDt(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IMM_DT_BYTES;
    }
  } else {
    wireOpcode = first
      ? last
        ? Opcode.RC_SEND_ONLY
        : Opcode.RC_SEND_FIRST
      : last
        ? Opcode.RC_SEND_LAST
        : Opcode.RC_SEND_MIDDLE;
    if (last && opcode === WrOpcode.SEND_WITH_IMM) {
      wireOpcode++;
      writeImmDt(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IMM_DT_BYTES;
    } else if (last && opcode === WrOpcode.SEND_WITH_INV) {
      wireOpcode = first ? Opcode.RC_SEND_ONLY_WITH_INVALIDATE : Opcode.RC_SEND_LAST_WITH_INVALIDATE;
      writeIeth(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IETH_BYTES;
    }
  }
  const bits = BthFlags.MIG_REQ | (pad << BTH_PAD_SHIFT) | (solicited ? BthFlags.SOLICITED : 0);
  writeBth(
    header,
    base,
    qp.transport | wireOpcode,
    bits,
    DEFAULT_PKEY,
    destQpn,
    ackReq ? BTH_ACK_REQ + qp.cursorPsn : qp.cursorPsn,
  );
  if (ackReq) {
    qp.sinceAckReq = 0;
    timePacket(core, qp);
  }
  finishSlot(qp, batch, o - base, fragments, size, pad);
  if (ah) addressSlot(qp, batch, ah);
  advanceCursor(core, qp, 1);
  return 1;
}

/** One request for up to a chunk of responses. */
function transmitRead(core: Core, qp: QueuePair, batch: TxBatch, w: number): number {
  if (qp.rdCount >= qp.maxRdAtomic) return 0;
  const words = qp.sq.words;
  const at = qp.sqCursor & (qp.sq.capacity - 1);
  // Chunks begin at multiples of their size, so that a resumed READ ends where the first request ended.
  const chunkEnd = (Math.floor(qp.cursorPacket / qp.readChunk) + 1) * qp.readChunk;
  const packets = Math.min(chunkEnd, qp.wqePackets[at]) - qp.cursorPacket;
  // Responses count against the window as packets do, after a loss all that is out is asked for again; but two
  // requests may always be out, so that the peer has one to answer while the other's answer travels.
  const most = Math.max(qp.window, 2 * qp.readChunk);
  const tooMany = packets * qp.readCharge > core.readBudget || qp.readPackets + packets > most;
  if (tooMany && qp.readPackets > 0) return 0;

  const start = qp.cursorPacket * qp.pathMtu;
  const length = Math.min(packets * qp.pathMtu, words[w + SendWqe.LENGTH] - start);
  let high = words[w + SendWqe.REMOTE_ADDRESS_HIGH];
  let low = words[w + SendWqe.REMOTE_ADDRESS_LOW] + start;
  if (low >= 0x1_0000_0000) {
    low -= 0x1_0000_0000;
    high = (high + 1) >>> 0;
  }
  const base = batch.count * TX_HEADER_STRIDE;
  writeReth(batch.headers, base + BTH_BYTES, high, low, words[w + SendWqe.RKEY], length);
  writeBth(
    batch.headers,
    base,
    Opcode.RC_RDMA_READ_REQUEST,
    BthFlags.MIG_REQ,
    DEFAULT_PKEY,
    qp.destQpn,
    BTH_ACK_REQ + qp.cursorPsn,
  );
  core.readBudget -= packets * qp.readCharge;
  qp.readPackets += packets;
  noteResponse(qp, psnAdd(qp.cursorPsn, packets - 1));
  timePacket(core, qp);
  finishSlot(qp, batch, BTH_BYTES + RETH_BYTES, batch.fragmentCount, 0, 0);
  return packets;
}

function transmitAtomic(qp: QueuePair, batch: TxBatch, w: number, opcode: number): number {
  if (qp.rdCount >= qp.maxRdAtomic) return 0;
  const words = qp.sq.words;
  const base = batch.count * TX_HEADER_STRIDE;
  const swap = opcode === WrOpcode.ATOMIC_CMP_AND_SWP;
  // FETCH_ADD carries its operand where CMP_SWAP carries the new value (§9.4.5.1).
  writeAtomicEth(
    batch.headers,
    base + BTH_BYTES,
    words[w + SendWqe.REMOTE_ADDRESS_HIGH],
    words[w + SendWqe.REMOTE_ADDRESS_LOW],
    words[w + SendWqe.RKEY],
    words[w + (swap ? SendWqe.SWAP_HIGH : SendWqe.COMPARE_ADD_HIGH)],
    words[w + (swap ? SendWqe.SWAP_LOW : SendWqe.COMPARE_ADD_LOW)],
    swap ? words[w + SendWqe.COMPARE_ADD_HIGH] : 0,
    swap ? words[w + SendWqe.COMPARE_ADD_LOW] : 0,
  );
  const wireOpcode = swap ? Opcode.RC_COMPARE_SWAP : Opcode.RC_FETCH_ADD;
  writeBth(
    batch.headers,
    base,
    wireOpcode,
    BthFlags.MIG_REQ,
    DEFAULT_PKEY,
    qp.destQpn,
    BTH_ACK_REQ + qp.cursorPsn,
  );
  noteResponse(qp, qp.cursorPsn);
  finishSlot(qp, batch, BTH_BYTES + ATOMIC_ETH_BYTES, batch.fragmentCount, 0, 0);
  return 1;
}

/** A READ or atomic request is out, to be answered up to this PSN. */
function noteResponse(qp: QueuePair, lastPsn: number): void {
  qp.rdEnds[(qp.rdHead + qp.rdCount++) & 127] = lastPsn;
}

function timePacket(core: Core, qp: QueuePair): void {
  if (qp.timedPsn >= 0 || qp.cursorPsn !== qp.sendPsn) return;
  qp.timedPsn = qp.cursorPsn;
  qp.timedAt = core.now;
}

/** The words of the slot whose header was just written. */
export function finishSlot(
  qp: QueuePair,
  batch: TxBatch,
  headerLength: number,
  firstFragment: number,
  payload: number,
  pad: number,
): void {
  const s = batch.slots;
  const w = batch.count * TX_SLOT_WORDS;
  s[w + Tx.HEADER_OFFSET] = batch.count * TX_HEADER_STRIDE;
  s[w + Tx.HEADER_LENGTH] = headerLength;
  s[w + Tx.FRAGMENT_FIRST] = firstFragment;
  s[w + Tx.FRAGMENT_COUNT] = batch.fragmentCount - firstFragment;
  s[w + Tx.PAYLOAD_LENGTH] = payload;
  s[w + Tx.PAD] = pad;
  s[w + Tx.PEER] = qp.peer;
  s[w + Tx.TRAFFIC_CLASS] = qp.trafficClass;
  s[w + Tx.SOURCE_PORT] = qp.sourcePort;
  s[w + Tx.QPN] = qp.qpn;
  s[w + Tx.STATUS] = 0;
  s[w + Tx.ENTRY] = qp.sqCursor;
  batch.count++;
  qp.counters.sentPackets++;
}

/** A datagram goes where its address handle says. */
function addressSlot(qp: QueuePair, batch: TxBatch, ah: AddressHandle): void {
  const w = (batch.count - 1) * TX_SLOT_WORDS;
  batch.slots[w + Tx.PEER] = ah.peer;
  batch.slots[w + Tx.TRAFFIC_CLASS] = ah.trafficClass;
  batch.slots[w + Tx.SOURCE_PORT] = ah.sourcePort(qp.qpn);
}

/** What the entry under the cursor needs went away after it had started: the entries before it still count. */
function failCursor(core: Core, qp: QueuePair, status: number): number {
  qp.failedIndex = qp.sqCursor;
  qp.failedStatus = status;
  if (qp.sqCursor === qp.sqHead) failHead(core, qp, status);
  return 0;
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
  if (sent === 0) return 0;
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
  return sent;
}
