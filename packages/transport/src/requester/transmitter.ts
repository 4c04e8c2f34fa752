/** Adds request packets to batches, as far as window, PSNs, pace, READ budget and failures allow. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import { TX_SLOT_WORDS, Tx, type TxBatch } from '../batch.ts';
import { QpStateCode, type RetransmitCause, WcStatus } from '../constants.ts';
import { SendWqe } from '../rings.ts';
import { Wire, type WrOpcodeRow } from '../wr-opcodes.ts';
import type { SendCursor } from './cursor.ts';
import { type Flight, PSN_SPAN } from './flight.ts';
import { lastPacketBytes, type RequestPackets } from './packets.ts';
import type { RequesterParts } from './parts.ts';
import { ReadRepair } from './recovery/read-repair.ts';
import { ANY_ACK } from './round-trip.ts';
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

/** While a gap is open, this many times the window may be out: what the peer keeps is not in flight. */
const GAP_OPEN_FACTOR = 2;

/** Owns how many packets have left since an ACK was asked for. */
export class Transmitter {
  readonly #parts: RequesterParts;
  readonly #flight: Flight;
  readonly #packets: RequestPackets;
  /** Made with the first response that is missing. */
  #readRepair: ReadRepair | undefined;
  readonly #starter: Starter;
  /** Where the queue pair has a peer and adds nothing to its packets of its own. */
  readonly #wholes: WholeMessages | undefined;
  /** Packets since the last AckReq. */
  #sinceAckReq = 0;
  /** The PSN that an RNR NAK refused: until it comes again, the peer is silent about what follows (§9.7.5.2.8); −1: none is. */
  #refusedPsn = -1;

  constructor(parts: RequesterParts) {
    this.#parts = parts;
    this.#flight = parts.flight;
    this.#packets = parts.packets;
    this.#starter = new Starter(parts);
    const { type } = parts.owner;
    this.#wholes = type === 'RC' || type === 'UC' ? new WholeMessages(parts) : undefined;
  }

  /** ERR, SQE: nothing more is sent. */
  stop(): void {
    this.#sinceAckReq = 0;
    this.#refusedPsn = -1;
  }

  /** SQD: what was started and not sent is not started after all. */
  takeBack(): void {
    this.#starter.takeBack();
  }

  /** Everything from the oldest unacknowledged PSN is retransmitted. */
  goBack(cause: RetransmitCause): void {
    const { roundTrip, probe, owner, queue, reads, repair, peerKeeps, losses } = this.#parts;
    // A second response to the READ, for this time, shows that its responder is slow, and how slow.
    const isRead = queue.rowOf(queue.head)?.wire === Wire.READ;
    if (cause === 'probe') roundTrip.cancel();
    else if (cause !== 'timeout') roundTrip.nakked();
    else if (isRead && roundTrip.least > 0) roundTrip.doubt(this.#flight.unackedPsn);
    else roundTrip.goneBack();
    probe.forget();
    repair.stop();
    peerKeeps.sentAgain(this.#flight.unackedPsn, this.#flight.sendPsn, false);
    reads.release();
    if (cause === 'timeout') reads.timedOut();
    this.#sinceAckReq = 0;
    const flight = this.#flight;
    flight.goBack(cause, owner.attributes.pathMtu);
    this.#refusedPsn = cause === 'rnr' ? flight.unackedPsn : -1;
    owner.wantsTurn();
    // The packet that a NAK names goes twice where it is easily lost again: without it, all that follows is in vain.
    if (cause !== 'sequence-nak' || !owner.recovery.selective || !losses.isLossy || flight.isOver) return;
    if (queue.rowOf(queue.head)?.readOrAtomic === false) {
      repair.beginTwin(flight.unackedPsn, cause);
    }
  }

  /** The cursor had gone back to packets that are acknowledged by now: it goes on from there. */
  catchUp(): void {
    const { owner, reads } = this.#parts;
    reads.release();
    this.#sinceAckReq = 0;
    this.#flight.seekUnacked(owner.attributes.pathMtu);
  }

  /** The cursor had gone back to packets that are acknowledged by now, and those behind them are on their way as well: it goes to the end. */
  takeUp(): void {
    const { owner, queue, reads, early } = this.#parts;
    this.catchUp();
    const { cursor, sendPsn } = this.#flight;
    while (psnDiff(sendPsn, cursor.psn) > 0) {
      const { psn, entry, packet } = cursor;
      const left = queue.packetsOf(entry) - packet;
      const row = queue.rowOf(entry);
      if (row?.wire === Wire.READ) {
        const responses = reads.next(psn, packet, left + packet);
        reads.ask(psn, psnAdd(psn, responses - 1), early.countMissing(psn, responses));
        cursor.advance(queue, responses);
        continue;
      }
      if (row?.readOrAtomic) reads.list.add(psn, psn);
      if (psnDiff(sendPsn, psn) >= left) cursor.advance(queue, left);
      else cursor.find(queue, sendPsn, owner.attributes.pathMtu);
    }
  }

  /** Adds up to `budget` packets to the batch; returns how many. The state is one that sends, and no RNR wait runs. */
  transmit(batch: TxBatch, budget: number): number {
    const { owner, queue, pacer, timers, probe, early, repair } = this.#parts;
    const window = this.#window;
    const flight = this.#flight;
    const { cursor } = flight;
    const { reliable } = owner;
    let sent = probe.wanted ? this.#transmitProbe(batch) : 0;
    if (repair.active) sent += repair.transmit(batch, budget - sent);
    if (early.count > 0) {
      this.#readRepair ??= new ReadRepair(this.#parts, this.#packets);
      sent += this.#readRepair.transmit(batch, budget - sent);
    }
    // They don't wait, but what follows does.
    if (sent > 0 && pacer.limited) {
      for (let i = 0; i < sent; i++) pacer.charge(lastPacketBytes(batch, i), owner.attributes.ipBytes);
    }
    while (sent < budget && !batch.full) {
      const wholes = this.#transmitWholes(batch, budget - sent);
      sent += wholes;
      if (wholes > 0) continue;
      if (!this.#hasEntry()) break;
      if (cursor.entry === queue.started) continue; // It was local, and is done.
      if (early.count > 0 && this.#skipAnswered()) continue;
      const { out } = flight;
      if (reliable && (this.#inFlight(out) >= window || out >= PSN_SPAN)) break;
      if (pacer.limited && !this.#mayPace()) break;
      const middles = this.#transmitMiddles(batch, out, budget - sent);
      if (middles === 0 && !this.#transmitOne(batch, out)) break;
      sent += Math.max(1, middles);
    }
    if (sent === 0) return 0;
    // The last packet of a turn asks for an ACK: the timer does not wait for the next turn, nor does the peer.
    if (reliable && this.#sinceAckReq > 0 && !timers.isRunning(Timer.PACE)) {
      this.#packets.requestAck(batch);
      this.#sinceAckReq = 0;
    }
    return sent;
  }

  /** Brings an entry under the cursor that may be sent, or that was executed at once. */
  #hasEntry(): boolean {
    const { owner, queue, failed } = this.#parts;
    const { entry } = this.#flight.cursor;
    if (failed.isAt(entry)) return false;
    if (entry !== queue.started) return true;
    // SQD; or ERR and SQE, where what was sent in this turn has failed.
    if (failed.waiting || owner.state !== QpStateCode.RTS) return false;
    if (!queue.waiting && !queue.sleep()) return false;
    return this.#starter.start();
  }

  /** Of the PSNs that are out, those of packets: responses of READs are counted by themselves, and some are here. */
  #inFlight(out: number): number {
    return out - this.#parts.reads.responses - this.#parts.early.count;
  }

  /** Packets that may be out: while a gap is open, also those that the peer keeps. */
  get #window(): number {
    const { congestion, peerKeeps } = this.#parts;
    const { window } = congestion;
    if (peerKeeps.isTrying) return 1;
    return peerKeeps.keepsBehind(this.#flight.unackedPsn) ? GAP_OPEN_FACTOR * window : window;
  }

  /** Adds messages of one packet that were never started, as many as may leave now, `most` at most. @returns how many */
  #transmitWholes(batch: TxBatch, most: number): number {
    const { owner, queue, failed, pacer, roundTrip } = this.#parts;
    const { cursor, out } = this.#flight;
    if (this.#wholes === undefined || cursor.entry !== queue.started || pacer.limited) return 0;
    if (failed.waiting || owner.state !== QpStateCode.RTS) return 0;
    if (!owner.reliable) return this.#wholes.add(batch, most);
    const { psn } = cursor;
    const count = Math.min(most, this.#window - this.#inFlight(out), PSN_SPAN - out);
    const added = this.#wholes.add(batch, count);
    if (added === 0) return 0;
    // Each of them asks for an ACK, as the last packet of any message does.
    this.#sinceAckReq = 0;
    roundTrip.begin(psn);
    return added;
  }

  /** Moves the cursor past packets that are answered already and need not be retransmitted. @returns whether it moved */
  #skipAnswered(): boolean {
    const { owner, queue, early, reads } = this.#parts;
    const { cursor } = this.#flight;
    const row = queue.rowOf(cursor.entry);
    if (row === undefined) return false;
    const packets = queue.packetsOf(cursor.entry);
    const asks = row.readOrAtomic;
    const most = asks ? reads.next(cursor.psn, cursor.packet, packets) : packets - cursor.packet;
    const answered = early.answeredAt(cursor.psn, most, asks);
    if (answered === 0) return false;
    if (asks && answered === most) {
      // The peer remembers it among the last ones, as those that are retransmitted.
      if (!reads.mayRequest(owner.attributes.maxRdAtomic)) return false;
      reads.list.add(cursor.psn, psnAdd(cursor.psn, answered - 1));
    }
    cursor.advance(queue, answered);
    return true;
  }

  /**
   * Adds the packets of the middle of a message that may be sent at once: packets that were never sent, ask for no ACK, and differ
   * only in PSN and payload. Returns how many, `most` at most.
   */
  #transmitMiddles(batch: TxBatch, out: number, most: number): number {
    const { owner, queue, pacer } = this.#parts;
    const flight = this.#flight;
    const { cursor } = flight;
    if (cursor.packet === 0 || cursor.psn !== flight.sendPsn || pacer.limited) return 0;
    let count = Math.min(most, queue.packetsOf(cursor.entry) - 1 - cursor.packet);
    if (owner.reliable) {
      const open = this.#window - 1 - this.#inFlight(out);
      count = Math.min(count, open, PSN_SPAN - out, this.#ackInterval - 1 - this.#sinceAckReq);
    }
    if (count <= 0) return 0;
    const row = queue.rowOf(cursor.entry);
    if (row === undefined || row.readOrAtomic) return 0;
    const added = this.#packets.addMiddles(batch, cursor, row, count);
    flight.advanced();
    if (owner.reliable) this.#sinceAckReq += added;
    return added;
  }

  /** Adds the packet under the cursor and moves on. False if it can't leave now. */
  #transmitOne(batch: TxBatch, out: number): boolean {
    const { context, owner, queue, pacer } = this.#parts;
    const flight = this.#flight;
    const { cursor } = flight;
    const { psn } = cursor;
    const psns = this.#add(batch, cursor, out);
    if (psns === 0) return false;
    cursor.advance(queue, psns);
    if (!flight.advanced()) context.retransmitted(owner, psn, flight.cause);
    if (pacer.limited) pacer.charge(lastPacketBytes(batch), this.#ipBytesOfLast(batch));
    return true;
  }

  /** Bytes of the IP header of the packet that was added last. */
  #ipBytesOfLast({ slots, count }: TxBatch): number {
    const { context, owner, queue } = this.#parts;
    if (!owner.datagram) return owner.attributes.ipBytes;
    const w = queue.wordOf(slots[(count - 1) * TX_SLOT_WORDS + Tx.ENTRY]);
    // The program's thread may have written another handle meanwhile.
    return context.addresses.ah(queue.words[w + SendWqe.ADDRESS_HANDLE])?.ipBytes ?? owner.attributes.ipBytes;
  }

  /** Adds the packet at a cursor; returns the PSNs it takes, 0 if it can't leave now. */
  #add(batch: TxBatch, cursor: SendCursor, out: number): number {
    const { owner, queue } = this.#parts;
    const row = queue.rowOf(cursor.entry);
    if (row === undefined) return this.#fail(cursor, WcStatus.LOC_QP_OP_ERR);
    if (row.readOrAtomic) return this.#addReadOrAtomic(batch, cursor, row);
    const last = cursor.packet === queue.packetsOf(cursor.entry) - 1;
    let ackReq = false;
    if (owner.reliable) {
      this.#sinceAckReq++;
      ackReq = last || this.#inFlight(out) + 1 >= this.#window || this.#sinceAckReq >= this.#ackInterval;
    }
    const { psn } = cursor;
    const status = this.#packets.addMessage(batch, cursor, row, last, ackReq);
    if (status !== WcStatus.SUCCESS) return this.#fail(cursor, status);
    if (ackReq) {
      this.#sinceAckReq = 0;
      this.#time(psn);
    }
    return 1;
  }

  /** The packet at `psn` leaves, which asks for an answer. */
  #time(psn: number): void {
    const { roundTrip } = this.#parts;
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
  get #ackInterval(): number {
    const { owner, congestion, pacer, peerKeeps } = this.#parts;
    const { window } = congestion;
    const small = peerKeeps.goesBack ? SMALL_ACK_INTERVAL_WHOLE : SMALL_ACK_INTERVAL;
    const most = window <= SMALL_WINDOW ? small : Math.min(ACK_INTERVAL, window >> 2);
    return pacer.limited ? pacer.ackInterval(owner.attributes.pathMtu, most) : most;
  }

  #addReadOrAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    const { owner, queue, reads, congestion, timers, early } = this.#parts;
    if (!reads.mayRequest(owner.attributes.maxRdAtomic)) return 0;
    const { psn } = cursor;
    this.#sinceAckReq = 0;
    if (row.wire === Wire.ATOMIC || row.wire === Wire.PLACEMENT) {
      const status = this.#addAtomic(batch, cursor, row);
      if (status !== WcStatus.SUCCESS) return this.#fail(cursor, status);
      reads.list.add(psn, psn);
      this.#time(psn);
      return 1;
    }
    const most = reads.next(psn, cursor.packet, queue.packetsOf(cursor.entry));
    const missing = early.countMissing(psn, most);
    if (!reads.mayAsk(missing, congestion.window)) {
      if (reads.isWaiting) timers.armUnlessRunning(Timer.READ_BUDGET, READ_BUDGET_WAIT);
      return 0;
    }
    const responses = early.span(psn, most, most);
    this.#packets.addRead(batch, cursor, row, responses);
    timers.stop(Timer.READ_BUDGET);
    reads.ask(psn, psnAdd(psn, most - 1), missing);
    if (early.isBefore(psn)) reads.repeated(psn, psnAdd(psn, responses));
    this.#time(psn);
    return most;
  }

  /** Adds a request of one packet that has an answer of its own. @returns `WcStatus`: why it can't be sent */
  #addAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    if (row.wire === Wire.PLACEMENT) return this.#packets.addPlacement(batch, cursor, row);
    this.#packets.addAtomic(batch, cursor, row);
    return WcStatus.SUCCESS;
  }

  #mayPace(): boolean {
    const { pacer, timers } = this.#parts;
    const wait = pacer.wait();
    if (wait === 0) return true;
    timers.arm(Timer.PACE, wait);
    return false;
  }

  /**
   * Sends the last packet once more, for an answer: a peer that lacks one before it answers with a NAK. Of a READ one response, which comes
   * behind all that are on their way. Where losses were seen, that NAK may have been lost already: the oldest packet goes first, with all that
   * is missing of a READ (two packets, as RFC 9002 §6.2.4 allows).
   */
  #transmitProbe(batch: TxBatch): number {
    const { context, owner, queue, probe, roundTrip, losses, reads } = this.#parts;
    const { unackedPsn, out } = this.#flight;
    if (batch.full) return 0;
    probe.take();
    if (out <= 0) return 0;
    const { cursor } = probe;
    const { pathMtu } = owner.attributes;
    const { areSeen } = losses;
    const last = psnAdd(this.#flight.cursor.psn, -1);
    cursor.find(queue, last, pathMtu);
    const endsInRead = queue.rowOf(cursor.entry)?.wire === Wire.READ;
    const isRefused = unackedPsn === this.#refusedPsn;
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
    const isRead = queue.rowOf(cursor.entry)?.readOrAtomic === true;
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
    const { context, owner, queue, probe } = this.#parts;
    const { cursor } = probe;
    cursor.find(queue, psn, owner.attributes.pathMtu);
    const row = queue.rowOf(cursor.entry);
    const psns = row === undefined ? 0 : this.#addAgain(batch, cursor, row, isPart);
    if (psns > 0) context.retransmitted(owner, psn, 'probe');
    return psns;
  }

  /** As `#sendAgain`, with the cursor at the packet. It asks for an ACK. */
  #addAgain(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow, isPart: boolean): number {
    const { queue, reads, early, credits } = this.#parts;
    const { psn } = cursor;
    if (row.wire === Wire.READ) {
      const left = reads.next(psn, cursor.packet, queue.packetsOf(cursor.entry));
      const responses = isPart ? 1 : early.span(psn, left);
      this.#packets.addRead(batch, cursor, row, responses);
      if (isPart && psn === reads.list.newestFirst) {
        reads.asksAlone(psn);
        credits.askedForPart();
      } else reads.repeated(psn, psnAdd(psn, responses));
      return responses;
    }
    const last = cursor.packet === queue.packetsOf(cursor.entry) - 1;
    const status =
      row.wire === Wire.ATOMIC || row.wire === Wire.PLACEMENT
        ? this.#addAtomic(batch, cursor, row)
        : this.#packets.addMessage(batch, cursor, row, last, true);
    return status === WcStatus.SUCCESS ? 1 : this.#fail(cursor, status);
  }
}
