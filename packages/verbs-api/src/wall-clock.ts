/** The date of a completion's timestamp. */
import { checkArgument, INTEGER } from './options.ts';

const PER_MILLISECOND = 1_000_000;

/**
 * The time since 1970 that a timestamp of a completion stands for, ns. The clock of timestamps runs evenly; where the system's was
 * set since the program began, the difference is known to a millisecond.
 */
export function wallClock(timestamp: number): bigint {
  checkArgument('timestamp', timestamp, INTEGER);
  const shown = Date.now();
  // Finer than Date.now(), but not adjusted since the program began.
  const date = Math.min(Math.max(performance.timeOrigin + performance.now(), shown), shown + 1);
  const whole = Math.floor(date);
  const now = BigInt(whole) * BigInt(PER_MILLISECOND) + BigInt(Math.round((date - whole) * PER_MILLISECOND));
  return now - (process.hrtime.bigint() - BigInt(Math.round(timestamp)));
}
