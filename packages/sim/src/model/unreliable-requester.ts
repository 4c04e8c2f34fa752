/**
 * The requester of UC and UD (IBTA vol 1 §9.8.2.1, §9.8.3.1): a request is done when its last packet was sent.
 * An error of a request is a local one, and stops the send queue only (SQE, §10.3.1.6).
 */
import { psnAdd } from '@node-roce/wire/rules';
import { executeLocalOperation, isLocalOperation } from './local-operations.ts';
import type { ModelMemory } from './memory.ts';
import { messagePacket, packetCount } from './message-packets.ts';
import type { ModelPacket } from './packet.ts';
import { successOf } from './rc-requester.ts';
import { MAX_MESSAGE_BYTES } from './rc-responder-checks.ts';
import type { ModelStatus } from './verbs.ts';
import type { ModelCompletion, ModelOpcode, ModelSendRequest } from './work.ts';

export interface UnreliableRequesterConfig {
  service: 'UC' | 'UD';
  /** Our own QPN: the DETH names it, and windows are bound through it. */
  qpn: number;
  /** UC: QPN that requests go to. */
  destQpn: number;
  /** Bytes; for UD the longest message. */
  pathMtu: number;
  /** UD: our own Q_Key. */
  qkey: number;
}

export interface UnreliableRequester {
  config: UnreliableRequesterConfig;
  memory: ModelMemory;
  state: 'READY' | 'SQE' | 'ERR';
  queue: ModelSendRequest[];
  /** Packets of the oldest request that were sent. */
  sent: number;
  /** PSN of the next packet. */
  psn: number;
}

export function createUnreliableRequester(
  config: UnreliableRequesterConfig,
  memory: ModelMemory,
  firstPsn: number,
): UnreliableRequester {
  return { config, memory, state: 'READY', queue: [], sent: 0, psn: firstPsn };
}

/** The operations of each service (§9.2, table 35). */
const OPERATIONS: Readonly<Record<'UC' | 'UD', readonly ModelOpcode[]>> = {
  UC: ['SEND', 'SEND_WITH_IMM', 'RDMA_WRITE', 'RDMA_WRITE_WITH_IMM', 'BIND_MW', 'LOCAL_INV'],
  UD: ['SEND', 'SEND_WITH_IMM'],
};

/** Posts a request; out of RTS it completes at once as flushed (§10.3.1.6, §10.8.3.1). */
export function postUnreliable(q: UnreliableRequester, request: ModelSendRequest): ModelCompletion[] {
  if (q.state !== 'READY') return [{ wrId: request.wrId, status: 'WR_FLUSH_ERR' }];
  q.queue.push(request);
  return [];
}

export interface UnreliableStep {
  packet?: ModelPacket;
  completions: ModelCompletion[];
}

/** The next packet, or the next request done without one; `undefined` when there is nothing to do. */
export function stepUnreliable(q: UnreliableRequester): UnreliableStep | undefined {
  const [request] = q.queue;
  if (q.state !== 'READY' || request === undefined) return undefined;
  if (isLocalOperation(request) && OPERATIONS[q.config.service].includes(request.opcode)) {
    const status = executeLocalOperation(request, q.memory, q.config.qpn);
    return { completions: status === 'SUCCESS' ? completeOldest(q) : stopSending(q, status) };
  }
  const fault = checkLocal(q, request);
  if (fault !== undefined) return { completions: stopSending(q, fault) };
  const packet = q.config.service === 'UC' ? packetOfUc(q, request) : datagram(q, request);
  q.psn = psnAdd(q.psn, 1);
  q.sent++;
  const done = q.sent === packetCount(request.local.length, q.config.pathMtu);
  return { packet, completions: done ? completeOldest(q) : [] };
}

/** §9.9.2, §11.6.2: what the requester finds before the first packet. */
function checkLocal(q: UnreliableRequester, request: ModelSendRequest): ModelStatus | undefined {
  const { service, pathMtu } = q.config;
  if (!OPERATIONS[service].includes(request.opcode)) return 'LOC_QP_OP_ERR';
  const longest = service === 'UD' ? pathMtu : MAX_MESSAGE_BYTES;
  if (request.local.length > longest) return 'LOC_LEN_ERR';
  return request.broken ? 'LOC_PROT_ERR' : undefined;
}

/** §9.8.2.1: a packet of a SEND or WRITE; no ACK is asked for. */
function packetOfUc(q: UnreliableRequester, request: ModelSendRequest): ModelPacket {
  const { destQpn, pathMtu } = q.config;
  return messagePacket(
    request,
    { service: 'UC', destQpn, pathMtu, firstPsn: psnAdd(q.psn, -q.sent) },
    q.sent,
  );
}

/** §9.8.3.1: a message in one packet, with a DETH. */
function datagram(q: UnreliableRequester, request: ModelSendRequest): ModelPacket {
  const { pathMtu, qpn } = q.config;
  const { qpn: destQpn, qkey } = request.destination!;
  const packet = messagePacket(request, { service: 'UD', destQpn, pathMtu, firstPsn: q.psn }, 0);
  return { ...packet, deth: { qkey: effectiveQkey(q, qkey), srcQpn: qpn } };
}

/** §10.2.5: a Q_Key with its top bit set is a controlled one, which a program can only use as its queue pair's own. */
function effectiveQkey(q: UnreliableRequester, qkey: number): number {
  return qkey >>> 31 === 1 ? q.config.qkey : qkey;
}

function completeOldest(q: UnreliableRequester): ModelCompletion[] {
  const request = q.queue.shift()!;
  q.sent = 0;
  return request.signaled === false ? [] : [successOf(request)];
}

/** §10.3.1.6: the one that failed keeps its status, all after it are flushed; the receive queue lives on. */
function stopSending(q: UnreliableRequester, status: ModelStatus): ModelCompletion[] {
  const failed = q.queue.shift()!;
  q.sent = 0;
  q.state = 'SQE';
  return [{ wrId: failed.wrId, status }, ...flushUnreliable(q)];
}

export function flushUnreliable(q: UnreliableRequester): ModelCompletion[] {
  return q.queue.splice(0).map(({ wrId }) => ({ wrId, status: 'WR_FLUSH_ERR' }));
}

/** §10.3.1.6: SQE to RTS, as `ibv_modify_qp` does it: sending goes on with the next PSN. */
export function resumeSending(q: UnreliableRequester): void {
  if (q.state === 'SQE') q.state = 'READY';
}
