/** The small fields of the dialogue: sizes of the system, the MTU, the figures of a report. */
import { broken, quoted } from '../errors.ts';

const INT_BYTES = 4;
const FIGURE_BYTES = 8;

export function encodeInt(value: number): Buffer {
  const field = Buffer.alloc(INT_BYTES);
  field.writeInt32BE(value);
  return field;
}

/** Page size and cache line of the peer: a power of two between both bounds. */
export function decodePowerOfTwo(field: Uint8Array, what: string, least: number, most: number): number {
  const value = Buffer.from(field).readInt32BE();
  if (value < least || value > most || (value & (value - 1)) !== 0)
    throw broken(`the peer's ${what} is ${value}: expected a power of two of ${least} … ${most}`);
  return value;
}

/** Code of `enum ibv_mtu` as a digit, and a zero byte. */
export const encodeMtu = (bytes: number): Buffer => Buffer.from(`${Math.log2(bytes) - 7}\0`, 'latin1');

/** Bytes. */
export function decodeMtu(field: Uint8Array): number {
  const code = field[0] - 0x30;
  if (!(code >= 1 && code <= 5) || field[1] !== 0)
    throw broken(`the peer sent ${quoted(field)} in place of the code of its MTU`);
  return 2 ** (code + 7);
}

/** The result of a bandwidth run as the sides report it to each other (`struct bw_report_data`). */
export interface BandwidthFigures {
  /** Bytes of a message. */
  size: number;
  /** Messages over all queue pairs. */
  iterations: number;
  /** In the unit of the side that reports: MiB/s, or Gb/s. */
  peak: number;
  average: number;
  /** Millions of messages a second. */
  messageRate: number;
}

/** The figures in the order of the dialogue, one exchange each. */
export const FIGURES = ['size', 'iterations', 'peak', 'average', 'messageRate'] as const;

const isWhole = (name: (typeof FIGURES)[number]) => name === 'size' || name === 'iterations';

export function encodeFigure(name: (typeof FIGURES)[number], value: number): Buffer {
  const field = Buffer.alloc(FIGURE_BYTES);
  if (isWhole(name)) field.writeBigUInt64BE(BigInt(value));
  else field.writeDoubleBE(value);
  return field;
}

export function decodeFigure(name: (typeof FIGURES)[number], field: Uint8Array): number {
  const bytes = Buffer.from(field);
  const value = isWhole(name) ? Number(bytes.readBigUInt64BE()) : bytes.readDoubleBE();
  if (!Number.isFinite(value) || value < 0 || value > Number.MAX_SAFE_INTEGER)
    throw broken(`the peer reports ${value} as ${name}: do both sides have the same options?`);
  return value;
}
