/**
 * XXH64 with seed 0, of which Zstandard stores the lower half as a content checksum (RFC 8878 §3.1.1). Lanes are multiplied in halves of
 * 32 bits: a bigint for each eight bytes would cost more than the inflating.
 */

const P1 = 0x9e3779b185ebca87n;
const P2 = 0xc2b2ae3d27d4eb4fn;
const P3 = 0x165667b19e3779f9n;
const P4 = 0x85ebca77c2b2ae63n;
const P5 = 0x27d4eb2f165667c5n;

const highOf = (value: bigint): number => Number(BigInt.asIntN(32, value >> 32n));
const lowOf = (value: bigint): number => Number(BigInt.asIntN(32, value));
const P1_HIGH = highOf(P1);
const P1_LOW = lowOf(P1);
const P2_HIGH = highOf(P2);
const P2_LOW = lowOf(P2);

/** Bytes that the four accumulators take at a time. */
const STRIPE = 32;

const wrap = (value: bigint): bigint => BigInt.asUintN(64, value);
const rotate = (value: bigint, by: bigint): bigint => wrap((value << by) | (value >> (64n - by)));
const round = (accumulator: bigint, lane: bigint): bigint =>
  wrap(rotate(wrap(accumulator + lane * P2), 31n) * P1);

/** The hash of all bytes so far. */
export class Xxh64 {
  /** Four accumulators, each its upper half and its lower half. */
  readonly #accumulators = new Int32Array([P1 + P2, P2, 0n, -P1].flatMap((v) => [highOf(v), lowOf(v)]));
  /** Bytes behind the last whole stripe. */
  readonly #rest = new Uint8Array(STRIPE);
  #filled = 0;
  #length = 0;

  update(bytes: Uint8Array): void {
    const { length } = bytes;
    this.#length += length;
    let at = 0;
    if (this.#filled > 0) {
      at = Math.min(STRIPE - this.#filled, length);
      this.#rest.set(bytes.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < STRIPE) return;
      this.#stripe(this.#rest, 0);
      this.#filled = 0;
    }
    for (; at + STRIPE <= length; at += STRIPE) this.#stripe(bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#filled = length - at;
  }

  #stripe(b: Uint8Array, from: number): void {
    const accumulators = this.#accumulators;
    for (let i = 0; i < 4; i++) {
      const at = from + 8 * i;
      const low = b[at] | (b[at + 1] << 8) | (b[at + 2] << 16) | (b[at + 3] << 24);
      const high = b[at + 4] | (b[at + 5] << 8) | (b[at + 6] << 16) | (b[at + 7] << 24);
      const product = Math.imul(low, P2_LOW);
      const sum = (accumulators[2 * i + 1] >>> 0) + (product >>> 0);
      const sumHigh =
        accumulators[2 * i] +
        upper(low, P2_LOW) +
        Math.imul(high, P2_LOW) +
        Math.imul(low, P2_HIGH) +
        (sum > 0xffff_ffff ? 1 : 0);
      // Rotated by 31.
      const rotatedHigh = (sumHigh << 31) | ((sum | 0) >>> 1);
      const rotatedLow = ((sum | 0) << 31) | ((sumHigh | 0) >>> 1);
      accumulators[2 * i] =
        upper(rotatedLow, P1_LOW) + Math.imul(rotatedHigh, P1_LOW) + Math.imul(rotatedLow, P1_HIGH);
      accumulators[2 * i + 1] = Math.imul(rotatedLow, P1_LOW);
    }
  }

  digest(): bigint {
    const view = new DataView(this.#rest.buffer);
    let hash = P5;
    if (this.#length >= STRIPE) {
      const [a, b, c, d] = [0, 2, 4, 6].map(
        (i) => (BigInt(this.#accumulators[i] >>> 0) << 32n) | BigInt(this.#accumulators[i + 1] >>> 0),
      );
      hash = wrap(rotate(a, 1n) + rotate(b, 7n) + rotate(c, 12n) + rotate(d, 18n));
      for (const accumulator of [a, b, c, d]) hash = wrap((hash ^ round(0n, accumulator)) * P1 + P4);
    }
    hash = wrap(hash + BigInt(this.#length));
    let at = 0;
    for (; at + 8 <= this.#filled; at += 8)
      hash = wrap(rotate(hash ^ round(0n, view.getBigUint64(at, true)), 27n) * P1 + P4);
    if (at + 4 <= this.#filled) {
      hash = wrap(rotate(hash ^ wrap(BigInt(view.getUint32(at, true)) * P1), 23n) * P2 + P3);
      at += 4;
    }
    for (; at < this.#filled; at++) hash = wrap(rotate(hash ^ wrap(BigInt(this.#rest[at]) * P5), 11n) * P1);
    hash = wrap((hash ^ (hash >> 33n)) * P2);
    hash = wrap((hash ^ (hash >> 29n)) * P3);
    return hash ^ (hash >> 32n);
  }
}

/** The upper half of the product of two unsigned numbers of 32 bits. */
function upper(x: number, y: number): number {
  const xLow = x & 0xffff;
  const xHigh = x >>> 16;
  const yLow = y & 0xffff;
  const yHigh = y >>> 16;
  const middle = xHigh * yLow + ((xLow * yLow) >>> 16);
  const other = xLow * yHigh + (middle & 0xffff);
  return xHigh * yHigh + (middle >>> 16) + (other >>> 16);
}
