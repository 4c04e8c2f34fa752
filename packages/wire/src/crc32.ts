/**
 * CRC-32 (IEEE 802.3, the polynomial of zlib; reflected, 0xedb88320) as a register that can be stopped
 * and taken up anywhere: start from `CRC32_START`, update over any pieces, end with `crc32Finish`.
 *
 * The register is a polynomial over GF(2) of degree 31, its top bit being x⁰; a zero bit run through
 * it multiplies it by x. So it can be moved over any number of zero bytes at once, backwards too, which is
 * what finding an IPv4 Identification needs (`icrc.ts`).
 */

const POLYNOMIAL = 0xedb8_8320;

/** The register before the first byte. */
export const CRC32_START = 0xffff_ffff;

// tables[256·k + b] is byte b followed by k zero bytes: eight bytes are taken per step.
const tables = new Uint32Array(8 * 256);
for (let b = 0; b < 256; b++) {
  let c = b;
  for (let i = 0; i < 8; i++) c = c & 1 ? (c >>> 1) ^ POLYNOMIAL : c >>> 1;
  tables[b] = c;
}
for (let i = 256; i < tables.length; i++)
  tables[i] = (tables[i - 256] >>> 8) ^ tables[tables[i - 256] & 0xff];

/** The register after one more byte. */
export function crc32Byte(register: number, byte: number): number {
  return ((register >>> 8) ^ tables[(register ^ byte) & 0xff]) >>> 0;
}

/** The register after the bytes `start` … `end − 1` of `bytes`. */
export function crc32Update(register: number, bytes: Uint8Array, start = 0, end = bytes.length): number {
  const t = tables;
  let c = register;
  let i = start;
  for (const last = end - 8; i <= last; i += 8) {
    const low = c ^ (bytes[i] | (bytes[i + 1] << 8) | (bytes[i + 2] << 16) | (bytes[i + 3] << 24));
    c =
      t[1792 + (low & 0xff)] ^
      t[1536 + ((low >>> 8) & 0xff)] ^
      t[1280 + ((low >>> 16) & 0xff)] ^
      t[1024 + (low >>> 24)] ^
      t[768 + bytes[i + 4]] ^
      t[512 + bytes[i + 5]] ^
      t[256 + bytes[i + 6]] ^
      t[bytes[i + 7]];
  }
  for (; i < end; i++) c = (c >>> 8) ^ t[(c ^ bytes[i]) & 0xff];
  return c >>> 0;
}

/** The CRC that the register stands for. */
export const crc32Finish = (register: number): number => ~register >>> 0;

/** CRC-32 of bytes, as zlib and Ethernet's FCS have it. */
export const crc32 = (bytes: Uint8Array, start = 0, end = bytes.length): number =>
  crc32Finish(crc32Update(CRC32_START, bytes, start, end));

/** Product of two registers as polynomials, modulo the polynomial. */
function multiply(a: number, b: number): number {
  let product = 0;
  let power = b;
  for (let bit = 31; bit >= 0; bit--) {
    if ((a >>> bit) & 1) product ^= power;
    power = power & 1 ? (power >>> 1) ^ POLYNOMIAL : power >>> 1;
  }
  return product >>> 0;
}

// x^(8·2^i) and x^(−8·2^i): one and minus one byte, two, four, …
const BYTE_POWERS = 24;
const forward: number[] = [0x0080_0000];
// 1/x is the register that a zero bit turns into x⁰; three squarings make it 1/x⁸.
const inverseOfX = ((0x8000_0000 ^ POLYNOMIAL) << 1) | 1;
const backward: number[] = [square(square(square(inverseOfX >>> 0)))];
for (let i = 1; i < BYTE_POWERS; i++) {
  forward.push(square(forward[i - 1]));
  backward.push(square(backward[i - 1]));
}

function square(a: number): number {
  return multiply(a, a);
}

/**
 * The register after `count` zero bytes; with a negative count, the register that this many zero bytes
 * turn into this one. Linear: a xor of registers shifts to the xor of the shifted.
 * @param count −2^24 < count < 2^24
 */
export function crc32Shift(register: number, count: number): number {
  const powers = count < 0 ? backward : forward;
  let c = register;
  for (let n = Math.abs(count), i = 0; n > 0; n >>>= 1, i++) if (n & 1) c = multiply(c, powers[i]);
  return c >>> 0;
}
