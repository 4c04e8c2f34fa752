/**
 * The requester's next packet (IBTA vol 1 §9.7.3).
 *
 * `planPacket` looks and changes nothing; `sendPacket` takes the plan. So a test can see what the model
 * would send without making it send.
 */
import { Opcode, psnAdd, psnDiff } from '@node-roce/wire/rules';
import { executeLocalOperation, isLocalOperation } from './local-operations.ts';
import type { ModelMemory } from './memory.ts';
import { messagePacket } from './message-packets.ts';
import { DEFAULT_PKEY, type ModelPacket } from './packet.ts';
import {
  consumesReceive,
  isBegun,
  needsResponse,
  type Requester,
  type SendWork,
} from './rc-requester-state.ts';

/** A message asks for an ACK on its last packet, and on every so manieth, that a window never waits for one. */
const ACK_INTERVAL = 32;

/** Why nothing may be sent now. */
export type Hold =
  | 'error state'
  | 'RNR wait'
  | 'nothing posted'
  | 'window'
  | 'rd_atomic'
  | 'fence'
  | 'credits'
  /** SQD: what was not begun has to wait. */
  | 'draining'
  /** BIND_MW or LOCAL_INV, whose turn it is: `executeNextLocal` does it. */
  | 'local operation'
  /** One that failed waits for its turn to complete with the error: nothing after it is sent. */
  | 'local error';

export interface Plan {
  packet: ModelPacket;
  /** PSN to send after this packet; past all responses for a READ. */
  nextPsn: number;
}

/** The next packet, or why there is none. */
export function planPacket(q: Requester): Plan | Hold {
  if (q.state === 'ERR') return 'error state';
  if (q.rnrUntil !== undefined) return 'RNR wait';
  const index = nextWork(q);
  if (index < 0) return 'nothing posted';
  const work = q.queue[index];
  if (q.queue.slice(0, index + 1).some(hasFailed)) return 'local error';
  if (q.draining && !isBegun(q, work)) return 'draining';
  if (fenceHolds(q, index)) return 'fence';
  if (isLocalOperation(work.request)) return 'local operation';
  if (windowIsFull(q)) return 'window';
  if (tooManyReads(q, index)) return 'rd_atomic';
  if (lacksCredit(q, work)) return 'credits';
  const packet = needsResponse(work) ? requestOfOne(q, work) : packetOfMessage(q, work);
  return {
    packet,
    nextPsn: work.request.opcode === 'RDMA_READ' ? psnAdd(work.lastPsn, 1) : psnAdd(q.next, 1),
  };
}

/** The oldest request of which a packet is still to send, or that is to be done without one; −1 for none. */
export function nextWork(q: Requester): number {
  return q.queue.findIndex(({ lastPsn, request, localStatus }) =>
    isLocalOperation(request) ? localStatus === undefined : psnDiff(q.next, lastPsn) <= 0,
  );
}

function hasFailed({ localStatus }: SendWork): boolean {
  return localStatus !== undefined && localStatus !== 'SUCCESS';
}

/**
 * §10.8.3.3: BIND_MW and LOCAL_INV are done in their turn: after all before them was sent, before anything after
 * them is. Retransmissions do not repeat them.
 */
export function executeNextLocal(q: Requester, memory: ModelMemory, qpn: number): boolean {
  if (planPacket(q) !== 'local operation') return false;
  const work = q.queue[nextWork(q)];
  work.localStatus = executeLocalOperation(work.request, memory, qpn);
  return true;
}

/** Sends the planned packet: the cursor moves, and the timer starts if it does not run (§9.7.6.1.3). */
export function sendPacket(q: Requester, plan: Plan, now: number): ModelPacket {
  q.next = plan.nextPsn;
  if (psnDiff(q.next, q.sentUpTo) > 0) q.sentUpTo = q.next;
  q.timerStart ??= now;
  return plan.packet;
}

/** §9.7.2: never so many PSNs unacknowledged that the responder's duplicate region is left; ours is smaller. */
function windowIsFull(q: Requester): boolean {
  return psnDiff(q.next, q.una) >= q.config.window;
}

/**
 * §10.8.3.3: a fenced request waits until the READs and atomics before it are done; a fenced LOCAL_INV until all before
 * it is (§10.6.5.1).
 */
function fenceHolds(q: Requester, index: number): boolean {
  const { fence, opcode } = q.queue[index].request;
  if (fence !== true) return false;
  return opcode === 'LOCAL_INV' ? index > 0 : q.queue.slice(0, index).some(needsResponse);
}

/** §9.4.4, §9.4.5: no more READs and atomics at once than the peer agreed to. */
function tooManyReads(q: Requester, index: number): boolean {
  if (!needsResponse(q.queue[index])) return false;
  return q.queue.slice(0, index).filter(needsResponse).length >= q.config.maxRdAtomic;
}

/**
 * §9.7.7.2: a message that takes a receive needs a credit; one may go past the limit. A retransmission
 * needs none.
 */
function lacksCredit(q: Requester, work: SendWork): boolean {
  if (q.creditLimit === 'none' || !consumesReceive(work)) return false;
  if (psnDiff(q.sentUpTo, q.next) > 0) return false;
  return psnDiff(work.ssn, psnAdd(q.creditLimit, 1)) > 0;
}

/**
 * A READ, atomic, FLUSH or ATOMIC WRITE (§9.7.3.2, annex A19). A READ of which responses are here asks again from the missing byte:
 * PSN, address and length move on together (§9.7.6.1.2).
 */
function requestOfOne(q: Requester, { request, firstPsn }: SendWork): ModelPacket {
  const remote = request.remote!;
  const header = {
    destQpn: q.config.destQpn,
    psn: q.next,
    ackReq: true,
    solicited: false,
    pkey: DEFAULT_PKEY,
    payload: new Uint8Array(0),
  };
  if (request.opcode === 'RDMA_READ') {
    const skipped = psnDiff(q.next, firstPsn) * q.config.pathMtu;
    return {
      opcode: Opcode.RC_RDMA_READ_REQUEST,
      ...header,
      reth: { va: remote.va + BigInt(skipped), rkey: remote.rkey, length: request.local.length - skipped },
    };
  }
  if (request.opcode === 'ATOMIC_WRITE') {
    const reth = { ...remote, length: 8 };
    return { opcode: Opcode.RC_ATOMIC_WRITE, ...header, reth, payload: request.local.slice(0, 8) };
  }
  if (request.opcode === 'FLUSH') {
    const { length, ...feth } = request.flush!;
    return { opcode: Opcode.RC_FLUSH, ...header, feth, reth: { ...remote, length } };
  }
  const add = request.opcode === 'ATOMIC_FETCH_AND_ADD';
  return {
    opcode: add ? Opcode.RC_FETCH_ADD : Opcode.RC_COMPARE_SWAP,
    ...header,
    atomicEth: {
      ...remote,
      swapAdd: (add ? request.compareAdd : request.swap) ?? 0n,
      compare: add ? 0n : (request.compareAdd ?? 0n),
    },
  };
}

/** A packet of a SEND or WRITE (§9.7.3.3, §9.7.3.4), with AckReq where it is due. */
function packetOfMessage(q: Requester, { request, firstPsn, lastPsn }: SendWork): ModelPacket {
  const { destQpn, pathMtu } = q.config;
  const index = psnDiff(q.next, firstPsn);
  const ackReq = q.next === lastPsn || (index + 1) % ACK_INTERVAL === 0;
  return { ...messagePacket(request, { service: 'RC', destQpn, pathMtu, firstPsn }, index), ackReq };
}
