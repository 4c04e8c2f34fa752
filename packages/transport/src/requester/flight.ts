/** The PSNs that were sent and are not acknowledged, and the cursor of the packet that is sent next. */
import { psnDiff } from '@node-roce/wire';
import type { RetransmitCause } from '../constants.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import { indexLess } from '../rings.ts';
import { SendCursor } from './cursor.ts';

/** PSNs in flight, at most: a quarter of their range, so that PSNs behind and PSNs ahead can be distinguished. */
export const PSN_SPAN = 1 << 22;

/**
 * The cursor runs ahead of `unackedPsn` by the packets in flight; to go back (timeout, NAK) is to put the cursor at
 * `unackedPsn`, which always lies in the oldest incomplete entry, because an entry leaves the queue when its last packet is
 * acknowledged.
 *
 * Promise: unacked ≤ cursor ≤ send, at most `PSN_SPAN` apart.
 */
export class Flight {
  readonly cursor = new SendCursor();
  readonly queue: SendQueue;
  /** Next PSN never sent (`sq_psn`), and the oldest that is not acknowledged. */
  #sendPsn = 0;
  #unackedPsn = 0;
  /** Packets acknowledged so far, modulo 2^32. */
  #acknowledgedPackets = 0;
  /** Packets that have left since an ACK was asked for. */
  #sinceAckReq = 0;
  /** Why the cursor was last put back. */
  #cause: RetransmitCause = 'timeout';

  constructor(queue: SendQueue) {
    this.queue = queue;
  }

  get acknowledgedPackets(): number {
    return this.#acknowledgedPackets;
  }

  get sinceAckReq(): number {
    return this.#sinceAckReq;
  }

  /** Packets that ask for no ACK leave. */
  withoutAckReq(packets: number): void {
    this.#sinceAckReq += packets;
  }

  /** A packet that asks for an ACK leaves. */
  ackRequested(): void {
    this.#sinceAckReq = 0;
  }

  get sendPsn(): number {
    return this.#sendPsn;
  }

  get unackedPsn(): number {
    return this.#unackedPsn;
  }

  get cause(): RetransmitCause {
    return this.#cause;
  }

  /** PSNs from the oldest that is not acknowledged to the cursor. */
  get out(): number {
    return psnDiff(this.cursor.psn, this.#unackedPsn);
  }

  /** Whether everything that was ever sent is acknowledged. */
  get isOver(): boolean {
    return this.#unackedPsn === this.#sendPsn;
  }

  /** The next request begins with `psn`. */
  start(psn: number): void {
    this.#cause = 'timeout';
    this.#sendPsn = this.#unackedPsn = psn;
    this.cursor.place(this.queue.head, psn);
  }

  /** Nothing is waited for any more. */
  stop(): void {
    this.#sinceAckReq = 0;
    this.#unackedPsn = this.#sendPsn;
    this.toHead();
  }

  /** Everything was flushed: the cursor is at the next entry. */
  toHead(): void {
    this.cursor.place(this.queue.head, this.#sendPsn);
  }

  /** The cursor was moved past the packets that left. @returns whether that was sent for the first time */
  advanced(): boolean {
    const { psn } = this.cursor;
    if (psnDiff(psn, this.#sendPsn) <= 0) return false;
    this.#sendPsn = psn;
    return true;
  }

  /** Everything before `psn` is acknowledged. @returns how many PSNs more that are */
  acknowledged(psn: number): number {
    const packets = psnDiff(psn, this.#unackedPsn);
    this.#unackedPsn = psn;
    this.#acknowledgedPackets = (this.#acknowledgedPackets + packets) | 0;
    return packets;
  }

  /** UC and UD: what the link has taken is done. */
  taken(): void {
    this.#unackedPsn = this.cursor.psn;
  }

  /** Everything from the oldest unacknowledged PSN is retransmitted. */
  goBack(cause: RetransmitCause, pathMtu: number): void {
    this.#cause = cause;
    this.seekUnacked(pathMtu);
  }

  /** Puts the cursor at the oldest PSN that is not acknowledged. */
  seekUnacked(pathMtu: number): void {
    this.#sinceAckReq = 0;
    this.cursor.seek(this.queue, this.#unackedPsn, pathMtu);
  }

  /** Whether the packet that the cursor went back to is acknowledged meanwhile: what was sent before arrived after all. */
  get isCursorBehind(): boolean {
    return this.out < 0 || indexLess(this.cursor.entry, this.queue.head);
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const queue = this.queue;
    const { entry } = this.cursor;
    if (indexLess(entry, queue.head) || indexLess(queue.started, entry))
      return `the cursor is at entry ${entry}`;
    const inFlight = psnDiff(this.#sendPsn, this.#unackedPsn);
    if (this.out < 0 || this.out > inFlight || inFlight > PSN_SPAN + 128)
      return `the cursor is at ${this.out} of ${inFlight} PSNs in flight`;
    if (inFlight === 0) return undefined;
    if (queue.head === queue.started) return `${inFlight} PSNs in flight belong to no entry`;
    const inOldest = psnDiff(this.#unackedPsn, queue.firstPsn(queue.head));
    return inOldest < 0 || inOldest >= queue.packetsOf(queue.head)
      ? `unacked PSN ${inOldest} of the oldest entry`
      : undefined;
  }
}
