/**
 * Packet sequence numbers: 24 bits that wrap (IBTA vol 1 §9.7.2).
 *
 * Of two PSNs the nearer way round the circle counts: `b` is ahead of `a` when going forward from `a`
 * reaches it in fewer than 2^23 steps. The order is meaningful only between PSNs less than half the
 * circle apart, which the window of a connection guarantees.
 */

/** All 24 bits of a PSN; also of an MSN, a QPN and an EE context. */
export const PSN_MASK = 0xff_ffff;

/** PSN `n` steps after `psn`; `n` may be negative, and up to 2^31 in size. */
export function psnAdd(psn: number, n: number): number {
  return (psn + n) & PSN_MASK;
}

/** Steps from `b` forward to `a` (a − b), −2^23 … 2^23 − 1. */
export function psnDiff(a: number, b: number): number {
  return ((a - b) << 8) >> 8;
}

/** `a` comes before `b`. */
export function psnLessThan(a: number, b: number): boolean {
  return (a - b) << 8 < 0;
}

/** `a` comes before `b`, or is `b`. */
export function psnLessOrEqual(a: number, b: number): boolean {
  return (b - a) << 8 >= 0;
}
