/** The queue pairs that wait for a time, earliest first: a binary heap, good for many thousands. */
import type { Clock } from './times.ts';

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
  /**
   * When something has to be looked at, µs; a time may turn out to be early, never late. Infinity: never. An array, as the clock is: the time is not boxed.
   */
  readonly next: Readonly<Float64Array>;
  readonly #next = new Float64Array([NONE]);
  readonly #clock: Clock;
  readonly #waiters: (Waiter | undefined)[] = [];
  readonly #timers: Float64Array[] = [];
  /** By number: the first of its timers in that array, and how many they are. */
  readonly #first: number[] = [];
  readonly #counts: number[] = [];
  readonly #free: number[] = [];
  /** The heap of waiters' numbers; by number: the time it is sorted by, and its position, −1: not there. */
  #heap = new Int32Array(16);
  #keys = new Float64Array(16);
  #positions = new Int32Array(16);
  #size = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.next = this.#next;
  }

  /** Takes in a waiter whose running timers are those of `count` from `first` on that are not Infinity. @returns its number */
  enroll(waiter: Waiter, timers: Float64Array, first = 0, count = timers.length): number {
    const id = this.#free.pop() ?? this.#waiters.length;
    if (id === this.#heap.length) this.#grow();
    this.#waiters[id] = waiter;
    this.#timers[id] = timers;
    this.#first[id] = first;
    this.#counts[id] = count;
    this.#positions[id] = -1;
    return id;
  }

  /** The waiter is gone. */
  leave(id: number): void {
    this.#remove(id);
    this.#waiters[id] = undefined;
    this.#free.push(id);
  }

  /** To be called after a timer of the waiter was set: the one at `timer` of its array. */
  armed(id: number, timer: number): void {
    const at = this.#timers[id][timer];
    if (this.#positions[id] >= 0 && this.#keys[id] <= at) return;
    this.#keys[id] = at;
    this.#hasten(id);
  }

  /** None of the waiter's timers runs. */
  disarm(id: number): void {
    this.#remove(id);
  }

  /** The waiter's key is earlier than before, or the first. */
  #hasten(id: number): void {
    if (this.#positions[id] < 0) {
      this.#heap[this.#size] = id;
      this.#up(this.#size++);
    } else this.#up(this.#positions[id]);
    this.#show();
  }

  /** Runs at most `limit` waiters that have a timer due; the others are due at once. */
  run(limit: number): void {
    const now = this.#clock[0];
    for (let ran = 0; ran < limit && this.#size > 0; ran++) {
      const id = this.#heap[0];
      if (this.#keys[id] > now) return;
      if (this.#putBack(id)) continue;
      this.#remove(id);
      (this.#waiters[id] as Waiter).timersDue();
      if (this.#waiters[id] === undefined) continue;
      const next = this.#earliest(id);
      if (next >= 0) this.armed(id, next);
    }
  }

  /** Puts first waiters whose timers have moved meanwhile where they belong, up to one that has a timer due. @returns whether there is one */
  findDue(): boolean {
    while (this.#next[0] <= this.#clock[0]) if (!this.#putBack(this.#heap[0])) return true;
    return false;
  }

  /** The first waiter's time has come: if its timers have moved meanwhile, it is put where it belongs. @returns whether */
  #putBack(id: number): boolean {
    const timer = this.#earliest(id);
    if (timer < 0) {
      this.#remove(id);
      return true;
    }
    if (this.#timers[id][timer] <= this.#clock[0]) return false;
    this.#keys[id] = this.#timers[id][timer];
    this.#down(0);
    this.#show();
    return true;
  }

  /** The broken promise, if there is one. */
  check(): string | undefined {
    if (this.#size > 0 && this.next[0] !== this.#keys[this.#heap[0]])
      return 'the next time is not that of the first waiter';
    for (let id = 0; id < this.#waiters.length; id++) {
      if (this.#waiters[id] === undefined) continue;
      const timer = this.#earliest(id);
      const at = this.#positions[id];
      if (at >= 0 && this.#heap[at] !== id) return `waiter ${id} is not at position ${at} of the heap`;
      if (timer >= 0 && (at < 0 || this.#keys[id] > this.#timers[id][timer]))
        return `the timer of waiter ${id} is lost`;
    }
    return undefined;
  }

  /** The waiter's timer that fires first, as an index of its array; −1: none runs. */
  #earliest(id: number): number {
    const timers = this.#timers[id];
    const first = this.#first[id];
    const end = first + this.#counts[id];
    let timer = -1;
    let min = NONE;
    for (let i = first; i < end; i++) {
      if (timers[i] >= min) continue;
      min = timers[i];
      timer = i;
    }
    return timer;
  }

  #remove(id: number): void {
    const at = this.#positions[id];
    if (at < 0) return;
    this.#positions[id] = -1;
    const last = this.#heap[--this.#size];
    if (last !== id) {
      this.#heap[at] = last;
      this.#positions[last] = at;
      this.#up(at);
      this.#down(this.#positions[last]);
    }
    this.#show();
  }

  /** The first in the heap may be another one, or have another time. */
  #show(): void {
    this.#next[0] = this.#size === 0 ? NONE : this.#keys[this.#heap[0]];
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
