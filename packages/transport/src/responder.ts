/**
 * The responder of a connection, for RC and what UC shares with it: a chain of named checks on a request, then its execution
 * (validation order: IBTA vol 1 §9.7.4.1, §9.6.1; NAKs: §9.7.5.2.8).
 *
 * A check that fails answers with the NAK that the rule names and ends the chain. Nothing is written to
 * memory before all checks of the packet have passed.
 */
import {
  atomicEthCompareHigh,
  atomicEthCompareLow,
  atomicEthRkey,
  atomicEthSwapAddHigh,
  atomicEthSwapAddLow,
  atomicEthVaHigh,
  atomicEthVaLow,
  bthAckReq,
  bthSolicited,
  iethRkey,
  immDt,
  NakCode,
  OperationBits,
  psnAdd,
  psnDiff,
  rethLength,
  rethRkey,
  rethVaHigh,
  rethVaLow,
} from '@node-roce/wire';
import { Access, WcFlags, WcOpcode, WcStatus } from './constants.ts';
import type { Core } from './core.ts';
import type { InboundPacket } from './inbound.ts';
import type { MemoryRegion } from './memory.ts';
import { Inbound, type QueuePair } from './qp.ts';
import { type Executed, ReplyKind } from './reply-queue.ts';
import { RecvWqe } from './rings.ts';
import { checkList, Scattered, scatterReceive } from './sge.ts';
import { abandonMessage, failUnreliable } from './unreliable.ts';
import { invalidatable } from './windows.ts';

/** RNR NAK syndrome: 001 and the timer code. */
const RNR_NAK = 0x20;
const MAX_RETH_LENGTH = 2 ** 31;

/** One request. */
export function receiveRequest(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, psn } = packet;
  const ahead = psnDiff(psn, qp.expectedPsn);
  if (ahead > 0) {
    // One NAK, then silence until the missing packet comes (§9.7.5.2.8).
    qp.counters.outOfSeqRequest++;
    if (!qp.nakOut) nak(core, qp, qp.expectedPsn, NakCode.PSN_SEQUENCE_ERROR);
    return;
  }
  if (ahead < 0) {
    receiveDuplicate(core, qp, packet);
    return;
  }
  qp.nakOut = false;
  if (!checkSequence(core, qp, packet) || !checkAllowed(core, qp, packet)) return;
  if (info.isSend) receiveSend(core, qp, packet);
  else if (info.isWrite) receiveWrite(core, qp, packet);
  else if (info.isReadRequest) receiveReadRequest(core, qp, packet);
  else if (info.isAtomic) receiveAtomicRequest(core, qp, packet);
  else fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.WR_FLUSH_ERR);
}

/** FIRST, MIDDLE, LAST and ONLY follow one another as they may; everything else comes between messages. */
function checkSequence(core: Core, qp: QueuePair, { info, psn }: InboundPacket): boolean {
  let before: number = Inbound.NONE;
  if (!info.first) before = info.isSend ? Inbound.SEND : Inbound.WRITE;
  if (qp.inbound === before) return true;
  fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR);
  return false;
}

/** FIRST and MIDDLE carry a path MTU, LAST 1 … MTU bytes, ONLY 0 … MTU (§9.7.4.1.6). */
function checkLength(core: Core, qp: QueuePair, { info, psn, payload }: InboundPacket): boolean {
  const mtu = qp.pathMtu;
  if (info.last ? payload <= mtu && (info.first || payload > 0) : payload === mtu) return true;
  fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR);
  return false;
}

/** What the queue pair's own access flags allow; a region's are looked at later. */
export function checkAllowed(core: Core, qp: QueuePair, { info, psn }: InboundPacket): boolean {
  let needed = 0;
  if (info.isWrite) needed = Access.REMOTE_WRITE;
  else if (info.isReadRequest) needed = Access.REMOTE_READ;
  else if (info.isAtomic) needed = Access.REMOTE_ATOMIC;
  if ((qp.access & needed) === needed) return true;
  fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR);
  return false;
}

/** Whether a receive entry is posted; without one, the requester is told to wait. */
function checkReceive(core: Core, qp: QueuePair, psn: number): boolean {
  if (core.takeReceive(qp)) return true;
  if (!qp.reliable) {
    qp.counters.outOfBuffer++;
    abandonMessage(core, qp);
    return false;
  }
  qp.counters.sentRnrErr++;
  nak(core, qp, psn, RNR_NAK | qp.minRnrTimer);
  return false;
}

export function receiveSend(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, at, psn, payload } = packet;
  if (info.first) {
    if (!checkReceive(core, qp, psn)) return;
    qp.receiving = true;
    qp.receivedLength = 0;
    const w = qp.rq.wordOf(qp.rqHead);
    const count = qp.rq.words[w + RecvWqe.SGE_COUNT];
    if (count > qp.maxReceiveSge) {
      if (qp.srq) core.event({ type: 'SRQ_ERR', srq: qp.srq.handle });
      fail(core, qp, psn, NakCode.REMOTE_OPERATIONAL_ERROR, WcStatus.LOC_QP_OP_ERR);
      return;
    }
    if (checkList(core, qp.recvPd, qp.rq, w + RecvWqe.SGE, count, Access.LOCAL_WRITE) < 0) {
      fail(core, qp, psn, NakCode.REMOTE_OPERATIONAL_ERROR, WcStatus.LOC_PROT_ERR);
      return;
    }
  }
  if (!checkLength(core, qp, packet)) return;
  const key = info.hasInvalidate ? iethRkey(packet.slab, at + info.offsets.ieth) : 0;
  const window = info.hasInvalidate ? invalidatable(core, qp, key) : undefined;
  // A message that does not fit fails for that, below: lengths are looked at before keys (§9.7.4.1).
  const room = qp.rq.words[qp.rq.wordOf(qp.rqHead) + RecvWqe.LENGTH];
  if (info.hasInvalidate && !window && qp.receivedLength + payload <= room) {
    fail(core, qp, psn, NakCode.REMOTE_ACCESS_ERROR, WcStatus.LOC_ACCESS_ERR);
    return;
  }
  const scattered = scatterReceive(core, qp, at + info.headerLength, payload);
  if (scattered === Scattered.TOO_LONG) {
    fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_LEN_ERR);
    return;
  }
  if (scattered === Scattered.PROTECTION) {
    fail(core, qp, psn, NakCode.REMOTE_OPERATIONAL_ERROR, WcStatus.LOC_PROT_ERR);
    return;
  }
  qp.receivedLength += payload;
  if (window) core.memory.unbind(window);
  accept(core, qp, packet);
  qp.inbound = info.last ? Inbound.NONE : Inbound.SEND;
  if (!info.last) return;
  completeMessage(core, qp, packet, WcOpcode.RECV, qp.receivedLength);
}

export function receiveWrite(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, slab, at, psn, payload } = packet;
  if (info.hasImmediate && !checkReceive(core, qp, psn)) return;
  if (!checkLength(core, qp, packet)) return;
  let mr = qp.writeMr;
  let offset = qp.writeOffset;
  let remaining = qp.writeRemaining;
  if (info.first) {
    const reth = at + info.offsets.reth;
    const length = rethLength(slab, reth);
    if (length > MAX_RETH_LENGTH || (info.last ? length !== payload : length <= payload)) {
      fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR);
      return;
    }
    mr = undefined;
    offset = 0;
    remaining = length;
    if (length > 0) {
      mr = remoteRegion(core, qp, rethRkey(slab, reth), Access.REMOTE_WRITE);
      offset = mr ? mr.locate(rethVaHigh(slab, reth), rethVaLow(slab, reth), length) : -1;
      if (!mr || offset < 0) {
        fail(core, qp, psn, NakCode.REMOTE_ACCESS_ERROR, WcStatus.LOC_ACCESS_ERR);
        return;
      }
    }
    qp.writeLength = length;
    qp.counters.writeRequests++;
  } else {
    // The whole message has the length that its FIRST said (§9.7.4.1.6).
    if (info.last ? payload !== remaining : payload >= remaining) {
      fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR);
      return;
    }
    if (!mr?.valid || mr.view.byteLength < offset + payload) {
      fail(core, qp, psn, NakCode.REMOTE_ACCESS_ERROR, WcStatus.LOC_ACCESS_ERR);
      return;
    }
  }
  if (mr) core.copy(at + info.headerLength, mr.region, offset, payload);
  qp.writeMr = info.last ? undefined : mr;
  qp.writeOffset = offset + payload;
  qp.writeRemaining = remaining - payload;
  accept(core, qp, packet);
  qp.inbound = info.last ? Inbound.NONE : Inbound.WRITE;
  if (!info.last || !info.hasImmediate) return;
  completeMessage(core, qp, packet, WcOpcode.RECV_RDMA_WITH_IMM, qp.writeLength);
}

function receiveReadRequest(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, slab, at, psn, payload } = packet;
  const reth = at + info.offsets.reth;
  const length = rethLength(slab, reth);
  const high = rethVaHigh(slab, reth);
  const low = rethVaLow(slab, reth);
  const key = rethRkey(slab, reth);
  if (payload !== 0 || length > MAX_RETH_LENGTH || qp.replies.pending >= qp.maxDestRdAtomic) {
    fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR);
    return;
  }
  let mr: MemoryRegion | undefined;
  let offset = 0;
  if (length > 0) {
    mr = remoteRegion(core, qp, key, Access.REMOTE_READ);
    offset = mr ? mr.locate(high, low, length) : -1;
    if (!mr || offset < 0) {
      fail(core, qp, psn, NakCode.REMOTE_ACCESS_ERROR, WcStatus.LOC_ACCESS_ERR);
      return;
    }
  }
  const packets = Math.max(1, Math.ceil(length / qp.pathMtu));
  const reply = qp.replies.push(ReplyKind.READ, psn, psnAdd(qp.msn, 1));
  if (!reply) return; // No room, no effect: it will be asked for again.
  reply.mr = mr;
  reply.offset = offset;
  reply.length = length;
  reply.packets = packets;
  const done = qp.replies.remember();
  done.atomic = false;
  done.psn = psn;
  done.packets = packets;
  done.key = key;
  done.addressHigh = high;
  done.addressLow = low;
  done.length = length;
  qp.expectedPsn = psnAdd(psn, packets);
  qp.msn = reply.msn;
  qp.counters.receivedMessages++;
  qp.counters.readRequests++;
  core.schedule(qp);
}

function receiveAtomicRequest(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, slab, at, psn, payload } = packet;
  const eth = at + info.offsets.atomicEth;
  const high = atomicEthVaHigh(slab, eth);
  const low = atomicEthVaLow(slab, eth);
  if (payload !== 0 || (low & 7) !== 0 || qp.replies.pending >= qp.maxDestRdAtomic) {
    fail(core, qp, psn, NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR);
    return;
  }
  const mr = remoteRegion(core, qp, atomicEthRkey(slab, eth), Access.REMOTE_ATOMIC);
  const offset = mr ? mr.locate(high, low, 8) : -1;
  if (!mr || offset < 0) {
    fail(core, qp, psn, NakCode.REMOTE_ACCESS_ERROR, WcStatus.LOC_ACCESS_ERR);
    return;
  }
  const reply = qp.replies.push(ReplyKind.ATOMIC, psn, psnAdd(qp.msn, 1));
  if (!reply) return;

  core.flushCopies(); // A WRITE before it in this batch is seen by it.
  const bytes = mr.view;
  const wasLow = readHost32(bytes, offset);
  const wasHigh = readHost32(bytes, offset + 4);
  const operandHigh = atomicEthSwapAddHigh(slab, eth);
  const operandLow = atomicEthSwapAddLow(slab, eth);
  if (info.operation === OperationBits.FETCH_ADD) {
    const sum = wasLow + operandLow;
    writeHost32(bytes, offset, sum >>> 0);
    writeHost32(bytes, offset + 4, (wasHigh + operandHigh + (sum > 0xffff_ffff ? 1 : 0)) >>> 0);
  } else if (wasHigh === atomicEthCompareHigh(slab, eth) && wasLow === atomicEthCompareLow(slab, eth)) {
    writeHost32(bytes, offset, operandLow);
    writeHost32(bytes, offset + 4, operandHigh);
  }
  reply.valueHigh = wasHigh;
  reply.valueLow = wasLow;
  const done = qp.replies.remember();
  done.atomic = true;
  done.psn = psn;
  done.packets = 1;
  done.valueHigh = wasHigh;
  done.valueLow = wasLow;
  qp.expectedPsn = psnAdd(psn, 1);
  qp.msn = reply.msn;
  qp.counters.receivedMessages++;
  qp.counters.atomicRequests++;
  core.schedule(qp);
}

/**
 * A request that was executed before (§9.7.5.1.2): SEND and WRITE are acknowledged again, a READ is
 * read again, an atomic is answered with the result it had. What is not remembered is dropped.
 */
function receiveDuplicate(core: Core, qp: QueuePair, packet: InboundPacket): void {
  const { info, psn } = packet;
  qp.counters.duplicateRequest++;
  const { replies } = qp;
  if (info.isSend || info.isWrite) {
    replies.acknowledge(replies.acknowledgeable(psn, psnAdd(qp.expectedPsn, -1)), qp.msn);
    core.schedule(qp);
    return;
  }
  const done = replies.executed(psn);
  if (!done) return;
  if (info.isAtomic) {
    if (!done.atomic || replies.waiting(ReplyKind.ATOMIC, psn)) return;
    const reply = replies.push(ReplyKind.ATOMIC, psn, qp.msn, true);
    if (!reply) return;
    reply.valueHigh = done.valueHigh;
    reply.valueLow = done.valueLow;
    core.schedule(qp);
    return;
  }
  if (info.isReadRequest && !done.atomic) rereadDuplicate(core, qp, packet, done);
}

/** A duplicate READ asks for the original, or for its rest from some response on. */
function rereadDuplicate(core: Core, qp: QueuePair, packet: InboundPacket, done: Executed): void {
  const { info, slab, at, psn } = packet;
  const reth = at + info.offsets.reth;
  const length = rethLength(slab, reth);
  const high = rethVaHigh(slab, reth);
  const low = rethVaLow(slab, reth);
  const skipped = psnDiff(psn, done.psn) * qp.pathMtu;
  const offsetInOriginal = (high - done.addressHigh) * 0x1_0000_0000 + (low - done.addressLow);
  if (rethRkey(slab, reth) !== done.key || offsetInOriginal !== skipped || skipped + length > done.length)
    return;

  const packets = Math.max(1, Math.ceil(length / qp.pathMtu));
  const waiting = qp.replies.waiting(ReplyKind.READ, psn);
  if (waiting) {
    // Not yet sent as far as this: it comes anyway. Sent already: it goes back to there.
    const wanted = psnDiff(psn, waiting.psn);
    if (waiting.sent > wanted) waiting.sent = wanted;
    core.schedule(qp);
    return;
  }
  const mr = length > 0 ? remoteRegion(core, qp, done.key, Access.REMOTE_READ) : undefined;
  const offset = mr ? mr.locate(high, low, length) : 0;
  if (length > 0 && (!mr || offset < 0)) {
    fail(core, qp, psn, NakCode.REMOTE_ACCESS_ERROR, WcStatus.LOC_ACCESS_ERR);
    return;
  }
  const reply = qp.replies.push(ReplyKind.READ, psn, qp.msn, true);
  if (!reply) return;
  reply.mr = mr;
  reply.offset = offset;
  reply.length = length;
  reply.packets = packets;
  core.schedule(qp);
}

/** The region or window that an rkey names, if it is open to this queue pair and this access. */
function remoteRegion(core: Core, qp: QueuePair, key: number, access: number): MemoryRegion | undefined {
  const mr = core.memory.byRkey(key);
  if (mr?.pd !== qp.pd || (mr.access & access) !== access) return undefined;
  return mr.qpn < 0 || mr.qpn === qp.qpn ? mr : undefined;
}

/** The packet is taken: the next PSN is expected, the message counted, the ACK owed if asked for. */
function accept(core: Core, qp: QueuePair, { info, slab, at, psn }: InboundPacket): void {
  qp.expectedPsn = psnAdd(psn, 1);
  if (info.last) {
    qp.msn = psnAdd(qp.msn, 1);
    qp.counters.receivedMessages++;
  }
  if (bthAckReq(slab, at) === 0 || !qp.reliable) return;
  qp.replies.acknowledge(psn, qp.msn);
  core.schedule(qp);
}

function completeMessage(
  core: Core,
  qp: QueuePair,
  packet: InboundPacket,
  opcode: number,
  length: number,
): void {
  const { info, slab, at } = packet;
  let immediate = 0;
  let flags = 0;
  if (info.hasImmediate) {
    immediate = immDt(slab, at + info.offsets.immDt);
    flags = WcFlags.WITH_IMM;
  } else if (info.hasInvalidate) {
    immediate = iethRkey(slab, at + info.offsets.ieth);
    flags = WcFlags.WITH_INV;
  }
  core.completeReceive(qp, WcStatus.SUCCESS, opcode, length, immediate, flags, bthSolicited(slab, at) === 1);
}

/** A NAK that leaves the connection up: sequence error or receiver not ready. */
function nak(core: Core, qp: QueuePair, psn: number, syndrome: number): void {
  qp.nakOut = true;
  const reply = qp.replies.push(ReplyKind.NAK, psn, qp.msn);
  if (!reply) return;
  reply.syndrome = syndrome;
  core.schedule(qp);
}

/**
 * A NAK that ends the connection: the queue pair goes to ERR, the receive entry in use completes with
 * `status`, and the program hears of it by an event (IBTA vol 1 §9.9.3, table 61). On UC nobody is told.
 */
function fail(core: Core, qp: QueuePair, psn: number, code: number, status: number): void {
  if (!qp.reliable) {
    failUnreliable(core, qp, code, status);
    return;
  }
  const reply = qp.replies.push(ReplyKind.NAK, psn, qp.msn);
  if (reply) reply.syndrome = code;
  core.schedule(qp);
  if (qp.receiving) core.completeReceive(qp, status, WcOpcode.RECV, 0, 0, 0, true);
  core.toError(qp);
  const { qpn, counters } = qp;
  if (code === NakCode.REMOTE_ACCESS_ERROR) {
    counters.sentAccessErr++;
    core.event({ type: 'QP_ACCESS_ERR', qpn });
  } else if (code === NakCode.INVALID_REQUEST) {
    counters.sentInvalidRequest++;
    core.event({ type: 'QP_REQ_ERR', qpn });
  } else counters.sentOperationalErr++;
}

function readHost32(b: Uint8Array, o: number): number {
  return (b[o] | (b[o + 1] << 8) | (b[o + 2] << 16) | (b[o + 3] << 24)) >>> 0;
}

function writeHost32(b: Uint8Array, o: number, value: number): void {
  b[o] = value;
  b[o + 1] = value >>> 8;
  b[o + 2] = value >>> 16;
  b[o + 3] = value >>> 24;
}
