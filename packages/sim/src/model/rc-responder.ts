/**
 * The responder of a reliable connection: a request in, replies and completions out.
 *
 * `respond` is the whole of it: the checks in the order of the specification (IBTA vol 1 §9.7.4.1), then
 * the execution, then the reply. Each check is a function in `rc-responder-checks.ts`, each way to answer
 * one in `rc-responder-replies.ts`. Nothing here has a clock; nothing is fast.
 */
import type { OpcodeInfo } from '@node-roce/wire/rules';
import { type ModelPacket, rowOf } from './packet.ts';
import { checkRequest, type Verdict } from './rc-responder-checks.ts';
import { answerDuplicate } from './rc-responder-duplicates.ts';
import { execute } from './rc-responder-execute.ts';
import { acknowledge, nak, rnrNak } from './rc-responder-replies.ts';
import { flushReceives, type Responder, type Response } from './rc-responder-state.ts';
import { dropReceive } from './receive-queue.ts';
import type { ModelCompletion } from './work.ts';

/** Takes one request, as it came from the wire, ICRC and address already found right. */
export function respond(r: Responder, packet: ModelPacket): Response {
  const row = rowOf(packet);
  const verdict = checkRequest(r, packet, row);
  switch (verdict.is) {
    case 'good':
      return complete(r, packet, row);
    case 'duplicate':
      return { ...none(), ...answerDuplicate(r, packet, row) };
    case 'drop':
      return { ...none(), dropped: verdict.reason };
    case 'not ready':
      r.nakOutstanding = true;
      return { ...none(), replies: [rnrNak(r, packet)] };
    case 'out of sequence':
      r.nakOutstanding = true;
      return { ...none(), replies: [nak(r, r.ePsn, verdict.syndrome)] };
    case 'fault':
      return fail(r, packet, verdict);
  }
}

/** Executes a request that passed every check, and answers it if it asks for an answer. */
function complete(r: Responder, packet: ModelPacket, row: OpcodeInfo): Response {
  r.nakOutstanding = false;
  const done = execute(r, packet, row);
  if (done.fault !== undefined) return fail(r, packet, done.fault);
  const replies = done.replies.length > 0 ? done.replies : acknowledge(r, packet);
  return { replies, completions: done.completions };
}

/**
 * A fault that ends the connection (§9.9.3): one NAK, the receive in use fails, the queue pair goes to
 * the error state and its other receives are flushed in order (§10.3.1.7).
 */
function fail(r: Responder, packet: ModelPacket, fault: Extract<Verdict, { is: 'fault' }>): Response {
  const reply = nak(r, packet.psn, fault.syndrome);
  const inUse = fault.receive ?? r.inProgress?.receive;
  const completions: ModelCompletion[] = [];
  if (inUse !== undefined) {
    dropReceive(r.receives, inUse);
    r.inProgress = undefined;
    completions.push({ wrId: inUse.wrId, status: fault.receiverStatus });
  }
  return { replies: [reply], completions: [...completions, ...flushReceives(r)] };
}

function none(): Response {
  return { replies: [], completions: [] };
}
