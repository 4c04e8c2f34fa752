/** Objects of one kind by the engine's numbers. */
import type { AffiliatedEvents } from './event-queue.ts';

/** Objects of one kind, by number. */
export class Registry<T> {
  readonly #objects = new Map<number, T>();
  readonly #onRemove: (object: T) => void;
  /** Of objects that are gone: a program has taken them, and not acknowledged. */
  readonly #unacknowledged = new Set<AffiliatedEvents>();
  #ended = false;

  /** @param onRemove called with each object that is removed */
  constructor(onRemove: (object: T) => void) {
    this.#onRemove = onRemove;
  }

  add(number: number, object: T): void {
    this.#objects.set(number, object);
  }

  get(number: number): T | undefined {
    return this.#objects.get(number);
  }

  /** Forgets an object that was destroyed; its number may then be another's. */
  remove(number: number): void {
    const object = this.#objects.get(number);
    if (object === undefined) return;
    this.#objects.delete(number);
    this.#onRemove(object);
  }

  /** Forgets an object that was destroyed. Resolves once its events are acknowledged, or the device has ended. */
  async leave(number: number, events: readonly AffiliatedEvents[]): Promise<void> {
    this.remove(number);
    // It may have ended between the command and its answer.
    if (this.#ended) return;
    const pending = events.filter((each) => each.pending > 0);
    for (const each of pending) this.#unacknowledged.add(each);
    await Promise.all(pending.map((each) => each.acknowledged()));
    for (const each of pending) this.#unacknowledged.delete(each);
  }

  /** The device has ended: nothing is left that an acknowledgment could protect. */
  end(): void {
    this.#ended = true;
    for (const events of this.#unacknowledged) events.waive();
  }

  get size(): number {
    return this.#objects.size;
  }

  values(): IterableIterator<T> {
    return this.#objects.values();
  }
}
