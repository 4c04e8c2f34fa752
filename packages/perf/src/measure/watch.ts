/** Looks away from a busy loop now and then: for sockets, timers and other devices of this thread, and for a peer that is gone. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Channel, Patience } from '../channel/channel.ts';
import { Silence } from '../channel/silence.ts';
import { broken, silent } from '../errors.ts';

/** Calls between two looks at the clock, and ms between two turns of the event loop. */
const CALLS = 16;
const TURN_EVERY = 2;
/** ms that a run goes on after the peer has left the dialogue: its last packets may be under way. */
const GRACE = 2000;

/** Guards a loop: it gives the event loop its turns, and ends a wait for a peer that is gone. */
export class Watch {
  /** Called in each turn of the event loop that the watch gives, without arguments. */
  onTurn: (() => void) | undefined;
  readonly #channel: Channel;
  readonly #patience: Patience;
  #calls = 0;
  #lastTurn = performance.now();
  readonly #silence: Silence;
  #left: number | undefined;

  constructor(channel: Channel, patience: Patience) {
    this.#channel = channel;
    this.#patience = patience;
    this.#silence = new Silence(patience);
  }

  /** A run begins. */
  start(): void {
    this.#lastTurn = performance.now();
    this.#silence.end(this.#lastTurn);
  }

  /** Something came from the peer. */
  progress(): void {
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
    this.onTurn?.();
  }

  /** @throws RoceError as `turn` */
  async check(): Promise<void> {
    const now = performance.now();
    this.#lastTurn = now;
    const { timeout, signal } = this.#patience;
    signal.throwIfAborted();
    if (this.#silence.left(now) <= 0 && (await this.#silence.isTooLong(now)))
      throw silent(
        `the peer was silent for ${timeout} s in the middle of the run: do both sides have the same options?`,
      );
    if (!this.#channel.ended) return;
    this.#left ??= now;
    if (now - this.#left > GRACE) throw broken('the peer left in the middle of the run');
  }
}
