/**
 * The deliveries that unreliable queue pairs owe, by the packets that the wire brought: exactly the messages whose packets all arrived,
 * one after the other with nothing between, and that found a receive (IBTA vol 1 §9.8.2.2, §9.8.3.2). It knows no
 * more than that: keys, lengths and Q_Keys of a workload are always right.
 */
import { opcodeInfo, psnAdd } from '@node-roce/wire';
import type { ModelPacket } from '../model/packet.ts';
import { GRH_BYTES } from '../model/ud-responder.ts';
import type { ModelCompletion } from '../model/work.ts';

/** Receives that wait, by `wrId`; of an SRQ, for several queue pairs. */
export interface Waiting {
  wrIds: number[];
  shared: boolean;
}

export interface Delivered {
  completion: ModelCompletion;
  /** From the receive's first byte on; of a WRITE or a failed receive, none. */
  bytes: Uint8Array;
}

/** Expects exactly the messages whose packets all arrived, for UC and UD. */
export class Delivery {
  /** The expected completions, in order. */
  readonly due: Delivered[] = [];
  readonly #waiting: Waiting;
  /** The data that the peer's WRITEs have to leave in memory. */
  readonly #memory: Uint8Array;
  readonly #addressOf: (va: bigint) => number;
  #nextPsn = -1;
  #message:
    | { isSend: boolean; wrId: number | undefined; parts: Uint8Array[]; va: bigint; length: number }
    | undefined;

  /** @param addressOf offset in `memory` of an address that a RETH names */
  constructor(waiting: Waiting, memory: Uint8Array, addressOf: (va: bigint) => number) {
    this.#waiting = waiting;
    this.#memory = memory;
    this.#addressOf = addressOf;
  }

  /** A packet arrived undamaged. @param grh 40 bytes, for a datagram */
  arrive(packet: ModelPacket, grh: Uint8Array): void {
    if (packet.deth !== undefined) this.#datagram(packet, grh);
    else this.#connected(packet);
  }

  #datagram(packet: ModelPacket, grh: Uint8Array): void {
    const wrId = this.#waiting.wrIds.shift();
    if (wrId === undefined) return;
    const bytes = Uint8Array.from([...grh, ...packet.payload]);
    const completion = this.#success(wrId, packet, true, GRH_BYTES + packet.payload.length);
    this.due.push({ completion: { ...completion, sourceQpn: packet.deth!.srcQpn }, bytes });
  }

  #connected(packet: ModelPacket): void {
    const { first, last, isSend, hasImmediate } = opcodeInfo(packet.opcode)!;
    if (first) this.#begin(packet, isSend);
    else if (packet.psn !== this.#nextPsn || this.#message?.isSend !== isSend) this.#giveUp();
    const message = this.#message;
    if (message === undefined) return;
    this.#nextPsn = psnAdd(packet.psn, 1);
    // A WRITE's immediate data that finds no receive: its packet is dropped as a whole.
    const needsReceive = last && !isSend && hasImmediate;
    const wrId = needsReceive ? this.#waiting.wrIds.shift() : message.wrId;
    if (last) this.#message = undefined;
    if (needsReceive && wrId === undefined) return;
    message.parts.push(packet.payload);
    if (!isSend) this.#memory.set(packet.payload, this.#addressOf(message.va) + message.length);
    message.length += packet.payload.length;
    if (!last || wrId === undefined) return;
    const bytes = isSend ? Uint8Array.from(message.parts.flatMap((part) => [...part])) : new Uint8Array(0);
    this.due.push({ completion: this.#success(wrId, packet, isSend, message.length), bytes });
  }

  #begin(packet: ModelPacket, isSend: boolean): void {
    this.#giveUp();
    const wrId = isSend ? this.#waiting.wrIds.shift() : undefined;
    if (isSend && wrId === undefined) return;
    const empty = packet.reth === undefined || packet.reth.length === 0;
    this.#message = { isSend, wrId, parts: [], va: empty ? -1n : packet.reth!.va, length: 0 };
  }

  /** The next message has its receive; of an SRQ it is used up. */
  #giveUp(): void {
    const wrId = this.#message?.wrId;
    this.#message = undefined;
    if (wrId === undefined) return;
    if (!this.#waiting.shared) this.#waiting.wrIds.unshift(wrId);
    else this.due.push({ completion: { wrId, status: 'REM_INV_REQ_ERR' }, bytes: new Uint8Array(0) });
  }

  #success(wrId: number, packet: ModelPacket, isSend: boolean, byteLen: number): ModelCompletion {
    const opcode = isSend ? 'RECV' : 'RECV_RDMA_WITH_IMM';
    const { immediate } = packet;
    return { wrId, status: 'SUCCESS', opcode, byteLen, ...(immediate === undefined ? {} : { immediate }) };
  }
}
