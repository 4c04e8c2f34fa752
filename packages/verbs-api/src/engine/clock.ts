/** The clock of engines: monotonic microseconds. */

/** A time that is not known, or has not been. */
export const UNKNOWN = 0;

/** Monotonic microseconds. */
export const clock = (): number => performance.now() * 1000;

/**
 * The reading of `process.hrtime` when `clock` is 0, ns: that is the clock of completion times, the same in all threads. The largest of some: a
 * thread that loses the processor between the two readings gets a smaller one.
 */
export function clockOrigin(): number {
  const origins = Array.from({ length: 5 }, () => {
    const [seconds, nanoseconds] = process.hrtime();
    return seconds * 1e9 + nanoseconds - performance.now() * 1e6;
  });
  return Math.max(...origins);
}
