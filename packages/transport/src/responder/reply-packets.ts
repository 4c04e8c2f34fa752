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
import { type RegionTable, TX_HEADER_STRIDE, type TxBatch } from '../batch.ts';
import type { Owner } from '../qp/owner.ts';
import type { ReceiveQueue } from '../qp/receive-queue.ts';
import type { MemoryRegion } from '../region.ts';
import { addFragment, addFragments, DEFAULT_PKEY, finishSlot, growRun } from '../slots.ts';
import { ReplyKind, type ReplyQueue } from './replies.ts';

/** Writes the replies at the head of a queue. Owns whether the memory of the READ there could not be fetched. */
export class ReplyPackets {
  readonly #owner: Owner;
  readonly #replies: ReplyQueue;
  readonly #receives: ReceiveQueue;
  readonly #regions: RegionTable;
  #unreachable = false;

  constructor(owner: Owner, replies: ReplyQueue, receives: ReceiveQueue, regions: RegionTable) {
    this.#owner = owner;
    this.#regions = regions;
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
    this.#unreachable = false;
    while (sent < budget && !batch.full && replies.count > 0) {
      if (replies.kind === ReplyKind.READ) {
        if (!reads || this.readGone || !this.#fetch(batch, budget - sent)) break;
        sent += this.#writeResponses(batch, budget - sent);
      } else {
        this.#writeAcknowledge(batch);
        sent++;
      }
    }
    return sent;
  }

  /** Fetches the bytes of the next responses, `most` at most, where they are not in the region's view. False where that fails. */
  #fetch({ capacity, count }: TxBatch, most: number): boolean {
    const { region, offset, sent, packets, length } = this.#replies;
    if (region?.reach === undefined) return true;
    const { pathMtu } = this.#owner.attributes;
    const from = sent * pathMtu;
    const bytes = Math.min(length - from, Math.min(most, packets - sent, capacity - count) * pathMtu);
    this.#unreachable = !this.#regions.fetched.pull(region.reach, offset + from, bytes);
    return !this.#unreachable;
  }

  /** The reply at the head is a READ whose region was deregistered, invalidated or detached meanwhile, or its memory can't be read. */
  get readGone(): boolean {
    const { count, kind, region, offset, length } = this.#replies;
    if (count === 0 || kind !== ReplyKind.READ || region === undefined) return false;
    return this.#unreachable || !region.valid || region.view.length < offset + length;
  }

  /** ACK, NAK or atomic result. */
  #writeAcknowledge(batch: TxBatch): void {
    const replies = this.#replies;
    const { kind, psn, msn } = replies;
    const base = batch.count * TX_HEADER_STRIDE;
    const { transport } = this.#owner;
    const { destQpn, migReq } = this.#owner.attributes;
    const opcode = kind === ReplyKind.ATOMIC ? Opcode.RC_ATOMIC_ACKNOWLEDGE : Opcode.RC_ACKNOWLEDGE;
    const syndrome = kind === ReplyKind.NAK ? replies.syndrome : this.#ackSyndrome();
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

  /** The next responses of the READ at the head: one FIRST, LAST or ONLY, or MIDDLEs up to `most` (§9.4.4). @returns how many */
  #writeResponses(batch: TxBatch, most: number): number {
    const { sent, packets, region } = this.#replies;
    const middles = packets - 1 - sent;
    // A READ of nothing has no region, and one response.
    if (sent > 0 && middles > 0 && region) return this.#writeMiddles(batch, region, Math.min(middles, most));
    this.#writeResponse(batch);
    return 1;
  }

  /** Adds up to `count` MIDDLEs of the READ at the head. Fewer where the batch is full. @returns how many */
  #writeMiddles(batch: TxBatch, { region, key }: MemoryRegion, count: number): number {
    const owner = this.#owner;
    const replies = this.#replies;
    const { pathMtu, destQpn, migReq } = owner.attributes;
    const opcode = owner.transport | Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;
    let offset = replies.offset + replies.sent * pathMtu;
    let psn = psnAdd(replies.psn, replies.sent);
    let added = 0;
    while (added < count && !batch.full) {
      const fragment = batch.fragmentCount;
      const packets = batch.runs ? Math.min(count - added, batch.room) : 1;
      addFragments(batch, region, offset, pathMtu, packets);
      writeBth(batch.headers, batch.count * TX_HEADER_STRIDE, opcode, migReq, DEFAULT_PKEY, destQpn, psn);
      finishSlot(owner, batch, BTH_BYTES, fragment, pathMtu, 0, key);
      if (packets > 1) growRun(batch, packets - 1, owner.counters);
      offset += packets * pathMtu;
      psn = psnAdd(psn, packets);
      added += packets;
    }
    replies.responded(added);
    return added;
  }

  /** The next response of the READ at the head, which is its first or its last, or both. */
  #writeResponse(batch: TxBatch): void {
    const replies = this.#replies;
    const { pathMtu, destQpn, migReq } = this.#owner.attributes;
    const { sent, packets, region } = replies;
    const last = sent === packets - 1;
    const start = sent * pathMtu;
    const size = last ? replies.length - start : pathMtu;
    const pad = -size & 3;
    const base = batch.count * TX_HEADER_STRIDE;
    const opcode =
      sent > 0
        ? Opcode.RC_RDMA_READ_RESPONSE_LAST
        : last
          ? Opcode.RC_RDMA_READ_RESPONSE_ONLY
          : Opcode.RC_RDMA_READ_RESPONSE_FIRST;
    const flags = migReq | (pad << BTH_PAD_SHIFT);
    const byte = this.#owner.transport | opcode;
    writeBth(batch.headers, base, byte, flags, DEFAULT_PKEY, destQpn, psnAdd(replies.psn, sent));
    writeAeth(batch.headers, base + BTH_BYTES, this.#ackSyndrome(), replies.msn);
    const fragment = batch.fragmentCount;
    if (region && size > 0) addFragment(batch, region.region, replies.offset + start, size);
    finishSlot(this.#owner, batch, BTH_BYTES + AETH_BYTES, fragment, size, pad, region?.key);
    replies.responded(1);
  }

  /** AETH syndrome of an ACK: the posted receives as a credit code; none with an SRQ (§9.7.7.2.4). */
  #ackSyndrome(): number {
    if (!this.#owner.credits || this.#receives.shared) return CREDIT_UNLIMITED;
    return creditCodeFor(this.#receives.posted);
  }
}
