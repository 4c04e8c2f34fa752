/** Shared receive queues: one stock of receives for many queue pairs. */
import { Ring, RingState, RoceError, type SrqCreated } from '@node-roce/transport';
import type { CompletionQueue } from './completion-queue.ts';
import { Ending } from './ending.ts';
import { closedError, type Engine } from './engine/engine.ts';
import { AffiliatedEvents } from './event-queue.ts';
import { custom, line } from './inspect.ts';
import type { MemoryRegion } from './memory-region.ts';
import { checkSrqChange, checkTagOp } from './option-types.ts';
import { recvOf, writeRecvNumbers } from './posting/by-numbers.ts';
import type { RecvWr, TagOp } from './posting/send-wr.ts';
import { type FindRegion, nestedPost, plainTagOp, postReceives } from './posting/work-request.ts';
import type { Registry } from './registry.ts';
import type { XrcDomain } from './xrc-domain.ts';

/** The queue as messages name it, before the number. */
const NAME = 'shared receive queue';

/** `struct ibv_srq_init_attr`. */
export interface SharedReceiveQueueInit {
  /** Receives that may be posted at once; default 128. The queue may be larger. */
  maxWr?: number;
  /** Elements of each; 4. */
  maxSge?: number;
  /** Posted receives below which SRQ_LIMIT_REACHED is raised, once; 0, never. */
  limit?: number;
  /** XRC: the domain that it belongs to, and where its receives complete. Requests name it by its `number`. */
  xrc?: { domain: XrcDomain; cq: CompletionQueue };
  /**
   * Tag matching: `max` tagged buffers at most, and where all its receives and the operations on the list of buffers complete, a queue with
   * `tags` as a rule. Of RC queue pairs alone; one with `maxSendWr` 0 reads the data of rendezvous itself.
   */
  tags?: { max: number; cq: CompletionQueue };
  /** Comes back as `context`. */
  context?: unknown;
}

/** A shared receive queue (`struct ibv_srq`). Made by `pd.createSrq`; given to queue pairs as they are created. */
export class SharedReceiveQueue implements AsyncDisposable {
  /** The engine's number for it. */
  readonly handle: number;
  /** XRC: the number that requests name it by, 24 bits (ibv_get_srq_num(3)); else undefined. */
  readonly number: number | undefined;
  /** Elements that a receive may have. */
  readonly maxSge: number;
  /** The program's value, given at creation (`srq_context`). */
  readonly context: unknown;
  /** Async events that concern it, handed out and not acknowledged: `destroy` waits for them. */
  readonly asyncEvents = new AffiliatedEvents();
  readonly #engine: Engine;
  readonly #find: FindRegion;
  readonly #registry: Registry<SharedReceiveQueue>;
  #ring: Ring;
  #maxWr: number;
  /** A receive is being written, whose getters are the program's. */
  #posting = false;
  readonly #ending = new Ending();
  #destroyed = false;

  constructor(
    engine: Engine,
    created: SrqCreated,
    find: FindRegion,
    registry: Registry<SharedReceiveQueue>,
    context: unknown,
  ) {
    this.#engine = engine;
    this.handle = created.handle;
    this.number = created.number;
    this.maxSge = created.maxSge;
    this.context = context;
    this.#find = find;
    this.#registry = registry;
    this.#ring = new Ring(created.ring);
    this.#maxWr = created.maxWr;
    registry.add(this.handle, this);
  }

  /** Receives that may be posted at once. */
  get maxWr(): number {
    return this.#maxWr;
  }

  /** Receives that are posted and not taken. After a resize, only those posted since. */
  get pending(): number {
    return this.#ring.used;
  }

  /**
   * ibv_post_srq_recv(3): one receive or a list. Throws ENOMEM when the queue is full, EINVAL for a bad request;
   * of a list, the requests before the bad one are posted, and the error's `index` is that of the bad one.
   */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    if (this.#engine.closed) throw closedError();
    if (this.#destroyed)
      throw new RoceError('ERR_ROCE_WRONG_STATE', `the ${NAME} ${this.handle} is destroyed`, {
        errno: 'EINVAL',
      });
    if (this.#posting) throw nestedPost(NAME, this.handle);
    this.#posting = true;
    try {
      postReceives(this.#ring, wr, this.#ring.capacity, this.maxSge, this.#find, NAME, this.handle);
    } finally {
      this.#posting = false;
    }
  }

  /** As `QueuePair.postRecvOf`. */
  postRecvOf(mr: MemoryRegion, offset = 0, length?: number, wrId: number | bigint = 0): void {
    const ring = this.#ring;
    const takesReceives = !this.#engine.closed && !this.#destroyed && !this.#posting;
    if (takesReceives && writeRecvNumbers(ring, mr, offset, length, wrId, ring.capacity, this.maxSge))
      ring.publish((ring.producer + 1) | 0);
    else this.postRecv(recvOf(mr, offset, length, wrId));
  }

  /**
   * ibv_modify_srq(3). `limit` arms SRQ_LIMIT_REACHED anew; `maxWr` resizes: EINVAL below what is posted or below a limit that stays, EBUSY
   * while the resize before is not used up (the receives posted before it are still there).
   */
  async modify(change: { limit?: number; maxWr?: number }): Promise<void> {
    checkSrqChange(change);
    const { limit, maxWr } = change;
    const modified = await this.#engine.call('modifySrq', this.handle, { limit, maxWr });
    this.#maxWr = modified.maxWr;
    if (!modified.ring) return;
    // The engine goes over to the new ring when it has used up the old one and we have left it.
    this.#ring.state = RingState.LEFT;
    this.#ring = new Ring(modified.ring);
  }

  /**
   * ibv_post_srq_ops(3): adds a tagged buffer, removes one, or reports messages that were handled. Rejects with EINVAL for a bad operation or a
   * queue without `tags`, ENOMEM when the list is full. A TAG_DEL of what a message has consumed completes with TM_ERR.
   *
   * @returns the handle of the buffer, for TAG_DEL; of others 0
   */
  async postTagOp(op: TagOp): Promise<number> {
    if (this.#destroyed)
      throw new RoceError('ERR_ROCE_WRONG_STATE', `the ${NAME} ${this.handle} is destroyed`, {
        errno: 'EINVAL',
      });
    checkTagOp(op);
    return this.#engine.call('postSrqOp', this.handle, plainTagOp(op, this.maxSge, this.#find));
  }

  /** ibv_query_srq(3). A limit that was reached reads 0. */
  query(): Promise<{ maxWr: number; maxSge: number; limit: number }> {
    return this.#engine.call('querySrq', this.handle);
  }

  /** ibv_destroy_srq(3): EBUSY while queue pairs use it; one of an XRC domain just goes. Resolves once its async events are acknowledged, or the device ends. */
  destroy(): Promise<void> {
    return this.#ending.once(this.#engine, () => this.#destroy());
  }

  async #destroy(): Promise<void> {
    await this.#engine.call('destroySrq', this.handle);
    this.#destroyed = true;
    await this.#registry.leave(this.handle, [this.asyncEvents]);
  }

  /** @internal */
  [custom](): string {
    return line('SharedReceiveQueue', { handle: this.handle, maxWr: this.maxWr, pending: this.pending });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }
}
