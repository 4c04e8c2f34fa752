/** Completion queues by handle: what the control path does with them (ibv_create_cq(3), ibv_resize_cq(3), ibv_destroy_cq(3)). */
import { CompletionQueue } from './completion-queue.ts';
import type { Context } from './context.ts';
import type { CqContents, CqCreated } from './control.ts';
import { invalid, RoceError } from './errors.ts';
import { type NewRing, powerOfTwo } from './rings.ts';

/** The completion queues of an adapter. */
export class CompletionQueues {
  readonly #context: Context;
  readonly #nextHandle: () => number;
  readonly #cqs = new Map<number, CompletionQueue>();

  constructor(context: Context, nextHandle: () => number) {
    this.#context = context;
    this.#nextHandle = nextHandle;
  }

  /** The one with this handle; EINVAL, with the attribute that names it, without one. */
  get(handle: number, attribute: string): CompletionQueue {
    const cq = this.#cqs.get(handle);
    if (!cq) throw invalid(attribute, 'no such completion queue');
    return cq;
  }

  /** ibv_create_cq(3): at least `cqe` entries. */
  create(cqe: number, contents: CqContents = {}, newRing: NewRing = this.#context.newRing): CqCreated {
    const { maxCq } = this.#context.limits;
    this.#check(cqe);
    if (this.#cqs.size >= maxCq) {
      throw new RoceError('ERR_ROCE_LIMIT', 'no completion queue left', { errno: 'ENOMEM' });
    }
    const cq = new CompletionQueue(this.#nextHandle(), cqe, newRing, contents);
    if (cq.stamped) this.#context.stamps.use();
    this.#cqs.set(cq.handle, cq);
    return cq.created;
  }

  /** ibv_resize_cq(3): at least `cqe` entries, and room for what was not polled. */
  resize(handle: number, cqe: number): CqCreated {
    const cq = this.get(handle, 'cq');
    this.#check(cqe);
    const { outstanding } = cq;
    if (powerOfTwo(cqe) < outstanding) {
      throw invalid('cqe', `${cqe} is less than the ${outstanding} completions that were not polled`);
    }
    return cq.resize(cqe);
  }

  #check(cqe: number): void {
    const { maxCqe } = this.#context.limits;
    if (!Number.isInteger(cqe) || cqe < 1 || cqe > maxCqe) throw invalid('cqe', `${cqe}`, `1 … ${maxCqe}`);
  }

  /** ibv_destroy_cq(3): EBUSY while a queue pair completes there. */
  destroy(handle: number): void {
    const cq = this.get(handle, 'cq');
    if (cq.users > 0) {
      throw new RoceError('ERR_ROCE_BUSY', `${cq.users} queues complete on the completion queue`, {
        errno: 'EBUSY',
      });
    }
    this.#cqs.delete(handle);
  }
}
