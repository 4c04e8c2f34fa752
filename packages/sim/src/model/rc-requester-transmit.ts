/**
 * What a requester may send next, and the packet (IBTA vol 1 §9.7.3).
 *
 * `planPacket` looks and changes nothing; `sendPacket` takes the plan. So a test can see what the model
 * would send without making it send.
 */

import { Opcode, type OpcodeName, psnAdd, psnDiff } from '@node-roce/wire';
import { DEFAULT_PKEY, type ModelPacket } from './packet.ts';
import { consumesReceive, needsResponse, type Requester, type SendWork } from './rc-requester-state.ts';

/** A message asks for an ACK on its last packet, and on every so manieth, that a window never waits for one. */
export const ACK_INTERVAL = 32;

/** Why nothing may be sent now. */
export type Hold =
  | 'error state'
  | 'RNR wait'
  | 'nothing posted'
  | 'window'
  | 'rd_atomic'
  | 'fence'
  | 'credits';

export interface Plan {
  packet: ModelPacket;
  /** PSN to send after this packet; past all responses for a READ. */
  nextPsn: number;
}

/** The next packet, or why there is none. */
export function planPacket(q: Requester): Plan | Hold {
  if (q.state === 'ERR') return 'error state';
  if (q.rnrUntil !== undefined) return 'RNR wait';
  const index = q.queue.findIndex(({ lastPsn }) => psnDiff(q.next, lastPsn) <= 0);
  if (index < 0) return 'nothing posted';
  const work = q.queue[index];
  if (windowIsFull(q)) return 'window';
  if (fenceHolds(q, index)) return 'fence';
  if (tooManyReads(q, index)) return 'rd_atomic';
  if (lacksCredit(q, work)) return 'credits';
  const packet = needsResponse(work) ? requestOfOne(q, work) : packetOfMessage(q, work);
  return {
    packet,
    nextPsn: work.request.opcode === 'RDMA_READ' ? psnAdd(work.lastPsn, 1) : psnAdd(q.next, 1),
  };
}

/** Sends what was planned: the cursor moves, and the timer starts if it does not run (§9.7.6.1.3). */
export function sendPacket(q: Requester, plan: Plan, now: number): ModelPacket {
  q.next = plan.nextPsn;
  if (psnDiff(q.next, q.sentUpTo) > 0) q.sentUpTo = q.next;
  q.timerStart ??= now;
  return plan.packet;
}

/** §9.7.2: never so many PSNs unacknowledged that the responder's duplicate region is left; ours is smaller. */
export function windowIsFull(q: Requester): boolean {
  return psnDiff(q.next, q.una) >= q.config.window;
}

/** §10.8.3.3: a fenced request waits until the READs and atomics before it are done. */
export function fenceHolds(q: Requester, index: number): boolean {
  return q.queue[index].request.fence === true && q.queue.slice(0, index).some(needsResponse);
}

/** §9.4.4, §9.4.5: no more READs and atomics at once than the peer agreed to. */
export function tooManyReads(q: Requester, index: number): boolean {
  if (!needsResponse(q.queue[index])) return false;
  return q.queue.slice(0, index).filter(needsResponse).length >= q.config.maxRdAtomic;
}

/**
 * §9.7.7.2: a message that takes a receive needs a credit; one may go past the limit. What was sent once
 * is sent again without asking.
 */
export function lacksCredit(q: Requester, work: SendWork): boolean {
  if (q.creditLimit === 'none' || !consumesReceive(work)) return false;
  if (psnDiff(q.sentUpTo, q.next) > 0) return false;
  return psnDiff(work.ssn, psnAdd(q.creditLimit, 1)) > 0;
}

function header(q: Requester, opcode: number, ackReq: boolean): ModelPacket {
  return {
    opcode,
    destQpn: q.config.destQpn,
    psn: q.next,
    ackReq,
    solicited: false,
    pkey: DEFAULT_PKEY,
    payload: new Uint8Array(0),
  };
}

/**
 * A READ or atomic (§9.7.3.2). A READ of which responses are here asks again from the missing byte:
 * PSN, address and length move on together (§9.7.6.1.2).
 */
export function requestOfOne(q: Requester, { request, firstPsn }: SendWork): ModelPacket {
  const remote = request.remote!;
  if (request.opcode === 'RDMA_READ') {
    const skipped = psnDiff(q.next, firstPsn) * q.config.pathMtu;
    return {
      ...header(q, Opcode.RC_RDMA_READ_REQUEST, true),
      reth: { va: remote.va + BigInt(skipped), rkey: remote.rkey, length: request.local.length - skipped },
    };
  }
  const add = request.opcode === 'ATOMIC_FETCH_AND_ADD';
  return {
    ...header(q, add ? Opcode.RC_FETCH_ADD : Opcode.RC_COMPARE_SWAP, true),
    atomicEth: {
      ...remote,
      swapAdd: (add ? request.compareAdd : request.swap) ?? 0n,
      compare: add ? 0n : (request.compareAdd ?? 0n),
    },
  };
}

/** A packet of a SEND or WRITE: cut at the path MTU, opcode by place (§9.7.3.3, §9.7.3.4). */
export function packetOfMessage(q: Requester, { request, firstPsn, lastPsn }: SendWork): ModelPacket {
  const { pathMtu } = q.config;
  const index = psnDiff(q.next, firstPsn);
  const first = index === 0;
  const last = q.next === lastPsn;
  const packet: ModelPacket = {
    ...header(q, messageOpcode(request.opcode, first, last), last || (index + 1) % ACK_INTERVAL === 0),
    payload: request.local.slice(index * pathMtu, (index + 1) * pathMtu),
  };
  if (first && request.remote !== undefined && request.opcode.startsWith('RDMA_WRITE')) {
    packet.reth = { ...request.remote, length: request.local.length };
  }
  if (last && request.opcode.endsWith('_WITH_IMM')) packet.immediate = request.immediate ?? 0;
  if (last && request.opcode === 'SEND_WITH_INV') packet.invalidateRkey = request.invalidateRkey ?? 0;
  if (last && request.solicited && request.opcode !== 'RDMA_WRITE') packet.solicited = true;
  return packet;
}

function messageOpcode(opcode: SendWork['request']['opcode'], first: boolean, last: boolean): number {
  const operation = opcode.startsWith('SEND') ? 'SEND' : 'RDMA_WRITE';
  const place = first ? (last ? 'ONLY' : 'FIRST') : last ? 'LAST' : 'MIDDLE';
  const extra = !last
    ? ''
    : opcode.endsWith('_WITH_IMM')
      ? '_WITH_IMMEDIATE'
      : opcode.endsWith('_WITH_INV')
        ? '_WITH_INVALIDATE'
        : '';
  return Opcode[`RC_${operation}_${place}${extra}` as OpcodeName];
}
