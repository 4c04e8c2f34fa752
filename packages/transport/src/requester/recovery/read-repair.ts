/** Asks again for READ responses and results of atomics that are missing before early ones. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { TxBatch } from '../../batch.ts';
import { WcStatus } from '../../constants.ts';
import { Wire, type WrOpcodeRow } from '../../wr-opcodes.ts';
import { SendCursor } from '../cursor.ts';
import type { RequestPackets } from '../packets.ts';
import type { RequesterParts } from '../parts.ts';
import type { RoundTrip } from '../round-trip.ts';

/** Owns the flag that responses may be missing; the requests in flight know which (`read-requests.ts`). */
export class ReadRepair {
  readonly #parts: RequesterParts;
  readonly #packets: RequestPackets;
  readonly #roundTrip: RoundTrip;
  readonly #cursor = new SendCursor();

  constructor(parts: RequesterParts, packets: RequestPackets, roundTrip: RoundTrip) {
    this.#parts = parts;
    this.#packets = packets;
    this.#roundTrip = roundTrip;
  }

  /** Adds up to `budget` requests. @returns how many */
  transmit(batch: TxBatch, budget: number): number {
    const { context, owner, flight, reads } = this.#parts;
    const { queue } = flight;
    const { list, early } = reads;
    const cursor = this.#cursor;
    let sent = 0;
    while (sent < budget && !batch.full && list.findGap(early, flight.unackedPsn)) {
      const { gap, gapEnd } = list;
      cursor.find(queue, gap, owner.attributes.pathMtu);
      const row = queue.startedRow(cursor.entry);
      if (row === undefined) break;
      const { entry, packet } = cursor;
      const left = reads.next(gap, packet, queue.packetsOf(entry), queue.asksLarge(entry));
      const responses = Math.min(left, psnDiff(gapEnd, gap));
      if (!this.#add(batch, row, responses)) break;
      const end = psnAdd(gap, responses);
      reads.repeated(gap, end);
      this.#roundTrip.cancelIn(gap, end);
      context.retransmitted(owner, gap, 'implied-nak');
      sent++;
    }
    return sent;
  }

  /** Adds the request under the cursor. @returns whether it could be sent */
  #add(batch: TxBatch, row: WrOpcodeRow, responses: number): boolean {
    const cursor = this.#cursor;
    if (row.wire === Wire.ATOMIC) {
      this.#packets.addAtomic(batch, cursor, row);
      return true;
    }
    const status =
      row.wire === Wire.READ
        ? this.#packets.addRead(batch, cursor, row, responses)
        : this.#packets.addPlacement(batch, cursor, row);
    if (status === WcStatus.SUCCESS) return true;
    const { failed } = this.#parts;
    failed.set(cursor.entry, status);
    failed.completeIfOldest();
    return false;
  }
}
