/** Requests that were executed before (IBTA vol 1 §9.7.5.1.2), and what is answered to them. */
import { NakCode, psnAdd, rethLength } from '@node-roce/wire';
import { Access } from '../constants.ts';
import type { InboundPacket } from '../inbound.ts';
import { checkAllowed, checkRemoteAccess, findRange, type ReliableParts, Verdict } from './checks.ts';
import { NO_TARGET } from './remote-target.ts';
import type { ResponderResources } from './resources.ts';

/**
 * Repetitions of an answered READ whose memory is closed, up to the one that ends the connection. A requester whose response was lost goes on asking;
 * one that has it may have had the memory closed, and what still comes are late copies of its request and its probes.
 */
const REFUSALS_MAX = 3;

/** `answer`: nothing came of it; or something is owed. Else the `NakCode` that ends the connection. */
export const Answered = { NOT: -1, OWED: 0 } as const;

/** Responses of a READ of so many bytes. */
export const responsesOf = (length: number, pathMtu: number): number =>
  Math.max(1, Math.ceil(length / pathMtu));

/** Keeps nothing of its own. */
export class Duplicates {
  readonly #parts: ReliableParts;
  readonly #resources: ResponderResources;

  constructor(parts: ReliableParts, resources: ResponderResources) {
    this.#parts = parts;
    this.#resources = resources;
  }

  /**
   * SEND and WRITE are acknowledged again, a READ is read again, an atomic is answered with the result it had. A READ or atomic that is
   * not remembered is dropped.
   *
   * @returns `Answered`, or the `NakCode` that ends the connection: that NAK is owed
   */
  answer(packet: InboundPacket, expectedPsn: number, msn: number): number {
    const { info, psn } = packet;
    if (info.isSend || info.isWrite) {
      const last = this.#resources.acknowledgeable(psn, psnAdd(expectedPsn, -1));
      this.#parts.replies.acknowledge(last, msn);
      return Answered.OWED;
    }
    const found = this.#resources.find(psn, expectedPsn);
    if (info.isFlush || info.isAtomicWrite) this.#placement(packet, found, msn);
    else if (found < 0) return Answered.NOT;
    else if (info.isReadRequest) return this.#read(packet, found, msn);
    else if (info.isAtomic) this.#atomic(packet, found, msn);
    return Answered.OWED;
  }

  #isFull(): boolean {
    return this.#parts.replies.duplicates >= this.#resources.capacity;
  }

  /**
   * A duplicate that is remembered is answered again. So is a FLUSH that is not: it asks that what was written is in memory, and
   * that it is.
   */
  #placement(packet: InboundPacket, found: number, msn: number): void {
    const { info, psn } = packet;
    const { replies, owner } = this.#parts;
    const known = found >= 0 && this.#resources.had(found, info.opcode);
    if (!known) {
      const isLate = found < 0 && info.isFlush;
      if (!isLate || checkAllowed(this.#parts, packet) !== Verdict.PASS) return;
      if (checkRemoteAccess(this.#parts, packet) !== Verdict.PASS) return;
    }
    if (replies.resumeRead(psn, 1, owner.attributes.pathMtu) || this.#isFull()) return;
    replies.pushRead(psn, msn, NO_TARGET, 0, 1, true);
  }

  #atomic({ info, psn }: InboundPacket, found: number, msn: number): void {
    const { replies } = this.#parts;
    if (!this.#resources.had(found, info.opcode) || replies.answersAtomic(psn) || this.#isFull()) return;
    const high = this.#resources.valueHigh(found);
    replies.pushAtomic(psn, msn, high, this.#resources.valueLow(found), true);
  }

  /** A duplicate READ asks for the original, or for its rest from some response on. @returns as `answer` */
  #read(packet: InboundPacket, found: number, msn: number): number {
    const { info, slab, at, psn } = packet;
    const { replies, owner, target } = this.#parts;
    const { pathMtu } = owner.attributes;
    if (!this.#resources.had(found, info.opcode) || !this.#resources.covers(found, packet, pathMtu))
      return Answered.OWED;
    const length = rethLength(slab, at + info.offsets.reth);
    const packets = responsesOf(length, pathMtu);
    if (replies.resumeRead(psn, packets, pathMtu) || this.#isFull()) return Answered.OWED;
    if (!findRange(this.#parts, packet, Access.REMOTE_READ)) {
      if (this.#resources.refuse(found) < REFUSALS_MAX) return Answered.OWED;
      // A receive in use belongs to another message, which has no fault of its own: it is flushed (§11.6.2).
      replies.pushNak(psn, msn, NakCode.REMOTE_ACCESS_ERROR);
      return NakCode.REMOTE_ACCESS_ERROR;
    }
    replies.pushRead(psn, msn, target, length, packets, true);
    return Answered.OWED;
  }
}
