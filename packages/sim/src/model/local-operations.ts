/**
 * Operations of a send queue without a packet: BIND_MW and LOCAL_INV (IBTA vol 1 §10.6.7.2, §10.8.3.3).
 */
import type { ModelMemory } from './memory.ts';
import type { ModelStatus } from './verbs.ts';
import { bindWindow, invalidate } from './windows.ts';
import type { ModelSendRequest } from './work.ts';

export function isLocalOperation({ opcode }: ModelSendRequest): boolean {
  return opcode === 'BIND_MW' || opcode === 'LOCAL_INV';
}

/** Does it; gives the status it completes with. @param qpn the queue pair it was posted to */
export function executeLocalOperation(
  request: ModelSendRequest,
  memory: ModelMemory,
  qpn: number,
): ModelStatus {
  if (request.opcode === 'BIND_MW') return executeBind(request, memory, qpn);
  return executeLocalInvalidate(request, memory, qpn);
}

/** A window is bound, or the request ends with MW_BIND_ERR (§11.6.2: memory management operation error). */
function executeBind({ bind }: ModelSendRequest, memory: ModelMemory, qpn: number): ModelStatus {
  return bind !== undefined && bindWindow(memory, bind, qpn) === undefined ? 'SUCCESS' : 'MW_BIND_ERR';
}

/** A type 2 window of this queue pair is free again; any other key is an error of the same class. */
function executeLocalInvalidate(
  { invalidateRkey = 0 }: ModelSendRequest,
  memory: ModelMemory,
  qpn: number,
): ModelStatus {
  return invalidate(memory, invalidateRkey, qpn) ? 'SUCCESS' : 'MW_BIND_ERR';
}
