/**
 * Requests that were executed before (IBTA vol 1 §9.7.5.1.5). None is executed again; the message in progress
 * is not touched.
 */
import { NakCode, type OpcodeInfo, psnDiff } from '@node-roce/wire/rules';
import type { ModelPacket } from './packet.ts';
import { remoteAccessFault } from './rc-responder-checks.ts';
import {
  acknowledgeUpTo,
  atomicAcknowledge,
  nak,
  placementResponse,
  readResponses,
} from './rc-responder-replies.ts';
import { flushReceives, type Responder, type Response, type SavedRequest } from './rc-responder-state.ts';

export function answerDuplicate(r: Responder, packet: ModelPacket, row: OpcodeInfo): Partial<Response> {
  if (row.isReadRequest) return repeatRead(r, packet, row);
  if (row.isAtomic) return repeatAtomic(r, packet);
  if (row.isFlush || row.isAtomicWrite) return repeatPlacement(r, packet, row);
  if (!row.isSend && !row.isWrite) return { dropped: 'a reserved opcode' };
  return repeatAcknowledge(r);
}

/**
 * A repeated SEND or WRITE is acknowledged, asked for or not, up to the last SEND or WRITE executed: what
 * the requester misses is an ACK. Not up to a READ or atomic after it: only their own responses answer those.
 */
function repeatAcknowledge(r: Responder): Partial<Response> {
  return { replies: [acknowledgeUpTo(r, r.ackPsn)] };
}

/**
 * A repeated READ is read again, memory as it is now: all of an earlier READ, or from a later response
 * of it on, under the same key. Anything else is dropped.
 */
function repeatRead(r: Responder, packet: ModelPacket, row: OpcodeInfo): Partial<Response> {
  const saved = savedAt(r, packet.psn);
  if (saved === undefined || !isPartOfRead(r, packet, saved))
    return { dropped: 'no such READ is remembered' };
  // The window may be gone since (§9.7.4.1.5 holds for a repetition too). Single ones may be late copies of a request that was
  // answered before: only who asks a third time misses the answer.
  if (remoteAccessFault(r, packet, row) !== undefined) {
    saved.refused = (saved.refused ?? 0) + 1;
    if (saved.refused < 3) return { dropped: 'the memory is closed by now' };
    return {
      replies: [nak(r, packet.psn, NakCode.REMOTE_ACCESS_ERROR)],
      completions: flushReceives(r),
    };
  }
  return { replies: readResponses(r, packet) };
}

/** The bytes asked for are those that the original's responses from this PSN on carried. */
function isPartOfRead(r: Responder, packet: ModelPacket, saved: SavedRequest): boolean {
  const original = saved.request.reth;
  const asked = packet.reth!;
  if (original === undefined || asked.rkey !== original.rkey) return false;
  const skipped = psnDiff(packet.psn, saved.firstPsn) * r.config.pathMtu;
  if (asked.va !== original.va + BigInt(skipped)) return false;
  return skipped + asked.length <= original.length;
}

/** A repeated atomic gets the answer of the first time; memory is not touched. */
function repeatAtomic(r: Responder, packet: ModelPacket): Partial<Response> {
  const saved = savedAt(r, packet.psn);
  if (saved?.original === undefined || saved.request.opcode !== packet.opcode) {
    return { dropped: 'no such atomic is remembered' };
  }
  return { replies: [atomicAcknowledge(r, packet.psn, saved.original)] };
}

/**
 * Annex A19: a repeated FLUSH or ATOMIC WRITE that is remembered is answered again, and memory is not touched. One that is
 * forgotten: an ATOMIC WRITE is dropped, as an atomic is; a FLUSH is executed again, which does no harm, if its key still
 * gives the right, and else dropped.
 */
function repeatPlacement(r: Responder, packet: ModelPacket, row: OpcodeInfo): Partial<Response> {
  const saved = savedAt(r, packet.psn);
  if (saved?.request.opcode === packet.opcode) return { replies: [placementResponse(r, packet.psn)] };
  if (saved !== undefined || row.isAtomicWrite) return { dropped: 'no such request is remembered' };
  // It may have been late on the way, and its memory closed since: its requester has its answer.
  if (remoteAccessFault(r, packet, row) !== undefined) return { dropped: 'the memory is closed by now' };
  return { replies: [placementResponse(r, packet.psn)] };
}

/** The READ or atomic that had this PSN, if it is remembered. */
function savedAt(r: Responder, psn: number): SavedRequest | undefined {
  return r.saved.findLast(
    ({ firstPsn, lastPsn }) => psnDiff(psn, firstPsn) >= 0 && psnDiff(psn, lastPsn) <= 0,
  );
}
