/** The timer codes of the wire and of queue pair attributes. Times are microseconds. */

// IBTA vol 1 §9.7.5.2.8, the RNR NAK timer field. Code 0 is the longest.
const rnrTimers = [
  655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120,
  7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

function checkCode(code: number): void {
  if (!Number.isInteger(code) || code < 0 || code > 31) {
    throw new RangeError(`timer code ${code}: expected a whole number 0 … 31`);
  }
}

/**
 * How long an RNR NAK with this code asks the requester to wait, at least.
 * @throws RangeError unless `code` is 0 … 31
 */
export function rnrTimerMicroseconds(code: number): number {
  checkCode(code);
  return rnrTimers[code];
}

/** The code of the shortest RNR timer of at least this many microseconds; 0 (the longest) past all. */
export function rnrTimerCodeFor(microseconds: number): number {
  for (let code = 1; code < 32; code++) if (rnrTimers[code] >= microseconds) return code;
  return 0;
}

/**
 * The local ACK timeout T = 4.096 µs · 2^code (IBTA vol 1 §9.7.6.1.3); the requester's timer fires between
 * T and 4T. `Infinity` for code 0: the timer is off.
 * @throws RangeError unless `code` is 0 … 31
 */
export function ackTimeoutMicroseconds(code: number): number {
  checkCode(code);
  return code === 0 ? Number.POSITIVE_INFINITY : 4.096 * 2 ** code;
}

/** The code of the shortest ACK timeout of at least this many microseconds, 1 … 31; 0 for `Infinity`. */
export function ackTimeoutCodeFor(microseconds: number): number {
  if (microseconds === Number.POSITIVE_INFINITY) return 0;
  for (let code = 1; code < 31; code++) if (4.096 * 2 ** code >= microseconds) return code;
  return 31;
}
