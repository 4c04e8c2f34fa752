/** Life signs of a connection: probes of a peer that is silent, and the end of a connection without messages. */

/** The connection, as its watch uses it. */
export interface Watched {
  /** Asks the peer's adapter whether it is there; settles with the answer. */
  probe(): Promise<unknown>;
  /** No message came or went for `idleTimeout`. */
  onIdle(): void;
}

/**
 * One timer for both. It runs on while messages move, and looks at its end how long ago the last one was: a message costs a reading
 * of the clock.
 */
export class Watch {
  readonly #keepAlive: number;
  readonly #idleTimeout: number;
  readonly #watched: Watched;
  #timer: NodeJS.Timeout | undefined;
  /** Of the last message that came, or was acknowledged. */
  #movedAt = 0;
  /** Of that, or of the last answer to a probe. */
  #heardAt = 0;
  #isProbing = false;
  #isRunning = false;

  /** @param keepAlive and `idleTimeout`: milliseconds; 0 for none */
  constructor(times: { keepAlive: number; idleTimeout: number }, watched: Watched) {
    this.#keepAlive = times.keepAlive;
    this.#idleTimeout = times.idleTimeout;
    this.#watched = watched;
  }

  start(): void {
    if (this.#keepAlive === 0 && this.#idleTimeout === 0) return;
    this.#isRunning = true;
    this.moved();
    this.#wait(this.#movedAt);
  }

  /** A message came, or was acknowledged. */
  moved(): void {
    if (!this.#isRunning) return;
    this.#movedAt = performance.now();
    this.#heardAt = this.#movedAt;
  }

  stop(): void {
    this.#isRunning = false;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #wait(now: number): void {
    const untilProbe = this.#keepAlive === 0 || this.#isProbing ? Infinity : this.#heardAt + this.#keepAlive;
    const untilIdle = this.#idleTimeout === 0 ? Infinity : this.#movedAt + this.#idleTimeout;
    const until = Math.min(untilProbe, untilIdle);
    // Only a probe is awaited: its answer starts the timer again.
    this.#timer =
      until === Infinity
        ? undefined
        : setTimeout(() => this.#look(), Math.max(1, Math.ceil(until - now))).unref();
  }

  #look(): void {
    const now = performance.now();
    if (this.#idleTimeout > 0 && now - this.#movedAt >= this.#idleTimeout) {
      this.stop();
      this.#watched.onIdle();
      return;
    }
    if (this.#keepAlive > 0 && !this.#isProbing && now - this.#heardAt >= this.#keepAlive) this.#probe();
    this.#wait(now);
  }

  #probe(): void {
    this.#isProbing = true;
    const answered = () => {
      this.#isProbing = false;
      this.#heardAt = performance.now();
      if (!this.#isRunning) return;
      clearTimeout(this.#timer);
      this.#wait(this.#heardAt);
    };
    this.#watched.probe().then(answered, () => {}); // A failure ends the queue pair.
  }
}
