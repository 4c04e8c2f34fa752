/** The responder of an XRC target queue pair: each request names the SRQ that it is for (IBTA vol 1 annex A14). */
import { xrcethSrq } from '@node-roce/wire';
import type { InboundPacket } from '../inbound.ts';
import {
  checkAllowed,
  checkContents,
  checkSequence,
  type ReliableParts,
  Verdict,
} from '../responder/checks.ts';
import type { XrcDomain, XrcSink, XrcSource } from './domain.ts';

/** The protection domain of nothing. */
const NO_PD = -1;

/**
 * Owns which SRQ the message at hand is for: receives come from it, complete in its completion queue, and keys have to be of
 * its protection domain.
 */
export class XrcTarget implements XrcSink {
  readonly #domain: XrcDomain;
  readonly #parts: ReliableParts;
  #source: XrcSource | undefined;

  constructor(domain: XrcDomain, parts: ReliableParts) {
    this.#domain = domain;
    this.#parts = parts;
    domain.join(this);
  }

  /** The checks after the PSN's; the XRCETH is looked at before anything that the SRQ decides. */
  check(packet: InboundPacket): number {
    const parts = this.#parts;
    return (
      checkSequence(parts, packet) ||
      checkAllowed(parts, packet) ||
      this.#choose(packet) ||
      checkContents(parts, packet)
    );
  }

  /** Each packet names an SRQ of the domain, all packets of a message the same one. */
  #choose({ info, slab, at }: InboundPacket): number {
    const { message, receives, target } = this.#parts;
    const number = xrcethSrq(slab, at + info.offsets.xrceth);
    if (this.#source?.number !== number) {
      const source = message.underWay ? undefined : this.#domain.find(number);
      if (!source) return Verdict.INVALID_XRCETH;
      receives.takeFrom(source.srq, source.cq);
      this.#source = source;
    }
    target.within(this.#source.srq.pd);
    return Verdict.PASS;
  }

  /** A request that was executed before may be for another SRQ than the message at hand: its keys are of that one's domain. */
  repeat({ info, slab, at }: InboundPacket): void {
    const source = this.#domain.find(xrcethSrq(slab, at + info.offsets.xrceth));
    this.#parts.target.within(source?.srq.pd ?? NO_PD);
  }

  sourceGone(source: XrcSource): void {
    if (this.#source !== source) return;
    this.#source = undefined;
    const { message, receives } = this.#parts;
    // Its message has lost its receive: what follows of it is out of sequence.
    if (receives.inUse) message.end();
    receives.reset();
  }

  /** The queue pair is gone. */
  close(): void {
    this.#domain.leave(this);
  }
}
