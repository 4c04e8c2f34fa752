/**
 * The packets of a SEND or WRITE, the same for each transport service that has them (IBTA vol 1 §9.7.3.3, §9.7.3.4,
 * §9.8.2.1): cut at the path MTU; the opcode shows a packet's place; immediate data and the like are on the last.
 */
import { Opcode, type OpcodeName, psnAdd } from '@node-roce/wire/rules';
import { DEFAULT_PKEY, type ModelPacket } from './packet.ts';
import type { ModelOpcode, ModelSendRequest } from './work.ts';

/** Where the packets go, and how long they may be. */
export interface MessageRoute {
  service: 'RC' | 'UC' | 'UD';
  destQpn: number;
  /** Bytes. */
  pathMtu: number;
  firstPsn: number;
}

/** Packets of a message of so many bytes: at least one. */
export function packetCount(length: number, pathMtu: number): number {
  return Math.max(1, Math.ceil(length / pathMtu));
}

/** The packet at a place of the message, from 0. It asks for no ACK: who wants one sets it. */
export function messagePacket(request: ModelSendRequest, route: MessageRoute, index: number): ModelPacket {
  const { service, destQpn, pathMtu, firstPsn } = route;
  const first = index === 0;
  const last = index === packetCount(request.local.length, pathMtu) - 1;
  const packet: ModelPacket = {
    opcode: Opcode[`${service}_${operationAt(request.opcode, first, last)}` as OpcodeName],
    destQpn,
    psn: psnAdd(firstPsn, index),
    ackReq: false,
    solicited: false,
    pkey: DEFAULT_PKEY,
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

function operationAt(opcode: ModelOpcode, first: boolean, last: boolean): string {
  const operation = opcode.startsWith('SEND') ? 'SEND' : 'RDMA_WRITE';
  const place = first ? (last ? 'ONLY' : 'FIRST') : last ? 'LAST' : 'MIDDLE';
  if (!last) return `${operation}_${place}`;
  if (opcode.endsWith('_WITH_IMM')) return `${operation}_${place}_WITH_IMMEDIATE`;
  return opcode.endsWith('_WITH_INV') ? `${operation}_${place}_WITH_INVALIDATE` : `${operation}_${place}`;
}
