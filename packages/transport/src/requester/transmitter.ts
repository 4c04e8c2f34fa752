/** Adds request packets to batches, as far as window, PSNs, pace, READ budget and failures allow. */
import { psnAdd } from '@node-roce/wire';
import type { TxBatch } from '../batch.ts';
import { QpStateCode, WcStatus } from '../constants.ts';
import { Wire, type WrOpcodeRow } from '../wr-opcodes.ts';
import type { Credits } from './credits.ts';
import type { SendCursor } from './cursor.ts';
import { type Flight, PSN_SPAN } from './flight.ts';
import { lastPacketBytes, type RequestPackets } from './packets.ts';
import type { RequesterParts } from './parts.ts';
import type { Recovery } from './recovery/recovery.ts';
import { Starter } from './starter.ts';
import { Timer } from './timers.ts';
import { WholeMessages } from './whole-messages.ts';

/** How long a READ waits for room in the receive buffer while none becomes free, µs. */
export const READ_BUDGET_WAIT = 10_000;

/** Packets after which an ACK is asked for, at most: half of a batch, so that room comes back while the rest is under way. */
const ACK_INTERVAL = 64;

/**
 * In a window of so many packets, an ACK is asked for more often: so that a lost one costs less. More often still where a gap costs all that
 * is in flight: that is no more than the path holds then, and ACKs make room in it.
 */
const SMALL_WINDOW = 64;
const SMALL_ACK_INTERVAL = 4;
const SMALL_ACK_INTERVAL_WHOLE = 2;

/** Keeps nothing of its own. */
export class Transmitter {
  readonly #parts: RequesterParts;
  readonly #recovery: Recovery;
  readonly #flight: Flight;
  readonly #packets: RequestPackets;
  readonly #starter: Starter;
  /** Where the queue pair adds nothing of its own to its packets. */
  readonly #wholes: WholeMessages | undefined;

  constructor(parts: RequesterParts, recovery: Recovery, packets: RequestPackets, credits: Credits) {
    this.#parts = parts;
    this.#recovery = recovery;
    this.#flight = parts.flight;
    this.#packets = packets;
    this.#starter = new Starter(parts, credits, { reads: parts.reads, pacing: parts.pacing, recovery });
    this.#wholes = parts.owner.type === 'RC' ? new WholeMessages(parts, credits) : undefined;
  }

  /** SQD: what was started and not sent is not started after all. */
  takeBack(): void {
    if (!this.#starter.takeBack()) return;
    const { reads, timers } = this.#parts;
    reads.stopWaiting();
    timers.stop(Timer.READ_BUDGET);
  }

  /** Adds up to `budget` packets to the batch; returns how many. The state is one that sends, and no RNR wait runs. */
  transmit(batch: TxBatch, budget: number): number {
    const { owner, pacing, timers } = this.#parts;
    const recovery = this.#recovery;
    const starter = this.#starter;
    const window = this.#window();
    const flight = this.#flight;
    const { cursor, queue } = flight;
    queue.awake();
    let sent = recovery.idle ? 0 : recovery.transmit(batch, budget);
    // They don't wait, but what follows does.
    if (sent > 0 && pacing.mayLimit && pacing.limited) {
      for (let i = 0; i < sent; i++) pacing.charge(lastPacketBytes(batch, i), owner.attributes.ipBytes);
    }
    starter.beginTurn();
    while (sent < budget && !batch.full) {
      const wholes = this.#transmitWholes(batch, budget - sent);
      sent += wholes;
      if (wholes > 0) continue;
      if (!starter.prepare()) break;
      // It was local, and is done.
      if (cursor.entry === queue.started) continue;
      if (!recovery.idle && this.#skipAnswered()) continue;
      const { out } = flight;
      if (this.#inFlight(out) >= window || out >= PSN_SPAN) break;
      if (pacing.mayLimit && pacing.limited && pacing.holdBack()) break;
      const middles = this.#transmitMiddles(batch, out, budget - sent);
      if (middles === 0 && !this.#transmitOne(batch, out)) break;
      sent += Math.max(1, middles);
    }
    if (sent === 0) return 0;
    // The last packet of a turn asks for an ACK: the timer does not wait for the next turn, nor does the peer.
    if (flight.sinceAckReq > 0 && !timers.isRunning(Timer.PACE)) {
      this.#packets.requestAck(batch);
      flight.ackRequested();
    }
    return sent;
  }

  /** Of the PSNs that are out, those of packets: responses of READs are counted by themselves, and some are here. */
  #inFlight(out: number): number {
    const { reads } = this.#parts;
    const asked = reads.idle ? 0 : reads.responses;
    return out - asked - (this.#recovery.idle ? 0 : reads.early.count);
  }

  /** Packets that may be out: while a gap is open, also those that the peer keeps. */
  #window(): number {
    const { pacing } = this.#parts;
    const recovery = this.#recovery;
    const { window } = pacing.congestion;
    return recovery.idle ? window : recovery.windowOf(window);
  }

  /** Adds messages of one packet that were never started, as many as may leave now, `most` at most. @returns how many */
  #transmitWholes(batch: TxBatch, most: number): number {
    const { owner, failed, pacing } = this.#parts;
    const recovery = this.#recovery;
    const flight = this.#flight;
    const { cursor, out, queue } = flight;
    if (this.#wholes === undefined || cursor.entry !== queue.started) return 0;
    if (pacing.mayLimit && pacing.limited) return 0;
    if (failed.waiting || owner.state !== QpStateCode.RTS) return 0;
    const { psn } = cursor;
    const count = Math.min(most, this.#window() - this.#inFlight(out), PSN_SPAN - out);
    const added = this.#wholes.add(batch, count);
    if (added === 0) return 0;
    // Each of them asks for an ACK, as the last packet of any message does.
    flight.ackRequested();
    recovery.roundTrip.begin(psn);
    return added;
  }

  /** Moves the cursor past packets that are answered already and need not be retransmitted. @returns whether it moved */
  #skipAnswered(): boolean {
    const { owner, reads } = this.#parts;
    const { early } = reads;
    if (early.count === 0) return false;
    const { cursor, queue } = this.#flight;
    const row = queue.startedRow(cursor.entry);
    if (row === undefined) return false;
    const packets = queue.packetsOf(cursor.entry);
    const asks = row.readOrAtomic;
    const most = asks
      ? reads.next(cursor.psn, cursor.packet, packets, queue.asksLarge(cursor.entry))
      : packets - cursor.packet;
    const answered = early.answeredAt(cursor.psn, most, asks);
    if (answered === 0) return false;
    if (asks && answered === most) {
      // The peer remembers it among the last ones, as those that are retransmitted.
      if (!reads.mayRequest(owner.attributes.maxRdAtomic)) return false;
      reads.add(cursor.psn, psnAdd(cursor.psn, answered - 1));
    }
    cursor.advance(queue, answered);
    return true;
  }

  /**
   * Adds the packets of the middle of a message that may be sent at once: packets that were never sent, ask for no ACK, and differ
   * only in PSN and payload. Returns how many, `most` at most.
   */
  #transmitMiddles(batch: TxBatch, out: number, most: number): number {
    const { pacing } = this.#parts;
    const flight = this.#flight;
    const { cursor, queue } = flight;
    if (cursor.packet === 0 || cursor.psn !== flight.sendPsn) return 0;
    if (pacing.mayLimit && pacing.limited) return 0;
    const left = queue.packetsOf(cursor.entry) - 1 - cursor.packet;
    const open = this.#window() - 1 - this.#inFlight(out);
    const count = Math.min(most, left, open, PSN_SPAN - out, this.#ackInterval() - 1 - flight.sinceAckReq);
    if (count <= 0) return 0;
    const row = queue.startedRow(cursor.entry);
    if (row === undefined || row.readOrAtomic) return 0;
    const added = this.#packets.addMiddles(batch, cursor, row, count);
    flight.advanced();
    flight.withoutAckReq(added);
    return added;
  }

  /** Adds the packet under the cursor and moves on. False if it can't leave now. */
  #transmitOne(batch: TxBatch, out: number): boolean {
    const { context, owner, pacing } = this.#parts;
    const flight = this.#flight;
    const { cursor, queue } = flight;
    const { psn } = cursor;
    const psns = this.#add(batch, cursor, out);
    if (psns === 0) return false;
    cursor.advance(queue, psns);
    if (!flight.advanced()) context.retransmitted(owner, psn, flight.cause);
    if (pacing.mayLimit && pacing.limited) pacing.charge(lastPacketBytes(batch), owner.attributes.ipBytes);
    return true;
  }

  /** Adds the packet at a cursor; returns the PSNs it takes, 0 if it can't leave now. */
  #add(batch: TxBatch, cursor: SendCursor, out: number): number {
    const flight = this.#flight;
    const { queue } = flight;
    const row = queue.startedRow(cursor.entry);
    if (row === undefined) return this.#fail(cursor, WcStatus.LOC_QP_OP_ERR);
    if (row.readOrAtomic) return this.#addReadOrAtomic(batch, cursor, row);
    const last = cursor.packet === queue.packetsOf(cursor.entry) - 1;
    flight.withoutAckReq(1);
    const ackReq =
      last || this.#inFlight(out) + 1 >= this.#window() || flight.sinceAckReq >= this.#ackInterval();
    const { psn } = cursor;
    const status = this.#packets.addMessage(batch, cursor, row, last, ackReq);
    if (status !== WcStatus.SUCCESS) return this.#fail(cursor, status);
    if (ackReq) {
      flight.ackRequested();
      this.#time(psn);
    }
    return 1;
  }

  /** The packet at `psn` leaves, which asks for an answer. */
  #time(psn: number): void {
    const { roundTrip } = this.#recovery;
    if (psn === this.#flight.sendPsn || roundTrip.timesAgain) roundTrip.begin(psn);
  }

  /** The entry at a cursor can't be sent. @returns 0: nothing was added */
  #fail({ entry }: SendCursor, status: number): number {
    const { failed } = this.#parts;
    failed.set(entry, status);
    failed.completeIfOldest();
    return 0;
  }

  /** Packets after which an ACK is asked for: a share of the window, or of what the rate lets out in a while. */
  #ackInterval(): number {
    const { owner, pacing } = this.#parts;
    const recovery = this.#recovery;
    const { window } = pacing.congestion;
    const small = !recovery.idle && recovery.goesBack ? SMALL_ACK_INTERVAL_WHOLE : SMALL_ACK_INTERVAL;
    const most = window <= SMALL_WINDOW ? small : Math.min(ACK_INTERVAL, window >> 2);
    return pacing.mayLimit && pacing.limited ? pacing.ackInterval(owner.attributes.pathMtu, most) : most;
  }

  #addReadOrAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    const { owner, reads, pacing, timers } = this.#parts;
    const recovery = this.#recovery;
    const flight = this.#flight;
    const { queue } = flight;
    const { early } = reads;
    if (!reads.mayRequest(owner.attributes.maxRdAtomic)) return 0;
    const { psn } = cursor;
    flight.ackRequested();
    if (row.wire === Wire.ATOMIC || row.wire === Wire.PLACEMENT) {
      const status = this.#addAtomic(batch, cursor, row);
      if (status !== WcStatus.SUCCESS) return this.#fail(cursor, status);
      reads.add(psn, psn);
      this.#time(psn);
      return 1;
    }
    const isLarge = queue.asksLarge(cursor.entry);
    const most = reads.next(psn, cursor.packet, queue.packetsOf(cursor.entry), isLarge);
    const isBefore = !recovery.idle && early.isBefore(psn);
    const missing = isBefore ? early.countMissing(psn, most) : most;
    if (!reads.awaitRoom(missing, pacing.congestion.window)) {
      if (reads.isWaiting) timers.armUnlessRunning(Timer.READ_BUDGET, READ_BUDGET_WAIT);
      return 0;
    }
    const responses = isBefore ? early.span(psn, most, most) : most;
    const status = this.#packets.addRead(batch, cursor, row, responses);
    timers.stop(Timer.READ_BUDGET);
    if (status !== WcStatus.SUCCESS) {
      reads.stopWaiting();
      return this.#fail(cursor, status);
    }
    reads.ask(psn, psnAdd(psn, most - 1), missing);
    if (isBefore) reads.repeated(psn, psnAdd(psn, responses));
    this.#time(psn);
    return most;
  }

  /** Adds a request of one packet that has an answer of its own. @returns `WcStatus`: why it can't be sent */
  #addAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    if (row.wire === Wire.PLACEMENT) return this.#packets.addPlacement(batch, cursor, row);
    this.#packets.addAtomic(batch, cursor, row);
    return WcStatus.SUCCESS;
  }
}
