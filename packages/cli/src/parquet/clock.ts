/** From nanoseconds since the first frame to the times of a table. */

/** The years 1685 … 2255: nanoseconds fit into 64 bits, and microseconds into a number. */
const MOST_SECONDS = 9_000_000_000;

/** The clock of a capture: made of the time of its first frame. */
export class TableClock {
  /** Seconds since 1970, and the nanoseconds behind them, of the first frame; undefined: the capture has no usable time. */
  readonly #start: { seconds: number; nanoseconds: number } | undefined;
  /** That time in nanoseconds since 1970; 0 without one. */
  readonly origin: bigint = 0n;

  /** @param startTime of the capture's summary: `2026-01-01T00:00:00.000000000Z` */
  constructor(startTime: string | undefined) {
    if (startTime === undefined) return;
    const seconds = Date.parse(`${startTime.slice(0, -11)}Z`) / 1000;
    const nanoseconds = Number(startTime.slice(-10, -1));
    this.#start = { seconds, nanoseconds };
    this.origin = BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds);
  }

  /** The same nanoseconds, of a column whose origin is `origin`; null where there is no time. */
  ns(time: number): number | null {
    return this.#start === undefined || this.#isFar(time) ? null : time;
  }

  /** Microseconds since 1970, rounded down; null where there are none. */
  micros(time: number): number | null {
    if (this.#start === undefined || this.#isFar(time)) return null;
    const { seconds, nanoseconds } = this.#start;
    return seconds * 1e6 + Math.floor((nanoseconds + time) / 1000);
  }

  /** Hours since 1970; undefined where there are none. */
  hour(time: number): number | undefined {
    if (this.#start === undefined || this.#isFar(time)) return undefined;
    const { seconds, nanoseconds } = this.#start;
    return Math.floor((seconds + Math.floor((nanoseconds + time) / 1e9)) / 3600);
  }

  #isFar(time: number): boolean {
    return Math.abs(this.#start!.seconds + time / 1e9) > MOST_SECONDS;
  }
}
