/** Where a flow's messages arrive: a queue pair's own receives, or an SRQ that several flows draw from. */
import type { Random } from '@node-roce/wire';
import type { SimReceive } from './endpoint.ts';
import { require } from './workload-checks.ts';
import { RECEIVED, RECEIVES, SLOT } from './workload-layout.ts';

export interface Receives {
  /** Posts as many as there are, at first. */
  fill(): void;
  /** Posts one or none, so that there are too few now and then. */
  refill(random: Random): void;
  /** The memory of a receive that completed. @throws Error for one that was not due */
  take(wrId: number): Uint8Array;
}

/** The queue that receives are posted to, and its arena. */
interface ReceivesOf {
  arena: Uint8Array;
  postReceive(request: SimReceive): void;
}

/** Completed in the order in which they were posted. */
export class OwnReceives implements Receives {
  readonly #to: ReceivesOf;
  readonly #mayPost: () => boolean;
  #posted = 0;
  #taken = 0;

  /** @param mayPost asked before each; no, now and then, makes the peer run into RNR NAKs */
  constructor(to: ReceivesOf, mayPost: () => boolean = () => true) {
    this.#to = to;
    this.#mayPost = mayPost;
  }

  #post(): void {
    if (!this.#mayPost()) return;
    const wrId = this.#posted++;
    this.#to.postReceive({ wrId, offset: slotAt(wrId), length: SLOT });
  }

  fill(): void {
    for (let i = 0; i < RECEIVES; i++) this.#post();
  }

  refill(random: Random): void {
    const waiting = this.#posted - this.#taken;
    if (waiting < RECEIVES && (waiting === 0 || random.chance(0.3))) this.#post();
  }

  take(wrId: number): Uint8Array {
    require(wrId === this.#taken, 'receives completed out of order', { wrId, expected: this.#taken });
    this.#taken++;
    return this.#to.arena.subarray(slotAt(wrId), slotAt(wrId) + SLOT);
  }
}

const slotAt = (wrId: number) => RECEIVED.at + (wrId % RECEIVES) * SLOT;

/** An SRQ: messages of several queue pairs take turns, and complete in any order. */
export class SharedReceives implements Receives {
  readonly #to: ReceivesOf;
  /** Slot of each receive that has not completed. */
  readonly #slots = new Map<number, number>();
  #posted = 0;

  constructor(to: ReceivesOf) {
    this.#to = to;
  }

  /** Posted and not completed. */
  get outstanding(): number {
    return this.#slots.size;
  }

  #post(): void {
    const used = new Set(this.#slots.values());
    let slot = 0;
    while (used.has(slot)) slot++;
    const wrId = this.#posted++;
    this.#slots.set(wrId, slot);
    this.#to.postReceive({ wrId, offset: slotAt(slot), length: SLOT });
  }

  fill(): void {
    while (this.#slots.size < RECEIVES) this.#post();
  }

  refill(random: Random): void {
    if (this.#slots.size < RECEIVES && (this.#slots.size === 0 || random.chance(0.3))) this.#post();
  }

  take(wrId: number): Uint8Array {
    const slot = this.#slots.get(wrId);
    require(slot !== undefined, 'a receive completed that is not posted', { wrId });
    this.#slots.delete(wrId);
    // A copy: the slot is posted again before long.
    return this.#to.arena.slice(slotAt(slot!), slotAt(slot!) + SLOT);
  }
}
