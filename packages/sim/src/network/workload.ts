/**
 * A mixed workload between two endpoints, in both directions at once, with everything that must come of
 * it known beforehand: the order and contents of what is received, every byte read, every atomic's
 * answer, every completion, and the memory at the end.
 */
import type { Random } from '@node-roce/wire';
import type { Endpoint } from './endpoint.ts';
import { Flow } from './workload-flow.ts';

/** Both directions between two connected endpoints. */
export class MixedWorkload {
  readonly #a: Endpoint;
  readonly #b: Endpoint;
  readonly #aToB: Flow;
  readonly #bToA: Flow;

  /** @param count requests of each side; arenas have `ARENA_BYTES` */
  constructor(a: Endpoint, b: Endpoint, count: number, random: Random) {
    this.#a = a;
    this.#b = b;
    for (const { arena } of [a, b]) for (let i = 0; i < arena.length; i++) arena[i] = random.next();
    this.#aToB = new Flow({ from: a, to: b, count, random });
    this.#bToA = new Flow({ from: b, to: a, count, random });
    this.#post();
  }

  #post(): void {
    this.#aToB.post();
    this.#bToA.post();
  }

  /** The status that ended the connection, if one did. */
  get failure(): string | undefined {
    return this.#aToB.failure ?? this.#bToA.failure;
  }

  /**
   * To be called after each step: checks what completed, posts more. True once all is done, or the
   * connection has failed.
   * @throws Error when something happened that must not
   */
  step(): boolean {
    this.#aToB.poll(this.#a.pollSend(), this.#b.pollReceive());
    this.#bToA.poll(this.#b.pollSend(), this.#a.pollReceive());
    if (this.failure !== undefined) return true;
    if (this.#aToB.done && this.#bToA.done) {
      this.#aToB.checkMemory();
      this.#bToA.checkMemory();
      return true;
    }
    this.#post();
    return false;
  }
}
