/** The responder of an XRC initiator queue pair, which takes no requests (IBTA vol 1 annex A14). */
import type { InboundPacket } from '../inbound.ts';
import type { Owner } from '../qp/owner.ts';
import type { Responder } from './responder.ts';

/** Drops and counts all packets. */
export class NoResponder implements Responder {
  readonly #owner: Owner;
  /** As it was set; no request comes. */
  #psn = 0;
  readonly resources = 0;
  readonly owed = 0;

  constructor(owner: Owner) {
    this.#owner = owner;
  }

  get expectedPsn(): number {
    return this.#psn;
  }

  awaits(): boolean {
    return false;
  }

  start(psn: number): void {
    this.#psn = psn;
  }

  setResources(): void {}

  receive(_packet: InboundPacket): void {
    this.#owner.counters.droppedPackets++;
  }

  transmit(): number {
    return 0;
  }

  stop(): void {}

  reset(): void {
    this.#psn = 0;
  }

  close(): void {}

  check(): undefined {
    return undefined;
  }
}
