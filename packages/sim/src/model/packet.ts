/**
 * A packet as the model sees it: the BTH's meaning, the extension headers it came with, the payload.
 * Plain values: what does not matter to the transport (pad, MigReq, ICRC) is not here.
 */
import { Opcode, type OpcodeInfo, opcodeInfo, Transport } from '@node-roce/wire/rules';
import { BTH_LENGTH, placesOf, putBth, putExtension, readBth, readExtension } from './headers.ts';

/** The P_Key every RoCE port has; its top bit is full membership. */
export const DEFAULT_PKEY = 0xffff;

/** §10.9.3: of the port's partition. Membership (the top bit) may be limited on one of the two sides. */
export function isOfPartition({ pkey }: { pkey: number }): boolean {
  return (pkey & 0x7fff) === (DEFAULT_PKEY & 0x7fff);
}

/** Where a WRITE goes or a READ comes from (RETH). */
export interface RemoteRange {
  va: bigint;
  rkey: number;
  /** Bytes of the whole message. */
  length: number;
}

/** Operands of an atomic (AtomicETH). */
export interface AtomicOperands {
  va: bigint;
  rkey: number;
  /** COMPARE SWAP: the new value; FETCH ADD: what is added. */
  swapAdd: bigint;
  compare: bigint;
}

/** One packet. The opcode determines which of the optional parts are there. */
export interface ModelPacket {
  /** The whole byte. */
  opcode: number;
  destQpn: number;
  /** 24 bits. */
  psn: number;
  ackReq: boolean;
  solicited: boolean;
  pkey: number;
  /** UD: the key that the receiver asks for, and who sends (DETH). */
  deth?: { qkey: number; srcQpn: number };
  reth?: RemoteRange;
  /** The guarantees that a FLUSH asks for, and of how much (FETH). */
  feth?: { placement: number; selectivity: number };
  atomicEth?: AtomicOperands;
  aeth?: { syndrome: number; msn: number };
  /** The memory's value before the atomic (AtomicAckETH). */
  original?: bigint;
  /** Immediate data, 32 bits. */
  immediate?: number;
  /** R_Key that a SEND with invalidate names (IETH). */
  invalidateRkey?: number;
  /** XRC requests: the shared receive queue that they are for (XRCETH), 24 bits. */
  srqn?: number;
  /** Without pad. */
  payload: Uint8Array;
}

export type Decoded = { ok: true; packet: ModelPacket } | { ok: false; reason: string };

/** The transport services of the model. */
const SERVICES: readonly number[] = [Transport.RC, Transport.UC, Transport.UD, Transport.XRC];

/** A reserved opcode of RC: a request of one packet, of no kind. */
const RESERVED: OpcodeInfo = {
  ...opcodeInfo(Opcode.RC_SEND_ONLY)!,
  name: 'reserved',
  opcode: 0x1f,
  isSend: false,
};

/** A packet of RC may have any opcode: its responder refuses what it does not know. */
function rowAt(opcode: number): OpcodeInfo | undefined {
  return opcodeInfo(opcode) ?? (opcode < 0x20 ? RESERVED : undefined);
}

/** The table's row of a packet that `decodePacket` gave, or that the model made: it has one. */
export function rowOf(packet: ModelPacket): OpcodeInfo {
  const row = rowAt(packet.opcode);
  if (row === undefined) throw new Error(`opcode 0x${packet.opcode.toString(16)} is in no table`);
  return row;
}

/**
 * Reads a packet from the bytes between the UDP header and the ICRC.
 * Never throws: bytes that are no packet of RC, UC, UD or XRC give a reason (§9.6.1: such a packet is dropped).
 */
export function decodePacket(bytes: Uint8Array): Decoded {
  if (bytes.length < BTH_LENGTH) return { ok: false, reason: `${bytes.length} bytes are no BTH` };
  const { pad, version, opcode, destQpn, psn, pkey, ...bth } = readBth(bytes);
  const row = rowAt(opcode);
  if (version !== 0) return { ok: false, reason: `header version ${version}` };
  if (row === undefined || !SERVICES.includes(row.transport)) {
    return { ok: false, reason: `opcode 0x${opcode.toString(16)} does not belong to RC, UC, UD or XRC` };
  }
  const { at, length } = placesOf(opcode);
  if (bytes.length < length + pad) {
    return { ok: false, reason: `${bytes.length} bytes end inside the headers of ${row.name}` };
  }
  const packet: ModelPacket = {
    opcode,
    destQpn,
    psn,
    ackReq: bth.ackReq === 1,
    solicited: bth.solicited === 1,
    pkey,
    payload: bytes.slice(length, bytes.length - pad),
  };
  if (at.deth) packet.deth = readExtension(bytes, at.deth, 'deth');
  if (at.reth) packet.reth = readExtension(bytes, at.reth, 'reth');
  if (at.feth) packet.feth = readExtension(bytes, at.feth, 'feth');
  if (at.atomicEth) packet.atomicEth = readExtension(bytes, at.atomicEth, 'atomicEth');
  if (at.aeth) packet.aeth = readExtension(bytes, at.aeth, 'aeth');
  if (at.atomicAckEth) packet.original = readExtension(bytes, at.atomicAckEth, 'atomicAckEth').original;
  if (at.immDt) packet.immediate = readExtension(bytes, at.immDt, 'immDt').immediate;
  if (at.xrceth) packet.srqn = readExtension(bytes, at.xrceth, 'xrceth').srqn;
  if (at.ieth) packet.invalidateRkey = readExtension(bytes, at.ieth, 'ieth').rkey;
  return { ok: true, packet };
}

/** The bytes of a packet from its BTH through its pad. MigReq is 1, as real adapters send it. */
export function encodePacket(packet: ModelPacket): Uint8Array<ArrayBuffer> {
  rowOf(packet);
  const { opcode, destQpn, psn, pkey, payload, original, immediate, invalidateRkey, srqn } = packet;
  const { at, length } = placesOf(opcode);
  const pad = -payload.length & 3;
  const bytes = new Uint8Array(length + payload.length + pad);
  const solicited = packet.solicited ? 1 : 0;
  const ackReq = packet.ackReq ? 1 : 0;
  putBth(bytes, { opcode, solicited, migReq: 1, pad, version: 0, pkey, destQpn, ackReq, psn });
  if (packet.deth) putExtension(bytes, at.deth!, 'deth', packet.deth);
  if (packet.reth) putExtension(bytes, at.reth!, 'reth', packet.reth);
  if (packet.feth) putExtension(bytes, at.feth!, 'feth', packet.feth);
  if (packet.atomicEth) putExtension(bytes, at.atomicEth!, 'atomicEth', packet.atomicEth);
  if (packet.aeth) putExtension(bytes, at.aeth!, 'aeth', packet.aeth);
  if (original !== undefined) putExtension(bytes, at.atomicAckEth!, 'atomicAckEth', { original });
  if (immediate !== undefined) putExtension(bytes, at.immDt!, 'immDt', { immediate });
  if (invalidateRkey !== undefined) putExtension(bytes, at.ieth!, 'ieth', { rkey: invalidateRkey });
  if (srqn !== undefined) putExtension(bytes, at.xrceth!, 'xrceth', { srqn });
  bytes.set(payload, length);
  return bytes;
}
