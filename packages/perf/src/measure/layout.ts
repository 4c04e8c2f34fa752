/** Where messages lie in the memory of a test: a half to send from, and one that the peer reaches; in each a slot for each queue pair. */
import { GRH_BYTES } from '@node-roce/verbs-api';
import type { Agreement } from '../dialogue/dialogue.ts';
import type { Plan } from '../plan.ts';

/** Offsets of messages in the memory region of a side. */
export class Layout {
  /** Bytes before a datagram: the sender's IP header. */
  readonly headRoom: number;
  readonly #qps: number;
  readonly #slot: number;
  readonly #cycle: number;
  readonly #line: number;

  constructor({ qps, size, service }: Plan, { cycleBuffer, cacheLine }: Agreement) {
    this.headRoom = service === 'UD' ? GRH_BYTES : 0;
    this.#qps = qps;
    this.#cycle = cycleBuffer;
    this.#line = cacheLine;
    this.#slot = Math.max(cycleBuffer, this.step(size + this.headRoom));
  }

  /** Bytes in all. */
  get bytes(): number {
    return 2 * this.#qps * this.#slot;
  }

  sendOffset(index: number): number {
    return index * this.#slot;
  }

  receiveOffset(index: number): number {
    return (this.#qps + index) * this.#slot;
  }

  /** From one message to the next: whole cache lines (`INC`). */
  step(size: number): number {
    return Math.ceil(size / this.#line) * this.#line;
  }

  /** Messages from one wrap to the next: as many as the agreed cycle holds; 1 of those above half of it. */
  positions(size: number): number {
    return size <= this.#cycle / 2 ? Math.floor(this.#cycle / this.step(size)) : 1;
  }
}
