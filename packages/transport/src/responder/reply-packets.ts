/** Turns the replies of a responder into packets: ACK, NAK, READ responses, atomic results. */
import {
  AETH_BYTES,
  AethKind,
  ATOMIC_ACK_ETH_BYTES,
  aethKind,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  CREDIT_UNLIMITED,
  creditCodeFor,
  Opcode,
  psnAdd,
  writeAeth,
  writeAtomicAck,
  writeBth,
} from '@node-roce/wire';
import { TX_HEADER_STRIDE, type TxBatch } from '../batch.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import { addFragment } from '../sge.ts';
import { DEFAULT_PKEY, finishSlot } from '../slots.ts';
import { ReplyKind, type ReplyQueue } from './replies.ts';

/** Writes the replies at the head of a queue; keeps nothing of its own. */
export class ReplyPackets {
  readonly #owner: Owner;
  readonly #replies: ReplyQueue;
  readonly #receives: ReceiveQueue;

  constructor(owner: Owner, replies: ReplyQueue, receives: ReceiveQueue) {
    this.#owner = owner;
    this.#replies = replies;
    this.#receives = receives;
  }

  /**
   * Adds the replies at the head to the batch; stops before a READ whose memory is gone, and before any READ
   * without `reads`.
   */
  transmit(batch: TxBatch, budget: number, reads: boolean): number {
    const replies = this.#replies;
    let sent = 0;
    while (sent < budget && !batch.full && replies.count > 0) {
      if (replies.kind === ReplyKind.READ) {
        if (!reads || this.readGone) break;
        this.#writeResponse(batch);
      } else this.#writeAcknowledge(batch);
      sent++;
    }
    return sent;
  }

  /** The reply at the head is a READ whose region was deregistered, invalidated or detached meanwhile. */
  get readGone(): boolean {
    const { count, kind, region, offset, length } = this.#replies;
    if (count === 0 || kind !== ReplyKind.READ || region === undefined) return false;
    return !region.valid || region.view.byteLength < offset + length;
  }

  /** ACK, NAK or atomic result. */
  #writeAcknowledge(batch: TxBatch): void {
    const replies = this.#replies;
    const { kind, psn, msn } = replies;
    const base = batch.count * TX_HEADER_STRIDE;
    const { transport } = this.#owner;
    const { destQpn, migReq } = this.#owner.attributes;
    const opcode = kind === ReplyKind.ATOMIC ? Opcode.RC_ATOMIC_ACKNOWLEDGE : Opcode.RC_ACKNOWLEDGE;
    const syndrome = kind === ReplyKind.NAK ? replies.syndrome : this.#ackSyndrome;
    if (aethKind(syndrome) === AethKind.RNR_NAK) this.#owner.counters.sentRnrErr++;
    let length = BTH_BYTES + AETH_BYTES;
    writeBth(batch.headers, base, transport | opcode, migReq, DEFAULT_PKEY, destQpn, psn);
    writeAeth(batch.headers, base + BTH_BYTES, syndrome, msn);
    if (kind === ReplyKind.ATOMIC) {
      writeAtomicAck(batch.headers, base + length, replies.valueHigh, replies.valueLow);
      length += ATOMIC_ACK_ETH_BYTES;
    }
    finishSlot(this.#owner, batch, length, batch.fragmentCount, 0, 0);
    replies.shift();
  }

  /** The next response of the READ at the head: FIRST, MIDDLE or LAST by its place, or ONLY (§9.4.4). */
  #writeResponse(batch: TxBatch): void {
    const replies = this.#replies;
    const { pathMtu, destQpn, migReq } = this.#owner.attributes;
    const { sent, packets, region } = replies;
    const first = sent === 0;
    const last = sent === packets - 1;
    const start = sent * pathMtu;
    const size = last ? replies.length - start : pathMtu;
    const pad = -size & 3;
    const base = batch.count * TX_HEADER_STRIDE;
    const opcode = first
      ? last
        ? Opcode.RC_RDMA_READ_RESPONSE_ONLY
        : Opcode.RC_RDMA_READ_RESPONSE_FIRST
      : last
        ? Opcode.RC_RDMA_READ_RESPONSE_LAST
        : Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;
    const flags = migReq | (pad << BTH_PAD_SHIFT);
    const byte = this.#owner.transport | opcode;
    writeBth(batch.headers, base, byte, flags, DEFAULT_PKEY, destQpn, psnAdd(replies.psn, sent));
    let length = BTH_BYTES;
    if (first || last) {
      writeAeth(batch.headers, base + length, this.#ackSyndrome, replies.msn);
      length += AETH_BYTES;
    }
    const fragment = batch.fragmentCount;
    if (region && size > 0) addFragment(batch, region.region, replies.offset + start, size);
    finishSlot(this.#owner, batch, length, fragment, size, pad);
    replies.responded();
  }

  /** AETH syndrome of an ACK: the posted receives as a credit code; none with an SRQ (§9.7.7.2.4). */
  get #ackSyndrome(): number {
    if (!this.#owner.credits || this.#receives.shared) return CREDIT_UNLIMITED;
    return creditCodeFor(this.#receives.posted);
  }
}
