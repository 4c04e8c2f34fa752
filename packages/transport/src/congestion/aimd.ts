/** Additive increase, multiplicative decrease of a window of packets, with slow start, as TCP Reno's (RFC 5681). */
import { psnDiff } from '@node-roce/wire';
import { type CongestionController, Loss } from './controller.ts';

/** Packets in flight at the start, at most and at least. */
export const WINDOW_START = 32;
export const WINDOW_MAX = 512;
const WINDOW_MIN = 2;

/** The window is WINDOW_MIN … WINDOW_MAX; a loss is reacted to once per window of packets. */
export class Aimd implements CongestionController {
  #window = WINDOW_START;
  /** Where growth turns from doubling per round trip to one packet per round trip. */
  #threshold = WINDOW_MAX;
  /** Packets acknowledged since the window last grew by one. */
  #acknowledged = 0;
  /** Losses before this PSN have been reacted to; −1: everything sent then is acknowledged. */
  #recoveryPsn = -1;

  get window(): number {
    return this.#window;
  }

  get rate(): number {
    return 0;
  }

  onSent(_packets: number): void {}

  onCnp(): void {}

  onAck(packets: number, unackedPsn: number): void {
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
    this.#threshold = Math.max(WINDOW_MIN, this.#window >> 1);
    this.#window = loss === Loss.TIMEOUT ? WINDOW_MIN : this.#threshold;
    this.#acknowledged = 0;
  }

  reset(): void {
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
