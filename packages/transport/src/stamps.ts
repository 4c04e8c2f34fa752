/** Times of completions (`ibv_create_cq_ex`, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP). */
import { TWO_32 } from '@node-roce/wire';
import { RX_SLOT_WORDS, Rx, type RxBatch } from './batch.ts';
import { Cqe } from './entry-words.ts';
import type { Own } from './own.ts';
import type { Clock } from './times.ts';

/**
 * The time that completions get: the arrival time that the link gives for the packet being processed; without such a packet, or
 * such a link, the time of the engine's call. Nanoseconds of the clock of `origin`.
 */
export class Stamps {
  /** Whether a completion queue wants them, or did. */
  readonly inUse: boolean = false;
  readonly #clock: Clock;
  /** Reading of the clock when the engine's time was 0, ns. */
  readonly #origin: number;
  #low = 0;
  #high = 0;

  constructor(clock: Clock, origin: number) {
    this.#clock = clock;
    this.#origin = origin;
  }

  /** A completion queue wants them. */
  use(): void {
    (this as Own<Stamps>).inUse = true;
  }

  /** A packet of a batch is at hand. */
  packet({ slots }: RxBatch, index: number): void {
    const w = index * RX_SLOT_WORDS;
    this.#low = slots[w + Rx.STAMP_LOW];
    this.#high = slots[w + Rx.STAMP_HIGH];
  }

  /** No packet is at hand. */
  none(): void {
    this.#low = this.#high = 0;
  }

  /** Writes the time into the entry of a completion queue that begins at word `w`. */
  write(words: Uint32Array, w: number): void {
    let low = this.#low;
    let high = this.#high;
    if (low === 0 && high === 0) {
      const nanoseconds = Math.floor(this.#origin + this.#clock[0] * 1000);
      high = Math.floor(nanoseconds / TWO_32);
      low = nanoseconds - high * TWO_32;
    }
    words[w + Cqe.STAMP_LOW] = low;
    words[w + Cqe.STAMP_HIGH] = high;
  }
}
