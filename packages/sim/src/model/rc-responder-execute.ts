/** Executes a request that passed every check (IBTA vol 1 §9.4), and completes it. */
import { NakCode, type OpcodeInfo, psnAdd } from '@node-roce/wire/rules';
import { bytesAt, readU64, writeU64 } from './memory.ts';
import type { AtomicOperands, ModelPacket } from './packet.ts';
import type { Verdict } from './rc-responder-checks.ts';
import {
  atomicAcknowledge,
  placementResponse,
  readResponses,
  responseCount,
} from './rc-responder-replies.ts';
import type { MessageInProgress, Responder } from './rc-responder-state.ts';
import { takeReceive } from './receive-queue.ts';
import { invalidate } from './windows.ts';
import type { ModelCompletion, ModelReceiveRequest } from './work.ts';

export interface Executed {
  /** Responses that carry data. A request without them is acknowledged, if it asks for it. */
  replies: ModelPacket[];
  completions: ModelCompletion[];
  fault?: Extract<Verdict, { is: 'fault' }>;
}

export function execute(r: Responder, packet: ModelPacket, row: OpcodeInfo): Executed {
  if (row.isReadRequest) return { replies: executeRead(r, packet), completions: [] };
  if (row.isAtomic) return { replies: executeAtomic(r, packet, row), completions: [] };
  if (row.isFlush || row.isAtomicWrite) return { replies: executePlacement(r, packet), completions: [] };
  return row.isSend ? executeSend(r, packet, row) : executeWrite(r, packet, row);
}

/** §9.7.2: the expected PSN moves on by the packets of the request, a READ's by those of its responses. */
function advance(r: Responder, packets: number): void {
  r.ePsn = psnAdd(r.ePsn, packets);
  r.passed += packets;
  r.saved = r.saved.filter(({ passed }) => r.passed - passed < DUPLICATE_REGION);
}

/** §9.7.4.1.1: a PSN this far back is ahead, not a repetition. */
const DUPLICATE_REGION = 2 ** 23;

/** §9.7.7.1: one more message done: at its last packet; a READ when it is accepted. */
function countMessage(r: Responder): void {
  r.msn = psnAdd(r.msn, 1);
}

/** §9.4.1: a SEND fills the oldest receive, packet by packet, and completes it with its last. */
function executeSend(r: Responder, packet: ModelPacket, row: OpcodeInfo): Executed {
  const message: MessageInProgress = row.first
    ? { kind: 'SEND', received: 0, announced: 0, va: 0n, rkey: 0, receive: takeReceive(r.receives) }
    : r.inProgress!;
  const receive = message.receive!;
  receive.local.set(packet.payload, message.received);
  message.received += packet.payload.length;
  r.ackPsn = packet.psn;
  if (!row.last) {
    r.inProgress = message;
    advance(r, 1);
    return { replies: [], completions: [] };
  }
  const completion = receiveCompletion(receive, packet, 'RECV', message.received);
  r.inProgress = undefined;
  if (packet.invalidateRkey !== undefined) {
    const fault = executeInvalidate(r, packet.invalidateRkey, receive);
    if (fault !== undefined) return { replies: [], completions: [], fault };
  }
  advance(r, 1);
  countMessage(r);
  return { replies: [], completions: [completion] };
}

/** §9.4.1.1: SEND with invalidate ends the life of a window; any other key is a remote access error. */
function executeInvalidate(
  r: Responder,
  rkey: number,
  receive: ModelReceiveRequest,
): Extract<Verdict, { is: 'fault' }> | undefined {
  if (invalidate(r.memory, rkey, r.config.qpn)) return undefined;
  return {
    is: 'fault',
    syndrome: NakCode.REMOTE_ACCESS_ERROR,
    receiverStatus: 'LOC_ACCESS_ERR',
    receive,
    reason: 'the key to invalidate names no window',
  };
}

/** §9.4.3: a WRITE goes to the address in the RETH of its first packet; immediate data completes a receive. */
function executeWrite(r: Responder, packet: ModelPacket, row: OpcodeInfo): Executed {
  const message: MessageInProgress = row.first
    ? {
        kind: 'WRITE',
        received: 0,
        announced: packet.reth!.length,
        va: packet.reth!.va,
        rkey: packet.reth!.rkey,
      }
    : r.inProgress!;
  const { length } = packet.payload;
  bytesAt(r.memory, message.rkey, message.va + BigInt(message.received), length).set(packet.payload);
  message.received += length;
  r.ackPsn = packet.psn;
  r.inProgress = row.last ? undefined : message;
  advance(r, 1);
  if (!row.last) return { replies: [], completions: [] };
  countMessage(r);
  if (!row.hasImmediate) return { replies: [], completions: [] };
  const receive = takeReceive(r.receives)!;
  return {
    replies: [],
    completions: [receiveCompletion(receive, packet, 'RECV_RDMA_WITH_IMM', message.received)],
  };
}

/** §9.4.4: a READ is answered with the bytes as they are now, and remembered (§9.7.5.1.5). */
function executeRead(r: Responder, packet: ModelPacket): ModelPacket[] {
  const packets = responseCount(packet.reth!.length, r.config.pathMtu);
  const lastPsn = psnAdd(packet.psn, packets - 1);
  advance(r, packets);
  remember(r, { firstPsn: packet.psn, lastPsn, request: packet, passed: r.passed });
  countMessage(r);
  return readResponses(r, packet);
}

/** §9.4.5: read, compute, write, answer with what was read; the answer is kept for a repetition. */
function executeAtomic(r: Responder, packet: ModelPacket, row: OpcodeInfo): ModelPacket[] {
  const operands = packet.atomicEth!;
  const target = bytesAt(r.memory, operands.rkey, operands.va, 8);
  const original = readU64(target);
  writeU64(
    target,
    row.key === 'RC_FETCH_ADD' ? fetchAdd(original, operands) : compareSwap(original, operands),
  );
  advance(r, 1);
  remember(r, { firstPsn: packet.psn, lastPsn: packet.psn, request: packet, passed: r.passed, original });
  countMessage(r);
  return [atomicAcknowledge(r, packet.psn, original)];
}

/**
 * Annex A19. ATOMIC WRITE: the 8 bytes as they came, in one piece. FLUSH: what came before it is in memory already, where
 * all see it. Both are answered by a READ response of no bytes, which is kept for a repetition.
 */
function executePlacement(r: Responder, packet: ModelPacket): ModelPacket[] {
  if (packet.feth === undefined) {
    bytesAt(r.memory, packet.reth!.rkey, packet.reth!.va, 8).set(packet.payload);
  }
  advance(r, 1);
  remember(r, { firstPsn: packet.psn, lastPsn: packet.psn, request: packet, passed: r.passed });
  countMessage(r);
  return [placementResponse(r, packet.psn)];
}

function fetchAdd(original: bigint, { swapAdd }: AtomicOperands): bigint {
  return BigInt.asUintN(64, original + swapAdd);
}

function compareSwap(original: bigint, { compare, swapAdd }: AtomicOperands): bigint {
  return original === compare ? swapAdd : original;
}

/**
 * §9.7.5.1.5: as many READs and atomics are remembered as were agreed on, rounded up to a power of two as requesters round theirs;
 * the oldest goes.
 */
function remember(r: Responder, saved: Responder['saved'][number]): void {
  r.saved.push(saved);
  let room = 1;
  while (room < r.config.maxDestRdAtomic) room *= 2;
  while (r.saved.length > room) r.saved.shift();
}

/** §9.2.3: the solicited event bit counts on the packet that completes a receive, nowhere else. */
export function receiveCompletion(
  receive: ModelReceiveRequest,
  packet: ModelPacket,
  opcode: 'RECV' | 'RECV_RDMA_WITH_IMM',
  byteLen: number,
): ModelCompletion {
  const completion: ModelCompletion = { wrId: receive.wrId, status: 'SUCCESS', opcode, byteLen };
  if (packet.immediate !== undefined) completion.immediate = packet.immediate;
  if (packet.invalidateRkey !== undefined) completion.invalidatedRkey = packet.invalidateRkey;
  if (packet.solicited) completion.solicited = true;
  return completion;
}
