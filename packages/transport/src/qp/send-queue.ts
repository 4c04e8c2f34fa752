/** The send queue: its ring, and which PSNs each entry was given. */
import { PSN_MASK, psnAdd, psnDiff } from '@node-roce/wire';
import type { CompletionQueue } from '../completion-queue.ts';
import { SendFlags, WcFlags, WcOpcode, WcStatus } from '../constants.ts';
import type { Context } from '../context.ts';
import { Cqe, SendWqe, SGE_WORDS } from '../entry-words.ts';
import { indexAfter, indexBefore, indexDiff, indexLess, type Ring } from '../rings.ts';
import { WR_OPCODES, type WrOpcodeRow } from '../wr-opcodes.ts';
import type { Owner } from './owner.ts';

/**
 * Of the first word of an entry's span, above the PSN: a READ or an atomic; its `Wire`; a READ that is split into large requests, the sign bit. The operation
 * in the ring may be another by now.
 */
const READ_OR_ATOMIC = 1 << 24;
const WIRE_SHIFT = 25;
const WIRE_MASK = 7;
const LARGE_REQUESTS = 1 << 31;
/** Those of a queue that nothing was started of. */
const NO_SPANS = new Int32Array(0);

/**
 * Indices are free-running counts of the ring's entries. Promise: head ≤ started ≤ posted ≤ head + capacity.
 * Entries in [head, started) have PSNs, which follow one another; entries in [started, posted) wait.
 */
export class SendQueue {
  readonly #context: Context;
  readonly #owner: Owner;
  readonly #cq: CompletionQueue;
  readonly #signalAll: boolean;
  #ring: Ring;
  #mask: number;
  /** First PSN of each entry that was started, and how many it takes (0: executed locally); two by ring position. */
  #spans = NO_SPANS;
  /** Oldest entry that is not complete. */
  #head = 0;
  /** One past the last entry that was started. */
  #started = 0;
  /** READs and atomics in [head, started). */
  #readOrAtomics = 0;
  /** All entries in [from, started) are messages of `size` packets which an ACK completes: behind `from`, a PSN shows the entry. */
  #from = 0;
  #size = 1;
  #isAsleep = false;

  constructor(context: Context, owner: Owner, cq: CompletionQueue, ring: Ring, signalAll: boolean) {
    this.#context = context;
    this.#owner = owner;
    this.#cq = cq;
    this.#ring = ring;
    this.#signalAll = signalAll;
    this.#mask = ring.capacity - 1;
    ring.sleep(0);
  }

  get head(): number {
    return this.#head;
  }

  get started(): number {
    return this.#started;
  }

  /** Whether a ring has room for the entries that were started: the program may have posted more since its size was checked. */
  fits({ capacity }: Ring): boolean {
    return indexDiff(this.#started, this.#head) <= capacity;
  }

  /** The ring of a resize, which the program posts to by now: entries keep their indices and PSNs. */
  moveTo(ring: Ring): void {
    const mask = ring.capacity - 1;
    const spans = new Int32Array(2 * ring.capacity);
    for (let i = this.#head; i !== this.#started; i = indexAfter(i)) {
      const from = 2 * (i & this.#mask);
      spans[2 * (i & mask)] = this.#spans[from];
      spans[2 * (i & mask) + 1] = this.#spans[from + 1];
    }
    ring.takeOver(this.#ring, this.#head);
    this.#ring = ring;
    this.#mask = mask;
    this.#spans = spans;
    this.#isAsleep = false;
  }

  /** One past the last entry that the program has posted; one that posts more than there is room for has posted nothing. */
  get posted(): number {
    const end = this.#ring.end(this.#started);
    return indexDiff(end, this.#head) > this.#ring.capacity ? this.#started : end;
  }

  /** Whether an entry waits to be started. */
  get waiting(): boolean {
    return this.#ring.has(this.#started) && !this.#isFull();
  }

  /** Every entry was started: what the program posts meanwhile would take the place of one that is out. */
  #isFull(): boolean {
    return indexDiff(this.#started, this.#head) >= this.#ring.capacity;
  }

  /** Scatter/gather elements that an entry has room for, whatever its own count of elements. */
  get maxElements(): number {
    return (this.#ring.stride - SendWqe.SGE) / SGE_WORDS;
  }

  /** The ring's memory, which the program writes; entry `index` begins at word `wordOf(index)`. */
  get words(): Uint32Array {
    return this.#ring.words;
  }

  wordOf(index: number): number {
    return this.#ring.wordOf(index);
  }

  /** The operation of an entry; undefined where the program wrote none that there is. */
  rowOf(index: number): WrOpcodeRow | undefined {
    return WR_OPCODES[this.#ring.words[this.#ring.wordOf(index) + SendWqe.OPCODE_FLAGS] & 0xff];
  }

  /** The same, of an entry that was started; undefined where the program wrote one of another kind since, or one that this service does not have. */
  startedRow(index: number): WrOpcodeRow | undefined {
    const row = this.rowOf(index);
    if (row === undefined || (row.services & this.#owner.service) === 0) return undefined;
    return row.wire === this.wireOf(index) ? row : undefined;
  }

  /** How an entry that was started travels: a `Wire`. */
  wireOf(index: number): number {
    return (this.#spans[2 * (index & this.#mask)] >>> WIRE_SHIFT) & WIRE_MASK;
  }

  /** Whether an entry was started as a READ that is split into large requests (`reads.ts`). */
  asksLarge(index: number): boolean {
    return this.#spans[2 * (index & this.#mask)] < 0;
  }

  /** First PSN of an entry that was started. */
  firstPsn(index: number): number {
    return this.#spans[2 * (index & this.#mask)] & PSN_MASK;
  }

  /** Last PSN of an entry that was started. */
  lastPsn(index: number): number {
    return psnAdd(this.firstPsn(index), this.packetsOf(index) - 1);
  }

  /** PSNs that an entry takes; 0: it was executed locally. */
  packetsOf(index: number): number {
    return this.#spans[2 * (index & this.#mask) + 1];
  }

  /** READs and atomics that were started and are not complete: a fenced entry waits for them. */
  get readOrAtomics(): number {
    return this.#readOrAtomics;
  }

  /** Asks for a doorbell at the next entry. True if one came meanwhile. */
  sleep(): boolean {
    const came = this.#ring.sleep(this.#started);
    this.#isAsleep = !came;
    return came && !this.#isFull();
  }

  /** Whether all that was posted is started, and a doorbell was asked for. */
  get isAsleep(): boolean {
    return this.#isAsleep;
  }

  /** It is looked at again. */
  awake(): void {
    this.#isAsleep = false;
  }

  /**
   * Gives the next entry its PSNs.
   *
   * @param row its operation, as it was looked at
   * @param asksLarge a READ that is split into large requests
   */
  start(psn: number, packets: number, { wire, readOrAtomic }: WrOpcodeRow, asksLarge = false): void {
    const at = this.#started & this.#mask;
    if (this.#spans === NO_SPANS) this.#spans = new Int32Array(2 * this.#ring.capacity);
    const kind = (readOrAtomic ? READ_OR_ATOMIC : 0) | (asksLarge ? LARGE_REQUESTS : 0);
    this.#spans[2 * at] = psn | kind | (wire << WIRE_SHIFT);
    this.#spans[2 * at + 1] = packets;
    const isEqual = packets === this.#size && this.#head !== this.#started;
    if (readOrAtomic) this.#readOrAtomics++;
    if (readOrAtomic || packets === 0) this.#from = indexAfter(this.#started);
    else if (!isEqual) {
      this.#from = this.#started;
      this.#size = packets;
    }
    this.#started = indexAfter(this.#started);
  }

  /** Gives the next `count` entries, SENDs of one packet each, a PSN each. @param row their operation */
  startSends(psn: number, count: number, { wire }: WrOpcodeRow): void {
    const spans = this.#spans;
    const kind = wire << WIRE_SHIFT;
    if (this.#size !== 1 || this.#head === this.#started) {
      this.#from = this.#started;
      this.#size = 1;
    }
    for (let i = 0; i < count; i++) {
      const at = (this.#started + i) & this.#mask;
      spans[2 * at] = ((psn + i) & PSN_MASK) | kind;
      spans[2 * at + 1] = 1;
    }
    this.#started = (this.#started + count) | 0;
  }

  /** The entry that was started last is not started after all. */
  unstart(): void {
    this.#started = indexBefore(this.#started);
    if (this.isReadOrAtomic(this.#started)) this.#readOrAtomics--;
  }

  /** Whether an entry was started as a READ or an atomic: the program may have written another operation since. */
  isReadOrAtomic(index: number): boolean {
    return (this.#spans[2 * (index & this.#mask)] & READ_OR_ATOMIC) !== 0;
  }

  /**
   * How many entries an ACK of `psn` completes, by its distance from the first PSN; −1 where they have to be looked at: READs and atomics, messages
   * of different lengths in packets, local operations, or a PSN that is not out.
   */
  reachedBy(psn: number): number {
    const before = indexDiff(this.#from, this.#head);
    if (before > 0 || this.#head === this.#started) return -1;
    // Indices are compared within half of their range.
    if (before < 0) this.#from = this.#head;
    const packets = psnDiff(psn, this.firstPsn(this.#head)) + 1;
    const count = this.#size === 1 ? packets : Math.floor(packets / this.#size);
    return count < 0 || count > indexDiff(this.#started, this.#head) ? -1 : count;
  }

  /** Completes the oldest `count` entries, which `reachedBy` counted: of those that show nothing, their operation alone is looked at. */
  completeRun(count: number): void {
    const ring = this.#ring;
    const { words } = ring;
    const end = (this.#head + count) | 0;
    const { counters, hasSends } = this.#owner;
    const showsAll = this.#signalAll || !hasSends;
    let from = this.#head;
    for (let i = from; i !== end; i = (i + 1) | 0) {
      const opcodeFlags = words[ring.wordOf(i) + SendWqe.OPCODE_FLAGS];
      if (!showsAll && (opcodeFlags & (SendFlags.SIGNALED << 8)) === 0) {
        if (WR_OPCODES[opcodeFlags & 0xff]?.completion === WcOpcode.SEND) counters.completedSends++;
        continue;
      }
      this.#silent(from, i);
      this.complete(WcStatus.SUCCESS);
      from = this.#head;
      // A completion queue that overran has ended that: all is flushed.
      if (from !== ((i + 1) | 0)) return;
    }
    this.#silent(from, end);
    ring.release(this.#head);
  }

  /** The entries in [from, end) are complete, and show nothing. */
  #silent(from: number, end: number): void {
    this.#owner.counters.sentMessages += (end - from) | 0;
    this.#head = end;
  }

  /** Completes the oldest entry. Successes show only where they were asked for. */
  complete(status: number): void {
    const words = this.#ring.words;
    const w = this.#ring.wordOf(this.#head);
    const opcodeFlags = words[w + SendWqe.OPCODE_FLAGS];
    const row = WR_OPCODES[opcodeFlags & 0xff];
    const { hasSends } = this.#owner;
    const opcode = row === undefined ? WcOpcode.SEND : row.completion;
    const wasStarted = this.#head !== this.#started;
    if (wasStarted && this.isReadOrAtomic(this.#head)) this.#readOrAtomics--;
    const wrIdLow = words[w + SendWqe.WR_ID_LOW];
    const wrIdHigh = words[w + SendWqe.WR_ID_HIGH];
    const length = words[w + SendWqe.LENGTH];
    this.#head = indexAfter(this.#head);
    this.#ring.release(this.#head);
    if (!wasStarted) this.#started = this.#head;
    const { counters } = this.#owner;
    if (status === WcStatus.SUCCESS) {
      counters.sentMessages++;
      if (opcode === WcOpcode.SEND) counters.completedSends++;
      if (!this.#signalAll && (opcodeFlags & (SendFlags.SIGNALED << 8)) === 0) return;
    } else if (status === WcStatus.WR_FLUSH_ERR) counters.flushedSends++;
    else counters.failedSends++;
    // A rendezvous completes as the second completion of its receive, when the data is there or can't be had.
    if (!hasSends && opcode !== WcOpcode.RDMA_READ) return;
    const cq = this.#cq;
    const c = this.#context.claimCompletion(this.#owner, cq);
    if (c < 0) return;
    cq.words[c + Cqe.WR_ID_LOW] = wrIdLow;
    cq.words[c + Cqe.WR_ID_HIGH] = wrIdHigh;
    cq.words[c + Cqe.STATUS] = status;
    cq.words[c + Cqe.OPCODE] = hasSends ? opcode : WcOpcode.TM_RECV;
    if (!hasSends) cq.words[c + Cqe.FLAGS] = WcFlags.TM_DATA_VALID;
    cq.words[c + Cqe.BYTE_LEN] = length;
    cq.words[c + Cqe.SRC_QP] = this.#owner.attributes.destQpn;
    cq.commit(status !== WcStatus.SUCCESS);
  }

  /** Completes the oldest entry, and those behind it that were executed locally (BIND_MW, LOCAL_INV). */
  completeOldest(): void {
    this.complete(WcStatus.SUCCESS);
    while (this.#head !== this.#started && this.packetsOf(this.#head) === 0) {
      this.complete(WcStatus.SUCCESS);
    }
  }

  /**
   * Flushes the posted requests, and asks for a doorbell for later ones. A completion that has no room ends the queue pair, which calls
   * this again inside of the call and may flush more: another thread posts meanwhile.
   * @returns whether requests were posted meanwhile that no doorbell will report
   */
  flush(): boolean {
    this.#isAsleep = false;
    const { posted } = this;
    while (indexLess(this.#head, posted)) this.complete(WcStatus.WR_FLUSH_ERR);
    this.#started = this.#head;
    this.#readOrAtomics = 0;
    return this.#ring.sleep(this.#head);
  }

  /** Drops the posted requests without completions. */
  reset(): void {
    this.#isAsleep = false;
    this.#head = this.#started = this.#ring.releaseAll();
    this.#readOrAtomics = 0;
    this.#ring.sleep(this.#head);
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    const posted = indexDiff(this.posted, this.#head);
    const started = indexDiff(this.#started, this.#head);
    if (posted < 0 || posted > this.#ring.capacity) return `${posted} entries are posted`;
    if (started < 0 || started > posted) return `${started} of ${posted} entries are started`;
    let readOrAtomics = 0;
    for (let i = this.#head; i !== this.#started; i = indexAfter(i)) {
      const isRead = this.isReadOrAtomic(i);
      if (isRead) readOrAtomics++;
      if ((isRead || this.packetsOf(i) !== this.#size) && !indexLess(i, this.#from))
        return `entry ${i} is not as those from ${this.#from} on`;
      const next = indexAfter(i);
      if (next !== this.#started && psnAdd(this.firstPsn(i), this.packetsOf(i)) !== this.firstPsn(next)) {
        return `the PSNs of entry ${next} do not follow`;
      }
    }
    return readOrAtomics === this.#readOrAtomics
      ? undefined
      : `${this.#readOrAtomics} READs and atomics are counted`;
  }
}
