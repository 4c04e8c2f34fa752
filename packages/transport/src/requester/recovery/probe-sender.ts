/** Sends tail loss probes: which packet, and how much of a READ. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import type { TxBatch } from '../../batch.ts';
import { WcStatus } from '../../constants.ts';
import { Wire, type WrOpcodeRow } from '../../wr-opcodes.ts';
import type { Credits } from '../credits.ts';
import { SendCursor } from '../cursor.ts';
import type { RequestPackets } from '../packets.ts';
import type { RequesterParts } from '../parts.ts';
import { ANY_ACK, type RoundTrip } from '../round-trip.ts';
import type { LossBursts } from './loss-bursts.ts';
import type { Probe } from './probe.ts';

/** Keeps nothing of its own but the place of the packet. */
export class ProbeSender {
  readonly #parts: RequesterParts;
  readonly #packets: RequestPackets;
  readonly #credits: Credits;
  readonly #probe: Probe;
  readonly #roundTrip: RoundTrip;
  readonly #losses: LossBursts;
  /** Where its packet is taken from: the requester's cursor stays where it is. */
  readonly #cursor = new SendCursor();

  constructor(
    parts: RequesterParts,
    packets: RequestPackets,
    credits: Credits,
    probe: Probe,
    roundTrip: RoundTrip,
    losses: LossBursts,
  ) {
    this.#parts = parts;
    this.#packets = packets;
    this.#credits = credits;
    this.#probe = probe;
    this.#roundTrip = roundTrip;
    this.#losses = losses;
  }

  /**
   * Sends the last packet once more, for an answer: a peer that lacks one before it answers with a NAK. Of a READ one response, which comes
   * behind all that are on their way. Where losses were seen, that NAK may have been lost already: the oldest packet goes first, with all that
   * is missing of a READ (two packets, as RFC 9002 §6.2.4 allows).
   *
   * @param refusedPsn the PSN that an RNR NAK refused, after which the peer is silent; −1: none
   * @returns packets that were added
   */
  transmit(batch: TxBatch, refusedPsn: number): number {
    const { context, owner, flight, reads } = this.#parts;
    const { queue, unackedPsn, out } = flight;
    const probe = this.#probe;
    const roundTrip = this.#roundTrip;
    if (batch.full) return 0;
    probe.take();
    if (out <= 0) return 0;
    const cursor = this.#cursor;
    const { pathMtu } = owner.attributes;
    const { areSeen } = this.#losses;
    const last = psnAdd(flight.cursor.psn, -1);
    cursor.find(queue, last, pathMtu);
    const endsInRead = queue.wireOf(cursor.entry) === Wire.READ;
    const isRefused = unackedPsn === refusedPsn;
    const isOldest = areSeen || isRefused;
    let psn = isOldest ? unackedPsn : last;
    if (!isOldest && endsInRead) {
      const { newestFirst } = reads.list;
      psn = psnDiff(newestFirst, unackedPsn) > 0 ? newestFirst : unackedPsn;
    }
    const isPart = endsInRead && !isOldest;
    const psns = this.#sendAgain(batch, psn, isPart);
    if (psns === 0) return 0;
    const now = context.clock[0];
    const isRead = queue.isReadOrAtomic(cursor.entry);
    // On a connection that lost nothing, an answer that is late is to the first sending.
    if (areSeen) roundTrip.doubt(isRead ? psn : ANY_ACK);
    const end = psnAdd(psn, psns);
    // The packets behind the refused one may be probed by themselves.
    const flightEnd = isRefused ? end : psnAdd(last, 1);
    probe.sent(now, end, flightEnd, isPart && reads.list.newestLast !== psn ? psn : -1);
    if (!areSeen || endsInRead || last === psn || batch.full) return 1;
    // An answer may be to either.
    if (roundTrip.least > 0) roundTrip.cancel();
    return this.#sendAgain(batch, last, false) === 0 ? 1 : 2;
  }

  /** Adds the packet at `psn` once more, of a READ one response or the rest of its request. @returns the PSNs of its answer; 0: it can't be sent */
  #sendAgain(batch: TxBatch, psn: number, isPart: boolean): number {
    const { context, owner, flight } = this.#parts;
    const cursor = this.#cursor;
    cursor.find(flight.queue, psn, owner.attributes.pathMtu);
    const row = flight.queue.startedRow(cursor.entry);
    const psns = row === undefined ? 0 : this.#addAgain(batch, row, isPart);
    if (psns > 0) context.retransmitted(owner, psn, 'probe');
    return psns;
  }

  /** As `#sendAgain`, with the cursor at the packet. It asks for an ACK. */
  #addAgain(batch: TxBatch, row: WrOpcodeRow, isPart: boolean): number {
    const { flight, reads } = this.#parts;
    const { queue } = flight;
    const cursor = this.#cursor;
    const { psn, entry, packet } = cursor;
    if (row.wire === Wire.READ) {
      const left = reads.next(psn, packet, queue.packetsOf(entry), queue.asksLarge(entry));
      const responses = isPart ? 1 : reads.early.span(psn, left);
      const status = this.#packets.addRead(batch, cursor, row, responses);
      if (status !== WcStatus.SUCCESS) return this.#fail(status);
      if (isPart && psn === reads.list.newestFirst) {
        reads.asksAlone(psn);
        this.#credits.askedForPart();
      } else reads.repeated(psn, psnAdd(psn, responses));
      return responses;
    }
    const last = packet === queue.packetsOf(entry) - 1;
    const status = this.#packets.addAgain(batch, cursor, row, last);
    return status === WcStatus.SUCCESS ? 1 : this.#fail(status);
  }

  /** The entry under the cursor can't be sent. @returns 0: nothing was added */
  #fail(status: number): number {
    const { failed } = this.#parts;
    failed.set(this.#cursor.entry, status);
    failed.completeIfOldest();
    return 0;
  }
}
