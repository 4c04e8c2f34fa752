/** Gives the event loop its turns during a busy loop, for sockets, timers and other devices of this thread; ends a loop whose peer is gone. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Channel, Patience } from '../channel/channel.ts';
import { Silence } from '../channel/silence.ts';
import { broken, silent } from '../errors.ts';

/** Calls between two looks at the clock, and ms between two turns of the event loop. */
const CALLS = 16;
const TURN_EVERY = 2;
/** ms that a run goes on after the peer has left the dialogue: its last packets may be under way. */
const GRACE = 2000;

/** Guards the loop of a run. */
export class Watch {
  readonly #channel: Channel;
  readonly #patience: Patience;
  readonly #onProgress: ((done: number, ms: number) => void) | undefined;
  readonly #every: number;
  #calls = 0;
  #lastTurn = performance.now();
  readonly #silence: Silence;
  #left: number | undefined;
  #start = 0;
  #reported = 0;
  #done = 0;

  /**
   * @param onProgress called with the messages done, and the time since the run began
   * @param every these calls are due at its multiples, ms
   */
  constructor(
    channel: Channel,
    patience: Patience,
    onProgress?: (done: number, ms: number) => void,
    every = 1000,
  ) {
    this.#every = every;
    this.#channel = channel;
    this.#patience = patience;
    this.#onProgress = onProgress;
    this.#silence = new Silence(patience);
  }

  /** ms of silence after which the peer is given up. */
  get silenceLimit(): number {
    return this.#patience.timeout * 1000;
  }

  /** A run begins. @param reports whether its progress is reported: a warm-up's is not */
  start(reports = true): void {
    this.#lastTurn = performance.now();
    this.#silence.end(this.#lastTurn);
    this.#start = this.#lastTurn;
    this.#reported = reports ? this.#lastTurn : Number.POSITIVE_INFINITY;
    this.#done = 0;
  }

  /** Ends the silence, and notes how many messages of the run are done. */
  progress(done: number): void {
    this.#done = done;
    this.#silence.end(this.#lastTurn);
  }

  /** Whether it is time to look away. */
  due(): boolean {
    if (++this.#calls < CALLS) return false;
    this.#calls = 0;
    return performance.now() - this.#lastTurn > TURN_EVERY;
  }

  /** One turn of the event loop. @throws RoceError where the peer was silent for too long, or has left */
  async turn(): Promise<void> {
    await nextTurn();
    await this.check();
  }

  /** @throws RoceError as `turn` */
  async check(): Promise<void> {
    const now = performance.now();
    this.#lastTurn = now;
    const { timeout, signal } = this.#patience;
    signal.throwIfAborted();
    if (this.#onProgress !== undefined && now - this.#reported >= this.#every) {
      // The next one is due at the next multiple of the interval, however late this one is.
      this.#reported += this.#every * Math.floor((now - this.#reported) / this.#every);
      this.#onProgress(this.#done, now - this.#start);
    }
    if (this.#silence.left(now) <= 0 && (await this.#silence.isTooLong(now)))
      throw silent(
        `the peer was silent for ${timeout} s in the middle of the run: do both sides have the same options?`,
      );
    if (!this.#channel.ended) return;
    this.#left ??= now;
    if (now - this.#left > GRACE) throw broken('the peer left in the middle of the run');
  }
}
