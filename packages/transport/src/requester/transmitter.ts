/** Adds request packets to batches, as far as window, PSNs, pace, READ budget and failures allow. */
import type { TxBatch } from '../batch.ts';
import { QpStateCode, type RetransmitCause, WcStatus } from '../constants.ts';
import { Wire, type WrOpcodeRow } from '../wr-opcodes.ts';
import type { SendCursor } from './cursor.ts';
import { type Flight, PSN_SPAN } from './flight.ts';
import { lastPacketBytes, RequestPackets } from './packets.ts';
import type { RequesterParts } from './parts.ts';
import { Starter } from './starter.ts';
import { Timer } from './timers.ts';

/** How long a READ waits for room in the receive buffer while none becomes free, µs. */
export const READ_BUDGET_WAIT = 10_000;

/** Packets after which an ACK is asked for, at most: half of a batch, so that room comes back while the rest is under way. */
const ACK_INTERVAL = 64;

/** Owns how many packets have left since an ACK was asked for. */
export class Transmitter {
  readonly #parts: RequesterParts;
  readonly #flight: Flight;
  readonly #packets: RequestPackets;
  readonly #starter: Starter;
  /** Packets since the last AckReq. */
  #sinceAckReq = 0;

  constructor(parts: RequesterParts) {
    this.#parts = parts;
    this.#flight = parts.flight;
    this.#packets = new RequestPackets(parts.context, parts.owner, parts.queue);
    this.#starter = new Starter(parts);
  }

  /** ERR, SQE: nothing more is sent. */
  stop(): void {
    this.#sinceAckReq = 0;
  }

  /** SQD: what was started and not sent is not started after all. */
  takeBack(): void {
    this.#starter.takeBack();
  }

  /** Everything from the oldest unacknowledged PSN is sent again. */
  goBack(cause: RetransmitCause): void {
    const { roundTrip, probe, owner, reads } = this.#parts;
    roundTrip.cancel();
    // What followed a probe is sent again as it is: its answer says nothing more.
    probe.forget();
    reads.release();
    this.#sinceAckReq = 0;
    this.#flight.goBack(cause, owner.attributes.pathMtu);
    owner.wantsTurn();
  }

  /** The cursor had gone back to what is acknowledged by now: it goes on from there. */
  catchUp(): void {
    const { owner, reads } = this.#parts;
    reads.release();
    this.#sinceAckReq = 0;
    this.#flight.seekUnacked(owner.attributes.pathMtu);
  }

  /** Adds up to `budget` packets to the batch; returns how many. The state is one that sends, and no RNR wait runs. */
  transmit(batch: TxBatch, budget: number): number {
    const { owner, queue, reads, congestion, pacer, timers, probe } = this.#parts;
    const flight = this.#flight;
    const { cursor } = flight;
    const { reliable } = owner;
    let sent = probe.wanted ? this.#transmitProbe(batch) : 0;
    while (sent < budget && !batch.full) {
      if (!this.#hasEntry()) break;
      if (cursor.entry === queue.started) continue; // It was local, and is done.
      const { out } = flight;
      if (reliable && (out - reads.responses >= congestion.window || out >= PSN_SPAN)) break;
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
    congestion.onSent(sent);
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

  /**
   * Adds what may be sent at once of the middle of a message: packets that were never sent, ask for no ACK, and differ
   * only in PSN and payload. Returns how many, `most` at most.
   */
  #transmitMiddles(batch: TxBatch, out: number, most: number): number {
    const { owner, queue, reads, congestion, pacer } = this.#parts;
    const flight = this.#flight;
    const { cursor } = flight;
    if (cursor.packet === 0 || cursor.psn !== flight.sendPsn || pacer.limited) return 0;
    let count = Math.min(most, queue.packetsOf(cursor.entry) - 1 - cursor.packet);
    if (owner.reliable) {
      const open = congestion.window - 1 - (out - reads.responses);
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
    if (pacer.limited) pacer.charge(lastPacketBytes(batch), owner.attributes.ipBytes);
    return true;
  }

  /** Adds the packet at a cursor; returns the PSNs it takes, 0 if it can't leave now. */
  #add(batch: TxBatch, cursor: SendCursor, out: number): number {
    const { owner, queue, reads, congestion, roundTrip } = this.#parts;
    const row = queue.rowOf(cursor.entry);
    if (row === undefined) return this.#fail(cursor, WcStatus.LOC_QP_OP_ERR);
    if (row.readOrAtomic) return this.#addReadOrAtomic(batch, cursor, row);
    const last = cursor.packet === queue.packetsOf(cursor.entry) - 1;
    let ackReq = false;
    if (owner.reliable) {
      this.#sinceAckReq++;
      ackReq =
        last || out - reads.responses + 1 >= congestion.window || this.#sinceAckReq >= this.#ackInterval;
    }
    const { psn } = cursor;
    const status = this.#packets.addMessage(batch, cursor, row, last, ackReq);
    if (status !== WcStatus.SUCCESS) return this.#fail(cursor, status);
    if (ackReq) {
      this.#sinceAckReq = 0;
      if (psn === this.#flight.sendPsn) roundTrip.begin(psn);
    }
    return 1;
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
    const { owner, congestion, pacer } = this.#parts;
    const most = Math.max(4, Math.min(ACK_INTERVAL, congestion.window >> 2));
    return pacer.limited ? pacer.ackInterval(owner.attributes.pathMtu, most) : most;
  }

  #addReadOrAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    const { owner, queue, reads, congestion, roundTrip, timers } = this.#parts;
    if (!reads.mayRequest(owner.attributes.maxRdAtomic)) return 0;
    const { psn } = cursor;
    this.#sinceAckReq = 0;
    if (row.wire === Wire.ATOMIC) {
      this.#packets.addAtomic(batch, cursor, row);
      reads.askAtomic(psn);
      return 1;
    }
    const responses = reads.next(cursor.packet, queue.packetsOf(cursor.entry));
    if (!reads.mayAsk(responses, congestion.window)) {
      if (reads.isWaiting) timers.armUnlessRunning(Timer.READ_BUDGET, READ_BUDGET_WAIT);
      return 0;
    }
    this.#packets.addRead(batch, cursor, row, responses);
    timers.stop(Timer.READ_BUDGET);
    reads.ask(responses, (psn + responses - 1) & 0xff_ffff);
    if (psn === this.#flight.sendPsn) roundTrip.begin(psn);
    return responses;
  }

  #mayPace(): boolean {
    const { context, pacer, timers } = this.#parts;
    const wait = pacer.wait(context.now);
    if (wait === 0) return true;
    timers.arm(Timer.PACE, wait);
    return false;
  }

  /** Sends the oldest unacknowledged packet once more, for an answer. The ACK timer runs on. */
  #transmitProbe(batch: TxBatch): number {
    const { context, owner, queue, congestion, probe, roundTrip } = this.#parts;
    const flight = this.#flight;
    if (batch.full) return 0;
    probe.take();
    if (flight.isOver || flight.out <= 0) return 0;
    if (queue.rowOf(queue.head)?.readOrAtomic) {
      // The request itself is sent again, and all after it: its responses are what is missing.
      this.goBack('probe');
      return 0;
    }
    const psn = flight.unackedPsn;
    probe.cursor.seek(queue, psn, owner.attributes.pathMtu);
    this.#sinceAckReq = congestion.window; // So that it asks for an ACK.
    if (this.#add(batch, probe.cursor, 0) === 0) return 0;
    context.retransmitted(owner, psn, 'probe');
    probe.sent(psn);
    roundTrip.cancel();
    return 1;
  }
}
