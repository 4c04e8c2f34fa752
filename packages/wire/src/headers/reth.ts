/** RDMA Extended Transport Header (IBTA vol 1 §9.3.3): the remote memory of a WRITE or READ, and its length. */
import { checked, checked64, highWord, i32, lowWord, setU32, u32, wide } from '../bytes.ts';

export const RETH_BYTES = 16;

/** High word of the virtual address. */
export const rethVaHigh = (b: Uint8Array, o: number): number => u32(b, o);
/** Low word of the virtual address. */
export const rethVaLow = (b: Uint8Array, o: number): number => u32(b, o + 4);
export const rethRkey = (b: Uint8Array, o: number): number => u32(b, o + 8);
/** The same fields with their bits as signed numbers, for the hot path (`i32`). */
export const rethVaHighBits = (b: Uint8Array, o: number): number => i32(b, o);
export const rethVaLowBits = (b: Uint8Array, o: number): number => i32(b, o + 4);
export const rethRkeyBits = (b: Uint8Array, o: number): number => i32(b, o + 8);
/** DMA length: bytes of the whole message, 0 … 2^31 by the rules. */
export const rethLength = (b: Uint8Array, o: number): number => u32(b, o + 12);

export function writeReth(
  b: Uint8Array,
  o: number,
  vaHigh: number,
  vaLow: number,
  rkey: number,
  length: number,
): void {
  setU32(b, o, vaHigh);
  setU32(b, o + 4, vaLow);
  setU32(b, o + 8, rkey);
  setU32(b, o + 12, length);
}

/** Decoded RETH, for display and tests. */
export interface RethValue {
  va: bigint;
  rkey: number;
  length: number;
}

export const decodeReth = (b: Uint8Array, o: number): RethValue => ({
  va: wide(rethVaHigh(b, o), rethVaLow(b, o)),
  rkey: rethRkey(b, o),
  length: rethLength(b, o),
});

export function encodeReth(b: Uint8Array, o: number, value: RethValue): void {
  const va = checked64('RETH va', value.va);
  const rkey = checked('RETH rkey', value.rkey, 32);
  writeReth(b, o, highWord(va), lowWord(va), rkey, checked('RETH length', value.length, 32));
}
