/** The packets of send requests: headers, and payload by reference. */
import {
  ATOMIC_ETH_BYTES,
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  DETH_BYTES,
  FETH_BYTES,
  IETH_BYTES,
  IMM_DT_BYTES,
  RETH_BYTES,
  writeAtomicEth,
  writeBth,
  writeDeth,
  writeFeth,
  writeIeth,
  writeImmDt,
  writeReth,
} from '@node-roce/wire';
import type { AddressHandle } from '../addresses.ts';
import { TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, type TxBatch } from '../batch.ts';
import { SendFlags, WcStatus, WrOpcode } from '../constants.ts';
import type { Context } from '../context.ts';
import { SendWqe } from '../entry-words.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { splitLast } from '../run-slots.ts';
import { addFragment, DEFAULT_PKEY, finishSlot, growRun } from '../slots.ts';
import { Wire, type WrOpcodeRow } from '../wr-opcodes.ts';
import type { SendCursor } from './cursor.ts';

/** Offset in a BTH of the byte with AckReq in its top bit. */
const ACK_REQ_BYTE = 8;

/** Writes request packets of one queue pair into batches. It keeps no state of its own. */
export class RequestPackets {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;

  constructor(context: Context, owner: Owner, queue: SendQueue) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
  }

  /** Whether a message of so many bytes takes the PSNs that its entry was given: the program may have made it shorter or longer since it was started. */
  #isOfItsPackets({ entry }: SendCursor, length: number): boolean {
    const { pathMtu } = this.#owner.attributes;
    const packets = this.#queue.packetsOf(entry);
    const spare = packets * pathMtu - length;
    // A packet of no bytes is one that is the whole message.
    return spare >= 0 && (spare < pathMtu || packets === 1);
  }

  /** Adds the packet that the cursor is at, of a request that sends its list. @returns `WcStatus`: why it can't be sent */
  addMessage(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow, last: boolean, ackReq: boolean): number {
    const owner = this.#owner;
    const { attributes } = owner;
    const { words } = this.#queue;
    const w = this.#queue.wordOf(cursor.entry);
    const flags = words[w + SendWqe.OPCODE_FLAGS] >>> 8;
    const length = words[w + SendWqe.LENGTH];
    const first = cursor.packet === 0;
    if (!this.#isOfItsPackets(cursor, length)) return WcStatus.LOC_LEN_ERR;
    const start = cursor.packet * attributes.pathMtu;
    const size = last ? length - start : attributes.pathMtu;
    const fragments = batch.fragmentCount;

    const ah = owner.datagram ? this.#context.addresses.ah(words[w + SendWqe.ADDRESS_HANDLE]) : undefined;
    if (owner.datagram && ah?.pd !== owner.pd) return WcStatus.LOC_QP_OP_ERR;
    if ((flags & SendFlags.INLINE) !== 0) {
      if (start + size > owner.cap.maxInlineData) return WcStatus.LOC_QP_OP_ERR;
      if (size > 0) addFragment(batch, owner.sqRegion, (w + SendWqe.SGE) * 4 + start, size);
    } else if (!cursor.gather(this.#context, owner, this.#queue, batch, size)) {
      batch.fragmentCount = fragments;
      return WcStatus.LOC_PROT_ERR;
    }

    const header = batch.headers;
    const base = batch.count * TX_HEADER_STRIDE;
    let o = base + BTH_BYTES;
    let { destQpn } = attributes;
    if (owner.datagram) {
      destQpn = words[w + SendWqe.REMOTE_QPN];
      // The top bit asks for the Q_Key of the sender's own context (IBTA vol 1 §10.2.5).
      const qkey = words[w + SendWqe.REMOTE_QKEY];
      writeDeth(header, o, qkey >>> 31 === 1 ? attributes.qkey : qkey, owner.qpn);
      o += DETH_BYTES;
    }
    if (first && row.remote) {
      const high = words[w + SendWqe.REMOTE_ADDRESS_HIGH] | 0;
      const low = words[w + SendWqe.REMOTE_ADDRESS_LOW] | 0;
      writeReth(header, o, high, low, words[w + SendWqe.RKEY] | 0, length);
      o += RETH_BYTES;
    }
    if (last && row.immediate) {
      writeImmDt(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IMM_DT_BYTES;
    } else if (last && row.invalidate) {
      writeIeth(header, o, words[w + SendWqe.IMMEDIATE]);
      o += IETH_BYTES;
    }
    const opcode = first ? (last ? row.only : row.first) : last ? row.last : row.middle;
    const pad = -size & 3;
    const solicited = last && (flags & SendFlags.SOLICITED) !== 0 && row.consumesReceive;
    const bits = attributes.migReq | (pad << BTH_PAD_SHIFT) | (solicited ? BthFlags.SOLICITED : 0);
    const psn = ackReq ? BTH_ACK_REQ | cursor.psn : cursor.psn;
    writeBth(header, base, owner.transport | opcode, bits, DEFAULT_PKEY, destQpn, psn);
    finishSlot(owner, batch, o - base, fragments, size, pad, cursor.entry);
    if (ah) addressSlot(owner, batch, ah);
    return WcStatus.SUCCESS;
  }

  /**
   * Adds up to `count` packets from the middle of the message that the cursor is in, and moves it past them. Fewer where the
   * batch is full, or memory went away.
   * @returns how many
   */
  addMiddles(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow, count: number): number {
    const owner = this.#owner;
    const queue = this.#queue;
    const { pathMtu, destQpn, migReq } = owner.attributes;
    const w = queue.wordOf(cursor.entry);
    const inline = ((queue.words[w + SendWqe.OPCODE_FLAGS] >>> 8) & SendFlags.INLINE) !== 0;
    const opcode = owner.transport | row.middle;
    let added = 0;
    while (added < count && !batch.full) {
      const fragments = batch.fragmentCount;
      let alike = 0;
      if (batch.runs && !inline) {
        const most = Math.min(count - added, batch.room);
        alike = cursor.gatherEach(this.#context, owner, queue, batch, pathMtu, most);
      }
      if (alike > 0) {
        // All have their fragments.
      } else if (inline) {
        if ((cursor.packet + 1) * pathMtu > owner.cap.maxInlineData) break;
        addFragment(batch, owner.sqRegion, (w + SendWqe.SGE) * 4 + cursor.packet * pathMtu, pathMtu);
      } else if (!cursor.gather(this.#context, owner, queue, batch, pathMtu)) {
        batch.fragmentCount = fragments;
        break;
      }
      const base = batch.count * TX_HEADER_STRIDE;
      writeBth(batch.headers, base, opcode, migReq, DEFAULT_PKEY, destQpn, cursor.psn);
      finishSlot(owner, batch, BTH_BYTES, fragments, pathMtu, 0, cursor.entry);
      if (alike > 1) growRun(batch, alike - 1, owner.counters);
      const packets = Math.max(1, alike);
      cursor.step(packets);
      added += packets;
    }
    return added;
  }

  /** Adds a READ request for the next `responses` responses of the entry. @returns `WcStatus`: why it can't be sent */
  addRead(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow, responses: number): number {
    const { destQpn, pathMtu, migReq } = this.#owner.attributes;
    const { words } = this.#queue;
    const w = this.#queue.wordOf(cursor.entry);
    const total = words[w + SendWqe.LENGTH];
    if (!this.#isOfItsPackets(cursor, total)) return WcStatus.LOC_LEN_ERR;
    const start = cursor.packet * pathMtu;
    const length = Math.min(responses * pathMtu, total - start);
    // As int32, which is never boxed.
    const low = (words[w + SendWqe.REMOTE_ADDRESS_LOW] + start) | 0;
    const carry = low >>> 0 < start ? 1 : 0;
    const high = (words[w + SendWqe.REMOTE_ADDRESS_HIGH] + carry) | 0;
    const base = batch.count * TX_HEADER_STRIDE;
    writeReth(batch.headers, base + BTH_BYTES, high, low, words[w + SendWqe.RKEY] | 0, length);
    const psn = BTH_ACK_REQ | cursor.psn;
    writeBth(batch.headers, base, row.only, migReq, DEFAULT_PKEY, destQpn, psn);
    finishSlot(this.#owner, batch, BTH_BYTES + RETH_BYTES, batch.fragmentCount, 0, 0, cursor.entry);
    return WcStatus.SUCCESS;
  }

  /** Adds the request of an atomic. */
  addAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): void {
    const { destQpn, migReq } = this.#owner.attributes;
    const { words } = this.#queue;
    const w = this.#queue.wordOf(cursor.entry);
    const base = batch.count * TX_HEADER_STRIDE;
    const swap = row.operands === 2;
    // FETCH_ADD carries its operand where CMP_SWAP carries the new value (§9.4.5.1).
    writeAtomicEth(
      batch.headers,
      base + BTH_BYTES,
      words[w + SendWqe.REMOTE_ADDRESS_HIGH],
      words[w + SendWqe.REMOTE_ADDRESS_LOW],
      words[w + SendWqe.RKEY],
      words[w + (swap ? SendWqe.SWAP_HIGH : SendWqe.COMPARE_ADD_HIGH)],
      words[w + (swap ? SendWqe.SWAP_LOW : SendWqe.COMPARE_ADD_LOW)],
      swap ? words[w + SendWqe.COMPARE_ADD_HIGH] : 0,
      swap ? words[w + SendWqe.COMPARE_ADD_LOW] : 0,
    );
    const psn = BTH_ACK_REQ | cursor.psn;
    writeBth(batch.headers, base, row.only, migReq, DEFAULT_PKEY, destQpn, psn);
    finishSlot(this.#owner, batch, BTH_BYTES + ATOMIC_ETH_BYTES, batch.fragmentCount, 0, 0, cursor.entry);
  }

  /** Adds the request of a FLUSH or an ATOMIC_WRITE. @returns `WcStatus`: why it can't be sent */
  addPlacement(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    const owner = this.#owner;
    const queue = this.#queue;
    const { words } = queue;
    const w = queue.wordOf(cursor.entry);
    const isFlush = row.opcode === WrOpcode.FLUSH;
    // As it was checked; the entry may have another length by now.
    const size = row.length;
    const fragments = batch.fragmentCount;
    if (((words[w + SendWqe.OPCODE_FLAGS] >>> 8) & SendFlags.INLINE) !== 0) {
      if (size > owner.cap.maxInlineData) return WcStatus.LOC_QP_OP_ERR;
      addFragment(batch, owner.sqRegion, (w + SendWqe.SGE) * 4, size);
    } else if (!cursor.gather(this.#context, owner, queue, batch, size)) {
      batch.fragmentCount = fragments;
      return WcStatus.LOC_PROT_ERR;
    }
    const header = batch.headers;
    const base = batch.count * TX_HEADER_STRIDE;
    let o = base + BTH_BYTES;
    if (isFlush) {
      writeFeth(header, o, words[w + SendWqe.FLUSH_TYPE] & 0xf, words[w + SendWqe.FLUSH_LEVEL] & 3);
      o += FETH_BYTES;
    }
    const high = words[w + SendWqe.REMOTE_ADDRESS_HIGH] | 0;
    const low = words[w + SendWqe.REMOTE_ADDRESS_LOW] | 0;
    const length = isFlush ? words[w + SendWqe.FLUSH_LENGTH] : size;
    writeReth(header, o, high, low, words[w + SendWqe.RKEY] | 0, length);
    o += RETH_BYTES;
    const { destQpn, migReq } = owner.attributes;
    const psn = BTH_ACK_REQ | cursor.psn;
    writeBth(header, base, row.only, migReq, DEFAULT_PKEY, destQpn, psn);
    finishSlot(owner, batch, o - base, fragments, size, 0, cursor.entry);
    return WcStatus.SUCCESS;
  }

  /** Adds a packet of a message, an atomic or a placement once more: it asks for an ACK. @returns `WcStatus`: why it can't be sent */
  addAgain(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow, last: boolean): number {
    if (row.wire === Wire.PLACEMENT) return this.addPlacement(batch, cursor, row);
    if (row.wire !== Wire.ATOMIC) return this.addMessage(batch, cursor, row, last, true);
    this.addAtomic(batch, cursor, row);
    return WcStatus.SUCCESS;
  }

  /** Asks for an ACK with the packet that was added last. */
  requestAck(batch: TxBatch): void {
    splitLast(batch);
    batch.headers[(batch.count - 1) * TX_HEADER_STRIDE + ACK_REQ_BYTE] |= 0x80;
  }
}

/** Addresses a datagram by its address handle. */
function addressSlot(owner: Owner, batch: TxBatch, ah: AddressHandle): void {
  const w = (batch.count - 1) * TX_SLOT_WORDS;
  batch.slots[w + Tx.PEER] = ah.peer;
  batch.slots[w + Tx.TRAFFIC_CLASS] = ah.trafficClass;
  batch.slots[w + Tx.SOURCE_PORT] = ah.sourcePort(owner.qpn);
}

/** Bytes from the BTH through the pad of the packet that was added last, or of one before it. */
export function lastPacketBytes({ slots, count }: TxBatch, before = 0): number {
  const w = (count - 1 - before) * TX_SLOT_WORDS;
  return slots[w + Tx.HEADER_LENGTH] + slots[w + Tx.PAYLOAD_LENGTH] + slots[w + Tx.PAD];
}
