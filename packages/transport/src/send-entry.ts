/** The beginning of a send entry: whether it may start now, whether it is right, and its PSNs. */
import { PSN_MASK, psnDiff } from '@node-roce/wire';
import { Access, type QpType, SendFlags, WcStatus, WrOpcode } from './constants.ts';
import type { Core } from './core.ts';
import type { QueuePair } from './qp.ts';
import { failHead } from './recovery.ts';
import { SendWqe } from './rings.ts';
import { checkList } from './sge.ts';
import { executeLocal, isLocal } from './windows.ts';

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

/** READ or atomic: answered by a response of its own, not by an ACK. */
export function isResponded(opcode: number): boolean {
  return (
    opcode === WrOpcode.RDMA_READ ||
    opcode === WrOpcode.ATOMIC_CMP_AND_SWP ||
    opcode === WrOpcode.ATOMIC_FETCH_AND_ADD
  );
}

/** Takes a receive entry at the peer, so it counts against credits. */
export function takesReceive(opcode: number): boolean {
  return (
    opcode === WrOpcode.SEND ||
    opcode === WrOpcode.SEND_WITH_IMM ||
    opcode === WrOpcode.SEND_WITH_INV ||
    opcode === WrOpcode.RDMA_WRITE_WITH_IMM
  );
}

/**
 * Gives the entry under the cursor its PSNs, or does it at once if it is local. False if it can't start
 * now: fence, credits, or a failure that waits for the entries before it.
 */
export function startEntry(core: Core, qp: QueuePair): boolean {
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

/**
 * SQD: an entry that was given its PSNs and of which nothing has been sent (it had to wait for the window, or for READs that
 * are out) is not started after all; nor does one fail that was not.
 */
export function unstartUnsent(qp: QueuePair): void {
  if (qp.failedIndex === qp.sqStarted) qp.failedStatus = 0;
  const last = (qp.sqStarted - 1) | 0;
  const at = last & (qp.sq.capacity - 1);
  if (qp.sqStarted === qp.sqHead || qp.wqePackets[at] === 0 || qp.wqePsn[at] !== qp.sendPsn) return;
  qp.sqStarted = last;
  qp.sendSsn = (qp.sendSsn - 1) & PSN_MASK;
  // Which READ or atomic was the last before it is not known any more; all before it have to do for a fence.
  if (qp.lastResponded === last) qp.lastResponded = (last - 1) | 0;
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

/** What the entry under the cursor needs went away after it had started: the entries before it still count. */
export function failCursor(core: Core, qp: QueuePair, status: number): number {
  qp.failedIndex = qp.sqCursor;
  qp.failedStatus = status;
  if (qp.sqCursor === qp.sqHead) failHead(core, qp, status);
  return 0;
}
