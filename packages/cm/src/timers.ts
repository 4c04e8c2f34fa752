/** Deadlines of many objects, the earliest first. */

/** Objects with a deadline: at most one at a time. */
export interface Timed {
  /** When it is due, µs; Infinity for never. Only `Timers` writes it. */
  deadline: number;
  /** Its place in the heap, −1 outside. Only `Timers` writes it. */
  place: number;
}

/** A binary heap with the place of each entry in the entry, so that a deadline is moved and taken off in O(log n). */
export class Timers<T extends Timed> {
  readonly #heap: T[] = [];

  /** The earliest deadline; Infinity if there is none. */
  get next(): number {
    return this.#heap[0]?.deadline ?? Number.POSITIVE_INFINITY;
  }

  /** Entries that have a deadline. */
  get size(): number {
    return this.#heap.length;
  }

  /** Gives an entry a deadline in place of the one that it had; Infinity takes it off. */
  set(entry: T, deadline: number): void {
    if (deadline === Number.POSITIVE_INFINITY) {
      this.#remove(entry);
      return;
    }
    entry.deadline = deadline;
    if (entry.place < 0) {
      entry.place = this.#heap.length;
      this.#heap.push(entry);
    }
    this.#up(entry.place);
    this.#down(entry.place);
  }

  /** Takes off and returns an entry that is due. */
  due(now: number): T | undefined {
    const first = this.#heap[0];
    if (first === undefined || first.deadline > now) return undefined;
    this.#remove(first);
    return first;
  }

  #remove(entry: T): void {
    const at = entry.place;
    entry.deadline = Number.POSITIVE_INFINITY;
    if (at < 0) return;
    entry.place = -1;
    const last = this.#heap.pop()!;
    if (last === entry) return;
    this.#put(last, at);
    this.#up(at);
    this.#down(last.place);
  }

  #put(entry: T, at: number): void {
    this.#heap[at] = entry;
    entry.place = at;
  }

  #up(from: number): void {
    const heap = this.#heap;
    for (let at = from; at > 0; ) {
      const parent = (at - 1) >> 1;
      if (heap[parent].deadline <= heap[at].deadline) return;
      this.#swap(at, parent);
      at = parent;
    }
  }

  #down(from: number): void {
    const heap = this.#heap;
    for (let at = from; ; ) {
      let least = at;
      for (const child of [2 * at + 1, 2 * at + 2])
        if (child < heap.length && heap[child].deadline < heap[least].deadline) least = child;
      if (least === at) return;
      this.#swap(at, least);
      at = least;
    }
  }

  #swap(a: number, b: number): void {
    const entry = this.#heap[a];
    this.#put(this.#heap[b], a);
    this.#put(entry, b);
  }
}
