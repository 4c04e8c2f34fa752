const NANOSECONDS = 1_000_000_000;
const NANOSECONDS_BIG = 1_000_000_000n;

/**
 * Splits the 64-bit timestamps of a pcapng interface into seconds and nanoseconds.
 *
 * `split` leaves its result in two fields rather than in an object, because it runs once per packet.
 */
export class TimestampScale {
  /** Result of the last `split`: seconds since 1970 rounded down, exact up to 2^53. */
  seconds = 0;
  /** Result of the last `split`: 0 … 999,999,999, rounded down. */
  nanoseconds = 0;
  readonly #unitsPerSecond: bigint;
  readonly #offset: bigint;
  readonly #offsetNumber: number;
  /** Units per second as a number where they divide a nanosecond count evenly, else 0. */
  readonly #divisor: number;

  /**
   * @param unitsPerSecond units of the file's timestamps (if_tsresol), ≥ 1
   * @param offset seconds to add (if_tsoffset)
   */
  constructor(unitsPerSecond: bigint, offset: bigint) {
    this.#unitsPerSecond = unitsPerSecond;
    this.#offset = offset;
    this.#offsetNumber = Number(offset);
    this.#divisor = NANOSECONDS_BIG % unitsPerSecond === 0n ? Number(unitsPerSecond) : 0;
  }

  /** Splits `high * 2^32 + low` units. */
  split(high: number, low: number): void {
    const divisor = this.#divisor;
    if (divisor === 0) {
      this.#splitExactly(high, low);
      return;
    }
    // Long division by 16-bit digits: a remainder below 10^9 times 2^16 is exact in a double.
    const q2 = Math.floor(high / divisor);
    const r2 = high - q2 * divisor;
    const d1 = r2 * 65_536 + (low >>> 16);
    const q1 = Math.floor(d1 / divisor);
    const d0 = (d1 - q1 * divisor) * 65_536 + (low & 0xffff);
    const q0 = Math.floor(d0 / divisor);
    this.seconds = q2 * 0x1_0000_0000 + q1 * 65_536 + q0 + this.#offsetNumber;
    this.nanoseconds = (d0 - q0 * divisor) * (NANOSECONDS / divisor);
  }

  /** `high * 2^32 + low` units as nanoseconds since 1970. */
  toNanoseconds(high: number, low: number): bigint {
    this.split(high, low);
    return BigInt(this.seconds) * NANOSECONDS_BIG + BigInt(this.nanoseconds);
  }

  /** Binary resolutions and those finer than a nanosecond. */
  #splitExactly(high: number, low: number): void {
    const units = (BigInt(high) << 32n) | BigInt(low);
    this.seconds = Number(units / this.#unitsPerSecond + this.#offset);
    const rest = units % this.#unitsPerSecond;
    this.nanoseconds = Number((rest * NANOSECONDS_BIG) / this.#unitsPerSecond);
  }
}

/** if_tsresol: the top bit chooses powers of 2, else of 10 (draft-ietf-opsawg-pcapng §4.2). */
export function unitsPerSecond(tsresol: number): bigint {
  const exponent = BigInt(tsresol & 0x7f);
  return tsresol & 0x80 ? 1n << exponent : 10n ** exponent;
}

/** First second that a 64-bit count of nanoseconds cannot hold to its end. */
export const NANOSECOND_SECONDS_END = 18_446_744_073;

/**
 * Nanoseconds since 1970 as whole seconds and the rest.
 *
 * @throws RangeError unless 0 ≤ time < `NANOSECOND_SECONDS_END` seconds (the year 2554)
 */
export function splitTime(time: bigint): { seconds: number; nanoseconds: number } {
  const seconds = Number(time / NANOSECONDS_BIG);
  if (time < 0n || seconds >= NANOSECOND_SECONDS_END) {
    throw new RangeError(`a time must be from 1970 to 2554 in nanoseconds, got ${time}`);
  }
  return { seconds, nanoseconds: Number(time % NANOSECONDS_BIG) };
}

/**
 * Writes a time as 64 bits of nanoseconds, high word first as pcapng wants in both byte orders.
 *
 * @param seconds 0 … `NANOSECOND_SECONDS_END` - 1
 * @param nanoseconds 0 … 999,999,999
 */
export function setNanoseconds(
  view: DataView,
  at: number,
  seconds: number,
  nanoseconds: number,
  littleEndian: boolean,
): void {
  // seconds * 10^9 + nanoseconds in two parts that stay exact: 16 bits of seconds, and the rest.
  const low = (seconds % 65_536) * NANOSECONDS + nanoseconds;
  const low16 = low % 65_536;
  const upper = Math.floor(seconds / 65_536) * NANOSECONDS + Math.floor(low / 65_536);
  view.setUint32(at, Math.floor(upper / 65_536), littleEndian);
  view.setUint32(at + 4, (upper % 65_536) * 65_536 + low16, littleEndian);
}
