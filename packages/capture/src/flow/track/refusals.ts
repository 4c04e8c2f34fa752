/** The RNR NAKs of the request that a responder refused last (IBTA vol 1 §9.7.5.2.8). */
export class Refusals {
  /** PSN of the request; −1 before the first. */
  psn = -1;
  count = 0;
  /** When the last one came: nanoseconds since the capture's begin. */
  time = 0;
  /** How long it asks the requester to wait, in nanoseconds. */
  wait = 0;
  /** Transmissions of the request until then. */
  sends = 0;
  #isOpen = false;

  /** The PSN whose retransmission is waited for; −1: it came, or was answered. */
  get openPsn(): number {
    return this.#isOpen ? this.psn : -1;
  }

  /** @returns false if it repeats one that is open: nothing was sent since */
  add(psn: number, time: number, wait: number, sends: number): boolean {
    if (this.#isOpen && this.psn === psn) return false;
    this.count = this.psn === psn ? this.count + 1 : 1;
    this.psn = psn;
    this.time = time;
    this.wait = wait;
    this.sends = sends;
    this.#isOpen = true;
    return true;
  }

  /** The request was retransmitted, or the wait is over for another reason. */
  close(): void {
    this.#isOpen = false;
  }
}
