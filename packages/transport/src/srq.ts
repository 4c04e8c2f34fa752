/**
 * The engine's side of a shared receive queue (ibv_create_srq(3)). A queue pair that needs a receive entry
 * takes the oldest one into a ring of its own with room for just that one, so that entries may be used and
 * completed in any order, and the rest of the responder knows of no difference.
 */
import type { SrqAttr, SrqCreated, SrqModified } from './control.ts';
import { type NewRing, powerOfTwo, type Ring, RingState, recvStride } from './rings.ts';
import type { TagList } from './tags/tag-list.ts';

/** The engine's side of a shared receive queue: takes entries and watches the limit. */
export class SharedReceiveQueue {
  readonly handle: number;
  readonly pd: number;
  readonly maxSge: number;
  /** Of a tag matching SRQ. */
  readonly tags: TagList | undefined;
  readonly #newRing: NewRing;
  #users = 0;
  #limit: number;
  #ring: Ring;
  /** Where the program posts after a resize, once it has left the other. */
  #successor: Ring | undefined;

  constructor(
    handle: number,
    pd: number,
    maxWr: number,
    maxSge: number,
    limit: number,
    newRing: NewRing,
    tags?: TagList,
  ) {
    this.handle = handle;
    this.pd = pd;
    this.maxSge = maxSge;
    this.tags = tags;
    this.#limit = limit;
    this.#newRing = newRing;
    this.#ring = newRing(maxWr, recvStride(maxSge));
  }

  get created(): SrqCreated {
    return { handle: this.handle, maxWr: this.maxWr, maxSge: this.maxSge, ring: this.#ring.shape };
  }

  /** Queue pairs that take from it. */
  get users(): number {
    return this.#users;
  }

  /** One more queue pair takes from it, or one less. */
  use(by: 1 | -1): void {
    this.#users += by;
  }

  /** Entries below which SRQ_LIMIT_REACHED is raised, once; 0: never. */
  get limit(): number {
    return this.#limit;
  }

  /** Whether fewer entries than the limit are left. Then it is raised, and is 0 until it is set again. */
  reachesLimit(): boolean {
    if (this.available >= this.#limit) return false;
    this.#limit = 0;
    return true;
  }

  get maxWr(): number {
    return (this.#successor ?? this.#ring).capacity;
  }

  /** Entries posted and not taken. */
  get available(): number {
    return this.#ring.used + (this.#successor?.used ?? 0);
  }

  /** The ring whose consumer is at the oldest entry; undefined if there is none. */
  peek(): Ring | undefined {
    if (this.#ring.used === 0) this.#followProgram();
    return this.#ring.used === 0 ? undefined : this.#ring;
  }

  /** Changes to the ring of a resize. Receives that were posted before the program changed rings come first. */
  #followProgram(): void {
    const next = this.#successor;
    if (!next || this.#ring.state !== RingState.LEFT || this.#ring.used !== 0) return;
    this.#ring = next;
    this.#successor = undefined;
  }

  /** Moves the oldest entry, which there is, into the ring of a queue pair, which has room for it. */
  take(into: Ring): void {
    const ring = this.#ring;
    const from = ring.wordOf(ring.consumer);
    const to = into.wordOf(into.producer);
    for (let i = 0; i < ring.stride; i++) into.words[to + i] = ring.words[from + i];
    into.publish((into.producer + 1) | 0);
    ring.release((ring.consumer + 1) | 0);
  }

  /** ibv_modify_srq(3); values are checked. A resize can't follow one that the program has not taken up. */
  modify({ limit, maxWr }: SrqAttr): SrqModified {
    if (limit !== undefined) this.#limit = limit;
    if (maxWr === undefined || powerOfTwo(maxWr) === this.maxWr) return { maxWr: this.maxWr };
    this.#successor = this.#newRing(maxWr, recvStride(this.maxSge));
    return { maxWr: this.maxWr, ring: this.#successor.shape };
  }

  /** Whether the ring before the last resize still has receives, or may get some. */
  isResizing(): boolean {
    this.#followProgram();
    return this.#successor !== undefined;
  }
}
