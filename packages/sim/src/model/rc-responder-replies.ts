/** The packets a responder sends (IBTA vol 1 §9.7.5). */
import { CREDIT_UNLIMITED, creditCodeFor, Opcode, psnAdd } from '@node-roce/wire/rules';
import { bytesAt } from './memory.ts';
import { DEFAULT_PKEY, type ModelPacket } from './packet.ts';
import type { Responder } from './rc-responder-state.ts';

/** The common parts of all replies: no AckReq, no event (§9.2). */
function reply(r: Responder, opcode: number, psn: number, syndrome: number): ModelPacket {
  return {
    opcode,
    destQpn: r.config.destQpn,
    psn,
    ackReq: false,
    solicited: false,
    pkey: DEFAULT_PKEY,
    aeth: { syndrome, msn: r.msn },
    payload: new Uint8Array(0),
  };
}

/**
 * §9.7.5.2.2: an ACK with the receives posted, rounded down to a code; 31 where receives are not counted, and on an SRQ,
 * whose receives are not for this peer alone. The requester adds the count to the MSN, which does not have the message in progress: its receive counts.
 */
function ackSyndrome(r: Responder): number {
  if (!r.config.flowControl || r.receives.shared) return CREDIT_UNLIMITED;
  return creditCodeFor(r.receives.waiting.length + (r.inProgress?.receive === undefined ? 0 : 1));
}

/** §9.7.5.1.1: a request that asks for it is acknowledged, with its own PSN. The model coalesces nothing. */
export function acknowledge(r: Responder, packet: ModelPacket): ModelPacket[] {
  return packet.ackReq ? [reply(r, Opcode.RC_ACKNOWLEDGE, packet.psn, ackSyndrome(r))] : [];
}

/** An ACK that names a PSN: the answer to a repeated SEND or WRITE. */
export function acknowledgeUpTo(r: Responder, psn: number): ModelPacket {
  return reply(r, Opcode.RC_ACKNOWLEDGE, psn, ackSyndrome(r));
}

/** §9.7.5.2: a NAK; everything before `psn` is thereby acknowledged. */
export function nak(r: Responder, psn: number, syndrome: number): ModelPacket {
  return reply(r, Opcode.RC_ACKNOWLEDGE, psn, syndrome);
}

/** §9.7.5.2.8: try again after the time of the code. The PSN is the request's. */
export function rnrNak(r: Responder, packet: ModelPacket): ModelPacket {
  return reply(r, Opcode.RC_ACKNOWLEDGE, packet.psn, 0x20 | r.config.minRnrTimer);
}

/** §9.4.5: the answer to an atomic. */
export function atomicAcknowledge(r: Responder, psn: number, original: bigint): ModelPacket {
  return { ...reply(r, Opcode.RC_ATOMIC_ACKNOWLEDGE, psn, ackSyndrome(r)), original };
}

/** Annex A19: the answer to a FLUSH or ATOMIC WRITE, a READ response of no bytes. */
export function placementResponse(r: Responder, psn: number): ModelPacket {
  return reply(r, Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn, ackSyndrome(r));
}

/**
 * §9.4.4: the responses to a READ (also one that asks again for the rest of an earlier READ): PSNs count up from the
 * request's, all but the last fill the path MTU, the first and the last have an AETH.
 */
export function readResponses(r: Responder, request: ModelPacket): ModelPacket[] {
  const { pathMtu } = r.config;
  const { va, rkey, length } = request.reth!;
  const count = responseCount(length, pathMtu);
  const bytes = bytesAt(r.memory, rkey, va, length);
  const responses: ModelPacket[] = [];
  for (let i = 0; i < count; i++) {
    const { aeth, ...rest } = reply(r, readOpcode(i, count), psnAdd(request.psn, i), ackSyndrome(r));
    const payload = bytes.slice(i * pathMtu, (i + 1) * pathMtu);
    const edge = i === 0 || i === count - 1;
    responses.push(edge ? { ...rest, aeth, payload } : { ...rest, payload });
  }
  return responses;
}

function readOpcode(index: number, count: number): number {
  if (count === 1) return Opcode.RC_RDMA_READ_RESPONSE_ONLY;
  if (index === 0) return Opcode.RC_RDMA_READ_RESPONSE_FIRST;
  if (index === count - 1) return Opcode.RC_RDMA_READ_RESPONSE_LAST;
  return Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;
}

/** Packets that answer a READ of so many bytes: at least one. */
export function responseCount(length: number, pathMtu: number): number {
  return Math.max(1, Math.ceil(length / pathMtu));
}
