/** Queue pairs: posting, states, and going from RESET to RTS in one call. */
import {
  Access,
  type FrameCount,
  type FrameRule,
  invalid,
  QP_ATTRIBUTE_NAMES,
  QP_STATES,
  type QpAttr,
  type QpCap,
  type QpCreated,
  type QpState,
  QpStateCode,
  type QpType,
  Ring,
  RoceError,
} from '@node-roce/transport';
import { gidToIpText } from '@node-roce/wire';
import { type CloseListener, Closing, causeOf } from './closing.ts';
import type { FailureListener } from './completion-observer.ts';
import type { CompletionQueue } from './completion-queue.ts';
import {
  type ConnectionData,
  type ConnectOptions,
  connectAttributes,
  defaultGid,
  gidAt,
  gidBytes,
} from './connection.ts';
import { type QueuePairCounters, queuePairCounters } from './counters.ts';
import { Ending } from './ending.ts';
import { closedError, type Engine } from './engine/engine.ts';
import { AffiliatedEvents } from './event-queue.ts';
import { custom, hex, line } from './inspect.ts';
import { type AccessInit, accessBits } from './memory-region.ts';
import type { MemoryWindow } from './memory-window.ts';
import {
  checkAccess,
  checkCall,
  checkConnectionData,
  checkConnectOptions,
  checkQpAttr,
} from './option-types.ts';
import {
  ANY,
  BOOLEAN,
  checkArgument,
  described,
  FUNCTION,
  INTEGER,
  nearest,
  OBJECT,
  SIGNAL,
  STRING,
} from './options.ts';
import type { Registry } from './registry.ts';
import type {
  AnySendWr,
  Datagram,
  FlushInit,
  MwRange,
  RecvWr,
  Remote,
  SendWr,
  SgElement,
} from './send-wr.ts';
import type { SharedReceiveQueue } from './shared-receive-queue.ts';
import { completionError, type WorkCompletion } from './work-completion.ts';
import {
  checkRoom,
  type FindRegion,
  nestedPost,
  postReceives,
  writeBindRequest,
  writeRemoteSrqn,
  writeSend,
} from './work-request.ts';
import { XRC_NAMES_BY_OPCODE } from './wr-names.ts';

/** Well-known Q_Key of QP1 (IBTA vol 1 §3.5.3). */
export const GSI_QKEY = 0x8001_0000;

/** `struct ibv_qp_init_attr` as a query returns it, with the objects themselves. */
export interface QueuePairInitAttr {
  /** RC, UC, UD, GSI, RAW_PACKET or XRC_INI. */
  type: QpType;
  /** Where send requests complete. */
  sendCq: CompletionQueue;
  /** Where receives complete. */
  recvCq: CompletionQueue;
  /** Where its receives come from, if not from a receive queue of its own. */
  srq: SharedReceiveQueue | undefined;
  /** The result of the creation. */
  cap: QpCap;
  /** Every send request raises a completion. */
  sqSigAll: boolean;
  /** The program's value, given at creation (`qp_context`). */
  context: unknown;
}

export interface QueuePairParts {
  engine: Engine;
  type: QpType;
  created: QpCreated;
  sendCq: CompletionQueue;
  recvCq: CompletionQueue;
  srq: SharedReceiveQueue | undefined;
  context: unknown;
  find: FindRegion;
  random: () => number;
  registry: Registry<QueuePair>;
}

/** An atomic's own part of its work request. */
type AtomicOperands =
  | { opcode: 'ATOMIC_FETCH_AND_ADD'; compareAdd: bigint | number }
  | { opcode: 'ATOMIC_CMP_AND_SWP'; compareAdd: bigint | number; swap: bigint | number };

/** Options of each awaited request. */
export interface AwaitOptions {
  /** Rejects the promise; the request goes on. */
  signal?: AbortSignal;
  /** Wait until READs and atomics before it are done. */
  fence?: boolean;
  /** XRC_INI: number of the SRQ that it is for. */
  remoteSrqn?: number;
}

/** Options of `write`. */
export interface AwaitedWrite extends AwaitOptions {
  /** 32 bits, read by the peer in its completion; the peer has to post a receive. */
  immData?: number;
}

/** Options of `send`. */
export interface AwaitedSend extends AwaitedWrite {
  /** The peer's key to invalidate. */
  invalidateRkey?: number;
  /** Raise the event of a completion queue that waits for solicited completions only. */
  solicited?: boolean;
  /** UD and GSI: where it goes. */
  ud?: Datagram;
}

const AWAITED = { signal: SIGNAL, fence: BOOLEAN, remoteSrqn: INTEGER };
const AWAITED_WRITE = { ...AWAITED, immData: INTEGER };
const AWAITED_SEND = { ...AWAITED_WRITE, invalidateRkey: INTEGER, solicited: BOOLEAN, ud: OBJECT };

/** The queues as messages name them, before the number. */
const SENDS = 'send queue of QP';
const RECEIVES = 'receive queue of QP';

const listOf = (data: SgElement | readonly SgElement[]): readonly SgElement[] =>
  Array.isArray(data) ? data : [data as SgElement];

/** A queue pair (`struct ibv_qp`). */
export class QueuePair implements AsyncDisposable {
  /** QPN, 24 bits, drawn at random; GSI: 1. */
  readonly qpNum: number;
  /** RC, UC, UD, GSI, RAW_PACKET or XRC_INI. */
  readonly type: QpType;
  /** Where send requests complete. */
  readonly sendCq: CompletionQueue;
  /** Where receives complete. */
  readonly recvCq: CompletionQueue;
  /** Where its receives come from, if not from a receive queue of its own. */
  readonly srq: SharedReceiveQueue | undefined;
  /** The program's value, given at creation (`qp_context`). */
  readonly context: unknown;
  /** Async events that concern it, handed out and not acknowledged: `close` waits for them. */
  readonly asyncEvents = new AffiliatedEvents();
  readonly #ending = new Ending();
  readonly #engine: Engine;
  #sq: Ring;
  #rq: Ring;
  #cap: Readonly<QpCap>;
  /** The sizes that posting keeps to: less than `cap` while the queues get smaller. */
  #limits: Readonly<QpCap>;
  readonly #find: FindRegion;
  readonly #registry: Registry<QueuePair>;
  readonly #datagram: boolean;
  readonly #isXrc: boolean;
  /** Its requester knows the meaning of ACKs ahead. */
  readonly #selective: boolean;
  readonly #random: () => number;
  /** Made when somebody asks for the end, or it comes. */
  #closing: Closing | undefined;
  #initialPsn: number;
  #gidIndex: number | undefined;
  /** The other side of a connection, and its address as text. */
  #peerQpn = 0;
  #peerAddress: string | undefined;
  #destroyed = false;
  /** A request is being written. Its getters are the program's: they may call anything but a post to the same queue. */
  #sending = false;
  #receiving = false;

  constructor(parts: QueuePairParts) {
    const { created } = parts;
    this.#engine = parts.engine;
    this.qpNum = created.qpn;
    this.type = parts.type;
    this.#cap = this.#limits = created.cap;
    this.sendCq = parts.sendCq;
    this.recvCq = parts.recvCq;
    this.#random = parts.random;
    this.#initialPsn = this.#drawPsn();
    this.#sq = Ring.of(created.sendQueue);
    this.#rq = Ring.of(created.recvQueue);
    this.#find = parts.find;
    this.srq = parts.srq;
    this.context = parts.context;
    this.#datagram = parts.type === 'UD' || parts.type === 'GSI';
    this.#isXrc = parts.type === 'XRC_INI';
    this.#selective = (parts.type === 'RC' || this.#isXrc) && created.selective === true;
    this.#registry = parts.registry;
    this.#registry.add(this.qpNum, this);
  }

  /** The result of the creation, or of a resize (`modify`): at least what was asked for. */
  get cap(): Readonly<QpCap> {
    return this.#cap;
  }

  /** The state, as the engine last published it. */
  get state(): QpState {
    return QP_STATES[this.#sq.state];
  }

  /** The other side of a connection, as messages name it. @internal */
  get peer(): string | undefined {
    return this.#peerAddress && `QP ${this.#peerQpn} at ${this.#peerAddress}`;
  }

  /** Send requests that are posted and not complete. */
  get sendPending(): number {
    return this.#sq.used;
  }

  /** Receive requests that are posted and not used. */
  get recvPending(): number {
    return this.#rq.used;
  }

  /**
   * ibv_post_send(3): one request or a list. Synchronous: what it refuses, it throws for at once.
   *
   * Throws EINVAL in RESET, INIT or RTR, for a bad request, or in a getter of a request that is being posted to this queue;
   * ENOMEM when the queue is full. Of a list, the requests before the bad one are posted; the error's `index` is that of
   * the bad one.
   */
  postSend(wr: SendWr | readonly SendWr[]): void {
    const ring = this.#sq;
    if (this.#destroyed || this.#engine.closed || this.#sending || ring.state < QpStateCode.RTS)
      throw this.#wrongState('send', 'RTS, SQD, SQE or ERR');
    this.#sending = true;
    try {
      if (Array.isArray(wr)) {
        this.#postSends(ring, wr as readonly SendWr[]);
      } else {
        const first = ring.producer;
        checkRoom(ring, first, this.#limits.maxSendWr, SENDS, this.qpNum);
        this.#writeSend(first, wr as SendWr);
        this.#publishSends(ring, first, 1);
      }
    } finally {
      this.#sending = false;
    }
  }

  #postSends(ring: Ring, list: readonly SendWr[]): void {
    const first = ring.producer;
    let done = 0;
    try {
      for (; done < list.length; done++) {
        const index = (first + done) | 0;
        checkRoom(ring, index, this.#limits.maxSendWr, SENDS, this.qpNum);
        this.#writeSend(index, list[done]);
      }
    } catch (error) {
      throw Object.assign(error as Error, { index: done });
    } finally {
      this.#publishSends(ring, first, done);
    }
  }

  /**
   * Posts all of a list or nothing (ibv_wr_complete(3)): the engine sees the list as a whole.
   *
   * Throws as `postSend`; the error's `index` is that of the refused request.
   */
  postBatch(list: readonly SendWr[]): void {
    const ring = this.#sq;
    if (this.#destroyed || this.#engine.closed || this.#sending || ring.state < QpStateCode.RTS)
      throw this.#wrongState('send', 'RTS, SQD, SQE or ERR');
    if (!Array.isArray(list)) throw invalid('list', described(list), 'a list of send requests');
    this.#sending = true;
    const first = ring.producer;
    let keys: MemoryWindow[] = [];
    let before: number[] = [];
    let done = 0;
    try {
      // A window gets its new key as its request is written.
      keys = list.flatMap((wr) => (wr?.opcode === 'BIND_MW' && wr.bind?.mw ? [wr.bind.mw] : []));
      before = keys.map((mw) => mw.rkey);
      for (; done < list.length; done++) {
        const index = (first + done) | 0;
        checkRoom(ring, index, this.#limits.maxSendWr, SENDS, this.qpNum);
        this.#writeSend(index, list[done]);
      }
      this.#publishSends(ring, first, done);
    } catch (error) {
      for (const [i, mw] of keys.entries()) mw.rkey = before[i];
      throw Object.assign(error as Error, { index: done });
    } finally {
      this.#sending = false;
    }
  }

  /** Nothing is published of no entries: a queue that the engine posts to (rendezvous) may have moved on. */
  #publishSends(ring: Ring, first: number, count: number): void {
    if (count === 0) return;
    ring.publish((first + count) | 0);
    if (ring.wakes()) this.#engine.ring(this.qpNum, false);
  }

  /**
   * Posts a SEND (or, with `immData` or `invalidateRkey`, its variant) and resolves with the completion. Bytes that lie in
   * no region are copied inline, if they are no more than `cap.maxInlineData`.
   *
   * Rejects as `postSend`; with ERR_ROCE_COMPLETION, whose `attribute` is the status, if the request fails; with the
   * signal's reason, which does not recall the request. Completions of awaited requests do not show in `poll`.
   */
  async send(data: SgElement | readonly SgElement[], options: AwaitedSend = {}): Promise<WorkCompletion> {
    checkCall(options, AWAITED_SEND);
    const { signal, immData, invalidateRkey, ...more } = options;
    const variant =
      immData !== undefined
        ? ({ opcode: 'SEND_WITH_IMM', immData } as const)
        : invalidateRkey !== undefined
          ? ({ opcode: 'SEND_WITH_INV', invalidateRkey } as const)
          : ({ opcode: 'SEND' } as const);
    return this.#awaitSend(signal, { ...variant, ...more, ...this.#message(data) });
  }

  /** Posts an RDMA WRITE (with `immData`, RDMA_WRITE_WITH_IMM) and resolves with the completion; as `send`. */
  async write(
    data: SgElement | readonly SgElement[],
    remote: Remote,
    options: AwaitedWrite = {},
  ): Promise<WorkCompletion> {
    checkCall(options, AWAITED_WRITE);
    const { signal, immData, ...more } = options;
    const variant =
      immData === undefined
        ? ({ opcode: 'RDMA_WRITE' } as const)
        : ({ opcode: 'RDMA_WRITE_WITH_IMM', immData } as const);
    return this.#awaitSend(signal, { ...variant, ...more, ...this.#message(data), remote });
  }

  /** Posts an RDMA READ into registered memory and resolves with the completion; as `send`. */
  async read(
    into: SgElement | readonly SgElement[],
    remote: Remote,
    options: AwaitOptions = {},
  ): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    const { signal, ...more } = options;
    return this.#awaitSend(signal, { opcode: 'RDMA_READ', ...more, sgList: listOf(into), remote });
  }

  /**
   * Adds to a 64-bit word of the peer and resolves with the completion; as `send`.
   *
   * @param into 8 registered bytes, which receive the value before, in the byte order of this host
   */
  async fetchAdd(
    into: SgElement,
    remote: Remote,
    add: bigint | number,
    options: AwaitOptions = {},
  ): Promise<WorkCompletion> {
    return this.#awaitAtomic({ opcode: 'ATOMIC_FETCH_AND_ADD', compareAdd: add }, into, remote, options);
  }

  /** Replaces a 64-bit word of the peer by `swap` if it equals `compare`; otherwise as `fetchAdd`. */
  async compareSwap(
    into: SgElement,
    remote: Remote,
    compare: bigint | number,
    swap: bigint | number,
    options: AwaitOptions = {},
  ): Promise<WorkCompletion> {
    const request = { opcode: 'ATOMIC_CMP_AND_SWP', compareAdd: compare, swap } as const;
    return this.#awaitAtomic(request, into, remote, options);
  }

  /**
   * Posts a FLUSH of the data written to a range of the peer's memory and resolves with the completion, once it is there; as
   * `send`. The peer's queue pair and region need the right (`flushGlobal`).
   */
  async flush(remote: Remote, flush: FlushInit, options: AwaitOptions = {}): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    const { signal, ...more } = options;
    return this.#awaitSend(signal, { opcode: 'FLUSH', ...more, remote, flush });
  }

  /** Writes 8 bytes to an address of the peer that is divisible by 8, in one piece, and resolves with the completion; as `send`. */
  async atomicWrite(data: SgElement, remote: Remote, options: AwaitOptions = {}): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    const { signal, ...more } = options;
    return this.#awaitSend(signal, { opcode: 'ATOMIC_WRITE', ...more, ...this.#message(data), remote });
  }

  /** Posts a receive and resolves with its completion; as `send`. Not with a shared receive queue. */
  async receive(
    into: SgElement | readonly SgElement[],
    options: { signal?: AbortSignal } = {},
  ): Promise<WorkCompletion> {
    checkCall(options, { signal: SIGNAL });
    return this.recvCq.observer().post(this.qpNum, options.signal, (wrId) => {
      this.postRecv({ wrId, sgList: listOf(into) });
    });
  }

  async #awaitAtomic(
    request: AtomicOperands,
    into: SgElement,
    remote: Remote,
    options: AwaitOptions,
  ): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    const { signal, ...more } = options;
    return this.#awaitSend(signal, { ...request, ...more, sgList: listOf(into), remote });
  }

  #awaitSend(signal: AbortSignal | undefined, wr: SendWr): Promise<WorkCompletion> {
    return this.sendCq.observer().post(this.qpNum, signal, (wrId) => {
      this.postSend({ ...wr, wrId, signaled: true } as SendWr);
    });
  }

  /** Registered memory as it is; other bytes inline. */
  #message(data: SgElement | readonly SgElement[]): { sgList: readonly SgElement[]; inline?: true } {
    const sgList = listOf(data);
    const isForeign = (element: SgElement) => element instanceof Uint8Array && !this.#isRegistered(element);
    return sgList.length > 0 && sgList.every(isForeign) ? { sgList, inline: true } : { sgList };
  }

  #isRegistered(view: Uint8Array): boolean {
    try {
      this.#find(view);
      return true;
    } catch {
      return false;
    }
  }

  /**
   * Resolves when the program closes the queue pair. Rejects with the cause when the queue pair comes to the error state:
   * a request that failed, a refused request of the peer, the end of the device. After RESET, `closed` is another promise.
   */
  get closed(): Promise<void> {
    this.#watch();
    return this.#ofClosing().promise;
  }

  /** Calls back once at the end of the queue pair, with the cause unless the program closed it; returns a function that removes the callback. */
  onClose(listener: CloseListener): () => void {
    checkArgument('listener', listener, FUNCTION);
    this.#watch();
    return this.#ofClosing().listen(listener);
  }

  #ofClosing(): Closing {
    this.#closing ??= new Closing();
    return this.#closing;
  }

  /** Looks at completions of this queue pair that failed. */
  #watch(): void {
    if (this.#closing?.ended) return;
    const onFailure: FailureListener = (failure) => {
      if (failure instanceof Error) this.end(causeOf(failure));
      else if (this.state === 'ERR') this.end(completionError(failure));
    };
    for (const cq of new Set([this.sendCq, this.recvCq])) cq.observer().watch(this.qpNum, onFailure);
  }

  /** The queue pair is in the error state. @internal */
  fail(message: string): void {
    this.end(new RoceError('ERR_ROCE_QP_FAILED', message, { errno: 'EIO', attribute: 'qpState' }));
  }

  /** The end, with its cause if the program has not closed the queue pair. @internal */
  end(cause?: RoceError): void {
    this.#ofClosing().end(cause);
    for (const cq of new Set([this.sendCq, this.recvCq])) cq.unwatch(this.qpNum);
  }

  #abandon(reason: string): void {
    this.sendCq.abandon(this.qpNum, reason);
    if (this.recvCq !== this.sendCq) this.recvCq.abandon(this.qpNum, reason);
  }

  /** ibv_post_recv(3): one request or a list, as `postSend`; EINVAL in RESET, and with a shared receive queue. */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    if (this.srq) throw invalid('qp', 'receives are posted to its shared receive queue', 'srq.postRecv');
    if (this.#isXrc) throw invalid('qp', 'an XRC_INI queue pair receives nothing', 'the SRQ of a domain');
    const ring = this.#rq;
    if (this.#destroyed || this.#engine.closed || this.#receiving || ring.state === QpStateCode.RESET)
      throw this.#wrongState('receive', 'any state but RESET');
    this.#receiving = true;
    const first = ring.producer;
    try {
      const { maxRecvWr, maxRecvSge } = this.#limits;
      postReceives(ring, wr, maxRecvWr, maxRecvSge, this.#find, RECEIVES, this.qpNum);
    } finally {
      this.#receiving = false;
      if (ring.producer !== first && ring.wakes()) this.#engine.ring(this.qpNum, true);
    }
  }

  /**
   * ibv_bind_mw(3): binds a window of type 1 to part of a region, or without one to nothing, in its turn
   * among the send requests. The completion has the opcode BIND_MW, or the status MW_BIND_ERR.
   *
   * @returns the window's key from now on; the key before is closed with the completion
   */
  bindMw(
    mw: MemoryWindow,
    range: MwRange | undefined,
    options: { wrId?: number | bigint; signaled?: boolean; fence?: boolean } = {},
  ): number {
    if (mw?.type !== 1) {
      const what = mw?.type === 2 ? 'a window of type 2' : described(mw);
      throw invalid('mw', what, 'a window of type 1; type 2 is posted as BIND_MW');
    }
    checkCall(options, { wrId: ANY, signaled: BOOLEAN, fence: BOOLEAN });
    const ring = this.#sq;
    if (this.#destroyed || this.#engine.closed || this.#sending || ring.state < QpStateCode.RTS)
      throw this.#wrongState('bind', 'RTS, SQD, SQE or ERR');
    this.#sending = true;
    try {
      const index = ring.producer;
      checkRoom(ring, index, this.#limits.maxSendWr, SENDS, this.qpNum);
      writeBindRequest(ring, index, mw, range, options);
      this.#publishSends(ring, index, 1);
    } finally {
      this.#sending = false;
    }
    return mw.rkey;
  }

  #writeSend(index: number, wr: SendWr): void {
    const { maxSendSge, maxInlineData } = this.#limits;
    const any = wr as AnySendWr;
    if (!this.#isXrc) {
      writeSend(this.#sq, index, any, maxSendSge, maxInlineData, this.#find, this.#datagram);
      return;
    }
    writeSend(this.#sq, index, any, maxSendSge, maxInlineData, this.#find, false, XRC_NAMES_BY_OPCODE);
    writeRemoteSrqn(this.#sq, index, any);
  }

  #wrongState(which: string, expected: string): RoceError {
    if (this.#engine.closed) return closedError();
    if (which === 'receive' ? this.#receiving : this.#sending)
      return nestedPost(which === 'receive' ? RECEIVES : SENDS, this.qpNum);
    const state = this.#destroyed ? 'destroyed' : `in ${this.state}`;
    return new RoceError('ERR_ROCE_WRONG_STATE', `can't post a ${which}: QP ${this.qpNum} is ${state}`, {
      errno: 'EINVAL',
      attribute: 'qpState',
      expected,
    });
  }

  /**
   * ibv_modify_qp(3): to another state, or other attributes in this one (IBTA vol 1 §10.3.1, §11.2.5.2). The attributes
   * that are present are the mask.
   *
   * Rejects, naming the attribute, and then nothing was changed: EINVAL (ERR_ROCE_MISSING_ATTRIBUTE) for one that the step
   * requires, EINVAL (ERR_ROCE_INVALID_ATTRIBUTE) for one that it does not take, a value out of range, a `qpState` that can
   * not be reached from here, a `curQpState` that it is not in, a `cap` that what is posted does not fit into; EBUSY for a
   * second resize before the first is done; EOPNOTSUPP for path migration.
   */
  async modify(attr: QpAttr): Promise<void> {
    checkQpAttr(attr);
    if (this.#isWriting) await Promise.resolve();
    if (attr.cap === undefined) await this.#engine.call('modifyQp', this.qpNum, attr);
    else await this.#resize(attr, attr.cap);
    if (attr.destQpNum !== undefined && attr.ahAttr?.grh !== undefined) {
      this.#peerQpn = attr.destQpNum;
      this.#peerAddress = gidToIpText(attr.ahAttr.grh.dgid);
    }
    if (attr.qpState === 'ERR') this.fail(`QP ${this.qpNum} was taken to the error state`);
    if (attr.qpState === 'RESET') this.#afterReset();
    // The next connection begins elsewhere: what is still under way of the last one is not taken for its own.
    if (attr.qpState === 'RESET') this.#initialPsn = this.#drawPsn();
  }

  /** Whether the caller is a getter of a request: in the next microtask that is written. */
  get #isWriting(): boolean {
    return this.#sending || this.#receiving;
  }

  /** Until the program hears of the new rings, it posts to the old ones, and no more than fits into both. */
  async #resize(attr: QpAttr, asked: QpCap): Promise<void> {
    if (this.#limits !== this.#cap)
      throw new RoceError('ERR_ROCE_BUSY', `cap: the queues of QP ${this.qpNum} are still being resized`, {
        errno: 'EBUSY',
        attribute: 'cap',
      });
    const names = Object.keys(this.#cap) as (keyof QpCap)[];
    this.#limits = Object.fromEntries(
      names.map((name) => [name, Math.min(this.#cap[name], asked[name] ?? 0)]),
    ) as unknown as QpCap;
    try {
      const { cap, sendQueue, recvQueue } = (await this.#engine.call('modifyQp', this.qpNum, attr))!;
      const sq = Ring.of(sendQueue);
      this.#sq.moveTo(sq);
      this.#sq = sq;
      if (!this.srq && !this.#isXrc) {
        const rq = Ring.of(recvQueue);
        this.#rq.moveTo(rq);
        this.#rq = rq;
      }
      this.#cap = cap;
      // The engine looks, and takes over what was posted before.
      await this.#engine.call('modifyQp', this.qpNum, {});
    } finally {
      this.#limits = this.#cap;
    }
  }

  /** Requests are discarded without a completion; the next connection has an end of its own. */
  #afterReset(): void {
    this.#peerAddress = undefined;
    this.#abandon(`QP ${this.qpNum} was reset`);
    if (this.#closing?.ended) this.#closing = undefined;
  }

  /** First PSN of this side, drawn at random, and anew by RESET; `connect` uses it, `modify` may use another. */
  get initialPsn(): number {
    return this.#initialPsn;
  }

  #drawPsn(): number {
    return this.#random() & 0xff_ffff;
  }

  /**
   * ibv_query_qp(3): what is valid in the state the queue pair is in; `undefined` for the rest. `sqPsn` and
   * `rqPsn` are the next ones. The mask is a hint, as the man page has it: it is checked, and all that is
   * valid is returned.
   */
  async query(mask: readonly (keyof QpAttr)[] = []): Promise<{ attr: QpAttr; init: QueuePairInitAttr }> {
    if (!Array.isArray(mask)) throw invalid('mask', described(mask), 'a list of names of attributes');
    for (const name of mask) {
      checkArgument('mask', name, STRING);
      if (!QP_ATTRIBUTES.has(name))
        throw invalid(
          'mask',
          `${name} is not an attribute of a queue pair`,
          nearest(name, QP_ATTRIBUTE_NAMES),
        );
    }
    const { attr, init } = await this.#engine.call('queryQp', this.qpNum);
    const { sendCq, recvCq, srq, context } = this;
    const { type, cap, sqSigAll } = init;
    return { attr, init: { type, cap, sqSigAll, sendCq, recvCq, srq, context } };
  }

  /**
   * ibv_attach_mcast(3), UD: what is sent to this group arrives here too (IBTA vol 1 §10.5). The device joins it, by IGMP or
   * MLD on its interface. The GID, or a numeric IP address.
   *
   * Rejects with EINVAL for what is no group or a connected queue pair, ENOMEM beyond `maxMcastGrp` or `maxMcastQpAttach`.
   */
  attachMcast(group: string | Uint8Array): Promise<void> {
    return this.#engine.call('attachMcast', this.qpNum, gidBytes(group));
  }

  /** ibv_detach_mcast(3): EINVAL where it is not attached. A queue pair that is attached can't be closed. */
  detachMcast(group: string | Uint8Array): Promise<void> {
    return this.#engine.call('detachMcast', this.qpNum, gidBytes(group));
  }

  /**
   * RAW_PACKET: takes in the frames that one of the rules lets pass, from now on; a rule is a list of bytes that a frame has
   * to have. Without rules: what the interface takes in, as at first (ibv_create_flow(3)).
   *
   * Rejects with EINVAL for another type, or for more than the kernel's filter takes.
   *
   * @param options.count counts frames by the rules that let them pass (`frameCounts`); default false
   * @returns the counts of the rules before, if those were counted
   */
  setFilter(rules?: readonly FrameRule[], options: { count?: boolean } = {}): Promise<FrameCount[]> {
    if (rules !== undefined && !Array.isArray(rules))
      throw invalid('filter', described(rules), 'a list of rules');
    checkCall(options, { count: BOOLEAN });
    return this.#engine.call('setFrameFilter', this.qpNum, rules, options.count === true);
  }

  /** RAW_PACKET: frames taken in since `setFilter`, by the rules that let them pass, in their order; each rule counts what holds for it. */
  frameCounts(): Promise<FrameCount[]> {
    return this.#engine.call('frameCounts', this.qpNum);
  }

  /**
   * Counts of this queue pair: packets, retransmissions, NAKs; under rxe's and mlx5's names in `rxe` and `mlx5`
   * (docs/counters.md).
   */
  async counters(): Promise<QueuePairCounters> {
    return queuePairCounters(await this.#engine.call('qpCounters', this.qpNum));
  }

  /**
   * RESET to INIT, so that receives can be posted before the peer is known.
   * `qkey`, of UD and GSI alone: what datagrams to it have to bring; 0x11111111, GSI 0x80010000.
   */
  async toInit(options: { access?: number | AccessInit; qkey?: number } = {}): Promise<void> {
    checkCall(options, { access: ANY, qkey: INTEGER });
    checkAccess('access', options.access);
    const access = options.access === undefined ? REMOTE_ACCESS : accessBits(options.access);
    const { qkey } = options;
    const way = { qpState: 'INIT', pkeyIndex: 0, portNum: 1 } as const;
    if (this.type === 'RAW_PACKET') return this.modify({ qpState: 'INIT', portNum: 1 });
    if (!this.#datagram) return this.modify({ ...way, qpAccessFlags: access });
    return this.modify({ ...way, qkey: qkey ?? (this.type === 'GSI' ? GSI_QKEY : DEFAULT_QKEY) });
  }

  /**
   * UD, GSI and RAW_PACKET: from RESET (or INIT) to RTS. There is no peer to connect to. EINVAL for RC and UC.
   * `qkey`, 32 bits, not of RAW_PACKET: what datagrams to it have to bring; as `toInit` unless given.
   */
  async activate(options: { qkey?: number } = {}): Promise<void> {
    checkCall(options, { qkey: INTEGER });
    const { qkey } = options;
    const raw = this.type === 'RAW_PACKET';
    if (raw && qkey !== undefined) throw invalid('qkey', 'frames bring no Q_Key', 'none');
    if (!(this.#datagram || raw)) throw invalid('type', `${this.type} queue pairs have a peer`, 'connect');
    if (this.state === 'RESET') await this.toInit({ qkey });
    else if (qkey !== undefined) await this.modify({ qkey });
    await this.modify({ qpState: 'RTR' });
    await this.modify({ qpState: 'RTS', ...(raw ? {} : { sqPsn: this.initialPsn }) });
  }

  /**
   * The data that the peer needs: to be carried over by whatever connects the two programs.
   * `gidIndex`: the first GID that is not link-local unless given.
   */
  connectionData(options: { gidIndex?: number } = {}): ConnectionData {
    checkCall(options, { gidIndex: INTEGER });
    const { gidIndex = defaultGid(this.#engine.facts.gids) } = options;
    const entry = gidAt(this.#engine.facts.gids, gidIndex);
    this.#gidIndex = gidIndex;
    return {
      qpNum: this.qpNum,
      psn: this.initialPsn,
      gid: entry.address,
      mtu: this.#engine.facts.activeMtu,
      ...(this.#selective ? { selective: true } : {}),
    };
  }

  /** RC, UC and XRC_INI: from RESET (or INIT) to RTS, connected to that peer. Rejects as `modify`; EINVAL for UD and GSI. */
  async connect(remote: ConnectionData, options: ConnectOptions = {}): Promise<void> {
    if (this.#datagram || this.type === 'RAW_PACKET')
      throw invalid('type', `${this.type} queue pairs have no peer`, 'activate');
    checkConnectionData(remote);
    checkConnectOptions(options);
    const local = { initialPsn: this.initialPsn, gidIndex: this.#gidIndex };
    const { init, rtr, rts } = connectAttributes(local, remote, options, this.#engine.facts, this.type);
    if (this.state === 'RESET') await this.modify(init);
    await this.modify(rtr);
    if (remote.selective === true) await this.#engine.call('acknowledgeAhead', this.qpNum);
    await this.modify(rts);
  }

  /**
   * ibv_destroy_qp(3): what is outstanding is discarded. EBUSY while it is attached to a multicast group.
   * Resolves once the async events about it that were handed out are acknowledged, or the device ends.
   */
  close(): Promise<void> {
    return this.#ending.once(this.#engine, async () => {
      if (this.#isWriting) await Promise.resolve();
      await this.#close();
    });
  }

  async #close(): Promise<void> {
    if (this.#engine.closed) return;
    await this.#engine.call('destroyQp', this.qpNum);
    this.#destroyed = true;
    this.#abandon(`QP ${this.qpNum} is closed`);
    this.end();
    await this.#registry.leave(this.qpNum, [this.asyncEvents]);
  }

  /** @internal */
  [custom](): string {
    return line('QueuePair', {
      qpNum: hex(this.qpNum),
      type: this.type,
      state: this.#destroyed ? 'destroyed' : this.state,
      sendPending: this.sendPending,
      recvPending: this.recvPending,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Q_Key of the tools that people test with (perftest, ibv_ud_pingpong). */
const DEFAULT_QKEY = 0x1111_1111;
const QP_ATTRIBUTES = new Set<string>(QP_ATTRIBUTE_NAMES);
const REMOTE_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
