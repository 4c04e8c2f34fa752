/** Sends a range of packets again, while the cursor of the requester stays where it is. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { TxBatch } from '../../batch.ts';
import { type RetransmitCause, WcStatus } from '../../constants.ts';
import type { Context } from '../../context.ts';
import type { Owner } from '../../qp/owner.ts';
import type { SendQueue } from '../../qp/send-queue.ts';
import { Wire } from '../../wr-opcodes.ts';
import { SendCursor } from '../cursor.ts';
import type { FailedEntry } from '../failed-entry.ts';
import type { RequestPackets } from '../packets.ts';
import type { RequesterParts } from '../parts.ts';
import type { OutstandingReads } from '../reads.ts';

/**
 * Owns the range, and the cursor in it. Answered packets are left out: a READ asks for the missing responses only, each
 * request inside of one that was sent before; and a response acknowledges the SENDs and WRITEs before it.
 *
 * Promise: the range lies in what was sent and is not acknowledged.
 */
export class Repair {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  readonly #packets: RequestPackets;
  readonly #failed: FailedEntry;
  readonly #reads: OutstandingReads;
  readonly #cursor = new SendCursor();
  #active = false;
  #end = 0;
  #cause: RetransmitCause = 'timeout';
  #isTwin = false;
  /** It follows once more; −1: none does. */
  #first = -1;

  constructor(parts: RequesterParts, packets: RequestPackets) {
    const { context, owner, flight, failed, reads } = parts;
    this.#context = context;
    this.#owner = owner;
    this.#queue = flight.queue;
    this.#packets = packets;
    this.#failed = failed;
    this.#reads = reads;
  }

  /** Whether something of the range is left to be sent. */
  get active(): boolean {
    return this.#active;
  }

  /** Sends [from, end) again; with a range that is not done, all from the first to the last. */
  begin(from: number, end: number, cause: RetransmitCause): void {
    const isBefore = this.#active && psnDiff(this.#cursor.psn, from) <= 0;
    if (!isBefore) this.#cursor.find(this.#queue, from, this.#owner.attributes.pathMtu);
    if (!this.#active || psnDiff(end, this.#end) > 0) this.#end = end;
    this.#cause = cause;
    this.#active = true;
    this.#isTwin = false;
    this.#first = -1;
    this.#owner.wantsTurn();
  }

  /** Sends [from, end) again, and the first of them once more behind the others: it is what the peer waits for. */
  beginFirstTwice(from: number, end: number, cause: RetransmitCause): void {
    this.begin(from, end, cause);
    this.#first = from;
  }

  /**
   * Sends the packet at `psn` again, which follows a second time from the requester's cursor. Of the two, one asks for an ACK: so they
   * differ, and no capture takes the second for a copy that the network made.
   */
  beginTwin(psn: number, cause: RetransmitCause): void {
    this.begin(psn, psnAdd(psn, 1), cause);
    this.#isTwin = true;
  }

  /** Nothing is left to be sent. */
  stop(): void {
    this.#active = false;
  }

  /** Everything before `psn` is acknowledged. */
  acknowledged(psn: number): void {
    if (this.#first >= 0 && psnDiff(psn, this.#first) > 0) this.#first = -1;
    if (!this.#active || psnDiff(psn, this.#cursor.psn) <= 0) return;
    if (psnDiff(psn, this.#end) >= 0) this.#active = false;
    else this.#cursor.find(this.#queue, psn, this.#owner.attributes.pathMtu);
  }

  /** Adds up to `budget` packets of the range. @returns how many */
  transmit(batch: TxBatch, budget: number): number {
    let sent = 0;
    while (this.#active && sent < budget && !batch.full) {
      const { psn } = this.#cursor;
      const left = psnDiff(this.#end, psn);
      if (left <= 0 && this.#first >= 0) {
        this.#cursor.find(this.#queue, this.#first, this.#owner.attributes.pathMtu);
        this.#end = psnAdd(this.#first, 1);
        this.#first = -1;
        continue;
      }
      const psns = left > 0 ? this.#step(batch, left) : 0;
      if (psns === 0) this.#active = false;
      else if (psns > 0) {
        this.#cursor.advance(this.#queue, psns);
        this.#context.retransmitted(this.#owner, psn, this.#cause);
        sent++;
      } else this.#cursor.advance(this.#queue, -psns);
    }
    return sent;
  }

  /** Adds the packet under the cursor. @returns its PSNs; negative: so many that are left out; 0: it can't be sent */
  #step(batch: TxBatch, left: number): number {
    const cursor = this.#cursor;
    const { entry, packet, psn } = cursor;
    const queue = this.#queue;
    const row = queue.startedRow(entry);
    if (row === undefined) return 0;
    const packets = queue.packetsOf(entry);
    const answered = this.#reads.early.answeredAt(psn, packets - packet, row.readOrAtomic);
    if (answered > 0) return -answered;
    if (row.wire === Wire.ATOMIC) {
      this.#packets.addAtomic(batch, cursor, row);
      return 1;
    }
    if (row.wire === Wire.READ) {
      // To its end, past the range: a responder that discarded the request serves no more than it is asked for now, and the rest would
      // be a request of its own, which later ones may not reach across.
      const left = this.#reads.next(psn, packet, packets, queue.asksLarge(entry));
      const responses = this.#reads.early.span(psn, left, left);
      const status = this.#packets.addRead(batch, cursor, row, responses);
      if (status !== WcStatus.SUCCESS) return this.#fail(entry, status);
      this.#reads.repeated(psn, psnAdd(psn, responses));
      return left;
    }
    const last = packet === packets - 1;
    const ackReq = this.#isTwin ? !last : last || left === 1;
    const status =
      row.wire === Wire.PLACEMENT
        ? this.#packets.addPlacement(batch, cursor, row)
        : this.#packets.addMessage(batch, cursor, row, last, ackReq);
    return status === WcStatus.SUCCESS ? 1 : this.#fail(entry, status);
  }

  /** An entry can't be sent. @returns 0: nothing was added */
  #fail(entry: number, status: number): number {
    this.#failed.set(entry, status);
    this.#failed.completeIfOldest();
    return 0;
  }

  /** The broken promise, if there is one. */
  check(unackedPsn: number, sendPsn: number): string | undefined {
    if (!this.#active) return undefined;
    const fits = psnDiff(this.#cursor.psn, unackedPsn) >= 0 && psnDiff(this.#end, sendPsn) <= 0;
    return fits
      ? undefined
      : `PSNs ${this.#cursor.psn} to ${this.#end} are retransmitted, of ${unackedPsn} to ${sendPsn} in flight`;
  }
}
