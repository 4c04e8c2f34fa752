/** Completion queues: polling, notification, waiting, iterating. */
import { type CqCreated, Cqe, invalid, Ring, RoceError, WcStatus } from '@node-roce/transport';
import { TWO_32 } from '@node-roce/wire';
import { CompletionObserver } from './completion-observer.ts';
import { Ending } from './ending.ts';
import { closedError, type Engine } from './engine/engine.ts';
import { systemRandom } from './engine/system-random.ts';
import type { EventChannel } from './event-channel.ts';
import { AffiliatedEvents } from './event-queue.ts';
import { custom, line } from './inspect.ts';
import { checkCall, checkWaitOptions } from './option-types.ts';
import { BOOLEAN, checkArgument, described, INTEGER } from './options.ts';
import type { Registry } from './registry.ts';
import { completionError, WorkCompletion } from './work-completion.ts';

/** Completions that `poll` takes at once, unless another number is given. */
const POLLED = 16;

/** Options of `device.createCq`, without the size. */
export interface CompletionQueueOptions {
  /** The channel of its events; without one, `wait`, `next` and iteration report completions. */
  channel?: EventChannel<CompletionQueue>;
  /** Comes back as `context`. */
  context?: unknown;
  /**
   * Completions have a `timestamp`: when the packet that completed them arrived, as the kernel saw it, where the link has sockets; else
   * when the engine completed them.
   */
  timestamps?: boolean;
  /** Completions have the `tag` and `tagData` of messages (tag matching). */
  tags?: boolean;
}

/** A completion queue (`struct ibv_cq`). Made by `device.createCq`. */
export class CompletionQueue implements AsyncDisposable {
  /** The engine's number for it. */
  readonly handle: number;
  /** Where its events go, if not to `wait` alone. */
  readonly channel: EventChannel<CompletionQueue> | undefined;
  /** The program's value, given at creation (`cq_context`). */
  readonly context: unknown;
  /** Whether its completions have a `timestamp`. */
  readonly timestamps: boolean;
  /** Whether its completions have a `tag`. */
  readonly tags: boolean;
  /** Events of its channel that were taken and not acknowledged: `destroy` waits for them. */
  readonly channelEvents = new AffiliatedEvents();
  /** Async events (CQ_ERR) that were taken and not acknowledged: `destroy` waits for them. */
  readonly asyncEvents = new AffiliatedEvents();
  readonly #engine: Engine;
  readonly #registry: Registry<CompletionQueue>;
  readonly #peerOf: (qpNum: number) => string | undefined;
  /** Where the engine writes, and those before the last resizes that are not empty, oldest first. */
  #newest: Ring;
  #older: Ring[] = [];
  /** The oldest of them all: what is polled. */
  #ring: Ring;
  /** The last request for notification: 0, or what `Ring.arm` takes. */
  #armed: 0 | 1 | 2 = 0;
  #waiters: (() => void)[] = [];
  /** The executor of the promise of who waits without a signal: one for all of them. */
  readonly #enlist = (resolve: () => void): void => {
    this.#waiters.push(resolve);
  };
  readonly #ending = new Ending();
  #destroyed = false;
  #failure: unknown;
  #observer: CompletionObserver | undefined;
  #wakeObserver: (() => void) | undefined;
  /** The program has asked for an event of its channel. */
  #requested = false;

  constructor(
    engine: Engine,
    created: CqCreated,
    registry: Registry<CompletionQueue>,
    { channel, context, timestamps = false, tags = false }: CompletionQueueOptions,
    peerOf: (qpNum: number) => string | undefined,
  ) {
    this.#engine = engine;
    this.handle = created.handle;
    this.channel = channel;
    this.context = context;
    this.timestamps = timestamps;
    this.tags = tags;
    this.#ring = this.#newest = new Ring(created.ring);
    this.#registry = registry;
    this.#peerOf = peerOf;
    channel?.add(this);
    registry.add(this.handle, this);
  }

  /** Entries it holds; at least as many as were asked for. */
  get cqe(): number {
    return this.#newest.capacity;
  }

  /**
   * ibv_resize_cq(3): room for at least `cqe` entries from now on. Completions that were not polled stay, in their
   * order; EINVAL where `cqe` is less than their number.
   */
  async resize(cqe: number): Promise<void> {
    checkArgument('cqe', cqe, INTEGER);
    const { ring } = await this.#engine.call('resizeCq', this.handle, cqe);
    const before = this.#newest;
    this.#newest = new Ring(ring);
    this.#leaveEmptyRings();
    this.#older.push(this.#newest);
    if (this.#armed === 0) return;
    // An armed notification moves along. The engine looks at both rings, but only at the last two: so a
    // completion that came between is looked for here.
    before.disarm(true);
    this.#newest.arm(this.#armed);
    if (this.#newest.used > 0) this.notify();
  }

  /**
   * ibv_poll_cq(3): takes up to `max` completions off the queue, in order. With the engine in this
   * thread, an empty queue makes it run once, so that a loop of polls makes progress.
   * Throws ERR_ROCE_CQ_OVERRUN once all is taken from a queue that overran.
   */
  poll(max = POLLED): WorkCompletion[] {
    if (max !== POLLED) checkArgument('max', max, INTEGER);
    if (this.#observer !== undefined) return this.#pollObserved(max, this.#observer);
    const list: WorkCompletion[] = [];
    const ready = this.#ready(max);
    const ring = this.#ring;
    const first = ring.consumer;
    for (let i = 0; i < ready; i++) {
      const wc = new WorkCompletion();
      this.#take(ring, first + i, wc);
      list.push(wc);
    }
    this.#release(ready);
    return list;
  }

  /** As `poll`, into completions that the caller has: returns how many were filled. Allocates nothing. */
  pollInto(into: readonly WorkCompletion[]): number {
    if (!Array.isArray(into)) throw invalid('into', described(into), 'a list of WorkCompletion');
    if (this.#observer !== undefined) {
      const list = this.#pollObserved(into.length, this.#observer);
      for (const [i, wc] of list.entries()) Object.assign(into[i], wc);
      return list.length;
    }
    const ready = this.#ready(into.length);
    const ring = this.#ring;
    const first = ring.consumer;
    for (let i = 0; i < ready; i++) this.#take(ring, first + i, into[i]);
    // A setter of the caller's polled here: what is left waits for the next call.
    if (ring.consumer !== first) return 0;
    this.#release(ready);
    return ready;
  }

  /** The program's own completions: those that the observer took out of the ring, then the ring's. */
  #pollObserved(max: number, observer: CompletionObserver): WorkCompletion[] {
    const list = observer.take(max);
    while (list.length < max) {
      const ready = this.#ready(max - list.length);
      if (ready === 0) break;
      for (const wc of this.#takeAll(ready)) if (!observer.observe(wc)) list.push(wc);
    }
    return list;
  }

  #takeAll(count: number): WorkCompletion[] {
    const list = Array.from({ length: count }, () => new WorkCompletion());
    const ring = this.#ring;
    const first = ring.consumer;
    for (const [i, wc] of list.entries()) this.#take(ring, first + i, wc);
    this.#release(count);
    return list;
  }

  /** The observer of awaited requests and `closed`; made by the first of them. @internal */
  observer(): CompletionObserver {
    this.#observer ??= new CompletionObserver(systemRandom()(), {
      sweep: () => {
        this.#leaveEmptyRings();
        return this.#takeAll(this.#ring.used);
      },
      wait: () => this.#awaken(),
      onHeld: () => {
        const waiters = this.#waiters.splice(0);
        for (const wake of waiters) wake();
        if (this.#requested) this.#raise();
      },
    });
    return this.#observer;
  }

  /** Requests of a queue pair that is gone: their promises reject. @internal */
  abandon(qpNum: number, reason: string): void {
    this.#observer?.abandon(qpNum, closedError(reason));
  }

  /** @internal */
  unwatch(qpNum: number): void {
    this.#observer?.unwatch(qpNum);
  }

  /** Resolves when the ring has something; rejects as `wait`. */
  async #awaken(): Promise<void> {
    this.#checkUsable();
    if (this.#ringUsed > 0) return;
    this.#arm(false);
    if (this.#ringUsed > 0) return;
    await new Promise<void>((resolve) => {
      this.#wakeObserver = resolve;
    });
    this.#checkUsable();
  }

  /** Throws the error that ended this queue: the device's failure, destruction, an overrun. */
  #checkUsable(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#destroyed) throw closedError('the completion queue is gone');
    if (this.#ringUsed === 0 && this.#newest.state !== 0) throw this.#overrun();
  }

  #ready(max: number): number {
    const ring = this.#ring;
    let used = ring.used;
    if (used === 0) {
      if (this.#older.length > 0) return this.#nextRing(max);
      this.#engine.poll(ring);
      used = ring.used;
      if (used === 0 && ring.state !== 0) throw this.#overrun();
    }
    return Math.min(used, max);
  }

  /** A ring before a resize that is empty stays so. */
  #leaveEmptyRings(): void {
    while (this.#older.length > 0 && this.#ring.used === 0) this.#ring = this.#older.shift() as Ring;
  }

  /** The ring before a resize is empty, and stays so: on to the one after it. */
  #nextRing(max: number): number {
    this.#ring = this.#older.shift() as Ring;
    return this.#ready(max);
  }

  /** Completions that can be polled. */
  get #used(): number {
    return this.#ringUsed + (this.#observer?.held ?? 0);
  }

  get #ringUsed(): number {
    let { used } = this.#ring;
    for (let i = 0; i < this.#older.length; i++) used += this.#older[i].used;
    return used;
  }

  /** Fills a completion from the entry with this free-running index. */
  #take(ring: Ring, index: number, wc: WorkCompletion): void {
    const { words } = ring;
    const w = ring.wordOf(index);
    wc.wrIdLow = words[w + Cqe.WR_ID_LOW];
    wc.wrIdHigh = words[w + Cqe.WR_ID_HIGH];
    wc.statusCode = words[w + Cqe.STATUS];
    wc.opcodeCode = words[w + Cqe.OPCODE];
    wc.byteLen = words[w + Cqe.BYTE_LEN];
    wc.immediate = words[w + Cqe.IMMEDIATE];
    wc.qpNum = words[w + Cqe.QP_NUM];
    wc.srcQp = words[w + Cqe.SRC_QP];
    wc.flags = words[w + Cqe.FLAGS];
    wc.vendorErr = words[w + Cqe.VENDOR_ERR];
    wc.peer = wc.statusCode === WcStatus.SUCCESS ? undefined : this.#peerOf(wc.qpNum);
    wc.timestamp = this.timestamps ? words[w + Cqe.STAMP_HIGH] * TWO_32 + words[w + Cqe.STAMP_LOW] : 0;
    wc.tagHigh = this.tags ? words[w + Cqe.TAG_HIGH] : 0;
    wc.tagLow = this.tags ? words[w + Cqe.TAG_LOW] : 0;
    wc.tagData = this.tags ? words[w + Cqe.TAG_DATA] : 0;
  }

  #release(count: number): void {
    if (count > 0) this.#ring.release((this.#ring.consumer + count) | 0);
  }

  #overrun(): RoceError {
    return new RoceError(
      'ERR_ROCE_CQ_OVERRUN',
      `completion queue ${this.handle} overran its ${this.cqe} entries`,
      {
        errno: 'EIO',
      },
    );
  }

  /**
   * ibv_req_notify_cq(3): asks for one event at the next completion (or the next solicited or failed
   * one). Completions that are there already raise none: poll again after asking. The event comes also where another part of the
   * program waits for the queue (`wait`, `next`, an awaited request); `solicitedOnly` then means any completion.
   */
  requestNotify(options: { solicitedOnly?: boolean } = {}): void {
    checkCall(options, { solicitedOnly: BOOLEAN });
    this.#requested = true;
    this.#arm(options.solicitedOnly === true);
  }

  #arm(solicitedOnly: boolean): void {
    if (!solicitedOnly || this.#armed === 0) this.#armed = solicitedOnly ? 2 : 1;
    this.#newest.arm(solicitedOnly ? 2 : 1);
  }

  /** The event came: for all who wait here, and for the channel where the program has asked for it. @internal */
  notify(): void {
    // The owner of a shared ring (a program of `roce run`) asks on its control page, which this object does not see.
    const isAskedElsewhere = this.#armed === 0;
    this.#armed = 0;
    const waiters = this.#waiters.splice(0);
    this.#wakeObserver?.();
    this.#wakeObserver = undefined;
    if (this.#requested || isAskedElsewhere) this.#raise();
    for (const wake of waiters) wake();
  }

  #raise(): void {
    this.#requested = false;
    this.channel?.raise(this);
  }

  /** ibv_ack_cq_events(3): so many events that `channel.getEvent` gave for this queue are dealt with. */
  ackEvents(count = 1): void {
    checkArgument('count', count, INTEGER);
    this.channelEvents.acknowledge(count);
  }

  /** The device failed: waiting calls reject with the cause. @internal */
  fail(error: unknown): void {
    this.#failure = error;
    this.#wakeObserver?.();
    for (const wake of this.#waiters.splice(0)) wake();
  }

  /**
   * Resolves when there is something to poll; at once if there is. Rejects with the signal's reason.
   */
  async wait(options?: { signal?: AbortSignal; solicitedOnly?: boolean }): Promise<void> {
    if (options !== undefined) checkWaitOptions(options, { solicitedOnly: BOOLEAN });
    const signal = options?.signal;
    const solicitedOnly = options?.solicitedOnly === true;
    for (;;) {
      signal?.throwIfAborted();
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#destroyed) throw closedError('the completion queue is gone');
      if (this.#used > 0) return;
      if (this.#newest.state !== 0) throw this.#overrun();
      this.#arm(solicitedOnly);
      // A completion that came before that raises no event, solicited or not.
      if (this.#used > 0) return;
      await (signal === undefined ? new Promise<void>(this.#enlist) : this.#awakened(signal));
      if (solicitedOnly && this.#used > 0) return;
    }
  }

  /** Resolves at the next event. */
  #awakened(signal: AbortSignal): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        this.#waiters = this.#waiters.filter((w) => w !== wake);
        reject(signal.reason);
      };
      const wake = () => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      };
      this.#waiters.push(wake);
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** Waits for the next completion and takes it. Rejects with the signal's reason, and takes none then. */
  async next(options?: { signal?: AbortSignal }): Promise<WorkCompletion> {
    if (options !== undefined) checkWaitOptions(options);
    const signal = options?.signal;
    signal?.throwIfAborted();
    for (;;) {
      const [wc] = this.poll(1);
      if (wc) return wc;
      await this.wait({ signal });
    }
  }

  /**
   * Yields completions as they come, until the loop is left, the queue is destroyed or the device closed. A completion
   * with another status than SUCCESS ends the loop with the error of `completionError`; those behind it stay in the
   * queue. Programs that handle failures themselves use `next` or `poll`.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<WorkCompletion, void> {
    while (!this.#destroyed) {
      // One at a time: a loop that is left loses none.
      const [wc] = this.poll(1);
      if (wc) {
        if (!wc.ok) throw completionError(wc);
        yield wc;
        continue;
      }
      try {
        await this.wait();
      } catch (error) {
        if (this.#destroyed || (error as RoceError).code === 'ERR_ROCE_CLOSED') return;
        throw error;
      }
    }
  }

  /**
   * ibv_destroy_cq(3): EBUSY while queue pairs complete here. Resolves once the events that were taken, of its
   * channel and about it, are acknowledged, or the device ends.
   */
  destroy(): Promise<void> {
    return this.#ending.once(this.#engine, () => this.#destroy());
  }

  async #destroy(): Promise<void> {
    await this.#engine.call('destroyCq', this.handle);
    this.#destroyed = true;
    this.channel?.remove(this);
    this.#wakeObserver?.();
    for (const wake of this.#waiters.splice(0)) wake();
    await this.#registry.leave(this.handle, [this.channelEvents, this.asyncEvents]);
  }

  /** @internal */
  [custom](): string {
    return line('CompletionQueue', { handle: this.handle, cqe: this.cqe, ready: this.#used });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }
}
