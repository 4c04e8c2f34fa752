/** Retry timers by name: the ACK timeout of a queue pair whose length a silence fits (IBTA vol 1 §9.7.6.1.3). */

const MILLISECOND = 1e6;
/** 4.096 µs · 2^timeout. */
const timerOf = (timeout: number): number => 4096 * 2 ** timeout;

/** A timer in hardware is exact up to this share; delays on the way add to it. */
const SPREAD = 0.03;
/** And by this one where nothing waits. */
const EXACT = 0.005;
/** rxe's timers are whole jiffies (4 ms), rounded down; they fire up to one early and two late. */
const JIFFY = 4 * MILLISECOND;

/**
 * The ACK timeout, 1 … 31, whose length a silence fits; −1 if it fits none. Only the nearest is tried.
 * @param migReq of the sender's packets: rxe, whose timers are coarse, has 0 there
 */
export function fitsTimer(silence: number, migReq: boolean): number {
  const timeout = Math.round(Math.log2(silence / 4096));
  if (timeout < 1 || timeout > 31) return -1;
  const nominal = timerOf(timeout);
  if (migReq) return Math.abs(silence / nominal - 1) <= SPREAD ? timeout : -1;
  const jiffies = Math.floor(nominal / JIFFY) * JIFFY;
  // Among shorter ones a jiffy more or less decides.
  if (jiffies < 4 * JIFFY) return -1;
  return silence >= jiffies - JIFFY && silence <= jiffies + 2 * JIFFY + SPREAD * nominal ? timeout : -1;
}

/** Programs pause for shorter times as well: a silence as long as a shorter ACK timeout proves no timeout. */
const MIN_TELLING = 50 * MILLISECOND;
/** A timer that began with a packet that was not captured ends so much later than one from the packet before it. */
const LATER = 1.1;

/** Whether a silence in which nothing was outstanding is as long as the ACK timeout agreed. */
export const isLikeAckTimeout = (silence: number, ackTimeout: number): boolean =>
  ackTimeout >= MIN_TELLING && silence >= ackTimeout - JIFFY && silence <= LATER * ackTimeout + 2 * JIFFY;

/** Whether a silence is as long as an ACK timeout in hardware, within the error of a clock. */
export function isExactTimer(silence: number): boolean {
  const timeout = fitsTimer(silence, true);
  return timeout >= 0 && Math.abs(silence / timerOf(timeout) - 1) <= EXACT;
}
