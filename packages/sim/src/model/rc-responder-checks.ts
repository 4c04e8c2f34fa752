/**
 * The checks a request passes before it has any effect, in the order of IBTA vol 1 §9.7.4.1:
 * header and state, PSN, opcode sequence, operation allowed, resources, length, R_Key.
 * Each returns what is wrong, or `undefined`: go on with the next.
 */
import { NakCode, type OpcodeInfo, psnDiff, Transport } from '@node-roce/wire/rules';
import { checkAccess, checkFlush, flushRights, RemoteRight } from './memory.ts';
import { isOfPartition, type ModelPacket } from './packet.ts';
import type { ConnectedResponder, Responder } from './rc-responder-state.ts';
import { ModelAccess, type ModelStatus } from './verbs.ts';
import type { ModelReceiveRequest } from './work.ts';

/** A message is no longer than this many bytes (§9.3.3: DMA length 0 … 2^31). */
export const MAX_MESSAGE_BYTES = 2 ** 31;

export type Verdict =
  | { is: 'good' }
  | { is: 'duplicate' }
  | { is: 'drop'; reason: string }
  | { is: 'not ready' }
  | { is: 'out of sequence'; syndrome: number }
  | {
      is: 'fault';
      syndrome: number;
      /** How the receive completes that the message was using, if it was using one. */
      receiverStatus: ModelStatus;
      /** That receive, if it is not the one of the message in progress. */
      receive?: ModelReceiveRequest;
      reason: string;
    };

type Check = (r: Responder, packet: ModelPacket, row: OpcodeInfo) => Verdict | undefined;

/** All checks, in order: the first that objects decides. */
export const CHECKS: readonly Check[] = [
  checkHeader,
  checkState,
  checkPsn,
  checkOpcodeSequence,
  checkOperationAllowed,
  checkSrq,
  checkResources,
  checkLength,
  checkRemoteAccess,
];

export function checkRequest(r: Responder, packet: ModelPacket, row: OpcodeInfo): Verdict {
  for (const check of CHECKS) {
    const verdict = check(r, packet, row);
    if (verdict !== undefined) return verdict;
  }
  return { is: 'good' };
}

function invalidRequest(reason: string): Verdict {
  return {
    is: 'fault',
    syndrome: NakCode.INVALID_REQUEST,
    receiverStatus: 'LOC_QP_OP_ERR', // what a receive queue has for it (§11.6.2)
    reason,
  };
}

/** §9.6.1: transport service and P_Key must be the queue pair's; others are dropped in silence. */
function checkHeader(_r: Responder, packet: ModelPacket, row: OpcodeInfo): Verdict | undefined {
  if (row.transport !== Transport.RC) return { is: 'drop', reason: 'another transport service' };
  if (!row.isRequest) return { is: 'drop', reason: 'a response is not for the responder' };
  if (!isOfPartition(packet)) return { is: 'drop', reason: 'P_Key mismatch' };
  return undefined;
}

/** §10.3.1: a queue pair receives from RTR on; in the error state it drops in silence. */
function checkState(r: Responder): Verdict | undefined {
  return r.state === 'ERR' ? { is: 'drop', reason: 'error state' } : undefined;
}

/**
 * §9.7.4.1.1: expected, a repetition (up to 2^23 back), or ahead. The first packet ahead draws one NAK
 * with the expected PSN, those after it are dropped until that PSN arrives. Repetitions are answered
 * all the while.
 */
function checkPsn(r: Responder, packet: ModelPacket): Verdict | undefined {
  const distance = psnDiff(packet.psn, r.ePsn);
  if (distance === 0) return undefined;
  if (distance < 0) return { is: 'duplicate' };
  if (r.nakOutstanding) return { is: 'drop', reason: 'ahead of the expected PSN, NAK is out' };
  return { is: 'out of sequence', syndrome: NakCode.PSN_SEQUENCE_ERROR };
}

/** §9.7.4.1.2: between FIRST and LAST come only MIDDLEs and the LAST of the same operation. */
function checkOpcodeSequence(r: Responder, _p: ModelPacket, row: OpcodeInfo): Verdict | undefined {
  const begins = row.first;
  if (r.inProgress === undefined) {
    return begins ? undefined : invalidRequest('MIDDLE or LAST without a FIRST');
  }
  if (begins) return invalidRequest('a message begins inside another');
  const kind = row.isSend ? 'SEND' : 'WRITE';
  return kind === r.inProgress.kind ? undefined : invalidRequest(`${kind} goes on a ${r.inProgress.kind}`);
}

/** §9.7.4.1.3: the queue pair supports the operation and its access flags allow it. */
function checkOperationAllowed(r: Responder, packet: ModelPacket, row: OpcodeInfo): Verdict | undefined {
  const allowed = r.config.accessFlags;
  if (row.isSend) return undefined;
  if (row.isFlush) {
    const rights = flushRights(packet.feth!.placement);
    return (allowed & rights) === rights ? undefined : invalidRequest('the queue pair allows no such FLUSH');
  }
  if (row.isWrite || row.isAtomicWrite) {
    return allowed & ModelAccess.REMOTE_WRITE ? undefined : invalidRequest('the queue pair allows no WRITE');
  }
  if (row.isReadRequest) {
    return allowed & ModelAccess.REMOTE_READ ? undefined : invalidRequest('the queue pair allows no READ');
  }
  if (row.isAtomic) {
    return allowed & ModelAccess.REMOTE_ATOMIC
      ? undefined
      : invalidRequest('the queue pair allows no atomic');
  }
  return invalidRequest(`${row.name} is not supported`);
}

/** Annex A14: each request of XRC is for an SRQ of the target's domain, all packets of a message for the same. */
function checkSrq(r: Responder): Verdict | undefined {
  return r.srqIsWrong ? invalidRequest('no SRQ of the domain, or another') : undefined;
}

/** True for the packet with which a message takes a receive: the first of a SEND, the last of a WRITE with immediate. */
export function takesReceive(row: OpcodeInfo): boolean {
  return row.isSend ? row.first : row.isWrite && row.hasImmediate;
}

/** Its answer is a READ response or an atomic's, kept for a repetition (§9.7.5.1.5; FLUSH and ATOMIC WRITE: annex A19). */
function takesResource(row: OpcodeInfo): boolean {
  return row.isReadRequest || row.isAtomic || row.isFlush || row.isAtomicWrite;
}

/**
 * §9.7.5.2.8: no receive posted, RNR NAK. §9.7.4.1.4: no room to remember a READ, atomic, FLUSH or ATOMIC WRITE (none was
 * agreed on), invalid request. A receive whose buffer can't be used: remote operational error.
 */
function checkResources(r: Responder, _p: ModelPacket, row: OpcodeInfo): Verdict | undefined {
  if (takesResource(row) && r.config.maxDestRdAtomic === 0) {
    return invalidRequest('requests that take a resource were not agreed on');
  }
  const begun = row.isSend && !row.first;
  if (!takesReceive(row) && !begun) return undefined;
  const receive = begun ? r.inProgress?.receive : r.receives.waiting[0];
  if (receive === undefined) return { is: 'not ready' };
  if (receive.broken && row.isSend) {
    return {
      is: 'fault',
      syndrome: NakCode.REMOTE_OPERATIONAL_ERROR,
      receiverStatus: 'LOC_PROT_ERR', // §11.6.2: the buffers of a work request name no memory it may use
      receive,
      reason: 'the receive has a bad local key',
    };
  }
  return undefined;
}

/**
 * §9.7.4.1.6: FIRST and MIDDLE fill the path MTU, LAST carries 1 byte to the path MTU, ONLY 0 to the path
 * MTU; a WRITE carries what its RETH announced; a SEND fits the receive; an atomic is aligned (§9.4.5); an ATOMIC WRITE
 * is aligned, with 8 bytes in its RETH and as its payload (annex A19).
 */
export function checkLength(
  r: ConnectedResponder,
  packet: ModelPacket,
  row: OpcodeInfo,
): Verdict | undefined {
  const verdict = checkPacketLength(r, packet, row) ?? checkMessageLength(r, packet, row);
  if (verdict?.is !== 'fault') return verdict;
  // A SEND has its receive since the check before, and takes it along; a WRITE takes one only when it is done.
  return { ...verdict, receive: row.isSend && row.first ? r.receives.waiting[0] : undefined };
}

function checkPacketLength(r: ConnectedResponder, packet: ModelPacket, row: OpcodeInfo): Verdict | undefined {
  if (row.isAtomicWrite) {
    return packet.payload.length === 8 ? undefined : invalidRequest('an ATOMIC WRITE of other than 8 bytes');
  }
  if (!row.isSend && !row.isWrite) {
    if (packet.payload.length !== 0) return invalidRequest('payload where none belongs');
    return undefined;
  }
  const { length } = packet.payload;
  const { pathMtu } = r.config;
  if (!row.last && length !== pathMtu) return invalidRequest(`${length} bytes in a FIRST or MIDDLE`);
  if (length > pathMtu) return invalidRequest(`${length} bytes exceed the path MTU`);
  if (row.last && !row.first && length === 0) return invalidRequest('an empty LAST');
  return undefined;
}

function checkMessageLength(
  r: ConnectedResponder,
  packet: ModelPacket,
  row: OpcodeInfo,
): Verdict | undefined {
  const soFar = (row.first ? 0 : (r.inProgress?.received ?? 0)) + packet.payload.length;
  if (row.isSend) {
    const receive = row.first ? r.receives.waiting[0] : r.inProgress?.receive;
    if (receive !== undefined && soFar > receive.local.length) {
      return {
        is: 'fault',
        syndrome: NakCode.INVALID_REQUEST,
        receiverStatus: 'LOC_LEN_ERR',
        reason: 'the receive is too small',
      };
    }
    return undefined;
  }
  if (row.isAtomicWrite) {
    const { va, length } = packet.reth!;
    return va % 8n === 0n && length === 8 ? undefined : invalidRequest('a misaligned ATOMIC WRITE');
  }
  // Of a FLUSH of a whole region the range means nothing.
  if (packet.feth?.selectivity === 1) return undefined;
  if (packet.feth !== undefined && packet.feth.selectivity > 1)
    return invalidRequest('a reserved selectivity');
  if (packet.reth !== undefined && packet.reth.length > MAX_MESSAGE_BYTES) {
    return invalidRequest('a message of more than 2^31 bytes');
  }
  if (row.isWrite) {
    const announced = row.first ? packet.reth!.length : r.inProgress!.announced;
    if (row.last ? soFar !== announced : soFar >= announced) {
      return invalidRequest(`${soFar} bytes of a WRITE of ${announced}`);
    }
  }
  if (packet.atomicEth !== undefined && packet.atomicEth.va % 8n !== 0n) {
    return invalidRequest('a misaligned atomic');
  }
  return undefined;
}

/**
 * §9.7.4.1.5: key, right and range, on the packet that carries the RETH or AtomicETH, for the whole
 * message. A READ or WRITE of no bytes needs no valid key (§9.4.3, §9.4.4); a FLUSH of no bytes does (annex A19).
 */
export function checkRemoteAccess(
  r: ConnectedResponder,
  packet: ModelPacket,
  row: OpcodeInfo,
): Verdict | undefined {
  const fault = remoteAccessFault(r, packet, row);
  if (fault === undefined) return undefined;
  return {
    is: 'fault',
    syndrome: NakCode.REMOTE_ACCESS_ERROR,
    receiverStatus: 'REM_ACCESS_ERR',
    reason: `remote access: ${fault}`,
  };
}

/** The part of the requested access that is not allowed, if any. */
export function remoteAccessFault(
  r: ConnectedResponder,
  packet: ModelPacket,
  row: OpcodeInfo,
): string | undefined {
  if (packet.atomicEth !== undefined) {
    const { rkey, va } = packet.atomicEth;
    return checkAccess(r.memory, rkey, va, 8, RemoteRight.ATOMIC, r.config.qpn);
  }
  if (packet.feth !== undefined) {
    const { placement, selectivity } = packet.feth;
    const rights = flushRights(placement);
    return checkFlush(r.memory, packet.reth!, selectivity !== 0, rights, r.config.qpn);
  }
  if (row.isWrite && packet.reth === undefined) return lostWindow(r, packet);
  if (packet.reth === undefined || packet.reth.length === 0) return undefined;
  const { rkey, va, length } = packet.reth;
  const right = row.isWrite || row.isAtomicWrite ? RemoteRight.WRITE : RemoteRight.READ;
  return checkAccess(r.memory, rkey, va, length, right, r.config.qpn);
}

/** A window can end between the packets of a WRITE that goes through it: what comes after has no right any more. */
function lostWindow(r: ConnectedResponder, { payload }: ModelPacket): string | undefined {
  const { rkey, va, received } = r.inProgress!;
  return checkAccess(r.memory, rkey, va + BigInt(received), payload.length, RemoteRight.WRITE, r.config.qpn);
}
