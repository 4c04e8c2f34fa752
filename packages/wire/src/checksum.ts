/** The Internet checksum's sum (RFC 1071). */

import { u16 } from './bytes.ts';

/**
 * One's complement sum of the 16-bit words in `start` … `end − 1`, an odd last byte taken as the high one.
 * @returns 0 … 0xffff; sums may be added and folded again
 */
export function onesComplementSum(b: Uint8Array, start: number, end: number): number {
  let sum = 0;
  let i = start;
  // 64 KiB of words stay below 2^32: folding can wait until the end.
  for (; i + 1 < end; i += 2) sum += u16(b, i);
  if (i < end) sum += b[i] << 8;
  while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x1_0000);
  return sum;
}
