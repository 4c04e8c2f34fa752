/**
 * The wake-ups of a link that has no descriptor of its own to sleep on: arrivals and deadlines come through
 * Node's event loop. A deadline wakes its watcher after the loop has read its sockets, so that an
 * ACK that came in the meantime is seen before a retry is counted (docs/run-loop.md).
 */
const MAX_TIMEOUT = 2 ** 31 - 1;

/** Wakes a watcher from the event loop: after I/O, at a deadline, or on request. */
export class LoopWaker {
  #onWake: (() => void) | undefined;
  #immediate: NodeJS.Immediate | undefined;
  #deadline: NodeJS.Timeout | undefined;
  #refed = true;

  watch(onWake: () => void): void {
    this.#onWake = onWake;
  }

  unwatch(): void {
    this.#onWake = undefined;
    clearImmediate(this.#immediate);
    this.#immediate = undefined;
    clearTimeout(this.#deadline);
    this.#deadline = undefined;
  }

  /** Wakes once, soon, if anybody watches. */
  wake(): void {
    if (!this.#onWake || this.#immediate !== undefined) return;
    this.#immediate = setImmediate(() => {
      this.#immediate = undefined;
      this.#onWake?.();
    });
    if (!this.#refed) this.#immediate.unref();
  }

  /** To the millisecond, the resolution of Node's timers. */
  setDeadline(microsecondsFromNow: number): void {
    clearTimeout(this.#deadline);
    this.#deadline = undefined;
    if (microsecondsFromNow === Number.POSITIVE_INFINITY) return;
    this.#deadline = setTimeout(() => this.wake(), Math.min(microsecondsFromNow / 1000, MAX_TIMEOUT));
    if (!this.#refed) this.#deadline.unref();
  }

  ref(): void {
    this.#refed = true;
    this.#immediate?.ref();
    this.#deadline?.ref();
  }

  unref(): void {
    this.#refed = false;
    this.#immediate?.unref();
    this.#deadline?.unref();
  }
}
