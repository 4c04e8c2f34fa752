/** The queue pairs that wait for a time, earliest first: a binary heap, good for many thousands. */

/** The owner of the timers. */
export interface Waiter {
  /** One of its timers is due. */
  timersDue(): void;
}

const NONE = Number.POSITIVE_INFINITY;

/**
 * Timers move far more often than they fire (each ACK moves one), so a deadline that moved later is
 * left where it is in the heap: it comes up early, is found not to be due, and is put where it belongs.
 *
 * Each waiter has a number and a `Float64Array` of its timers, which it writes; times and positions are kept
 * in typed arrays here, so that no time is ever boxed. Promise: a waiter with a running timer is in the heap, under a
 * time that is not later than that timer.
 */
export class Deadlines {
  readonly #waiters: (Waiter | undefined)[] = [];
  readonly #timers: Float64Array[] = [];
  readonly #free: number[] = [];
  /** The heap of waiters' numbers; by number: the time it is sorted by, and its position, −1: not there. */
  #heap = new Int32Array(16);
  #keys = new Float64Array(16);
  #positions = new Int32Array(16);
  #size = 0;

  /** Takes in a waiter whose running timers are those of `timers` that are not Infinity. @returns its number */
  enroll(waiter: Waiter, timers: Float64Array): number {
    const id = this.#free.pop() ?? this.#waiters.length;
    if (id === this.#heap.length) this.#grow();
    this.#waiters[id] = waiter;
    this.#timers[id] = timers;
    this.#positions[id] = -1;
    return id;
  }

  /** The waiter is gone. */
  leave(id: number): void {
    this.#remove(id);
    this.#waiters[id] = undefined;
    this.#free.push(id);
  }

  /** When something has to be looked at; a time may turn out to be early, never late. */
  get next(): number {
    return this.#size === 0 ? NONE : this.#keys[this.#heap[0]];
  }

  /** To be called after one of the waiter's timers was set, to the time `at`. */
  armed(id: number, at: number): void {
    if (this.#positions[id] >= 0 && this.#keys[id] <= at) return;
    this.#hasten(id, at);
  }

  /** None of the waiter's timers runs. */
  disarm(id: number): void {
    this.#remove(id);
  }

  #hasten(id: number, at: number): void {
    this.#keys[id] = at;
    if (this.#positions[id] < 0) {
      this.#heap[this.#size] = id;
      this.#up(this.#size++);
    } else this.#up(this.#positions[id]);
  }

  /** Runs at most `limit` waiters that have a timer due; the others are due at once. */
  run(now: number, limit: number): void {
    for (let ran = 0; ran < limit && this.#size > 0; ran++) {
      const id = this.#heap[0];
      if (this.#keys[id] > now) return;
      const deadline = earliest(this.#timers[id]);
      if (deadline > now) {
        this.#keys[id] = deadline;
        if (deadline === NONE) this.#remove(id);
        else this.#down(0);
        continue;
      }
      this.#remove(id);
      (this.#waiters[id] as Waiter).timersDue();
      if (this.#waiters[id] === undefined) continue;
      const next = earliest(this.#timers[id]);
      if (next !== NONE) this.armed(id, next);
    }
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    for (let id = 0; id < this.#waiters.length; id++) {
      if (this.#waiters[id] === undefined) continue;
      const deadline = earliest(this.#timers[id]);
      const at = this.#positions[id];
      if (at >= 0 && this.#heap[at] !== id) return `waiter ${id} is not at position ${at} of the heap`;
      if (deadline !== NONE && (at < 0 || this.#keys[id] > deadline))
        return `the timer of waiter ${id} is lost`;
    }
    return undefined;
  }

  #remove(id: number): void {
    const at = this.#positions[id];
    if (at < 0) return;
    this.#positions[id] = -1;
    const last = this.#heap[--this.#size];
    if (last === id) return;
    this.#heap[at] = last;
    this.#positions[last] = at;
    this.#up(at);
    this.#down(this.#positions[last]);
  }

  #grow(): void {
    const size = this.#heap.length * 2;
    const heap = new Int32Array(size);
    heap.set(this.#heap);
    this.#heap = heap;
    const keys = new Float64Array(size);
    keys.set(this.#keys);
    this.#keys = keys;
    const positions = new Int32Array(size);
    positions.set(this.#positions);
    this.#positions = positions;
  }

  #up(index: number): void {
    const heap = this.#heap;
    const keys = this.#keys;
    const positions = this.#positions;
    const id = heap[index];
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (keys[heap[parent]] <= keys[id]) break;
      heap[index] = heap[parent];
      positions[heap[index]] = index;
      index = parent;
    }
    heap[index] = id;
    positions[id] = index;
  }

  #down(index: number): void {
    const heap = this.#heap;
    const keys = this.#keys;
    const positions = this.#positions;
    const size = this.#size;
    const id = heap[index];
    for (;;) {
      let child = 2 * index + 1;
      if (child >= size) break;
      if (child + 1 < size && keys[heap[child + 1]] < keys[heap[child]]) child++;
      if (keys[heap[child]] >= keys[id]) break;
      heap[index] = heap[child];
      positions[heap[index]] = index;
      index = child;
    }
    heap[index] = id;
    positions[id] = index;
  }
}

function earliest(timers: Float64Array): number {
  let min = NONE;
  for (let i = 0; i < timers.length; i++) if (timers[i] < min) min = timers[i];
  return min;
}
