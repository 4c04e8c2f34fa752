/**
 * Additive increase, multiplicative decrease of a window of packets, with slow start, as TCP Reno's (RFC 5681); but a loss alone
 * does not take it below what the path delivers: packets are lost for other reasons than congestion, too.
 */
import { psnDiff } from '@node-roce/wire';
import { type CongestionController, Loss } from './controller.ts';
import { DeliveryRate, type PathTimes } from './delivery.ts';

/** Packets in flight at the start, at most and at least. */
export const WINDOW_START = 32;
export const WINDOW_MAX = 512;
const WINDOW_MIN = 2;
/** A gap alone takes the window no lower: so little in flight draws few NAKs, and a loss then costs a probe or a timeout. */
const WINDOW_GAP = 32;
/** Above what the path delivers in a round trip, by a share: ACKs come for a few packets at once. */
const ACK_SHARE = 1 / 8;

/** The window is WINDOW_MIN … WINDOW_MAX; a loss is reacted to once per window of packets. */
export class Aimd implements CongestionController {
  readonly #delivery: DeliveryRate;
  #window = WINDOW_START;
  /** Where growth turns from doubling per round trip to one packet per round trip. */
  #threshold = WINDOW_MAX;
  /** Packets acknowledged since the window last grew by one. */
  #acknowledged = 0;
  /** Losses before this PSN have been reacted to; −1: everything sent then is acknowledged. */
  #recoveryPsn = -1;

  constructor(path: PathTimes) {
    this.#delivery = new DeliveryRate(path);
  }

  get window(): number {
    return this.#window;
  }

  get rate(): number {
    return 0;
  }

  onSent(_bytes: number): void {}

  onCnp(): void {}

  onAck(packets: number, unackedPsn: number, sendPsn: number): void {
    this.#delivery.acknowledged(packets, unackedPsn, sendPsn);
    if (this.#recoveryPsn >= 0 && psnDiff(unackedPsn, this.#recoveryPsn) >= 0) this.#recoveryPsn = -1;
    if (this.#window >= WINDOW_MAX) return;
    if (this.#window < this.#threshold) {
      this.#window = Math.min(this.#window + packets, this.#threshold);
      return;
    }
    this.#acknowledged += packets;
    if (this.#acknowledged >= this.#window) {
      this.#acknowledged -= this.#window;
      this.#window = Math.min(this.#window + 1, WINDOW_MAX);
    }
  }

  onLoss(loss: number, unackedPsn: number, sendPsn: number): void {
    const recovering = this.#recoveryPsn >= 0 && psnDiff(unackedPsn, this.#recoveryPsn) < 0;
    if (loss === Loss.GAP && recovering) return;
    this.#recoveryPsn = sendPsn;
    const least = loss === Loss.TIMEOUT ? WINDOW_MIN : Math.min(this.#window, WINDOW_GAP);
    this.#threshold = Math.max(least, this.#window >> 1, this.#delivered());
    this.#window = loss === Loss.TIMEOUT ? WINDOW_MIN : this.#threshold;
    this.#acknowledged = 0;
  }

  /** The least that a loss leaves of the window: what the path holds without queues, for those would be filled with packets sent again. */
  #delivered(): number {
    const flight = this.#delivery.leastFlight;
    return Math.min(this.#window, flight + Math.ceil(flight * ACK_SHARE));
  }

  reset(): void {
    this.#delivery.reset();
    this.#window = WINDOW_START;
    this.#threshold = WINDOW_MAX;
    this.#acknowledged = 0;
    this.#recoveryPsn = -1;
  }

  check(): string | undefined {
    const fits = this.#window >= WINDOW_MIN && this.#window <= WINDOW_MAX;
    return fits ? undefined : `a window of ${this.#window} packets`;
  }
}
