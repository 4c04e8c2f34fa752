/** Queue pairs: posting, states, and going from RESET to RTS in one call. */
import {
  type FrameCount,
  type FrameRule,
  invalid,
  QP_STATES,
  type QpAttr,
  type QpCap,
  type QpState,
  type QpType,
  type RoceError,
} from '@node-roce/transport';
import { type CloseListener, failedError } from './closing.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { type ConnectionData, type ConnectOptions, gidBytes } from './connection.ts';
import { type QueuePairCounters, queuePairCounters } from './counters.ts';
import { Ending } from './ending.ts';
import type { Engine } from './engine/engine.ts';
import { AffiliatedEvents } from './event-queue.ts';
import { custom, hex, line } from './inspect.ts';
import type { AccessInit, MemoryRegion } from './memory-region.ts';
import type { MemoryWindow } from './memory-window.ts';
import { checkAccess, checkCall, checkQpAttr, checkQueryMask } from './option-types.ts';
import { ANY, BOOLEAN, checkArgument, described, FUNCTION, INTEGER } from './options.ts';
import { AwaitedRequests } from './posting/awaited.ts';
import { PostQueues } from './posting/post-queues.ts';
import type { PreparedSends } from './posting/prepared.ts';
import type { MwRange, RecvWr, SendWr } from './posting/send-wr.ts';
import { Ends } from './queue-pair-ends.ts';
import type { CreatedQueuePair, QueuePairInitAttr } from './queue-pair-init.ts';
import { Life } from './queue-pair-life.ts';
import { activationSteps, initStep } from './queue-pair-steps.ts';
import type { Registry } from './registry.ts';
import type { SharedReceiveQueue } from './shared-receive-queue.ts';

export interface QueuePairParts extends CreatedQueuePair {
  registry: Registry<QueuePair>;
}

/** A queue pair (`struct ibv_qp`). */
export class QueuePair extends AwaitedRequests implements AsyncDisposable {
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
  readonly #queues: PostQueues;
  readonly #life: Life;
  readonly #registry: Registry<QueuePair>;
  readonly #datagram: boolean;
  /** Its requester knows the meaning of ACKs ahead. */
  readonly #selective: boolean;
  readonly #ends: Ends;

  constructor(parts: QueuePairParts) {
    super(parts.find);
    const { created } = parts;
    this.#engine = parts.engine;
    this.qpNum = created.qpn;
    this.type = parts.type;
    this.sendCq = parts.sendCq;
    this.recvCq = parts.recvCq;
    this.#ends = new Ends(parts.random);
    this.#queues = new PostQueues(parts);
    this.srq = parts.srq;
    this.context = parts.context;
    this.#datagram = parts.type === 'UD' || parts.type === 'GSI';
    const isReliable = parts.type === 'RC' || parts.type === 'XRC_INI';
    this.#selective = isReliable && created.selective === true;
    this.#life = new Life(this);
    this.#registry = parts.registry;
    this.#registry.add(this.qpNum, this);
  }

  /** The result of the creation, or of a resize (`modify`): at least what was asked for. */
  get cap(): Readonly<QpCap> {
    return this.#queues.cap;
  }

  /** The state, as the engine last published it. */
  get state(): QpState {
    return QP_STATES[this.#queues.state];
  }

  /** The other side of a connection, as messages name it. @internal */
  get peer(): string | undefined {
    return this.#ends.peer;
  }

  /** Send requests that are posted and not complete. */
  get sendPending(): number {
    return this.#queues.sendPending;
  }

  /** Receive requests that are posted and not used. */
  get recvPending(): number {
    return this.#queues.recvPending;
  }

  /**
   * ibv_post_send(3): one request or a list. Synchronous: what it refuses, it throws for at once.
   *
   * Throws EINVAL in RESET, INIT or RTR, for a bad request, or in a getter of a request that is being posted to this queue;
   * ENOMEM when the queue is full. Of a list, the requests before the bad one are posted; the error's `index` is that of
   * the bad one.
   */
  postSend(wr: SendWr | readonly SendWr[]): void {
    this.#queues.postSend(wr);
  }

  /**
   * Posts all of a list or nothing (ibv_wr_complete(3)): the engine sees the list as a whole.
   *
   * Throws as `postSend`; the error's `index` is that of the refused request.
   */
  postBatch(list: readonly SendWr[]): void {
    this.#queues.postBatch(list);
  }

  /**
   * Posts a SEND of a part of a region, by numbers: as `postSend({ opcode: 'SEND', sgList: [{ mr, offset, length }], … })`, with the
   * same checks and errors, which name the members of that object. Reads no object of the program but the region, and makes none, unless
   * the SEND is inline or a number is 2^31 or more.
   *
   * For RC, UC and RAW_PACKET: requests of the others need a destination as well.
   *
   * @param offset bytes from the start of the region, 0 … 2^53 − 1; default 0
   * @param length bytes, 0 … 2^32 − 1; default: to the end of the region
   * @param flags bits of `SendFlags`; default 0, not even a completion on success
   * @param wrId comes back in the completion: 0 … 2^53 − 1, or a bigint of 64 bits; default 0
   */
  postSendOf(mr: MemoryRegion, offset = 0, length?: number, flags = 0, wrId: number | bigint = 0): void {
    this.#queues.postSendOf(mr, offset, length, flags, wrId);
  }

  /**
   * Checks a list of send requests and writes it down, to be posted any number of times (`PreparedSends.post`), each time as
   * `postBatch` would post it, `wrId` included. What the requests name is read now alone: inline bytes, and the
   * keys of regions. Posting looks up nothing, so a region that is registered anew needs a list that is prepared anew.
   *
   * Throws EINVAL as `postSend`, in any state of the queue pair, and for BIND_MW, which has another key each time; the error's `index` is that of the
   * refused request.
   */
  prepare(list: readonly SendWr[]): PreparedSends {
    return this.#queues.prepare(list);
  }

  /**
   * Resolves when the program closes the queue pair. Rejects with the cause when the queue pair comes to the error state:
   * a request that failed, a refused request of the peer, the end of the device. After RESET, `closed` is another promise.
   */
  get closed(): Promise<void> {
    return this.#life.promise;
  }

  /** Calls back once at the end of the queue pair, with the cause unless the program closed it; returns a function that removes the callback. */
  onClose(listener: CloseListener): () => void {
    checkArgument('listener', listener, FUNCTION);
    return this.#life.listen(listener);
  }

  /** The queue pair is in the error state. @internal */
  fail(message: string): void {
    this.end(failedError(message));
  }

  /** The end, with its cause if the program has not closed the queue pair. @internal */
  end(cause?: RoceError): void {
    this.#life.end(cause);
  }

  /** ibv_post_recv(3): one request or a list, as `postSend`; EINVAL in RESET, and with a shared receive queue. */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    this.#refuseWithSrq();
    this.#queues.postRecv(wr);
  }

  /**
   * Posts a receive into a part of a region, by numbers: as `postRecv({ wrId, sgList: [{ mr, offset, length }] })`, with the same checks and
   * errors. The arguments are those of `postSendOf`.
   */
  postRecvOf(mr: MemoryRegion, offset = 0, length?: number, wrId: number | bigint = 0): void {
    this.#refuseWithSrq();
    this.#queues.postRecvOf(mr, offset, length, wrId);
  }

  #refuseWithSrq(): void {
    if (this.srq) throw invalid('qp', 'receives are posted to its shared receive queue', 'srq.postRecv');
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
    return this.#queues.bind(mw, range, options);
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
    if (this.#queues.isWriting) await Promise.resolve();
    if (attr.cap === undefined) await this.#engine.call('modifyQp', this.qpNum, attr);
    else await this.#queues.resize(attr, attr.cap);
    this.#ends.modified(attr);
    if (attr.qpState === 'ERR') this.fail(`QP ${this.qpNum} was taken to the error state`);
    if (attr.qpState === 'RESET') this.#life.reset();
  }

  /** First PSN of this side, drawn at random, and anew by RESET; `connect` uses it, `modify` may use another. */
  get initialPsn(): number {
    return this.#ends.initialPsn;
  }

  /**
   * ibv_query_qp(3): what is valid in the state the queue pair is in; `undefined` for the rest. `sqPsn` and
   * `rqPsn` are the next ones. The mask is a hint, as the man page has it: it is checked, and all that is
   * valid is returned.
   */
  async query(mask: readonly (keyof QpAttr)[] = []): Promise<{ attr: QpAttr; init: QueuePairInitAttr }> {
    checkQueryMask(mask);
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
    await this.modify(initStep(this.type, options));
  }

  /**
   * UD, GSI and RAW_PACKET: from RESET (or INIT) to RTS. There is no peer to connect to. EINVAL for RC and UC.
   * `qkey`, 32 bits, not of RAW_PACKET: what datagrams to it have to bring; as `toInit` unless given.
   */
  async activate(options: { qkey?: number } = {}): Promise<void> {
    checkCall(options, { qkey: INTEGER });
    for (const step of activationSteps(this.type, this.state, options, this.initialPsn))
      await this.modify(step);
  }

  /**
   * The data that the peer needs: to be carried over by whatever connects the two programs.
   * `gidIndex`: the first GID that is not link-local unless given.
   */
  connectionData(options: { gidIndex?: number } = {}): ConnectionData {
    checkCall(options, { gidIndex: INTEGER });
    const data = this.#ends.offer(this.#engine.facts, this.qpNum, options.gidIndex);
    return this.#selective ? { ...data, selective: true } : data;
  }

  /** RC, UC and XRC_INI: from RESET (or INIT) to RTS, connected to that peer. Rejects as `modify`; EINVAL for UD and GSI. */
  async connect(remote: ConnectionData, options: ConnectOptions = {}): Promise<void> {
    if (this.#datagram || this.type === 'RAW_PACKET')
      throw invalid('type', `${this.type} queue pairs have no peer`, 'activate');
    await this.#ends.connect(this, this.#engine, remote, options);
  }

  /**
   * ibv_destroy_qp(3): what is outstanding is discarded. EBUSY while it is attached to a multicast group.
   * Resolves once the async events about it that were handed out are acknowledged, or the device ends.
   */
  close(): Promise<void> {
    return this.#ending.once(this.#engine, async () => {
      if (this.#queues.isWriting) await Promise.resolve();
      await this.#close();
    });
  }

  async #close(): Promise<void> {
    if (this.#engine.closed) return;
    await this.#engine.call('destroyQp', this.qpNum);
    this.#queues.destroyed = true;
    this.#life.close();
    await this.#registry.leave(this.qpNum, [this.asyncEvents]);
  }

  /** @internal */
  [custom](): string {
    return line('QueuePair', {
      qpNum: hex(this.qpNum),
      type: this.type,
      state: this.#queues.destroyed ? 'destroyed' : this.state,
      sendPending: this.sendPending,
      recvPending: this.recvPending,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
