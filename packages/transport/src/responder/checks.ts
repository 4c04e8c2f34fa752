/**
 * The checks that a request passes before it has any effect, in the order of IBTA vol 1 §9.7.4.1. Each returns
 * `Verdict.PASS`, and the next one looks, or what happens instead; a fault is the NAK that answers it and the
 * status of the receive that its message used.
 */
import {
  atomicEthRkey,
  atomicEthVaHigh,
  atomicEthVaLow,
  fethPlacement,
  fethSelectivity,
  iethRkey,
  NakCode,
  psnDiff,
  rethLength,
  rethRkey,
  rethRkeyBits,
  rethVaHigh,
  rethVaHighBits,
  rethVaLow,
  rethVaLowBits,
} from '@node-roce/wire';
import { Access, FlushLevel, FlushType, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import { invalidatable } from '../windows.ts';
import type { InboundMessage } from './message.ts';
import type { RemoteTarget } from './remote-target.ts';
import type { ReplyQueue } from './replies.ts';
import { resourcesFor } from './resources.ts';

/** Longest message, bytes (§9.3.3). */
const MAX_MESSAGE_BYTES = 2 ** 31;
const ATOMIC_WRITE_BYTES = 8;

function fault(nak: number, status: number): number {
  return (nak << 8) | status;
}

export const Verdict = {
  PASS: 0,
  /** Before the expected PSN: executed before. */
  DUPLICATE: 1,
  /** Beyond the expected PSN: something is missing. */
  EARLY: 2,
  /** No receive is posted. */
  NO_RECEIVE: 3,
  INVALID_REQUEST: fault(NakCode.INVALID_REQUEST, WcStatus.LOC_QP_OP_ERR),
  TOO_LONG: fault(NakCode.INVALID_REQUEST, WcStatus.LOC_LEN_ERR),
  /** XRC: the SRQ is not of the domain, or not that of the message under way (annex A14). */
  INVALID_XRCETH: fault(NakCode.INVALID_REQUEST, WcStatus.REM_INV_REQ_ERR),
  REMOTE_ACCESS: fault(NakCode.REMOTE_ACCESS_ERROR, WcStatus.LOC_ACCESS_ERR),
  /** The receive names no memory that it may use, or more elements than its queue allows. */
  BAD_RECEIVE: fault(NakCode.REMOTE_OPERATIONAL_ERROR, WcStatus.LOC_PROT_ERR),
  BAD_RECEIVE_LIST: fault(NakCode.REMOTE_OPERATIONAL_ERROR, WcStatus.LOC_QP_OP_ERR),
} as const;

/** AETH syndrome of a fault. */
export function nakOf(verdict: number): number {
  return verdict >> 8;
}

/** `WcStatus` of the receive that a faulty message used. */
export function statusOf(verdict: number): number {
  return verdict & 0xff;
}

/** The values that the checks look at: the parts of a connected queue pair's responder. */
export interface ConnectedParts {
  readonly context: Context;
  readonly owner: Owner;
  readonly message: InboundMessage;
  readonly receives: ReceiveQueue;
  /** Takes in the memory that the request names. */
  readonly target: RemoteTarget;
}

/** RC. */
export interface ReliableParts extends ConnectedParts {
  readonly replies: ReplyQueue;
}

/** RC: the checks after the PSN's. */
export function checkReliable(r: ReliableParts, packet: InboundPacket): number {
  return checkSequence(r, packet) || checkAllowed(r, packet) || checkContents(r, packet);
}

/** RC and XRC: the checks after those of place and right. */
export function checkContents(r: ReliableParts, packet: InboundPacket): number {
  return (
    checkResources(r, packet) ||
    checkReceive(r, packet) ||
    checkPacketLength(r, packet) ||
    checkMessageLength(r, packet) ||
    checkRemoteAccess(r, packet)
  );
}

/** UC: the place in the message is looked at before, and a packet that has none is dropped (§9.8.2.2). */
export function checkUnreliable(r: ConnectedParts, packet: InboundPacket): number {
  return (
    checkAllowed(r, packet) ||
    checkReceive(r, packet) ||
    checkPacketLength(r, packet) ||
    checkMessageLength(r, packet) ||
    checkRemoteAccess(r, packet)
  );
}

/** §9.7.4.1.1: the expected PSN, one of the 2^23 before it, or one beyond. */
export function checkPsn(psn: number, expectedPsn: number): number {
  const ahead = psnDiff(psn, expectedPsn);
  return ahead === 0 ? Verdict.PASS : ahead < 0 ? Verdict.DUPLICATE : Verdict.EARLY;
}

/** §9.7.4.1.2: FIRST, MIDDLE, LAST and ONLY follow one another as they may; all else comes between messages. */
export function checkSequence({ message }: ConnectedParts, { info }: InboundPacket): number {
  const follows = info.first ? !message.underWay : message.continues(info);
  return follows ? Verdict.PASS : Verdict.INVALID_REQUEST;
}

/** §9.7.4.1.3: the operation is one that is offered, and the queue pair's access flags allow it. */
export function checkAllowed({ owner }: ConnectedParts, packet: InboundPacket): number {
  const { info } = packet;
  let needed: number;
  if (info.isSend) return Verdict.PASS;
  if (info.isWrite) needed = Access.REMOTE_WRITE;
  else if (info.isReadRequest) needed = Access.REMOTE_READ;
  else if (info.isAtomic) needed = Access.REMOTE_ATOMIC;
  else if (info.isAtomicWrite) needed = Access.REMOTE_WRITE;
  else if (info.isFlush) needed = flushAccess(packet);
  else return Verdict.INVALID_REQUEST;
  return (owner.attributes.access & needed) === needed ? Verdict.PASS : Verdict.INVALID_REQUEST;
}

/** The rights that a FLUSH needs, of the queue pair and of the region (annex A19). */
function flushAccess({ info, slab, at }: InboundPacket): number {
  const placement = fethPlacement(slab, at + info.offsets.feth);
  const visible = (placement & FlushType.GLOBAL) !== 0 ? Access.FLUSH_GLOBAL : 0;
  return visible | ((placement & FlushType.PERSISTENT) !== 0 ? Access.FLUSH_PERSISTENT : 0);
}

/** §9.7.4.1.4: no more READs and atomics at once than there are resources for; FLUSH and ATOMIC_WRITE among them. */
function checkResources({ owner, replies }: ReliableParts, { info }: InboundPacket): number {
  if (info.isSend || info.isWrite) return Verdict.PASS;
  const resources = resourcesFor(owner.attributes.maxDestRdAtomic);
  return replies.pending < resources ? Verdict.PASS : Verdict.INVALID_REQUEST;
}

/**
 * §9.7.4.1.4: the first packet of a SEND, and the last of a WRITE with immediate, find a receive; the SEND's is one that it can
 * fill, and is in use from here on.
 */
function checkReceive({ receives }: ConnectedParts, packet: InboundPacket): number {
  const { info, payload } = packet;
  if (!(info.isSend ? info.first : info.isWrite && info.hasImmediate)) return Verdict.PASS;
  const { tagged } = receives;
  if (tagged !== undefined && info.isSend && !tagged.choose(packet)) return Verdict.NO_RECEIVE;
  if (!receives.available()) return Verdict.NO_RECEIVE;
  if (!info.isSend) return Verdict.PASS;
  const status = receives.begin(payload);
  if (status === WcStatus.SUCCESS) return Verdict.PASS;
  return status === WcStatus.LOC_QP_OP_ERR ? Verdict.BAD_RECEIVE_LIST : Verdict.BAD_RECEIVE;
}

/** §9.7.4.1.6: FIRST and MIDDLE carry a path MTU, LAST 1 … MTU bytes, ONLY 0 … MTU; READs and atomics nothing, an ATOMIC_WRITE 8 bytes. */
function checkPacketLength({ owner }: ConnectedParts, { info, payload }: InboundPacket): number {
  const mtu = owner.attributes.pathMtu;
  let right: boolean;
  if (info.isAtomicWrite) right = payload === ATOMIC_WRITE_BYTES;
  else if (!info.isSend && !info.isWrite) right = payload === 0;
  else if (info.last) right = payload <= mtu && (info.first || payload > 0);
  else right = payload === mtu;
  return right ? Verdict.PASS : Verdict.INVALID_REQUEST;
}

/**
 * §9.7.4.1.6: a SEND fits its receive; a WRITE carries what its RETH announced; WRITE and READ are of 2^31 bytes at most;
 * an atomic's address is aligned (§9.4.5), and that of an ATOMIC_WRITE, which is of 8 bytes (annex A19). A FLUSH of a whole
 * region has no length.
 */
function checkMessageLength(r: ConnectedParts, { info, slab, at, payload }: InboundPacket): number {
  if (info.isSend) return r.receives.fits(payload) ? Verdict.PASS : Verdict.TOO_LONG;
  if (info.isAtomic) {
    const misaligned = (atomicEthVaLow(slab, at + info.offsets.atomicEth) & 7) !== 0;
    return misaligned ? Verdict.INVALID_REQUEST : Verdict.PASS;
  }
  if (info.isAtomicWrite) {
    const reth = at + info.offsets.reth;
    const right = rethLength(slab, reth) === ATOMIC_WRITE_BYTES && (rethVaLow(slab, reth) & 7) === 0;
    return right ? Verdict.PASS : Verdict.INVALID_REQUEST;
  }
  if (info.isFlush) {
    const level = fethSelectivity(slab, at + info.offsets.feth);
    if (level === FlushLevel.MR) return Verdict.PASS;
    const right = level === FlushLevel.RANGE && rethLength(slab, at + info.offsets.reth) <= MAX_MESSAGE_BYTES;
    return right ? Verdict.PASS : Verdict.INVALID_REQUEST;
  }
  const remaining = info.first ? rethLength(slab, at + info.offsets.reth) : r.message.remaining;
  if (remaining > MAX_MESSAGE_BYTES) return Verdict.INVALID_REQUEST;
  if (info.isReadRequest) return Verdict.PASS;
  return (info.last ? payload === remaining : payload < remaining) ? Verdict.PASS : Verdict.INVALID_REQUEST;
}

/**
 * §9.7.4.1.5: key, protection domain, right and range of the whole message, at the packet that names them. A WRITE's region can
 * go between its packets, and a key to invalidate has to be one that this peer may invalidate.
 */
export function checkRemoteAccess(r: ConnectedParts, packet: InboundPacket): number {
  const { info, slab, at, payload } = packet;
  let right = true;
  if (info.hasInvalidate) {
    right = invalidatable(r.context, r.owner, iethRkey(slab, at + info.offsets.ieth)) !== undefined;
  } else if (info.isAtomic) right = findAtomic(r, packet);
  else if (info.isReadRequest) right = findRange(r, packet, Access.REMOTE_READ);
  else if (info.isAtomicWrite) right = findRange(r, packet, Access.REMOTE_WRITE);
  else if (info.isFlush) right = findFlushed(r, packet);
  else if (info.isWrite) {
    right = info.first ? findRange(r, packet, Access.REMOTE_WRITE) : r.message.writable(payload);
  }
  return right ? Verdict.PASS : Verdict.REMOTE_ACCESS;
}

/** The range that a RETH names. No bytes need no key (§9.4.3, §9.4.4). */
export function findRange(
  { context, owner, target }: ConnectedParts,
  { info, slab, at }: InboundPacket,
  access: number,
): boolean {
  const reth = at + info.offsets.reth;
  const length = rethLength(slab, reth);
  if (length === 0) {
    target.clear();
    return true;
  }
  const key = rethRkeyBits(slab, reth);
  return target.find(
    context.memory,
    owner,
    access,
    key,
    rethVaHighBits(slab, reth),
    rethVaLowBits(slab, reth),
    length,
  );
}

/** The region of a FLUSH: key and place count even where the range has no bytes; of a whole region the range does not count. */
function findFlushed({ context, owner, target }: ConnectedParts, packet: InboundPacket): boolean {
  const { info, slab, at } = packet;
  const reth = at + info.offsets.reth;
  target.clear();
  const region = context.memory.byRkey(rethRkey(slab, reth));
  const access = flushAccess(packet);
  if (region?.pd !== target.pd || (region.access & access) !== access) return false;
  if (region.qpn >= 0 && region.qpn !== owner.qpn) return false;
  if (fethSelectivity(slab, at + info.offsets.feth) === FlushLevel.MR) return true;
  return region.locate(rethVaHigh(slab, reth), rethVaLow(slab, reth), rethLength(slab, reth)) >= 0;
}

function findAtomic({ context, owner, target }: ConnectedParts, { info, slab, at }: InboundPacket): boolean {
  const eth = at + info.offsets.atomicEth;
  const key = atomicEthRkey(slab, eth);
  const high = atomicEthVaHigh(slab, eth);
  return target.find(context.memory, owner, Access.REMOTE_ATOMIC, key, high, atomicEthVaLow(slab, eth), 8);
}
