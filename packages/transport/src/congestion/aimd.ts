/**
 * Additive increase, multiplicative decrease of a window of packets, with slow start, as TCP Reno's (RFC 5681); but a loss alone
 * does not take it below the rate of the path: packets are lost for other reasons than congestion, too.
 */
import { psnDiff } from '@node-roce/wire';
import type { Own } from '../own.ts';
import type { TimePlace } from '../times.ts';
import { type CongestionController, Loss } from './controller.ts';
import { DeliveryRate, type PathTimes } from './delivery.ts';

/** Packets in flight at the start, at most and at least. */
export const WINDOW_START = 32;
export const WINDOW_MAX = 512;
const WINDOW_MIN = 2;
/** A gap alone takes the window no lower: so little in flight draws few NAKs, and a loss then costs a probe or a timeout. */
const WINDOW_GAP = 44;
/** Nor of a peer that discards the packets behind the gap: they are retransmitted, so no more than the path holds should be in flight. */
const WINDOW_WHOLE = 16;
/** Of a longer one, the excess is a small share. */
const WINDOW_SHORT = 64;
/** Above the packets that the path delivers in a round trip, by a share: ACKs come for a few packets at once. */
const ACK_SHARE = 1 / 8;
const ACK_SHARE_WHOLE = 1 / 16;

/** The window is WINDOW_MIN … WINDOW_MAX; a loss is reacted to once per window of packets. */
export class Aimd implements CongestionController {
  readonly window: number = WINDOW_START;
  readonly #delivery: DeliveryRate;
  /** Where growth turns from doubling per round trip to one packet per round trip. */
  #threshold = WINDOW_MAX;
  /** Packets acknowledged since the window last grew by one. */
  #acknowledged = 0;
  /** Losses before this PSN have been reacted to; −1: everything sent then is acknowledged. */
  #recoveryPsn = -1;
  /** All in flight was retransmitted for the last gap. */
  #sendsWhole = false;
  /** Window and threshold before the last timeout, or the first of several in a row. */
  #windowBefore = 0;
  #thresholdBefore = 0;
  /** Nothing was acknowledged since a timeout. */
  #isSilent = false;

  /** @param place where the delivery rate is kept, if not in an array of its own */
  constructor(path: PathTimes, place?: TimePlace) {
    this.#delivery = new DeliveryRate(path, place);
  }

  get rate(): number {
    return 0;
  }

  onSent(_bytes: number): void {}

  onCnp(): void {}

  onAck(packets: number, unackedPsn: number, sendPsn: number): void {
    this.#isSilent = false;
    this.#delivery.acknowledged(packets, unackedPsn, sendPsn);
    if (this.#recoveryPsn >= 0 && psnDiff(unackedPsn, this.#recoveryPsn) >= 0) this.#recoveryPsn = -1;
    if (this.window >= WINDOW_MAX || this.#isFull()) return;
    if (this.window < this.#threshold) {
      (this as Own<Aimd>).window = Math.min(this.window + packets, this.#threshold);
      return;
    }
    this.#acknowledged += packets;
    if (this.#acknowledged >= this.window) {
      this.#acknowledged -= this.window;
      (this as Own<Aimd>).window = Math.min(this.window + 1, WINDOW_MAX);
    }
  }

  onLoss(loss: number, unackedPsn: number, sendPsn: number): void {
    const recovering = this.#recoveryPsn >= 0 && psnDiff(unackedPsn, this.#recoveryPsn) < 0;
    if (loss !== Loss.TIMEOUT) {
      this.#sendsWhole = loss === Loss.WHOLE;
      if (recovering) return;
    }
    this.#recoveryPsn = sendPsn;
    if (loss === Loss.TIMEOUT) {
      // The same packets again: what they showed of the path is known already (RFC 5681 §3.1).
      if (this.#isSilent) return;
      this.#windowBefore = this.window;
      this.#thresholdBefore = this.#threshold;
      this.#isSilent = true;
    }
    const least = loss === Loss.TIMEOUT ? WINDOW_MIN : Math.min(this.window, this.#least());
    this.#threshold = Math.max(least, this.window >> 1, Math.min(this.window, this.#delivered()));
    (this as Own<Aimd>).window = loss === Loss.TIMEOUT ? WINDOW_MIN : this.#threshold;
    this.#acknowledged = 0;
  }

  /** As Eifel has it (RFC 4015): both go on from what they were. */
  undo(): void {
    (this as Own<Aimd>).window = Math.max(this.window, this.#windowBefore);
    this.#threshold = Math.max(this.#threshold, this.#thresholdBefore);
    this.#recoveryPsn = -1;
  }

  #least(): number {
    return this.#isCostly() ? WINDOW_WHOLE : WINDOW_GAP;
  }

  /** Packets that the path holds without queues, which would be filled with retransmissions; 0: not known yet. */
  #delivered(): number {
    const flight = this.#delivery.leastFlight;
    return flight + Math.ceil(flight * (this.#isCostly() ? ACK_SHARE_WHOLE : ACK_SHARE));
  }

  /** A gap costs the packets in flight, nearly as many as a short path holds. */
  #isCostly(): boolean {
    return this.#sendsWhole && this.window <= WINDOW_SHORT;
  }

  /** Growth would only fill a queue with retransmissions. */
  #isFull(): boolean {
    if (!this.#isCostly()) return false;
    const delivered = this.#delivered();
    return delivered > 0 && this.window >= Math.max(WINDOW_WHOLE, delivered);
  }

  reset(): void {
    this.#delivery.reset();
    (this as Own<Aimd>).window = WINDOW_START;
    this.#threshold = WINDOW_MAX;
    this.#acknowledged = 0;
    this.#recoveryPsn = -1;
    this.#sendsWhole = false;
    this.#windowBefore = this.#thresholdBefore = 0;
    this.#isSilent = false;
  }

  check(): string | undefined {
    const fits = this.window >= WINDOW_MIN && this.window <= WINDOW_MAX;
    return fits ? undefined : `a window of ${this.window} packets`;
  }
}
