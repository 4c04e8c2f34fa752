/**
 * What a responder owes its requester, in the order in which it has to leave: acknowledgements, READ
 * responses, atomic results, a NAK. And what it remembers of READs and atomics, to answer duplicates.
 *
 * Responses leave in PSN order (IBTA vol 1 §9.7.5.1.3): an ACK never overtakes an unfinished READ.
 * Successive ACKs merge into one, because an ACK acknowledges everything before it.
 */
import { NakCode, psnDiff } from '@node-roce/wire';
import type { MemoryRegion } from './memory.ts';

export const ReplyKind = { ACK: 0, READ: 1, ATOMIC: 2, NAK: 3 } as const;

/** One reply; made once, used again and again. */
export class Reply {
  kind: number = ReplyKind.ACK;
  /** Answers a request that was executed before: takes none of the requester's resources. */
  duplicate = false;
  /** ACK, NAK, ATOMIC: the PSN to send. READ: the first response's PSN. */
  psn = 0;
  msn = 0;
  /** AETH syndrome of a NAK or RNR NAK. */
  syndrome = 0;
  /** READ: the region, `undefined` for a READ of nothing. */
  mr: MemoryRegion | undefined;
  /** READ: offset of the first byte in the backing buffer; bytes; responses sent and in all. */
  offset = 0;
  length = 0;
  sent = 0;
  packets = 0;
  /** ATOMIC: the value that was there before. */
  valueHigh = 0;
  valueLow = 0;
}

/** A READ or atomic that was executed: what a duplicate of it is compared with and answered from. */
export class Executed {
  atomic = false;
  psn = 0;
  packets = 0;
  key = 0;
  addressHigh = 0;
  addressLow = 0;
  length = 0;
  valueHigh = 0;
  valueLow = 0;
}

/** Answers to duplicates that may wait at once; a requester that asks more often is answered once. */
const DUPLICATES_MAX = 8;

export class ReplyQueue {
  #entries: Reply[] = [];
  #head = 0;
  #count = 0;
  #executed: Executed[] = [];
  #executedNext = 0;
  #executedCount = 0;
  /** READs and atomics that wait for their response to leave, first answers only. */
  pending = 0;
  #duplicates = 0;

  /** Makes room for this many READs and atomics at once (max_dest_rd_atomic), and forgets everything. */
  reset(resources: number): void {
    // Between any two of them there can be an ACK; the rest is for NAKs and for duplicates with their ACKs.
    const room = 2 * resources + 2 * DUPLICATES_MAX + 8;
    if (this.#entries.length !== room) this.#entries = Array.from({ length: room }, () => new Reply());
    if (this.#executed.length !== resources) {
      this.#executed = Array.from({ length: resources }, () => new Executed());
    }
    this.#head = 0;
    this.#count = 0;
    this.#executedNext = 0;
    this.#executedCount = 0;
    this.pending = 0;
    this.#duplicates = 0;
  }

  get empty(): boolean {
    return this.#count === 0;
  }

  /** Ends with a NAK after which nothing more is said. */
  get dying(): boolean {
    const last = this.#last();
    return last !== undefined && last.kind === ReplyKind.NAK && last.syndrome > NakCode.PSN_SEQUENCE_ERROR;
  }

  /** The reply to send next. */
  get first(): Reply | undefined {
    return this.#count === 0 ? undefined : this.#entries[this.#head];
  }

  /** The first reply has left. */
  shift(): void {
    const reply = this.#entries[this.#head];
    if (reply.duplicate) this.#duplicates--;
    else if (reply.kind === ReplyKind.READ || reply.kind === ReplyKind.ATOMIC) this.pending--;
    reply.mr = undefined;
    this.#head = (this.#head + 1) % this.#entries.length;
    this.#count--;
  }

  /** A fresh reply at the end, or undefined where there is no room: the requester will ask again. */
  push(kind: number, psn: number, msn: number, duplicate = false): Reply | undefined {
    if (this.#count === this.#entries.length) return undefined;
    if (duplicate && this.#duplicates === DUPLICATES_MAX) return undefined;
    const reply = this.#entries[(this.#head + this.#count++) % this.#entries.length];
    reply.kind = kind;
    reply.psn = psn;
    reply.msn = msn;
    reply.sent = 0;
    reply.duplicate = duplicate;
    if (duplicate) this.#duplicates++;
    else if (kind === ReplyKind.READ || kind === ReplyKind.ATOMIC) this.pending++;
    return reply;
  }

  /** Acknowledges up to `psn`, in one packet with the ACK that still waits at the end, if one does. */
  acknowledge(psn: number, msn: number): void {
    const last = this.#last();
    if (last?.kind === ReplyKind.ACK) {
      if (psnDiff(psn, last.psn) > 0) last.psn = psn;
      last.msn = msn;
      return;
    }
    this.push(ReplyKind.ACK, psn, msn);
  }

  /**
   * The READ response or atomic result that still waits and covers this PSN. A duplicate request that it
   * will answer anyway needs no second answer.
   */
  waiting(kind: number, psn: number): Reply | undefined {
    for (let i = 0; i < this.#count; i++) {
      const reply = this.#entries[(this.#head + i) % this.#entries.length];
      if (reply.kind !== kind) continue;
      const at = psnDiff(psn, reply.psn);
      if (at >= 0 && at < (kind === ReplyKind.READ ? reply.packets : 1)) return reply;
    }
    return undefined;
  }

  /** Remembers an executed READ or atomic in the place of the oldest. */
  remember(): Executed {
    const entry = this.#executed[this.#executedNext];
    this.#executedNext = (this.#executedNext + 1) % this.#executed.length;
    if (this.#executedCount < this.#executed.length) this.#executedCount++;
    return entry;
  }

  /** The remembered READ or atomic whose PSNs cover this one. */
  executed(psn: number): Executed | undefined {
    for (let i = 0; i < this.#executedCount; i++) {
      const entry = this.#executed[i];
      const at = psnDiff(psn, entry.psn);
      if (at >= 0 && at < entry.packets) return entry;
    }
    return undefined;
  }

  /**
   * The last PSN that an ACK for a duplicate at `psn` may carry: up to `latest`, yet not reaching a READ
   * or an atomic after it, whose response the requester may still miss (an ACK past it would say that
   * it was answered).
   */
  acknowledgeable(psn: number, latest: number): number {
    let limit = latest;
    for (let i = 0; i < this.#executedCount; i++) {
      const first = this.#executed[i].psn;
      if (psnDiff(first, psn) > 0 && psnDiff(first, limit) <= 0) limit = (first - 1) & 0xff_ffff;
    }
    return limit;
  }

  #last(): Reply | undefined {
    return this.#count === 0
      ? undefined
      : this.#entries[(this.#head + this.#count - 1) % this.#entries.length];
  }
}
