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

  /** One that answers a transmission which none has answered. */
  add(psn: number, time: number, wait: number, sends: number): void {
    this.count = this.psn === psn ? this.count + 1 : 1;
    this.psn = psn;
    this.time = time;
    this.wait = wait;
    this.sends = sends;
  }
}
