/**
 * What requester, completer, responder and replies share: memory, the copies of the batch in hand, the
 * completion queues that it touched, the scheduler and the deadlines.
 */
import { Addresses, type PeerTable } from './addresses.ts';
import { COPY_WORDS, Copy, type CopyBatch, type RegionTable } from './batch.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { type QpState, QpStateCode, type RetransmitCause, WcOpcode, WcStatus } from './constants.ts';
import type { DeviceLimits, GidEntry } from './control.ts';
import { AdapterCounters } from './counters.ts';
import { Deadlines } from './deadlines.ts';
import { RoceBug } from './errors.ts';
import { Memory } from './memory.ts';
import type { QueuePair } from './qp.ts';
import { Cqe, SendWqe } from './rings.ts';
import { WR_OPCODES } from './wr-opcodes.ts';

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
  readonly gids: readonly GidEntry[];
  /** UC and UD queue pairs with packets in a batch that the link has not taken. */
  readonly unconfirmed: QueuePair[] = [];
  /** Queue pairs with something to send, in the order of their turns. */
  readonly active: QueuePair[] = [];
  /** The slab of the batch in hand: where copies come from. */
  slab: Uint8Array = new Uint8Array(0);
  /** Virtual time of the call in hand, µs. */
  now = 0;
  /** Bytes of socket buffer that READ responses may still take, over all queue pairs. */
  readBudget: number;
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
    this.gids = host.gids;
    this.#copy = copy;
    this.readBudget = readBudget;
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

  /** Every change of a state but the first and the last goes through here. */
  setState(qp: QueuePair, state: number): void {
    if (qp.state === state) return;
    const from = qp.stateName;
    qp.setState(state);
    this.#host.onStateChange?.(qp.qpn, from, qp.stateName);
  }

  /** The queue pair is no more. */
  destroyed(qp: QueuePair, from: QpState): void {
    this.#host.onStateChange?.(qp.qpn, from, undefined);
  }

  /** The packet at this PSN was sent before. */
  retransmitted(qp: QueuePair, psn: number): void {
    qp.counters.retransmittedPackets++;
    this.#host.onRetransmit?.(qp.qpn, psn, qp.retransmitCause);
  }

  /**
   * Reports a state that no input can lead to. Throws `RoceBug` where the adapter was made so (tests, the
   * simulator); in production it counts the bug and fails this one queue pair.
   */
  bug(qp: QueuePair, text: string): void {
    if (this.#throwBugs) throw new RoceBug(`QP ${qp.qpn}, ${qp.stateName}: ${text}`);
    this.counters.bugs++;
    if (qp.destroyed || qp.state === QpStateCode.ERR || qp.state === QpStateCode.RESET) return;
    this.event({ type: 'QP_FATAL', qpn: qp.qpn });
    this.toError(qp);
  }

  /** Puts a queue pair that owes its peer a reply among those that have something to send. */
  scheduleReplies(qp: QueuePair): void {
    this.schedule(qp);
  }

  /** Puts a queue pair among those that have something to send. */
  schedule(qp: QueuePair): void {
    if (qp.active) return;
    qp.active = true;
    this.active.push(qp);
  }

  /**
   * Begins a completion for a queue pair: first word of the entry to fill in `cq.words`, to be committed; −1 if the
   * queue has overrun, which ends the queue pair.
   */
  claimCompletion(qp: QueuePair, cq: CompletionQueue): number {
    if (!cq.dirty) this.#dirty.push(cq);
    const wasOverrun = cq.overrun;
    const w = cq.claim();
    if (w >= 0) {
      cq.words[w + Cqe.QP_NUM] = qp.qpn;
      return w;
    }
    if (!wasOverrun) this.event({ type: 'CQ_ERR', cq: cq.handle });
    // A completion that has no place is lost: no queue pair that has one can go on (IBTA vol 1 §11.6.3.1).
    if (qp.state !== QpStateCode.ERR) {
      this.event({ type: 'QP_FATAL', qpn: qp.qpn });
      this.toError(qp);
    }
    return w;
  }

  /** Completes the oldest send entry. Successes show only where they were asked for. */
  completeSend(qp: QueuePair, status: number): void {
    const ring = qp.sq;
    const words = ring.words;
    const w = ring.wordOf(qp.sqHead);
    const opcodeFlags = words[w + SendWqe.OPCODE_FLAGS];
    const low = words[w + SendWqe.WR_ID_LOW];
    const high = words[w + SendWqe.WR_ID_HIGH];
    const length = words[w + SendWqe.LENGTH];
    qp.sqHead = (qp.sqHead + 1) | 0;
    ring.release(qp.sqHead);
    const signaled = qp.sqSigAll || (opcodeFlags & (2 << 8)) !== 0;
    const opcode = WR_OPCODES[opcodeFlags & 0xff]?.completion ?? WcOpcode.SEND;
    const { counters } = qp;
    if (status === WcStatus.SUCCESS) {
      counters.sentMessages++;
      if (opcode === WcOpcode.SEND) counters.completedSends++;
      if (!signaled) return;
    } else if (status === WcStatus.WR_FLUSH_ERR) counters.flushedSends++;
    else counters.failedSends++;
    const cq = qp.sendCq;
    const c = this.claimCompletion(qp, cq);
    if (c < 0) return;
    cq.words[c + Cqe.WR_ID_LOW] = low;
    cq.words[c + Cqe.WR_ID_HIGH] = high;
    cq.words[c + Cqe.STATUS] = status;
    cq.words[c + Cqe.OPCODE] = opcode;
    cq.words[c + Cqe.BYTE_LEN] = length;
    cq.words[c + Cqe.SRC_QP] = qp.destQpn;
    cq.commit(status !== WcStatus.SUCCESS);
  }

  /** Completes the oldest send entry, and what stood behind it and was done already (BIND_MW, LOCAL_INV). */
  completeOldest(qp: QueuePair): void {
    this.completeSend(qp, WcStatus.SUCCESS);
    const mask = qp.sq.capacity - 1;
    while (qp.sqHead !== qp.sqStarted && qp.wqePackets[qp.sqHead & mask] === 0) {
      this.completeSend(qp, WcStatus.SUCCESS);
    }
  }

  /**
   * ERR: nothing is taken and nothing is sent any more but a NAK that says why; all that is posted
   * completes with WR_FLUSH_ERR, in order, signalled or not (IBTA vol 1 §10.3.1.5).
   */
  toError(qp: QueuePair): void {
    const before = qp.state;
    this.setState(qp, QpStateCode.ERR);
    this.#stopSending(qp);
    qp.responder.stop();
    this.flush(qp);
    // It takes no more from the SRQ, whose entries are not flushed (IBTA vol 1 §10.2.9.1).
    if (qp.srq && before !== QpStateCode.ERR) this.event({ type: 'QP_LAST_WQE_REACHED', qpn: qp.qpn });
  }

  /** SQE: a send of UC or UD failed; the rest is flushed, the receive queue works on (§10.3.1.7). */
  toSendError(qp: QueuePair): void {
    // The failed send's completion may have had no place, which ends the queue pair as a whole.
    if (qp.state === QpStateCode.ERR) return;
    this.setState(qp, QpStateCode.SQE);
    this.#stopSending(qp);
    this.flushSends(qp);
  }

  #stopSending(qp: QueuePair): void {
    this.stopTimers(qp);
    this.releaseReads(qp);
    qp.failedStatus = 0;
    qp.unackedPsn = qp.cursorPsn = qp.sendPsn;
    qp.cursorPacket = qp.gatherSge = qp.gatherOffset = 0;
  }

  /** Flushes what is posted, and asks to be told of what will be. */
  flush(qp: QueuePair): void {
    this.flushSends(qp);
    qp.receives.flush();
  }

  flushSends(qp: QueuePair): void {
    do {
      const posted = qp.sq.producer;
      while (qp.sqHead !== posted) this.completeSend(qp, WcStatus.WR_FLUSH_ERR);
    } while (qp.sq.sleep(qp.sqHead));
    qp.sqCursor = qp.sqStarted = qp.sqHead;
  }

  stopTimers(qp: QueuePair): void {
    qp.retryDeadline = Number.POSITIVE_INFINITY;
    qp.probeDeadline = Number.POSITIVE_INFINITY;
    qp.rnrDeadline = Number.POSITIVE_INFINITY;
    qp.paceDeadline = Number.POSITIVE_INFINITY;
    this.deadlines.remove(qp);
  }

  /** Forgets which READs and atomics are out: they will be asked for again, or never. */
  releaseReads(qp: QueuePair): void {
    this.readBudget += qp.readPackets * qp.readCharge;
    qp.readPackets = 0;
    qp.rdCount = 0;
  }
}
