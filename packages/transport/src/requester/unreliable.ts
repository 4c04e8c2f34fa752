/** The requester of UC, UD and GSI: each packet is sent once, and nobody answers it (IBTA vol 1 §9.8). */
import { TX_SLOT_WORDS, Tx, type TxBatch } from '../batch.ts';
import { QpStateCode, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import { SendWqe } from '../entry-words.ts';
import { RateLimit } from '../pacing/rate-limit.ts';
import type { QpAttributes } from '../qp/attributes.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { indexLess } from '../rings.ts';
import { NO_CREDITS } from './credits.ts';
import { Drain } from './drain.ts';
import { FailedEntry } from './failed-entry.ts';
import { Flight } from './flight.ts';
import { lastPacketBytes, RequestPackets } from './packets.ts';
import type { RequesterRole } from './role.ts';
import { Starter } from './starter.ts';
import { Timer, Timers } from './timers.ts';
import { WholeMessages } from './whole-messages.ts';

/**
 * Has no window, no credits and no loss recovery, and completes an entry when the link has taken its packets.
 *
 * Promise: while the cursor is ahead of the oldest entry, packets are with the link, or a turn is due.
 */
export class UnreliableRequester implements RequesterRole {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  readonly #flight: Flight;
  readonly #failed: FailedEntry;
  readonly #packets: RequestPackets;
  readonly #starter: Starter;
  readonly #drain: Drain;
  /** Of UC: datagrams have an address each. */
  readonly #wholes: WholeMessages | undefined;
  /** Both with the first `rate_limit`: most queue pairs never have one. */
  #limit: RateLimit | undefined;
  #timers: Timers | undefined;
  /** Packets are in a batch that the link has not taken. */
  #withLink = false;

  constructor(context: Context, owner: Owner, queue: SendQueue) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
    this.#flight = new Flight(queue);
    this.#failed = new FailedEntry(owner, queue);
    this.#packets = new RequestPackets(context, owner, queue);
    const parts = { context, owner, flight: this.#flight, failed: this.#failed };
    this.#starter = new Starter(parts, NO_CREDITS);
    this.#drain = new Drain(parts);
    this.#wholes = owner.datagram ? undefined : new WholeMessages(parts, NO_CREDITS);
  }

  get sendPsn(): number {
    return this.#flight.sendPsn;
  }

  get drained(): boolean {
    return this.#drain.done;
  }

  get sleeps(): boolean {
    return this.#queue.isAsleep;
  }

  // ------------------------------------------------------------------- states

  start(psn: number): void {
    this.reset();
    this.#queue.reset();
    this.#flight.start(psn);
  }

  reset(): void {
    this.stop();
    this.#setRate(this.#owner.attributes.rateLimit);
    this.#flight.start(0);
    this.#drain.end();
  }

  stop(): void {
    this.#timers?.stopAll();
    this.#failed.forget();
    this.#flight.stop();
  }

  close(): void {
    this.reset();
    this.#timers?.close();
  }

  resume(): void {
    this.#drain.end();
  }

  flushed(): void {
    this.#flight.toHead();
  }

  drain(): void {
    this.#starter.takeBack();
    this.#drain.begin();
  }

  configure(from: QpAttributes, to: QpAttributes): void {
    if (to.rateLimit === from.rateLimit) return;
    this.#setRate(to.rateLimit);
    this.#timers?.stop(Timer.PACE);
    this.#owner.wantsTurn();
  }

  #setRate(rate: number): void {
    if (rate !== 0 && this.#limit === undefined) {
      this.#limit = new RateLimit();
      this.#timers = new Timers(this.#context.clock, this.#context.deadlines, this);
    }
    this.#limit?.setRate(rate);
  }

  /** Packets that are on their way arrive on the path before, or not at all. */
  migrated(): void {}

  // ------------------------------------------------------------------ sending

  transmit(batch: TxBatch, budget: number): number {
    if (!this.#owner.sends) return 0;
    const sent = this.#send(batch, budget);
    if (sent > 0 && !this.#withLink) {
      this.#withLink = true;
      this.#context.awaitLink(this);
    }
    return sent;
  }

  #send(batch: TxBatch, budget: number): number {
    const queue = this.#queue;
    const starter = this.#starter;
    const { cursor } = this.#flight;
    queue.awake();
    starter.beginTurn();
    let sent = 0;
    while (sent < budget && !batch.full) {
      const wholes = this.#addWholes(batch, budget - sent);
      sent += wholes;
      if (wholes > 0) continue;
      if (!starter.prepare()) break;
      // It was local, and is done.
      if (cursor.entry === queue.started) continue;
      if (this.#holdBack()) break;
      const middles = this.#addMiddles(batch, budget - sent);
      if (middles === 0 && !this.#addPacket(batch)) break;
      sent += Math.max(1, middles);
    }
    return sent;
  }

  /** Holds the next packet back if `rate_limit` wants it: PACE runs until it may be asked again. @returns whether */
  #holdBack(): boolean {
    if (!this.#limit?.limited) return false;
    const wait = this.#limit.wait(this.#context.clock[0]);
    if (wait > 0) this.#timers?.arm(Timer.PACE, wait);
    return wait > 0;
  }

  /** Adds messages of one packet that were never started, `most` at most. @returns how many */
  #addWholes(batch: TxBatch, most: number): number {
    if (this.#wholes === undefined || this.#flight.cursor.entry !== this.#queue.started) return 0;
    if (this.#limit?.limited || this.#failed.waiting || this.#owner.state !== QpStateCode.RTS) return 0;
    return this.#wholes.add(batch, most);
  }

  /** Adds packets from the middle of a message, `most` at most. @returns how many */
  #addMiddles(batch: TxBatch, most: number): number {
    const queue = this.#queue;
    const { cursor } = this.#flight;
    if (cursor.packet === 0 || this.#limit?.limited) return 0;
    const count = Math.min(most, queue.packetsOf(cursor.entry) - 1 - cursor.packet);
    const row = queue.startedRow(cursor.entry);
    if (count <= 0 || row === undefined) return 0;
    const added = this.#packets.addMiddles(batch, cursor, row, count);
    this.#flight.advanced();
    return added;
  }

  /** Adds the packet under the cursor and moves on. False where its entry has failed. */
  #addPacket(batch: TxBatch): boolean {
    const queue = this.#queue;
    const { cursor } = this.#flight;
    const { entry } = cursor;
    const row = queue.startedRow(entry);
    const last = cursor.packet === queue.packetsOf(entry) - 1;
    const status =
      row === undefined ? WcStatus.LOC_QP_OP_ERR : this.#packets.addMessage(batch, cursor, row, last, false);
    if (status !== WcStatus.SUCCESS) {
      this.#failed.set(entry, status);
      this.#failed.completeIfOldest();
      return false;
    }
    cursor.advance(queue, 1);
    this.#flight.advanced();
    if (this.#limit?.limited) this.#limit.charge(lastPacketBytes(batch), this.#ipBytesOfLast(batch));
    return true;
  }

  /** Bytes of the IP header of the packet that was added last. */
  #ipBytesOfLast({ slots, count }: TxBatch): number {
    const { datagram, attributes } = this.#owner;
    if (!datagram) return attributes.ipBytes;
    const queue = this.#queue;
    const w = queue.wordOf(slots[(count - 1) * TX_SLOT_WORDS + Tx.ENTRY]);
    // The program's thread may have written another handle meanwhile.
    const ah = this.#context.addresses.ah(queue.words[w + SendWqe.ADDRESS_HANDLE]);
    return ah?.ipBytes ?? attributes.ipBytes;
  }

  refused(entry: number, _psn: number, status: number): void {
    if (!this.#owner.sends) return;
    const queue = this.#queue;
    // It completes after what the link took of the batch, in `taken`.
    if (!indexLess(entry, queue.head) && indexLess(entry, queue.started)) this.#failed.set(entry, status);
  }

  /** The link has looked at every packet that was added: their entries are done. */
  taken(): void {
    this.#withLink = false;
    if (!this.#owner.sends) return;
    const queue = this.#queue;
    const failed = this.#failed;
    while (queue.head !== this.#flight.cursor.entry) {
      if (failed.waiting && failed.completeIfOldest()) return;
      queue.complete(WcStatus.SUCCESS);
      if (this.#owner.state === QpStateCode.ERR) return;
    }
    this.#flight.taken();
    if (failed.waiting && failed.completeIfOldest()) return;
    if (this.#owner.state === QpStateCode.SQD) this.#drain.check();
    // A fenced LOCAL_INV may have waited for this.
    if (queue.head !== queue.posted) this.#owner.wantsTurn();
  }

  /** `rate_limit` allows the next packet. */
  timersDue(): void {
    if (this.#timers?.takeDue(Timer.PACE)) this.#owner.wantsTurn();
  }

  check(): string | undefined {
    if (!this.#owner.sends) return undefined;
    return this.#flight.check() ?? this.#failed.check();
  }
}
