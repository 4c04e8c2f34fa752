/**
 * Big-endian fields of a byte array. Every result but that of `i32` is a non-negative number; the callers have checked
 * that the bytes are there (a missing byte reads as 0, it never throws).
 */

/** 2^32: a 64-bit number in two words is `high * TWO_32 + low`. */
export const TWO_32 = 0x1_0000_0000;

/** A 16-bit field. */
export function u16(b: Uint8Array, o: number): number {
  return (b[o] << 8) | b[o + 1];
}

/** A 24-bit field. */
export function u24(b: Uint8Array, o: number): number {
  return (b[o] << 16) | (b[o + 1] << 8) | b[o + 2];
}

/** A 32-bit field. */
export function u32(b: Uint8Array, o: number): number {
  return ((b[o] << 24) | (b[o + 1] << 16) | (b[o + 2] << 8) | b[o + 3]) >>> 0;
}

/** The same bits as a signed number: V8 makes an object of a number above 2^31 that a function returns, unless it inlines the call. */
export function i32(b: Uint8Array, o: number): number {
  return (b[o] << 24) | (b[o + 1] << 16) | (b[o + 2] << 8) | b[o + 3];
}

/** Formats a 64-bit field: the hot path reads two words. */
export function u64(b: Uint8Array, o: number): bigint {
  return wide(u32(b, o), u32(b, o + 4));
}

/** A 64-bit value of its two words. */
export const wide = (high: number, low: number): bigint => (BigInt(high) << 32n) | BigInt(low);

/** A 32-bit little-endian field: the ICRC is the only one in RoCE. */
export function u32le(b: Uint8Array, o: number): number {
  return (b[o] | (b[o + 1] << 8) | (b[o + 2] << 16) | (b[o + 3] << 24)) >>> 0;
}

export function setU16(b: Uint8Array, o: number, value: number): void {
  b[o] = value >>> 8;
  b[o + 1] = value;
}

export function setU24(b: Uint8Array, o: number, value: number): void {
  b[o] = value >>> 16;
  b[o + 1] = value >>> 8;
  b[o + 2] = value;
}

export function setU32(b: Uint8Array, o: number, value: number): void {
  b[o] = value >>> 24;
  b[o + 1] = value >>> 16;
  b[o + 2] = value >>> 8;
  b[o + 3] = value;
}

export function setU64(b: Uint8Array, o: number, value: bigint): void {
  setU32(b, o, highWord(value));
  setU32(b, o + 4, lowWord(value));
}

export function setU32le(b: Uint8Array, o: number, value: number): void {
  b[o] = value;
  b[o + 1] = value >>> 8;
  b[o + 2] = value >>> 16;
  b[o + 3] = value >>> 24;
}

/** Bytes as lowercase hex without separators. */
export function toHex(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length; i++) text += hexByte(bytes[i]);
  return text;
}

/** One byte as two lowercase hex digits. */
export function hexByte(value: number): string {
  return (value < 16 ? '0' : '') + value.toString(16);
}

/**
 * Hex digits to bytes; blanks and colons between bytes are skipped.
 * @throws RangeError when the text holds anything else or half a byte
 */
export function fromHex(text: string): Uint8Array<ArrayBuffer> {
  const digits = text.replace(/[\s:]/g, '');
  if (!/^([0-9a-fA-F]{2})*$/.test(digits)) throw new RangeError(`not whole bytes of hex: ${text}`);
  const bytes = new Uint8Array(digits.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/**
 * A number on its way into a field of `bits` bits.
 * @throws RangeError when it does not fit; `field` names it in the message
 */
export function checked(field: string, value: number, bits: number): number {
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** bits) {
    throw new RangeError(`${field} ${value}: expected a whole number 0 … ${2 ** bits - 1}`);
  }
  return value;
}

/** The high word of a 64-bit field. */
export const highWord = (value: bigint): number => Number((value >> 32n) & 0xffff_ffffn);
/** The low word of a 64-bit field. */
export const lowWord = (value: bigint): number => Number(value & 0xffff_ffffn);

/** As `checked`, for 64-bit fields. */
export function checked64(field: string, value: bigint): bigint {
  if (value < 0n || value > 0xffff_ffff_ffff_ffffn) {
    throw new RangeError(`${field} ${value}: expected 0 … ${0xffff_ffff_ffff_ffffn}`);
  }
  return value;
}
