/**
 * The receiving half of a datagram queue pair (IBTA vol 1 §9.8.3.2): every packet is a message, PSNs mean nothing,
 * and what is wrong is dropped in silence. QP1, the general services interface, is one with a Q_Key of its own (§13.5).
 */
import { type OpcodeInfo, Transport } from '@node-roce/wire/rules';
import { isOfPartition, type ModelPacket, rowOf } from './packet.ts';
import { receiveCompletion } from './rc-responder-execute.ts';
import { createReceiveQueue, type ReceiveQueue, takeReceive } from './receive-queue.ts';
import { failOnReceive, type Received } from './unreliable-receive.ts';

/** The Q_Key that QP1 has, and nobody else may use (§10.2.5, §13.5.1). */
export const GSI_QKEY = 0x8001_0000;

/** Bytes before the message in a receive: the GRH, or the IP header that stands for it (§11.4.1.2, A17.4.5.2). */
export const GRH_BYTES = 40;

export interface UdConfig {
  qpn: number;
  qkey: number;
  /** Bytes of the longest message: the port's active MTU. */
  pathMtu: number;
}

export interface UdResponder {
  config: UdConfig;
  state: 'READY' | 'ERR';
  receives: ReceiveQueue;
}

export function createUdResponder(config: UdConfig, receives = createReceiveQueue()): UdResponder {
  return { config, state: 'READY', receives };
}

/** Takes one datagram. @param grh 40 bytes for the head of the receive */
export function receiveUd(r: UdResponder, packet: ModelPacket, grh: Uint8Array): Received {
  const row = rowOf(packet);
  const ignored = checkUdHeader(r, packet, row) ?? checkQkey(r, packet) ?? checkDatagramLength(r, packet);
  if (ignored !== undefined) return { completions: [], dropped: ignored };
  const [receive] = r.receives.waiting;
  if (receive === undefined) return { completions: [], dropped: 'no receive is posted' };
  if (receive.broken) {
    r.state = 'ERR';
    return { completions: [...failOnReceive(r.receives, receive), ...flushUd(r)] };
  }
  const length = GRH_BYTES + packet.payload.length;
  if (length > receive.local.length) return { completions: [], dropped: 'the receive is too small' };
  takeReceive(r.receives);
  receive.local.set(grh);
  receive.local.set(packet.payload, GRH_BYTES);
  const completion = receiveCompletion(receive, packet, 'RECV', length);
  return { completions: [{ ...completion, sourceQpn: packet.deth!.srcQpn }] };
}

/** §9.6.1, §10.3.1: another service, another P_Key, or the error state. */
function checkUdHeader(r: UdResponder, packet: ModelPacket, row: OpcodeInfo): string | undefined {
  if (row.transport !== Transport.UD) return 'another transport service';
  if (!isOfPartition(packet)) return 'P_Key mismatch';
  return r.state === 'ERR' ? 'error state' : undefined;
}

/** §9.6.1.4: the sender has to know the queue pair's key. */
function checkQkey(r: UdResponder, { deth }: ModelPacket): string | undefined {
  return deth?.qkey === r.config.qkey ? undefined : 'Q_Key mismatch';
}

/** §9.8.3.2: one packet of at most the MTU. */
function checkDatagramLength(r: UdResponder, { payload }: ModelPacket): string | undefined {
  return payload.length > r.config.pathMtu ? 'longer than the MTU' : undefined;
}

/** The error state: what waits completes as flushed; an SRQ keeps it. */
export function flushUd(r: UdResponder): Received['completions'] {
  r.state = 'ERR';
  if (r.receives.shared) return [];
  return r.receives.waiting.splice(0).map(({ wrId }) => ({ wrId, status: 'WR_FLUSH_ERR' }));
}
