/**
 * What requester, completer, responder and replies share: memory, the copies of the batch in hand, the
 * completion queues that it touched, the scheduler and the deadlines.
 */
import { Addresses, type PeerTable } from './addresses.ts';
import { COPY_WORDS, Copy, type CopyBatch, type RegionTable, type TxBatch } from './batch.ts';
import type { CompletionQueue } from './completion-queue.ts';
import type { QpState, RetransmitCause } from './constants.ts';
import type { DeviceLimits, GidEntry } from './control.ts';
import { AdapterCounters } from './counters.ts';
import { Deadlines } from './deadlines.ts';
import { RoceBug } from './errors.ts';
import { Memory } from './memory.ts';
import type { Owner } from './qp/owner.ts';
import type { QueuePair } from './qp.ts';
import { ReadBudget } from './requester/reads.ts';
import type { Requester } from './requester/requester.ts';
import { Farewells } from './responder/farewells.ts';
import { Cqe } from './rings.ts';
import { TurnQueue } from './scheduler.ts';

/** Asynchronous events (ibv_get_async_event(3)), with what they concern. */
export type AsyncEvent =
  | {
      type: 'QP_FATAL' | 'QP_REQ_ERR' | 'QP_ACCESS_ERR' | 'COMM_EST' | 'SQ_DRAINED' | 'QP_LAST_WQE_REACHED';
      qpn: number;
    }
  | { type: 'CQ_ERR'; cq: number }
  | { type: 'SRQ_LIMIT_REACHED' | 'SRQ_ERR'; srq: number };

export interface Host {
  /** The completion queue has something that the program asked to be told of. */
  onCompletionEvent(cq: number): void;
  onAsyncEvent(event: AsyncEvent): void;
  /** A queue pair went to another state; `to` is undefined where it was destroyed. */
  onStateChange?(qpn: number, from: QpState, to: QpState | undefined): void;
  /** A request packet is sent again: called as it is added to the batch, and looked for only then. */
  onRetransmit?(qpn: number, psn: number, cause: RetransmitCause): void;
}

const COPY_CAPACITY = 4096;
const TWO_32 = 0x1_0000_0000;

export class Core {
  readonly regions: RegionTable;
  readonly memory: Memory;
  readonly limits: DeviceLimits;
  readonly counters = new AdapterCounters();
  readonly deadlines = new Deadlines();
  readonly #copy: CopyBatch;
  readonly #host: Host;
  readonly #copies = new Uint32Array(COPY_CAPACITY * COPY_WORDS);
  #copyCount = 0;
  readonly #dirty: CompletionQueue[] = [];
  readonly addresses: Addresses;
  /** Last replies of queue pairs that were reset or destroyed. */
  readonly farewells: Farewells;
  readonly gids: readonly GidEntry[];
  /** Batches with packets that the link has not looked at. */
  readonly #batches: TxBatch[] = [];
  /** Requesters with packets in a batch that the link has not taken. */
  readonly #withLink: Requester[] = [];
  /** Queue pairs that owe short replies, and those with requests or READ responses, in the order of their turns. */
  readonly replies = new TurnQueue<QueuePair>();
  readonly bulk = new TurnQueue<QueuePair>();
  /** The slab of the batch in hand: where copies come from. */
  slab: Uint8Array = new Uint8Array(0);
  /** Virtual time of the call in hand, µs. */
  now = 0;
  /** Bytes of socket buffer that READ responses may take, over all queue pairs. */
  readonly readBudget: ReadBudget;
  /** Whether ACKs carry the count of posted receives (end-to-end flow control, §9.7.7.2). */
  readonly credits: boolean;
  readonly #throwBugs: boolean;

  constructor(
    host: Host & { peers: PeerTable; gids: readonly GidEntry[] },
    random: () => number,
    limits: DeviceLimits,
    regions: RegionTable,
    copy: CopyBatch,
    readBudget: number,
    credits: boolean,
    throwBugs: boolean,
  ) {
    this.#host = host;
    this.regions = regions;
    this.limits = limits;
    this.memory = new Memory(regions, random, limits);
    this.addresses = new Addresses(host.peers, limits);
    this.farewells = new Farewells(regions, this.addresses);
    this.gids = host.gids;
    this.#copy = copy;
    this.readBudget = new ReadBudget(readBudget);
    this.credits = credits;
    this.#throwBugs = throwBugs;
  }

  /** Payload of the packet in hand goes to `offset` of a region, before anybody can look. */
  copy(source: number, region: number, offset: number, length: number): void {
    if (length === 0) return;
    if (this.#copyCount === COPY_CAPACITY) this.flushCopies();
    const list = this.#copies;
    const w = this.#copyCount++ * COPY_WORDS;
    list[w + Copy.SOURCE] = source;
    list[w + Copy.REGION] = region;
    list[w + Copy.OFFSET_LOW] = offset;
    list[w + Copy.OFFSET_HIGH] = Math.floor(offset / TWO_32);
    list[w + Copy.LENGTH] = length;
  }

  /** Bytes of our own making go to `offset` of a region, at once. */
  write(bytes: Uint8Array, source: number, region: number, offset: number, length: number): void {
    const view = this.regions.views[region]!;
    for (let i = 0; i < length; i++) view[offset + i] = bytes[source + i];
  }

  /** Does the copies: before memory is read here, and before completions are shown. */
  flushCopies(): void {
    if (this.#copyCount === 0) return;
    this.#copy(this.slab, this.regions, this.#copies, this.#copyCount);
    this.#copyCount = 0;
  }

  /** Shows the completions of the call in hand. */
  publish(): void {
    this.flushCopies();
    const dirty = this.#dirty;
    if (dirty.length === 0) return;
    for (let i = 0; i < dirty.length; i++) {
      if (dirty[i].publish()) this.#host.onCompletionEvent(dirty[i].handle);
    }
    dirty.length = 0;
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
  bug(qp: QueuePair, text: string): void {
    if (this.#throwBugs) throw new RoceBug(`QP ${qp.qpn}, ${qp.stateName}: ${text}`);
    this.counters.bugs++;
    qp.failed();
  }

  /** Asks for a turn of a queue pair that owes its peer a reply. */
  scheduleReplies(qp: QueuePair): void {
    this.replies.push(qp.replyTurn);
  }

  /** Asks for a turn of a queue pair that may have requests or READ responses to send. */
  schedule(qp: QueuePair): void {
    this.bulk.push(qp.bulkTurn);
  }

  /** Packets of a requester are in a batch: it hears when the link has looked at them. */
  awaitLink(requester: Requester): void {
    this.#withLink.push(requester);
  }

  /** A batch has packets. What they name is not given out again until the link has looked at them. */
  batchOpened(batch: TxBatch): void {
    if (this.#batches.includes(batch)) return;
    this.#batches.push(batch);
    this.regions.batchOpened();
    this.addresses.batchOpened();
  }

  /** The link has looked at every packet of the batch. */
  batchClosed(batch: TxBatch): void {
    const batches = this.#batches;
    const at = batches.indexOf(batch);
    if (at >= 0) {
      batches[at] = batches[batches.length - 1];
      batches.pop();
      this.regions.batchClosed();
      this.addresses.batchClosed();
    }
    const requesters = this.#withLink;
    for (let i = 0; i < requesters.length; i++) requesters[i].taken();
    requesters.length = 0;
  }

  /**
   * Begins a completion for a queue pair: first word of the entry to fill in `cq.words`, to be committed; −1 if the
   * queue has overrun, which ends the queue pair.
   */
  claimCompletion(qp: Owner, cq: CompletionQueue): number {
    if (!cq.dirty) this.#dirty.push(cq);
    const wasOverrun = cq.overrun;
    const w = cq.claim();
    if (w >= 0) {
      cq.words[w + Cqe.QP_NUM] = qp.qpn;
      return w;
    }
    if (!wasOverrun) this.event({ type: 'CQ_ERR', cq: cq.handle });
    qp.completionLost();
    return w;
  }
}
