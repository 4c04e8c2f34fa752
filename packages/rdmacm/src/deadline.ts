/** A time limit and the program's signal, as one signal. */

/** Aborts with the program's reason, or with an error of its own when the time is over. `end` lets the timer go. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #given: AbortSignal | undefined;
  readonly #onAbort = () => this.#controller.abort(this.#given?.reason);

  /** @param milliseconds 0 for no limit */
  constructor(milliseconds: number, given: AbortSignal | undefined, error: () => Error) {
    this.#given = given;
    if (given?.aborted) this.#onAbort();
    else given?.addEventListener('abort', this.#onAbort, { once: true });
    if (milliseconds > 0) this.#timer = setTimeout(() => this.#controller.abort(error()), milliseconds);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#given?.removeEventListener('abort', this.#onAbort);
  }
}
