/**
 * What requester, completer, responder and replies share: memory, the copies of the batch in hand, the
 * completion queues that it touched, the scheduler and the deadlines.
 */
import { COPY_WORDS, Copy, type CopyBatch, type RegionTable } from './batch.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { QpStateCode, WcOpcode, WcStatus, WrOpcode } from './constants.ts';
import type { DeviceLimits } from './control.ts';
import { Deadlines } from './deadlines.ts';
import { Memory } from './memory.ts';
import { Inbound, type QueuePair } from './qp.ts';
import { RecvWqe, SendWqe } from './rings.ts';

/** Asynchronous events (ibv_get_async_event(3)), with what they concern. */
export type AsyncEvent =
  | { type: 'QP_FATAL' | 'QP_REQ_ERR' | 'QP_ACCESS_ERR' | 'COMM_EST' | 'SQ_DRAINED'; qpn: number }
  | { type: 'CQ_ERR'; cq: number };

export interface Host {
  /** The completion queue has something that the program asked to be told of. */
  onCompletionEvent(cq: number): void;
  onAsyncEvent(event: AsyncEvent): void;
}

/** Counts of what arrived and was not anybody's, and totals; names as rxe has them where it has one. */
export class DeviceCounters {
  receivedPackets = 0;
  sentPackets = 0;
  sendErrors = 0;
  icrcErrors = 0;
  icrcOutOfWindow = 0;
  malformed = 0;
  unknownQp = 0;
  wrongState = 0;
  wrongSource = 0;
  badPkey = 0;
  cnpReceived = 0;
  staleResponses = 0;
}

const WC_OPCODE_OF: Record<number, number> = {
  [WrOpcode.SEND]: WcOpcode.SEND,
  [WrOpcode.SEND_WITH_IMM]: WcOpcode.SEND,
  [WrOpcode.SEND_WITH_INV]: WcOpcode.SEND,
  [WrOpcode.RDMA_WRITE]: WcOpcode.RDMA_WRITE,
  [WrOpcode.RDMA_WRITE_WITH_IMM]: WcOpcode.RDMA_WRITE,
  [WrOpcode.RDMA_READ]: WcOpcode.RDMA_READ,
  [WrOpcode.ATOMIC_CMP_AND_SWP]: WcOpcode.COMP_SWAP,
  [WrOpcode.ATOMIC_FETCH_AND_ADD]: WcOpcode.FETCH_ADD,
  [WrOpcode.LOCAL_INV]: WcOpcode.LOCAL_INV,
  [WrOpcode.BIND_MW]: WcOpcode.BIND_MW,
};

const COPY_CAPACITY = 4096;
const TWO_32 = 0x1_0000_0000;

export class Core {
  readonly regions: RegionTable;
  readonly memory: Memory;
  readonly limits: DeviceLimits;
  readonly counters = new DeviceCounters();
  readonly deadlines = new Deadlines();
  readonly #copy: CopyBatch;
  readonly #host: Host;
  readonly #copies = new Uint32Array(COPY_CAPACITY * COPY_WORDS);
  #copyCount = 0;
  readonly #dirty: CompletionQueue[] = [];
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

  constructor(
    host: Host,
    random: () => number,
    limits: DeviceLimits,
    regions: RegionTable,
    copy: CopyBatch,
    readBudget: number,
    credits: boolean,
  ) {
    this.#host = host;
    this.regions = regions;
    this.limits = limits;
    this.memory = new Memory(regions, random, limits);
    this.#copy = copy;
    this.readBudget = readBudget;
    this.credits = credits;
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

  /** Does the copies: before memory is read here, and before completions are shown. */
  flushCopies(): void {
    if (this.#copyCount === 0) return;
    this.#copy(this.slab, this.regions, this.#copies, this.#copyCount);
    this.#copyCount = 0;
  }

  /** Shows the completions of the call in hand. */
  publish(): void {
    this.flushCopies();
    for (let i = 0; i < this.#dirty.length; i++) {
      const cq = this.#dirty[i];
      if (cq.publish()) this.#host.onCompletionEvent(cq.handle);
    }
    this.#dirty.length = 0;
  }

  event(event: AsyncEvent): void {
    this.#host.onAsyncEvent(event);
  }

  /** Puts a queue pair among those that have something to send. */
  schedule(qp: QueuePair): void {
    if (qp.active) return;
    qp.active = true;
    this.active.push(qp);
  }

  #push(
    qp: QueuePair,
    cq: CompletionQueue,
    low: number,
    high: number,
    status: number,
    opcode: number,
    byteLen: number,
    immediate: number,
    flags: number,
    solicited: boolean,
  ): void {
    if (!cq.dirty) this.#dirty.push(cq);
    const wasOverrun = cq.overrun;
    const pushed = cq.push(
      low,
      high,
      status,
      opcode,
      byteLen,
      qp.qpn,
      immediate,
      flags,
      qp.destQpn,
      solicited,
    );
    if (pushed || wasOverrun) return;
    this.event({ type: 'CQ_ERR', cq: cq.handle });
    // A completion that has no place is lost: the queue pair can't go on (IBTA vol 1 §11.6.3.1).
    if (qp.state !== QpStateCode.ERR) {
      this.event({ type: 'QP_FATAL', qpn: qp.qpn });
      this.toError(qp);
    }
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
    if (status === WcStatus.SUCCESS) {
      qp.counters.sentMessages++;
      if (!signaled) return;
    }
    const opcode = WC_OPCODE_OF[opcodeFlags & 0xff] ?? WcOpcode.SEND;
    this.#push(qp, qp.sendCq, low, high, status, opcode, length, 0, 0, status !== WcStatus.SUCCESS);
  }

  /** Completes the oldest receive entry. */
  completeReceive(
    qp: QueuePair,
    status: number,
    opcode: number,
    byteLen: number,
    immediate: number,
    flags: number,
    solicited: boolean,
  ): void {
    const ring = qp.rq;
    const w = ring.wordOf(qp.rqHead);
    const low = ring.words[w + RecvWqe.WR_ID_LOW];
    const high = ring.words[w + RecvWqe.WR_ID_HIGH];
    qp.rqHead = (qp.rqHead + 1) | 0;
    ring.release(qp.rqHead);
    qp.receiving = false;
    this.#push(
      qp,
      qp.recvCq,
      low,
      high,
      status,
      opcode,
      byteLen,
      immediate,
      flags,
      solicited || status !== WcStatus.SUCCESS,
    );
  }

  /**
   * ERR: nothing is taken and nothing is sent any more but a NAK that says why; all that is posted
   * completes with WR_FLUSH_ERR, in order, signalled or not (IBTA vol 1 §10.3.1.5).
   */
  toError(qp: QueuePair): void {
    qp.setState(QpStateCode.ERR);
    this.stopTimers(qp);
    this.releaseReads(qp);
    qp.failedStatus = 0;
    qp.inbound = Inbound.NONE;
    qp.writeMr = undefined;
    if (!qp.replies.dying) qp.replies.reset(qp.maxDestRdAtomic);
    this.flush(qp);
  }

  /** Flushes what is posted, and asks to be told of what will be. */
  flush(qp: QueuePair): void {
    do {
      const posted = qp.sq.producer;
      while (qp.sqHead !== posted) this.completeSend(qp, WcStatus.WR_FLUSH_ERR);
    } while (qp.sq.sleep(qp.sqHead));
    do {
      const posted = qp.rq.producer;
      while (qp.rqHead !== posted) {
        this.completeReceive(qp, WcStatus.WR_FLUSH_ERR, WcOpcode.RECV, 0, 0, 0, true);
      }
    } while (qp.rq.sleep(qp.rqHead));
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
