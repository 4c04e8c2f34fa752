/** The packet at hand: made once for an adapter, filled for each packet that passed the header's checks. */
import { bthPsn, Opcode, type OpcodeInfo, opcodeInfo } from '@node-roce/wire';
import { RX_SLOT_WORDS, Rx, RxBatch } from './batch.ts';
import type { PathAttributes } from './qp/attributes.ts';

const NOTHING = new RxBatch(0, 0);
/** Opcodes of RC are below it. */
const RC_END = 0x20;
/** A request without any meaning, which the responder refuses. */
const RESERVED: OpcodeInfo = {
  ...(opcodeInfo(Opcode.RC_SEND_ONLY) as OpcodeInfo),
  name: 'reserved',
  opcode: 0x1f,
  isSend: false,
};

/** By opcode. */
const ROWS = Array.from({ length: 256 }, (_, opcode) =>
  opcode < RC_END ? (opcodeInfo(opcode) ?? RESERVED) : opcodeInfo(opcode),
);

/**
 * The row of an opcode that a queue pair may receive, `undefined` where the packet is dropped. Reserved opcodes of RC are requests
 * that are refused (IBTA vol 1 §9.7.4.1.3); those of other services mean nothing.
 */
export function inboundInfo(opcode: number): OpcodeInfo | undefined {
  return ROWS[opcode];
}

/** Whether the packet in a slot comes from the far end of a path to its near end. */
export function comesBy({ source, local }: PathAttributes, batch: RxBatch, index: number): boolean {
  const { sourceWords } = batch;
  const s = index * 4;
  return (
    sourceWords[s] === source[0] &&
    sourceWords[s + 1] === source[1] &&
    sourceWords[s + 2] === source[2] &&
    sourceWords[s + 3] === source[3] &&
    batch.slots[index * RX_SLOT_WORDS + Rx.LOCAL] === local
  );
}

/** The received packet under way, parsed in place; one object, used again for each. */
export class InboundPacket {
  #info: OpcodeInfo = opcodeInfo(0) as OpcodeInfo;
  #slab: Uint8Array = NOTHING.slab;
  #at = 0;
  #psn = 0;
  #payload = 0;
  #batch: RxBatch = NOTHING;
  #index = 0;

  /** Takes the packet in a slot of a batch: its BTH at `at`, its opcode's row, bytes of payload without the pad. */
  fill(batch: RxBatch, index: number, at: number, info: OpcodeInfo, payload: number): void {
    this.#batch = batch;
    this.#index = index;
    this.#slab = batch.slab;
    this.#at = at;
    this.#info = info;
    this.#psn = bthPsn(batch.slab, at);
    this.#payload = payload;
  }

  /** Takes a copy of a packet that came in an earlier batch: BTH at `at` of memory of our own. It has no slot. */
  refill(slab: Uint8Array, at: number, info: OpcodeInfo, payload: number): void {
    this.#slab = slab;
    this.#at = at;
    this.#info = info;
    this.#psn = bthPsn(slab, at);
    this.#payload = payload;
  }

  /** The opcode's row of the table. */
  get info(): OpcodeInfo {
    return this.#info;
  }

  /** The batch's slab. */
  get slab(): Uint8Array {
    return this.#slab;
  }

  /** Offset of the BTH in the slab. */
  get at(): number {
    return this.#at;
  }

  get psn(): number {
    return this.#psn;
  }

  /** Bytes after the headers, pad not counted. */
  get payload(): number {
    return this.#payload;
  }

  /** Its slot in the batch: what the link knows of it. */
  get batch(): RxBatch {
    return this.#batch;
  }

  get index(): number {
    return this.#index;
  }
}
