/** The shared state of an adapter's queue pairs; it knows nothing of how one works. */
import { Addresses, type PeerTable } from './addresses.ts';
import type { CopyBatch, RegionTable, TxBatch } from './batch.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { DELIVERY_VALUES } from './congestion/delivery.ts';
import { QP_STATES, type QpState, type RetransmitCause } from './constants.ts';
import type { DeviceLimits, GidEntry, Recovery } from './control.ts';
import { CopyList } from './copies.ts';
import { AdapterCounters } from './counters.ts';
import { Deadlines } from './deadlines.ts';
import { Cqe } from './entry-words.ts';
import { RoceBug } from './errors.ts';
import { Memory } from './memory.ts';
import type { OpenBatches } from './open-batches.ts';
import type { Owner } from './qp/owner.ts';
import type { MemoryRegion } from './region.ts';
import { ReadBudget } from './requester/reads.ts';
import { ROUND_TRIP_TIMES } from './requester/round-trip.ts';
import { TIMERS } from './requester/timers.ts';
import { EarlyPages } from './responder/early-pages.ts';
import { Farewells } from './responder/farewells.ts';
import { RingSlabs } from './ring-slabs.ts';
import { createRing, type NewRing, Ring } from './rings.ts';
import { Scheduler } from './scheduler.ts';
import { Stamps } from './stamps.ts';
import { type Clock, Times } from './times.ts';
import { withdrawReads } from './withdraw.ts';

/** Asynchronous events (ibv_get_async_event(3)), with their objects. */
export type AsyncEvent =
  | {
      type: 'QP_FATAL' | 'QP_REQ_ERR' | 'QP_ACCESS_ERR' | 'COMM_EST' | 'SQ_DRAINED' | 'QP_LAST_WQE_REACHED';
      qpn: number;
    }
  /** The connection goes over its alternate path now; the peer went to another path than that. */
  | { type: 'PATH_MIG' | 'PATH_MIG_ERR'; qpn: number }
  | { type: 'CQ_ERR'; cq: number }
  | { type: 'SRQ_LIMIT_REACHED' | 'SRQ_ERR'; srq: number };

export interface Host {
  /** The completion queue has a completion that the program asked an event for. */
  onCompletionEvent(cq: number): void;
  onAsyncEvent(event: AsyncEvent): void;
  /** A queue pair went to another state; `to` is undefined where it was destroyed. */
  onStateChange?(qpn: number, from: QpState, to: QpState | undefined): void;
  /** A request packet is retransmitted: called as it is added to the batch, and looked for only then. */
  onRetransmit?(qpn: number, psn: number, cause: RetransmitCause): void;
  /** A packet came to queue pair 1, which is not there. The call may create it, and it gets the packet. */
  onGeneralServices?(): void;
  /** Whether a QPN is kept back although no queue pair has it. */
  isReserved?(qpn: number): boolean;
}

/** Callbacks for packets that the link has looked at. */
export interface LinkWaiter {
  taken(): void;
}

const REQUESTER_TIMES = TIMERS + ROUND_TRIP_TIMES + DELIVERY_VALUES;
/** Packets of a run that are taken at once, at most. */
export const RUN_MAX = 1024;
/** Pages for packets that came early, of all connections: 64 MiB. */
const EARLY_PAGES = 1024;

/** The services that an adapter gives to its context. */
export interface ContextOptions {
  host: Host & { peers: PeerTable; gids: readonly GidEntry[] };
  random: () => number;
  limits: DeviceLimits;
  regions: RegionTable;
  copy: CopyBatch;
  /** Bytes of receive buffer that READ responses may take. */
  readBudget: number;
  /** Whether ACKs carry the count of posted receives (end-to-end flow control, §9.7.7.2). */
  credits: boolean;
  /** Whether program and engine may be on two threads. */
  sharedRings: boolean;
  /** Of queue pairs that are not created otherwise. */
  recovery: Recovery;
  throwBugs: boolean;
  /** Reading of the clock of completion times at time 0, ns. */
  clockOrigin: number;
}

/**
 * Memory, address handles, the copies of the batch at hand, the completion queues that it touched, deadlines, turns, and the
 * time of the call. Promise: no completion shows before the copies of its call are done.
 */
export class Context {
  readonly regions: RegionTable;
  readonly memory: Memory;
  readonly limits: DeviceLimits;
  readonly counters = new AdapterCounters();
  /** The time of the call at hand. */
  readonly clock: Clock = new Float64Array(1);
  readonly deadlines = new Deadlines(this.clock);
  /** Times of requesters. */
  readonly times = new Times(REQUESTER_TIMES);
  readonly #host: Host;
  readonly #copies: CopyList;
  /** Completion queues with completions that do not show yet: the first `#dirtyCount`. */
  readonly #dirty: CompletionQueue[] = [];
  #dirtyCount = 0;
  readonly addresses: Addresses;
  /** Last replies of queue pairs that were reset or destroyed. */
  readonly farewells: Farewells;
  readonly gids: readonly GidEntry[];
  readonly batches: OpenBatches<TxBatch>;
  /** Requesters with packets in a batch that the link has not taken. */
  readonly #withLink: LinkWaiter[] = [];
  #withLinkCount = 0;
  readonly scheduler = new Scheduler();
  #slab: Uint8Array = new Uint8Array(0);
  /** Memory for packets that came early. */
  readonly earlyPages = new EarlyPages(EARLY_PAGES);
  /** Bytes of socket buffer that READ responses may take, over all queue pairs. */
  readonly readBudget: ReadBudget;
  /** Whether ACKs carry the count of posted receives (end-to-end flow control, §9.7.7.2). */
  readonly credits: boolean;
  /** The engine's side of a new ring, which the program has the other side of. */
  readonly newRing: NewRing;
  /** The same for the queues of a queue pair. */
  readonly newWorkRing: NewRing;
  readonly #slabs: RingSlabs;
  /** Of queue pairs that are not created otherwise. */
  readonly recovery: Recovery;
  /** Times of completions. */
  readonly stamps: Stamps;
  readonly #throwBugs: boolean;

  constructor(options: ContextOptions) {
    const { host, regions, limits } = options;
    this.#host = host;
    this.regions = regions;
    this.limits = limits;
    this.batches = regions.batches;
    this.memory = new Memory(regions, options.random, limits, ({ key }) =>
      withdrawReads(this.batches.list, key),
    );
    this.addresses = new Addresses(host.peers, limits, this.batches);
    this.farewells = new Farewells(regions, this.addresses);
    this.gids = host.gids;
    this.#copies = new CopyList(options.copy, regions);
    this.readBudget = new ReadBudget(options.readBudget);
    this.credits = options.credits;
    const { sharedRings } = options;
    this.newRing = (entries, stride) => new Ring(createRing(entries, stride, sharedRings));
    this.#slabs = new RingSlabs(regions);
    this.newWorkRing = sharedRings ? this.newRing : this.#slabs.newRing;
    this.recovery = options.recovery;
    this.stamps = new Stamps(this.clock, options.clockOrigin);
    this.#throwBugs = options.throwBugs;
  }

  /** A batch of received packets begins, which copies come from. */
  beginBatch(slab: Uint8Array): void {
    this.#slab = slab;
  }

  /** From here on copies come from another slab. @returns the one that they came from */
  switchSlab(slab: Uint8Array): Uint8Array {
    const before = this.#slab;
    if (slab !== before) this.flushCopies();
    this.#slab = slab;
    return before;
  }

  /** Payload of the packet at hand goes to `offset` of a region, before anybody can look. */
  copy(source: number, region: number, offset: number, length: number): void {
    if (length === 0) return;
    this.copiesFor(1).add(source, region, offset, length);
  }

  /** The list of copies, with room for so many more of a run. */
  copiesFor(count: number): CopyList {
    this.#copies.makeRoom(count, this.#slab);
    return this.#copies;
  }

  /**
   * The same to a region that may be behind calls: they are made at once, so that what can't be stored is not acknowledged.
   * @returns false where it can't
   */
  place(source: number, mr: MemoryRegion, offset: number, length: number): boolean {
    const { reach } = mr;
    if (reach === undefined) {
      this.copy(source, mr.region, offset, length);
      return true;
    }
    // Copies that wait go first.
    this.flushCopies();
    return length === 0 || reach.push(this.#slab, source, offset, length);
  }

  /** Bytes of our own making go to `offset` of a region, at once. @returns false where they can't */
  write(bytes: Uint8Array, source: number, mr: MemoryRegion, offset: number, length: number): boolean {
    if (mr.reach !== undefined) return mr.reach.push(bytes, source, offset, length);
    const { view } = mr;
    for (let i = 0; i < length; i++) view[offset + i] = bytes[source + i];
    return true;
  }

  /** Does the copies: before memory is read here, and before completions are shown. */
  flushCopies(): void {
    if (this.#copies.count > 0) this.#copies.flush(this.#slab);
  }

  /** Shows the completions of the call at hand. */
  publish(): void {
    this.flushCopies();
    const dirty = this.#dirty;
    // An array that is emptied gives up its memory, so the count is kept next to it.
    for (let i = 0; i < this.#dirtyCount; i++) {
      if (dirty[i].publish()) this.#host.onCompletionEvent(dirty[i].handle);
    }
    this.#dirtyCount = 0;
  }

  /** Lets the host create queue pair 1 for a packet that came to it. */
  generalServices(): void {
    this.#host.onGeneralServices?.();
  }

  isReserved(qpn: number): boolean {
    return this.#host.isReserved?.(qpn) ?? false;
  }

  event(event: AsyncEvent): void {
    this.#host.onAsyncEvent(event);
  }

  /** A queue pair went to another state; `to` is undefined where it was destroyed. */
  stateChanged(qpn: number, from: QpState, to: QpState | undefined): void {
    this.#host.onStateChange?.(qpn, from, to);
  }

  /** The packet at this PSN was sent before. */
  retransmitted(owner: Owner, psn: number, cause: RetransmitCause): void {
    owner.counters.retransmittedPackets++;
    this.#host.onRetransmit?.(owner.qpn, psn, cause);
  }

  /**
   * Reports a state that no input can lead to. Throws `RoceBug` where the adapter was made so (tests, the
   * simulator); in production it counts the bug and fails this one queue pair.
   */
  bug(qp: Owner, text: string): void {
    if (this.#throwBugs) throw new RoceBug(`QP ${qp.qpn} in ${QP_STATES[qp.state]}: ${text}`);
    this.counters.bugs++;
    qp.failed();
  }

  /** The region of a work queue's memory, where inline data is sent from. */
  regionOf(ring: Ring): number {
    return this.#slabs.regionOf(ring) ?? this.regions.add(ring.bytes);
  }

  /**
   * A send queue is not used any more.
   *
   * @param isRead packets of open batches are still to be read from it
   */
  freeSends(ring: Ring, region: number, isRead: boolean): void {
    if (this.#slabs.free(ring)) return;
    if (isRead) this.regions.retire(region);
    else this.regions.remove(region);
  }

  /** The rings of a queue pair, or none: where there is no memory for the second, the first gives its place back. */
  newRings<Second extends Ring | undefined>(newSends: () => Ring, newReceives: () => Second): [Ring, Second] {
    const sq = newSends();
    try {
      return [sq, newReceives()];
    } catch (error) {
      this.freeRing(sq);
      throw error;
    }
  }

  /** A work queue that no packet is read from is not used any more. */
  freeRing(ring: Ring): void {
    this.#slabs.free(ring);
  }

  /** Packets of a requester are in a batch: it hears when the link has looked at them. */
  awaitLink(requester: LinkWaiter): void {
    this.#withLink[this.#withLinkCount++] = requester;
  }

  /** The link has looked at every packet of the batch. */
  batchClosed(batch: TxBatch): void {
    this.batches.close(batch);
    const requesters = this.#withLink;
    for (let i = 0; i < this.#withLinkCount; i++) requesters[i].taken();
    this.#withLinkCount = 0;
  }

  /**
   * Begins a completion for a queue pair: first word of the entry to fill in `cq.words`, to be committed; −1 if the
   * queue has overrun, which ends the queue pair.
   */
  claimCompletion(qp: Owner, cq: CompletionQueue): number {
    const w = this.claim(cq, qp.qpn);
    if (w < 0) qp.completionLost();
    return w;
  }

  /** The completion queue is about to get completions that have room: it is published with the others. */
  touch(cq: CompletionQueue): void {
    if (!cq.dirty) this.#dirty[this.#dirtyCount++] = cq;
  }

  /** The same for what is of no queue pair, with QPN 0. */
  claim(cq: CompletionQueue, qpn: number): number {
    const wasOverrun = cq.overrun;
    if (!wasOverrun) this.touch(cq);
    const w = cq.claim();
    if (w >= 0) {
      cq.words[w + Cqe.QP_NUM] = qpn;
      if (cq.stamped) this.stamps.write(cq.words, w);
      return w;
    }
    if (!wasOverrun) this.event({ type: 'CQ_ERR', cq: cq.handle });
    return w;
  }
}
