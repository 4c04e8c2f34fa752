/** The queue pairs that wait for a time, earliest first: a binary heap, good for many thousands. */
import type { QueuePair } from './qp.ts';

/**
 * Timers move far more often than they fire (each ACK moves one), so a deadline that moved later is
 * left where it is in the heap: it comes up early, is found not to be due, and is put where it belongs.
 */
export class Deadlines {
  readonly #heap: QueuePair[] = [];

  /** When something has to be looked at; a time may turn out to be early, never late. */
  get next(): number {
    return this.#heap.length === 0 ? Number.POSITIVE_INFINITY : this.#heap[0].heapDeadline;
  }

  /** To be called after a timer of the queue pair was set. */
  update(qp: QueuePair): void {
    const deadline = qp.deadline;
    if (qp.heapIndex < 0) {
      if (deadline === Number.POSITIVE_INFINITY) return;
      qp.heapDeadline = deadline;
      qp.heapIndex = this.#heap.length;
      this.#heap.push(qp);
      this.#up(qp.heapIndex);
    } else if (deadline < qp.heapDeadline) {
      qp.heapDeadline = deadline;
      this.#up(qp.heapIndex);
    }
  }

  remove(qp: QueuePair): void {
    const at = qp.heapIndex;
    if (at < 0) return;
    qp.heapIndex = -1;
    const last = this.#heap.pop()!;
    if (last === qp) return;
    this.#heap[at] = last;
    last.heapIndex = at;
    this.#up(at);
    this.#down(last.heapIndex);
  }

  /** Takes out one queue pair whose deadline has come, or undefined. */
  due(now: number): QueuePair | undefined {
    while (this.#heap.length > 0) {
      const qp = this.#heap[0];
      if (qp.heapDeadline > now) return undefined;
      const deadline = qp.deadline;
      if (deadline <= now) {
        this.remove(qp);
        return qp;
      }
      if (deadline === Number.POSITIVE_INFINITY) {
        this.remove(qp);
      } else {
        qp.heapDeadline = deadline;
        this.#down(0);
      }
    }
    return undefined;
  }

  #up(index: number): void {
    const heap = this.#heap;
    const qp = heap[index];
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (heap[parent].heapDeadline <= qp.heapDeadline) break;
      heap[index] = heap[parent];
      heap[index].heapIndex = index;
      index = parent;
    }
    heap[index] = qp;
    qp.heapIndex = index;
  }

  #down(index: number): void {
    const heap = this.#heap;
    const qp = heap[index];
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && heap[child + 1].heapDeadline < heap[child].heapDeadline) child++;
      if (heap[child].heapDeadline >= qp.heapDeadline) break;
      heap[index] = heap[child];
      heap[index].heapIndex = index;
      index = child;
    }
    heap[index] = qp;
    qp.heapIndex = index;
  }
}
