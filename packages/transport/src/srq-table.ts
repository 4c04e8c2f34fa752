/** Shared receive queues by handle: what the control path does with them (ibv_create_srq(3)). */
import type { CompletionQueue } from './completion-queue.ts';
import type { Context } from './context.ts';
import type { SrqAttr, SrqInit, SrqModified } from './control.ts';
import { invalid, RoceError } from './errors.ts';
import { SharedReceiveQueue } from './srq.ts';
import { TagList } from './tags/tag-list.ts';

/** The shared receive queues of an adapter, by handle. */
export class SrqTable {
  readonly #context: Context;
  readonly #nextHandle: () => number;
  readonly #srqs = new Map<number, SharedReceiveQueue>();

  constructor(context: Context, nextHandle: () => number) {
    this.#context = context;
    this.#nextHandle = nextHandle;
  }

  /** ibv_create_srq(3). @param tagCq where receives of a tag matching SRQ complete */
  create(init: SrqInit, tagCq?: CompletionQueue): SharedReceiveQueue {
    const { limits, memory } = this.#context;
    const { maxWr, maxSge, limit } = init;
    within('maxWr', maxWr, 1, limits.maxSrqWr);
    within('maxSge', maxSge, 1, limits.maxSrqSge);
    within('limit', limit, 0, maxWr);
    if (init.tags) within('tags.max', init.tags.max, 1, limits.maxTags);
    if (this.#srqs.size >= limits.maxSrq) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no shared receive queue left', { errno: 'ENOMEM' });
    }
    const srq = new SharedReceiveQueue(
      this.#nextHandle(),
      init.pd,
      maxWr,
      maxSge,
      limit,
      init.newRing ?? this.#context.newRing,
      init.tags && tagCq && new TagList(tagCq, init.tags.max, maxSge),
    );
    memory.holdPd(init.pd, 1);
    tagCq?.use(1);
    this.#srqs.set(srq.handle, srq);
    return srq;
  }

  /** ibv_modify_srq(3): the limit, and the size, which may not fall below what is posted, nor below a limit that stays. */
  modify(handle: number, attr: SrqAttr): SrqModified {
    const srq = this.get(handle);
    const { limit, maxWr } = attr;
    if (maxWr !== undefined) {
      // A smaller queue could never hold as many as the limit that stays armed.
      const least = Math.max(1, srq.available, limit === undefined ? srq.limit : 0);
      within('maxWr', maxWr, least, this.#context.limits.maxSrqWr);
      if (srq.isResizing()) {
        throw new RoceError('ERR_ROCE_BUSY', 'the queue is still being resized', { errno: 'EBUSY' });
      }
    }
    if (limit !== undefined) within('limit', limit, 0, maxWr ?? srq.maxWr);
    return srq.modify(attr);
  }

  /** ibv_query_srq(3). */
  query(handle: number): Required<SrqAttr> & { maxSge: number } {
    const { limit, maxWr, maxSge } = this.get(handle);
    return { limit, maxWr, maxSge };
  }

  /** ibv_destroy_srq(3): EBUSY while a queue pair takes from it. */
  destroy(handle: number): void {
    const srq = this.get(handle);
    if (srq.users > 0) {
      throw new RoceError('ERR_ROCE_BUSY', `${srq.users} queue pairs use the shared receive queue`, {
        errno: 'EBUSY',
      });
    }
    this.#srqs.delete(handle);
    this.#context.memory.holdPd(srq.pd, -1);
    srq.tags?.cq.use(-1);
  }

  /** EINVAL without one. */
  get(handle: number): SharedReceiveQueue {
    const srq = this.#srqs.get(handle);
    if (!srq) throw invalid('srq', 'no such shared receive queue');
    return srq;
  }
}

function within(attribute: string, value: number, low: number, high: number): void {
  if (!Number.isInteger(value) || value < low || value > high) {
    throw invalid(attribute, `${value} can't be had`, `${low} … ${high}`);
  }
}
