/** The tail loss probe: a lost tail draws no NAK, so the oldest packet is sent once more for an answer that is overdue. */
import { psnDiff } from '@node-roce/wire';
import { SendCursor } from './cursor.ts';

/** It costs no retry, and the ACK timer runs on. Promise: the requester's cursor stays where it is. */
export class Probe {
  /** Where its packet is taken from. */
  readonly cursor = new SendCursor();
  #wanted = false;
  /** The PSN that was sent so last; −1: none, or an answer to it says nothing any more. */
  #psn = -1;

  /** Whether the next turn sends a probe. */
  get wanted(): boolean {
    return this.#wanted;
  }

  /** An answer is overdue. */
  want(): void {
    this.#wanted = true;
  }

  /** The turn to send it has come. */
  take(): void {
    this.#wanted = false;
  }

  sent(psn: number): void {
    this.#psn = psn;
  }

  /** Everything in flight is sent again, or nothing is in flight any more. */
  forget(): void {
    this.#wanted = false;
    this.#psn = -1;
  }

  /**
   * Everything before `unackedPsn` is acknowledged. Returns whether that is the probe's packet and nothing behind it: all that
   * followed is lost.
   */
  acknowledged(unackedPsn: number): boolean {
    const psn = this.#psn;
    this.#psn = -1;
    return psn >= 0 && psnDiff(unackedPsn, psn) === 1;
  }
}
