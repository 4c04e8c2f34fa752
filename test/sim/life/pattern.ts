/** Bytes that follow from a tag: whatever ends up at the wrong place, or was not written, is noticed. */

/** Byte `index` of the pattern. */
function patternByte(tag: number, index: number): number {
  return Math.imul(tag ^ Math.imul(index + 1, 0x9e37_79b1), 0x85eb_ca6b) >>> 24;
}

/** @param from index in the pattern of the first byte */
export function fillPattern(bytes: Uint8Array, tag: number, from = 0): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = patternByte(tag, from + i);
}

/** Number of bytes that are as the pattern has them, from the first on. */
export function matchPattern(bytes: Uint8Array, tag: number, from = 0): number {
  let i = 0;
  while (i < bytes.length && bytes[i] === patternByte(tag, from + i)) i++;
  return i;
}
