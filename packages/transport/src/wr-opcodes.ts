/**
 * The operations of the send queue: one row per work-request opcode. The rows drive the checks of posting, the packets of
 * the requester and the completions, here, in verbs-api and in ibverbs.
 */
import { Opcode } from '@node-roce/wire';
import { type QpType, WcOpcode, WrOpcode, type WrOpcodeName } from './constants.ts';

/**
 * How a request travels; `LOCAL` requests are executed by this adapter without a packet. `PLACEMENT` ones are a packet each,
 * answered by a READ response of no bytes (IBTA vol 1 annex A19).
 */
export const Wire = { SEND: 0, WRITE: 1, READ: 2, ATOMIC: 3, LOCAL: 4, PLACEMENT: 5 } as const;

/** Transport services as bits. */
export const Service: Readonly<Record<QpType, number>> = {
  RC: 1,
  UC: 2,
  UD: 4,
  GSI: 8,
  RAW_PACKET: 16,
  XRC_INI: 32,
  XRC_TGT: 64,
};

export interface WrOpcodeRow {
  readonly name: WrOpcodeName;
  /** `WrOpcode`. */
  readonly opcode: number;
  /** `Service` bits of the queue pairs that may post it (ibv_post_send(3)). */
  readonly services: number;
  /** `Wire`. */
  readonly wire: number;
  /** BTH opcodes of a message's packets, as RC numbers them; a message that is always one packet has `only` alone. */
  readonly first: number;
  readonly middle: number;
  readonly last: number;
  readonly only: number;
  /** `WcOpcode` of its completion. */
  readonly completion: number;
  /** Consumes a receive at the peer, so it is limited by end-to-end credits and may ask for a solicited event. */
  readonly consumesReceive: boolean;
  /** Answered by a response of its own instead of an ACK; limited by `max_rd_atomic`. */
  readonly readOrAtomic: boolean;
  /** Its list receives data, so the elements need local write access; otherwise the list is sent. */
  readonly receivesData: boolean;
  /** Carries immediate data. */
  readonly immediate: boolean;
  /** Names an rkey to invalidate: at the peer (SEND_WITH_INV) or here (LOCAL_INV). */
  readonly invalidate: boolean;
  /** Names memory of the peer: address and rkey. */
  readonly remote: boolean;
  /** 64-bit operands: 1 what to add, 2 compare and swap. */
  readonly operands: 0 | 1 | 2;
  /** The only message length that it has, bytes; −1: any. */
  readonly length: number;
  /** May take its data from the entry itself (IBV_SEND_INLINE). */
  readonly inline: boolean;
}

const RELIABLE = Service.RC | Service.XRC_INI;
const CONNECTED = RELIABLE | Service.UC;

function row(name: WrOpcodeName, values: Partial<WrOpcodeRow>): WrOpcodeRow {
  // Not by a spread: rows of one hidden class.
  const row: WrOpcodeRow = {
    name,
    opcode: WrOpcode[name],
    services: RELIABLE,
    wire: Wire.LOCAL,
    first: 0,
    middle: 0,
    last: 0,
    only: 0,
    completion: WcOpcode.SEND,
    consumesReceive: false,
    readOrAtomic: false,
    receivesData: false,
    immediate: false,
    invalidate: false,
    remote: false,
    operands: 0,
    length: -1,
    inline: false,
  };
  return Object.assign(row, values);
}

const SEND: Partial<WrOpcodeRow> = {
  services: CONNECTED | Service.UD | Service.GSI,
  wire: Wire.SEND,
  first: Opcode.RC_SEND_FIRST,
  middle: Opcode.RC_SEND_MIDDLE,
  last: Opcode.RC_SEND_LAST,
  only: Opcode.RC_SEND_ONLY,
  consumesReceive: true,
  inline: true,
};

const WRITE: Partial<WrOpcodeRow> = {
  services: CONNECTED,
  wire: Wire.WRITE,
  first: Opcode.RC_RDMA_WRITE_FIRST,
  middle: Opcode.RC_RDMA_WRITE_MIDDLE,
  last: Opcode.RC_RDMA_WRITE_LAST,
  only: Opcode.RC_RDMA_WRITE_ONLY,
  completion: WcOpcode.RDMA_WRITE,
  remote: true,
  inline: true,
};

const ATOMIC: Partial<WrOpcodeRow> = {
  wire: Wire.ATOMIC,
  readOrAtomic: true,
  receivesData: true,
  remote: true,
  length: 8,
};

const ROWS = [
  row('RDMA_WRITE', WRITE),
  row('RDMA_WRITE_WITH_IMM', {
    ...WRITE,
    last: Opcode.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
    only: Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    consumesReceive: true,
    immediate: true,
  }),
  row('SEND', { ...SEND, services: CONNECTED | Service.UD | Service.GSI | Service.RAW_PACKET }),
  row('SEND_WITH_IMM', {
    ...SEND,
    last: Opcode.RC_SEND_LAST_WITH_IMMEDIATE,
    only: Opcode.RC_SEND_ONLY_WITH_IMMEDIATE,
    immediate: true,
  }),
  row('RDMA_READ', {
    wire: Wire.READ,
    only: Opcode.RC_RDMA_READ_REQUEST,
    completion: WcOpcode.RDMA_READ,
    readOrAtomic: true,
    receivesData: true,
    remote: true,
  }),
  row('ATOMIC_CMP_AND_SWP', {
    ...ATOMIC,
    only: Opcode.RC_COMPARE_SWAP,
    completion: WcOpcode.COMP_SWAP,
    operands: 2,
  }),
  row('ATOMIC_FETCH_AND_ADD', {
    ...ATOMIC,
    only: Opcode.RC_FETCH_ADD,
    completion: WcOpcode.FETCH_ADD,
    operands: 1,
  }),
  row('FLUSH', {
    wire: Wire.PLACEMENT,
    only: Opcode.RC_FLUSH,
    completion: WcOpcode.FLUSH,
    readOrAtomic: true,
    remote: true,
    // Its range is in the header; a peer refuses one that brings data.
    length: 0,
  }),
  row('ATOMIC_WRITE', {
    wire: Wire.PLACEMENT,
    only: Opcode.RC_ATOMIC_WRITE,
    completion: WcOpcode.ATOMIC_WRITE,
    readOrAtomic: true,
    remote: true,
    length: 8,
    inline: true,
  }),
  row('LOCAL_INV', { services: CONNECTED, completion: WcOpcode.LOCAL_INV, invalidate: true }),
  row('BIND_MW', { services: CONNECTED, completion: WcOpcode.BIND_MW }),
  // UC has no opcode for it (IBTA vol 1 §9.2).
  row('SEND_WITH_INV', {
    ...SEND,
    services: RELIABLE,
    last: Opcode.RC_SEND_LAST_WITH_INVALIDATE,
    only: Opcode.RC_SEND_ONLY_WITH_INVALIDATE,
    invalidate: true,
  }),
];

function byOpcode(rows: readonly WrOpcodeRow[]): WrOpcodeRow[] {
  const table: WrOpcodeRow[] = [];
  for (const row of rows) table[row.opcode] = row;
  return table;
}

/** Rows by `WrOpcode`; a number without a row is no operation. */
export const WR_OPCODES: readonly WrOpcodeRow[] = byOpcode(ROWS);
