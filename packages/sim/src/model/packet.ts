/**
 * A packet as the model sees it: the BTH's meaning, the extension headers it came with, the payload.
 * Plain values: what does not matter to the transport (pad, MigReq, ICRC) is not here.
 */
import {
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  decodeAeth,
  decodeAtomicAck,
  decodeAtomicEth,
  decodeBth,
  decodeDeth,
  decodeFeth,
  decodeReth,
  decodeXrceth,
  encodeAtomicAck,
  encodeAtomicEth,
  encodeReth,
  encodeXrceth,
  iethRkey,
  immDt,
  Opcode,
  type OpcodeInfo,
  opcodeInfo,
  Transport,
  writeAeth,
  writeBth,
  writeDeth,
  writeFeth,
  writeIeth,
  writeImmDt,
} from '@node-roce/wire';

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
  if (bytes.length < BTH_BYTES) return { ok: false, reason: `${bytes.length} bytes are no BTH` };
  const bth = decodeBth(bytes, 0);
  const row = rowAt(bth.opcode);
  if (bth.tver !== 0) return { ok: false, reason: `header version ${bth.tver}` };
  if (row === undefined || !SERVICES.includes(row.transport)) {
    return { ok: false, reason: `opcode 0x${bytes[0].toString(16)} does not belong to RC, UC, UD or XRC` };
  }
  if (bytes.length < row.headerLength + bth.pad) {
    return { ok: false, reason: `${bytes.length} bytes end inside the headers of ${row.name}` };
  }
  const at = row.offsets;
  const packet: ModelPacket = {
    opcode: bth.opcode,
    destQpn: bth.destQp,
    psn: bth.psn,
    ackReq: bth.ackReq,
    solicited: bth.solicited,
    pkey: bth.pkey,
    payload: bytes.slice(row.headerLength, bytes.length - bth.pad),
  };
  if (at.deth >= 0) {
    const { qkey, srcQp } = decodeDeth(bytes, at.deth);
    packet.deth = { qkey, srcQpn: srcQp };
  }
  if (at.reth >= 0) packet.reth = decodeReth(bytes, at.reth);
  if (at.feth >= 0) {
    const { placement, selectivity } = decodeFeth(bytes, at.feth);
    packet.feth = { placement, selectivity };
  }
  if (at.atomicEth >= 0) packet.atomicEth = decodeAtomicEth(bytes, at.atomicEth);
  if (at.aeth >= 0) packet.aeth = decodeAeth(bytes, at.aeth);
  if (at.atomicAckEth >= 0) packet.original = decodeAtomicAck(bytes, at.atomicAckEth).original;
  if (at.immDt >= 0) packet.immediate = immDt(bytes, at.immDt);
  if (at.xrceth >= 0) packet.srqn = decodeXrceth(bytes, at.xrceth).srq;
  if (at.ieth >= 0) packet.invalidateRkey = iethRkey(bytes, at.ieth);
  return { ok: true, packet };
}

/** The bytes of a packet from its BTH through its pad. MigReq is 1, as real adapters send it. */
export function encodePacket(packet: ModelPacket): Uint8Array<ArrayBuffer> {
  const row = rowOf(packet);
  const at = row.offsets;
  const pad = -packet.payload.length & 3;
  const bytes = new Uint8Array(row.headerLength + packet.payload.length + pad);
  writeBth(
    bytes,
    0,
    packet.opcode,
    (packet.solicited ? BthFlags.SOLICITED : 0) | BthFlags.MIG_REQ | (pad << BTH_PAD_SHIFT),
    packet.pkey,
    packet.destQpn,
    packet.psn | (packet.ackReq ? BTH_ACK_REQ : 0),
  );
  if (packet.deth) writeDeth(bytes, at.deth, packet.deth.qkey, packet.deth.srcQpn);
  if (packet.reth) encodeReth(bytes, at.reth, packet.reth);
  if (packet.feth) writeFeth(bytes, at.feth, packet.feth.placement, packet.feth.selectivity);
  if (packet.atomicEth) encodeAtomicEth(bytes, at.atomicEth, packet.atomicEth);
  if (packet.aeth) writeAeth(bytes, at.aeth, packet.aeth.syndrome, packet.aeth.msn);
  if (packet.original !== undefined) {
    encodeAtomicAck(bytes, at.atomicAckEth, { original: packet.original });
  }
  if (packet.immediate !== undefined) writeImmDt(bytes, at.immDt, packet.immediate);
  if (packet.invalidateRkey !== undefined) writeIeth(bytes, at.ieth, packet.invalidateRkey);
  if (packet.srqn !== undefined) encodeXrceth(bytes, at.xrceth, { reserved: 0, srq: packet.srqn });
  bytes.set(packet.payload, row.headerLength);
  return bytes;
}
