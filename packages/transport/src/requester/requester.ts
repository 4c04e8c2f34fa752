/** The requester decides what to transmit from the send queue, and when. */
import { ackTimeoutMicroseconds, psnDiff } from '@node-roce/wire';
import type { TxBatch } from '../batch.ts';
import { Aimd } from '../congestion/aimd.ts';
import { type CongestionController, Loss } from '../congestion/controller.ts';
import { QpStateCode, type RetransmitCause, SendFlags, WcStatus, WrOpcode } from '../constants.ts';
import type { Context } from '../context.ts';
import type { QpAttributes } from '../qp/attributes.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { SendWqe } from '../rings.ts';
import { indexLess } from '../serial.ts';
import { executeLocal } from '../windows.ts';
import { Wire, type WrOpcodeRow } from '../wr-opcodes.ts';
import { checkEntry } from './checks.ts';
import { Credits } from './credits.ts';
import { SendCursor } from './cursor.ts';
import { Pacer } from './pacer.ts';
import { lastPacketBytes, RequestPackets } from './packets.ts';
import { OutstandingReads } from './reads.ts';
import { Retries } from './retries.ts';
import { RoundTrip } from './round-trip.ts';
import { Timer, Timers } from './timers.ts';

/** The retry timer runs `RETRY_TIMER_FACTOR` · 4.096 µs · 2^timeout; the rule allows 1 … 4 (§9.7.6.1.3). */
export const RETRY_TIMER_FACTOR = 2;

/** By the code `timeout`, µs. */
const RETRY_DELAYS = Float64Array.from(
  { length: 32 },
  (_, code) => RETRY_TIMER_FACTOR * ackTimeoutMicroseconds(code),
);

/** How long a READ waits for room in the receive buffer while none becomes free, µs. */
const READ_BUDGET_WAIT = 10_000;

/** Packets after which an ACK is asked for, at most: half of a batch, so that room comes back while the rest is under way. */
const ACK_INTERVAL = 64;

/** PSNs in flight, at most: a quarter of their range, so that what is behind is told from what is ahead. */
const PSN_SPAN = 1 << 22;

/**
 * The cursor says what is sent next. It runs ahead of `unackedPsn` by what is in flight; to go back (timeout, NAK) is to put
 * the cursor at `unackedPsn`, which always lies in the oldest incomplete entry, because an entry leaves the queue when its
 * last packet is acknowledged. Windows, credits, timers and going back are of reliable connections; UC and UD
 * send each packet once and complete an entry when the link has taken it.
 *
 * Promise: unacked ≤ cursor ≤ send, at most `PSN_SPAN` apart; while something is in flight or to be sent
 * again, a timer runs (unless `timeout` is 0), packets are with the link, or a turn is due.
 */
export class Requester {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #queue: SendQueue;
  readonly #packets: RequestPackets;
  readonly #cursor = new SendCursor();
  /** Where a probe is taken from, so that the cursor stays. */
  readonly #probeCursor = new SendCursor();
  readonly timers: Timers;
  readonly retries = new Retries();
  readonly credits = new Credits();
  readonly reads: OutstandingReads;
  readonly roundTrip: RoundTrip;
  readonly congestion: CongestionController = new Aimd();
  readonly #pacer = new Pacer();
  /** Next PSN never sent (`sq_psn`), and the oldest that is not acknowledged. */
  #sendPsn = 0;
  #unackedPsn = 0;
  /** Entry that can't be sent, and the status to complete it with once all before it are done; 0: none. */
  #failedEntry = 0;
  #failedStatus = 0;
  /** Why the cursor was last put back. */
  #cause: RetransmitCause = 'timeout';
  /** Packets since the last AckReq. */
  #sinceAckReq = 0;
  /** The oldest packet is to be sent once more, for an answer; and the PSN that was sent so last; −1: none. */
  #probing = false;
  #probePsn = -1;
  #timeouts = 0;
  /** Packets are in a batch that the link has not taken. */
  #withLink = false;
  /** SQD: everything that was started is done, and the owner knows. */
  #drained = false;

  constructor(context: Context, owner: Owner, queue: SendQueue) {
    this.#context = context;
    this.#owner = owner;
    this.#queue = queue;
    this.#packets = new RequestPackets(context, owner, queue);
    this.reads = new OutstandingReads(context.readBudget, () => owner.wantsTurn());
    this.roundTrip = new RoundTrip(context);
    this.timers = new Timers(context, context.deadlines, { timersDue: () => this.#timersDue() });
    this.reads.setPathMtu(owner.attributes.pathMtu);
  }

  get sendPsn(): number {
    return this.#sendPsn;
  }

  get unackedPsn(): number {
    return this.#unackedPsn;
  }

  /** PSN that is sent next. */
  get cursorPsn(): number {
    return this.#cursor.psn;
  }

  /** Timeouts so far, modulo 2^32. */
  get timeouts(): number {
    return this.#timeouts;
  }

  get drained(): boolean {
    return this.#drained;
  }

  // ------------------------------------------------------------------- states

  /** RTS: a fresh send side. What was posted before, by a program that did not see the last RESET, is dropped. */
  start(psn: number): void {
    this.reset();
    this.#queue.reset();
    this.#sendPsn = this.#unackedPsn = psn;
    this.#cursor.place(this.#queue.head, psn);
    this.credits.reset(this.#owner.reliable);
  }

  /** RESET: as just created, with the attributes that the queue pair has now. */
  reset(): void {
    this.stop();
    this.credits.reset(false);
    this.roundTrip.reset();
    this.congestion.reset();
    const { rateLimit, retryCnt, rnrRetry, pathMtu } = this.#owner.attributes;
    this.#pacer.setRate(rateLimit);
    this.retries.grant(retryCnt);
    this.retries.grantRnr(rnrRetry);
    this.reads.setPathMtu(pathMtu);
    this.#sendPsn = this.#unackedPsn = 0;
    this.#cursor.place(this.#queue.head, 0);
    this.#cause = 'timeout';
    this.#drained = false;
  }

  /** ERR, SQE: nothing more is sent, nothing is waited for. */
  stop(): void {
    this.timers.stopAll();
    this.reads.release();
    this.roundTrip.cancel();
    this.#failedStatus = 0;
    this.#probing = false;
    this.#probePsn = -1;
    this.#sinceAckReq = 0;
    this.#unackedPsn = this.#sendPsn;
    this.#cursor.place(this.#queue.head, this.#sendPsn);
  }

  /** The queue pair is gone. */
  close(): void {
    this.reset();
    this.timers.close();
  }

  /** Entering RTS from SQD or SQE. */
  resume(): void {
    this.#drained = false;
  }

  /** Everything was flushed: the cursor is at the next entry. */
  flushed(): void {
    this.#cursor.place(this.#queue.head, this.#sendPsn);
  }

  /**
   * SQD: an entry that was given its PSNs and of which nothing was sent (it waited for the window, or for READs that are
   * out) is not started after all; nor does one fail that was not.
   */
  drain(): void {
    const queue = this.#queue;
    const last = (queue.started - 1) | 0;
    const isUnsent =
      queue.started !== queue.head && queue.packetsOf(last) > 0 && queue.firstPsn(last) === this.#sendPsn;
    if (isUnsent) {
      this.credits.count(-this.#messagesOf(last));
      queue.unstart();
      this.reads.stopWaiting();
      this.timers.stop(Timer.READ_BUDGET);
    }
    if (this.#failedEntry === queue.started) this.#failedStatus = 0;
    this.checkDrained();
  }

  /** SQD: reports that everything that was started is done, once (IBTA vol 1 §10.3.1.6). */
  checkDrained(): void {
    if (this.#owner.state !== QpStateCode.SQD || this.#drained || this.#queue.head !== this.#queue.started)
      return;
    this.#drained = true;
    this.#owner.sendQueueDrained();
  }

  /** Takes over attributes that were changed; what runs by an old value is started anew. */
  configure(from: QpAttributes, to: QpAttributes): void {
    if (to.pathMtu !== from.pathMtu) this.reads.setPathMtu(to.pathMtu);
    if (to.rateLimit !== from.rateLimit) {
      this.#pacer.setRate(to.rateLimit);
      this.timers.stop(Timer.PACE);
      this.#owner.wantsTurn();
    }
    if (to.timeout !== from.timeout && this.#owner.reliable) this.#armAfterChange();
    if (to.retryCnt !== from.retryCnt) this.retries.grant(to.retryCnt);
    if (to.rnrRetry !== from.rnrRetry) this.retries.grantRnr(to.rnrRetry);
    if (to.maxRdAtomic !== from.maxRdAtomic) this.#owner.wantsTurn();
  }

  #armAfterChange(): void {
    if (this.timers.isRunning(Timer.RNR)) return;
    if (psnDiff(this.#cursor.psn, this.#unackedPsn) > 0) this.armRetry();
  }

  // ------------------------------------------------------------------ sending

  /** Adds up to `budget` request packets to the batch; returns how many. */
  transmit(batch: TxBatch, budget: number): number {
    const { state, reliable } = this.#owner;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return 0;
    if (this.timers.isRunning(Timer.RNR)) return 0;
    let sent = this.#probing ? this.#transmitProbe(batch) : 0;
    while (sent < budget && !batch.full) {
      if (!this.#hasEntry()) break;
      if (this.#cursor.entry === this.#queue.started) continue; // It was local, and is done.
      const out = psnDiff(this.#cursor.psn, this.#unackedPsn);
      if (reliable && (out - this.reads.responses >= this.congestion.window || out >= PSN_SPAN)) break;
      if (this.#pacer.limited && !this.#mayPace()) break;
      const middles = this.#transmitMiddles(batch, out, budget - sent);
      if (middles === 0 && !this.#transmitOne(batch, out)) break;
      sent += Math.max(1, middles);
    }
    if (sent === 0) return 0;
    // The last packet of a turn asks for an ACK: the timer does not wait for the next turn, nor does the peer.
    if (reliable && this.#sinceAckReq > 0 && !this.timers.isRunning(Timer.PACE)) {
      this.#packets.requestAck(batch);
      this.#sinceAckReq = 0;
    }
    this.congestion.onSent(sent);
    if (!this.#withLink) {
      this.#withLink = true;
      this.#context.awaitLink(this);
    }
    return sent;
  }

  /** Brings an entry under the cursor that may be sent, or that was executed at once. */
  #hasEntry(): boolean {
    const cursor = this.#cursor;
    const queue = this.#queue;
    if (this.#failedStatus !== 0 && cursor.entry === this.#failedEntry) return false;
    if (cursor.entry !== queue.started) return true;
    // SQD; or ERR and SQE, where what was sent in this turn has failed.
    if (this.#failedStatus !== 0 || this.#owner.state !== QpStateCode.RTS) return false;
    if (!queue.waiting && !queue.sleep()) return false;
    return this.#startEntry();
  }

  /**
   * Adds what may be sent at once of the middle of a message: packets that were never sent, ask for no ACK, and differ
   * only in PSN and payload. Returns how many, `most` at most.
   */
  #transmitMiddles(batch: TxBatch, out: number, most: number): number {
    const cursor = this.#cursor;
    const queue = this.#queue;
    if (cursor.packet === 0 || cursor.psn !== this.#sendPsn || this.#pacer.limited) return 0;
    let count = Math.min(most, queue.packetsOf(cursor.entry) - 1 - cursor.packet);
    if (this.#owner.reliable) {
      const open = this.congestion.window - 1 - (out - this.reads.responses);
      count = Math.min(count, open, PSN_SPAN - out, this.#ackInterval - 1 - this.#sinceAckReq);
    }
    if (count <= 0) return 0;
    const row = queue.rowOf(cursor.entry);
    if (row === undefined || row.readOrAtomic) return 0;
    const added = this.#packets.addMiddles(batch, cursor, row, count);
    this.#sendPsn = cursor.psn;
    if (this.#owner.reliable) this.#sinceAckReq += added;
    return added;
  }

  /** Adds the packet under the cursor and moves on. False if it can't leave now. */
  #transmitOne(batch: TxBatch, out: number): boolean {
    const cursor = this.#cursor;
    const { psn } = cursor;
    const psns = this.#add(batch, cursor, out);
    if (psns === 0) return false;
    cursor.advance(this.#queue, psns);
    if (psnDiff(cursor.psn, this.#sendPsn) > 0) this.#sendPsn = cursor.psn;
    else this.#context.retransmitted(this.#owner, psn, this.#cause);
    if (this.#pacer.limited) this.#pacer.charge(lastPacketBytes(batch), this.#owner.attributes.ipBytes);
    return true;
  }

  /** Adds the packet at a cursor; returns the PSNs it takes, 0 if it can't leave now. */
  #add(batch: TxBatch, cursor: SendCursor, out: number): number {
    const queue = this.#queue;
    const row = queue.rowOf(cursor.entry);
    if (row === undefined) {
      this.#fail(cursor.entry, WcStatus.LOC_QP_OP_ERR);
      return 0;
    }
    if (row.readOrAtomic) return this.#addReadOrAtomic(batch, cursor, row);
    const last = cursor.packet === queue.packetsOf(cursor.entry) - 1;
    let ackReq = false;
    if (this.#owner.reliable) {
      this.#sinceAckReq++;
      ackReq =
        last ||
        out - this.reads.responses + 1 >= this.congestion.window ||
        this.#sinceAckReq >= this.#ackInterval;
    }
    const { psn } = cursor;
    const status = this.#packets.addMessage(batch, cursor, row, last, ackReq);
    if (status !== WcStatus.SUCCESS) {
      this.#fail(cursor.entry, status);
      return 0;
    }
    if (ackReq) {
      this.#sinceAckReq = 0;
      if (psn === this.#sendPsn) this.roundTrip.begin(psn);
    }
    return 1;
  }

  /** Packets after which an ACK is asked for: a share of the window, or of what the rate lets out in a while. */
  get #ackInterval(): number {
    const most = Math.max(4, Math.min(ACK_INTERVAL, this.congestion.window >> 2));
    return this.#pacer.limited ? this.#pacer.ackInterval(this.#owner.attributes.pathMtu, most) : most;
  }

  #addReadOrAtomic(batch: TxBatch, cursor: SendCursor, row: WrOpcodeRow): number {
    const { reads } = this;
    if (!reads.mayRequest(this.#owner.attributes.maxRdAtomic)) return 0;
    const { psn } = cursor;
    this.#sinceAckReq = 0;
    if (row.wire === Wire.ATOMIC) {
      this.#packets.addAtomic(batch, cursor, row);
      reads.askAtomic(psn);
      return 1;
    }
    const responses = reads.next(cursor.packet, this.#queue.packetsOf(cursor.entry));
    if (!reads.mayAsk(responses, this.congestion.window)) {
      if (reads.isWaiting) this.timers.armUnlessRunning(Timer.READ_BUDGET, READ_BUDGET_WAIT);
      return 0;
    }
    this.#packets.addRead(batch, cursor, row, responses);
    this.timers.stop(Timer.READ_BUDGET);
    reads.ask(responses, (psn + responses - 1) & 0xff_ffff);
    if (psn === this.#sendPsn) this.roundTrip.begin(psn);
    return responses;
  }

  #mayPace(): boolean {
    const wait = this.#pacer.wait(this.#context.now);
    if (wait === 0) return true;
    this.timers.arm(Timer.PACE, wait);
    return false;
  }

  /**
   * Sends the oldest unacknowledged packet once more, for an answer: a lost tail draws no NAK. It costs no
   * retry; the rule's timer runs on.
   */
  #transmitProbe(batch: TxBatch): number {
    if (batch.full) return 0;
    this.#probing = false;
    if (this.#unackedPsn === this.#sendPsn || psnDiff(this.#cursor.psn, this.#unackedPsn) <= 0) return 0;
    if (this.#queue.rowOf(this.#queue.head)?.readOrAtomic) {
      // The request itself is sent again, and all after it: its responses are what is missing.
      this.#goBack('adaptive');
      return 0;
    }
    const psn = this.#unackedPsn;
    this.#probeCursor.seek(this.#queue, psn, this.#owner.attributes.pathMtu);
    this.#sinceAckReq = this.congestion.window; // So that it asks for an ACK.
    if (this.#add(batch, this.#probeCursor, 0) === 0) return 0;
    this.#context.retransmitted(this.#owner, psn, 'adaptive');
    this.#probePsn = psn;
    this.roundTrip.cancel();
    return 1;
  }

  // ----------------------------------------------------------------- starting

  /**
   * Gives the entry under the cursor its PSNs, or executes it at once if it is local. False if it can't start
   * now: fence, credits, or a failure that waits for the entries before it.
   */
  #startEntry(): boolean {
    const queue = this.#queue;
    const index = this.#cursor.entry;
    const { words } = queue;
    const w = queue.wordOf(index);
    const row = queue.rowOf(index);
    const flags = words[w + SendWqe.OPCODE_FLAGS] >>> 8;
    if (row !== undefined && (flags & SendFlags.FENCE) !== 0 && this.#fenceHolds(row)) return false;

    let status = checkEntry(this.#context, this.#owner, queue, index, row);
    if (status === WcStatus.SUCCESS && row!.wire === Wire.LOCAL) {
      status = executeLocal(this.#context, this.#owner, words, w);
      if (status === WcStatus.SUCCESS) {
        this.#finishLocal();
        return true;
      }
    }
    if (status !== WcStatus.SUCCESS) {
      this.#fail(index, status);
      return false;
    }
    // One request may go past the limit, and asks for the ACK that moves it (§9.7.7.2.5). And one may always be
    // out: an ACK whose credits make no sense, or one that was lost, must not be the last that is heard.
    if (row!.consumesReceive && this.credits.exhausted && this.#unackedPsn !== this.#sendPsn) return false;

    const { pathMtu } = this.#owner.attributes;
    const packets =
      row!.wire === Wire.ATOMIC ? 1 : Math.max(1, Math.ceil(words[w + SendWqe.LENGTH] / pathMtu));
    queue.start(this.#cursor.psn, packets);
    this.credits.count(this.#messagesOf(index));
    this.#cursor.place(index, this.#cursor.psn);
    return true;
  }

  /** Messages that the responder counts for an entry. */
  #messagesOf(index: number): number {
    const isRead = this.#queue.rowOf(index)?.wire === Wire.READ;
    return isRead ? this.reads.requestsFor(this.#queue.packetsOf(index)) : 1;
  }

  /** A fenced entry waits for the READs and atomics before it (§10.8.3.3); a LOCAL_INV for all before it (§10.6.5.1). */
  #fenceHolds(row: WrOpcodeRow): boolean {
    if (row.opcode === WrOpcode.LOCAL_INV) return this.#cursor.entry !== this.#queue.head;
    return this.#queue.readOrAtomics > 0;
  }

  /** A local operation is done; it completes in its turn. */
  #finishLocal(): void {
    const queue = this.#queue;
    const index = this.#cursor.entry;
    queue.start(this.#cursor.psn, 0);
    this.#cursor.place(queue.started, this.#cursor.psn);
    if (index === queue.head) queue.completeOldest();
  }

  // ------------------------------------------------------------------ failing

  /** The entry can't be sent: it fails when all before it are done. */
  #fail(entry: number, status: number): void {
    if (this.#failedStatus !== 0 && !indexLess(entry, this.#failedEntry)) return;
    this.#failedEntry = entry;
    this.#failedStatus = status;
    this.failIfReached();
  }

  /** Completes the entry that can't be sent if it is the oldest. @returns whether it was */
  failIfReached(): boolean {
    if (this.#failedStatus === 0 || indexLess(this.#queue.head, this.#failedEntry)) return false;
    if (this.#queue.head !== this.#failedEntry) {
      // It was to be sent again, and what had been sent before has arrived after all.
      this.#failedStatus = 0;
      return false;
    }
    this.failOldest(this.#failedStatus);
    return true;
  }

  /** The oldest entry completes with this status, the rest is flushed. */
  failOldest(status: number): void {
    this.#queue.complete(status);
    this.#owner.sendFailed();
  }

  /** The link refused a packet of `entry` at `psn` for good. */
  refused(entry: number, psn: number, status: number): void {
    const { state } = this.#owner;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return;
    const queue = this.#queue;
    if (indexLess(entry, queue.head) || !indexLess(entry, queue.started)) return;
    // A packet that was sent again and is acknowledged by now.
    if (this.#owner.reliable && psnDiff(psn, this.#unackedPsn) < 0) return;
    if (this.#failedStatus !== 0 && !indexLess(entry, this.#failedEntry)) return;
    this.#failedEntry = entry;
    this.#failedStatus = status;
    // UC and UD complete what the link took of the batch first, in `taken`.
    if (this.#owner.reliable) this.failIfReached();
  }

  // --------------------------------------------------------- acknowledgements

  /** Everything before `psn` is acknowledged: retries start anew, the window may grow. */
  acknowledged(psn: number): void {
    const packets = psnDiff(psn, this.#unackedPsn);
    this.#unackedPsn = psn;
    this.retries.progress();
    this.congestion.onAck(packets, psn);
    this.roundTrip.acknowledged(psn);
    this.reads.retire(psn);
  }

  /** After responses that acknowledged something: the cursor, the timers and the turn to send. */
  settle(): void {
    // The peer takes requests again: the wait that it asked for is over.
    this.timers.stop(Timer.RNR);
    const { head } = this.#queue;
    if (psnDiff(this.#cursor.psn, this.#unackedPsn) < 0 || indexLess(this.#cursor.entry, head)) {
      // Acknowledged beyond where the cursor had gone back to: what was sent before arrived after all.
      this.#seekUnacked();
    } else if (
      this.#probePsn >= 0 &&
      psnDiff(this.#unackedPsn, this.#probePsn) === 1 &&
      this.#unackedPsn !== this.#sendPsn
    ) {
      // The probe was taken and nothing after it: all that followed is lost.
      this.onLoss(Loss.GAP);
      this.rewind('adaptive');
    }
    this.#probePsn = -1;
    if (this.failIfReached()) return;
    this.armRetry();
    this.checkDrained();
    this.#owner.wantsTurn();
  }

  /** A loss was seen. */
  onLoss(loss: number): void {
    this.congestion.onLoss(loss, this.#unackedPsn, this.#sendPsn);
  }

  /** Everything from the oldest unacknowledged PSN is sent again. The ACK timer starts when the link has taken it. */
  rewind(cause: RetransmitCause): void {
    this.#goBack(cause);
    this.timers.stop(Timer.RETRY);
    this.timers.stop(Timer.PROBE);
  }

  #goBack(cause: RetransmitCause): void {
    this.#cause = cause;
    this.roundTrip.cancel();
    // What followed a probe is sent again as it is: its answer says nothing more.
    this.#probePsn = -1;
    this.#probing = false;
    this.#seekUnacked();
    this.#owner.wantsTurn();
  }

  /** The receiver was not ready: nothing is sent for `wait` µs. */
  waitForReceiver(wait: number): void {
    this.rewind('rnr');
    // The peer is there and has answered: the ACK timer stands still meanwhile.
    this.timers.arm(Timer.RNR, wait);
  }

  #seekUnacked(): void {
    this.reads.release();
    this.#sinceAckReq = 0;
    this.#cursor.seek(this.#queue, this.#unackedPsn, this.#owner.attributes.pathMtu);
  }

  // ------------------------------------------------------------------- timers

  /** The link has looked at every packet that was added: they are on their way. */
  taken(): void {
    this.#withLink = false;
    const { state, reliable } = this.#owner;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return;
    if (!reliable) this.#completeTaken();
    else if (!this.timers.isRunning(Timer.RNR) && !this.timers.isRunning(Timer.RETRY)) this.armRetry();
    else if (!this.timers.isRunning(Timer.RNR) && !this.timers.isRunning(Timer.PROBE)) this.#armProbe();
  }

  /** UC, UD: the entries whose packets those were are done. */
  #completeTaken(): void {
    const queue = this.#queue;
    while (queue.head !== this.#cursor.entry) {
      if (this.failIfReached()) return;
      queue.complete(WcStatus.SUCCESS);
      if (this.#owner.state === QpStateCode.ERR) return;
    }
    this.#unackedPsn = this.#cursor.psn;
    if (this.failIfReached()) return;
    this.checkDrained();
    // A fenced LOCAL_INV may have waited for this.
    if (queue.head !== queue.posted) this.#owner.wantsTurn();
  }

  /** Starts the ACK timer anew, and the probe's; stops them where nothing is in flight. */
  armRetry(): void {
    const { timeout } = this.#owner.attributes;
    if (timeout === 0 || psnDiff(this.#cursor.psn, this.#unackedPsn) <= 0) {
      this.timers.stop(Timer.RETRY);
      this.timers.stop(Timer.PROBE);
      return;
    }
    this.timers.arm(Timer.RETRY, RETRY_DELAYS[timeout]);
    this.#armProbe();
  }

  #armProbe(): void {
    const delay = this.roundTrip.probeDelay;
    // Where the rule's own timer is as quick, it needs no help.
    if (delay >= 0 && delay < this.timers.remaining(Timer.RETRY)) this.timers.arm(Timer.PROBE, delay);
    else this.timers.stop(Timer.PROBE);
  }

  /** At most one retry a call (see the pump's order in docs/run-loop.md). */
  #timersDue(): void {
    const { timers } = this;
    if (timers.takeDue(Timer.PACE)) this.#owner.wantsTurn();
    if (timers.takeDue(Timer.READ_BUDGET)) {
      if (this.reads.waited()) this.#owner.wantsTurn();
      else timers.arm(Timer.READ_BUDGET, READ_BUDGET_WAIT);
    }
    if (timers.takeDue(Timer.RNR)) this.#owner.wantsTurn();
    if (timers.takeDue(Timer.RETRY)) {
      timers.stop(Timer.PROBE);
      // Packets that wait for the link are not lost: the timer starts when it has taken them.
      if (this.#withLink) return;
      const { counters } = this.#owner;
      counters.timeouts++;
      this.#timeouts = (this.#timeouts + 1) | 0;
      if (!this.spendRetry()) return;
      this.onLoss(Loss.TIMEOUT);
      this.rewind('timeout');
    } else if (timers.takeDue(Timer.PROBE) && !this.#withLink) {
      this.#owner.counters.probes++;
      this.roundTrip.backOff();
      this.#probing = true;
      this.#owner.wantsTurn();
    }
  }

  /** Takes a retry; without one left, the oldest entry fails. @returns whether there was one */
  spendRetry(): boolean {
    const { counters } = this.#owner;
    if (this.retries.spend()) {
      counters.retries++;
      return true;
    }
    counters.retryExceededErr++;
    this.failOldest(WcStatus.RETRY_EXC_ERR);
    return false;
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const parts =
      this.timers.check() ?? this.retries.check() ?? this.reads.check() ?? this.congestion.check();
    if (parts !== undefined) return parts;
    const { state, reliable, attributes } = this.#owner;
    if (state !== QpStateCode.RTS && state !== QpStateCode.SQD) return undefined;
    const queue = this.#queue;
    const entry = this.#cursor.entry;
    if (indexLess(entry, queue.head) || indexLess(queue.started, entry))
      return `the cursor is at entry ${entry}`;
    if (!reliable) return undefined;
    const out = psnDiff(this.#sendPsn, this.#unackedPsn);
    const done = psnDiff(this.#cursor.psn, this.#unackedPsn);
    if (done < 0 || done > out || out > PSN_SPAN + 128)
      return `the cursor is at ${done} of ${out} PSNs in flight`;
    if (out > 0) {
      if (queue.head === queue.started) return `${out} PSNs in flight belong to no entry`;
      const inOldest = psnDiff(this.#unackedPsn, queue.firstPsn(queue.head));
      if (inOldest < 0 || inOldest >= queue.packetsOf(queue.head))
        return `unacked PSN ${inOldest} of the oldest entry`;
    }
    if (this.#failedStatus !== 0 && indexLess(this.#failedEntry, queue.head))
      return 'an entry that is done has failed';
    const waits = this.timers.isRunning(Timer.RETRY) || this.timers.isRunning(Timer.RNR) || this.#withLink;
    if (done > 0 && attributes.timeout !== 0 && !waits) return `${done} PSNs in flight, and no timer runs`;
    return undefined;
  }
}
