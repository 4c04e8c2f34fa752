import { checkInteger, type OutputBuffer } from './encoder.ts';
import { OptionCode, padded } from './pcapng-format.ts';
import { setNanoseconds, splitTime } from './timestamp.ts';

/** One option of a block: its value is `length` bytes at `start` of the block's memory. */
export interface BlockOption {
  readonly code: number;
  readonly start: number;
  readonly length: number;
}

/** Options of one block: a bound on the memory that reading a hostile one takes. Real blocks have a few. */
const MAX_OPTIONS = 65_536;

/**
 * The options in `view` between `start` and `end` (draft-ietf-opsawg-pcapng §3.5). The list may end
 * with opt_endofopt or with the block. A string names what is wrong with them.
 */
export function readOptions(
  view: DataView,
  start: number,
  end: number,
  littleEndian: boolean,
): BlockOption[] | string {
  const options: BlockOption[] = [];
  let at = start;
  while (end - at >= 4) {
    const code = view.getUint16(at, littleEndian);
    if (code === OptionCode.END) break;
    const length = view.getUint16(at + 2, littleEndian);
    at += 4;
    if (length > end - at) return `option ${code} claims ${length} bytes, ${end - at} are left in the block`;
    if (options.length === MAX_OPTIONS) return `there are more than ${MAX_OPTIONS}`;
    options.push({ code, start: at, length });
    // The pad of a last option that fills its block may be missing; the loop's condition bears it.
    at += (length + 3) & ~3;
  }
  return options;
}

// A byte order mark in front is text like any other, or copying a capture would lose it.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** An option's value as UTF-8; damaged sequences become U+FFFD. */
export function optionText(bytes: Uint8Array, option: BlockOption): string {
  return decoder.decode(bytes.subarray(option.start, option.start + option.length));
}

const encoder = new TextEncoder();
/** An option's length field has 16 bits. */
const MAX_OPTION_LENGTH = 0xffff;

/** Appends the options of one block; an undefined value is an option that is not there. */
export class OptionWriter {
  readonly #out: OutputBuffer;
  readonly #littleEndian: boolean;
  #isEmpty = true;

  constructor(out: OutputBuffer, littleEndian: boolean) {
    this.#out = out;
    this.#littleEndian = littleEndian;
  }

  /** @throws RangeError for text longer than 65,535 bytes */
  text(code: number, text: string | undefined): void {
    if (text === undefined) return;
    const value = encoder.encode(text);
    if (value.length > MAX_OPTION_LENGTH) {
      throw new RangeError(`a pcapng option holds ${MAX_OPTION_LENGTH} bytes of text, got ${value.length}`);
    }
    this.#open(code, value.length);
    this.#out.append(value, padded(value.length));
  }

  texts(code: number, texts: readonly string[] | undefined): void {
    if (texts === undefined) return;
    for (const text of texts) this.text(code, text);
  }

  /** @throws RangeError for a value that is no byte */
  uint8(code: number, value: number | undefined): void {
    if (value === undefined) return;
    checkInteger(`option ${code}`, value, 0, 0xff);
    const at = this.#open(code, 1);
    this.#out.view.setUint32(at, 0, this.#littleEndian);
    this.#out.view.setUint8(at, value);
    this.#out.length += 4;
  }

  uint32(code: number, value: number): void {
    const at = this.#open(code, 4);
    this.#out.view.setUint32(at, value, this.#littleEndian);
    this.#out.length += 4;
  }

  /** @throws RangeError for a value outside 0 … 2^64 - 1 */
  uint64(code: number, value: bigint | undefined): void {
    if (value === undefined) return;
    if (value < 0n || value >= 1n << 64n) {
      throw new RangeError(`option ${code} must be 0 … 2^64 - 1, got ${value}`);
    }
    const at = this.#open(code, 8);
    this.#out.view.setBigUint64(at, value, this.#littleEndian);
    this.#out.length += 8;
  }

  /** @param time nanoseconds since 1970; RangeError when it does not fit 64 bits */
  time(code: number, time: bigint | undefined): void {
    if (time === undefined) return;
    const { seconds, nanoseconds } = splitTime(time);
    const at = this.#open(code, 8);
    setNanoseconds(this.#out.view, at, seconds, nanoseconds, this.#littleEndian);
    this.#out.length += 8;
  }

  /** Closes the list with opt_endofopt, if there is one. */
  end(): void {
    if (!this.#isEmpty) this.#open(OptionCode.END, 0);
  }

  /** Writes code and length and makes room for the value; returns where it goes. */
  #open(code: number, length: number): number {
    const out = this.#out;
    out.reserve(4 + padded(length));
    out.view.setUint16(out.length, code, this.#littleEndian);
    out.view.setUint16(out.length + 2, length, this.#littleEndian);
    out.length += 4;
    this.#isEmpty = false;
    return out.length;
  }
}
