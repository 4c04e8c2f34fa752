/**
 * The headers of atomic operations: AtomicETH in COMPARE SWAP and FETCH ADD (IBTA vol 1 §9.3.4),
 * AtomicAckETH in their ATOMIC ACKNOWLEDGE (§9.5.2). 64-bit fields are read and written as two words.
 */
import { checked, checked64, highWord, lowWord, setU32, u32, wide } from '../bytes.ts';

export const ATOMIC_ETH_BYTES = 28;

export const atomicEthVaHigh = (b: Uint8Array, o: number): number => u32(b, o);
export const atomicEthVaLow = (b: Uint8Array, o: number): number => u32(b, o + 4);
export const atomicEthRkey = (b: Uint8Array, o: number): number => u32(b, o + 8);
/** COMPARE SWAP: the new value; FETCH ADD: what is added. */
export const atomicEthSwapAddHigh = (b: Uint8Array, o: number): number => u32(b, o + 12);
export const atomicEthSwapAddLow = (b: Uint8Array, o: number): number => u32(b, o + 16);
/** Without meaning in FETCH ADD. */
export const atomicEthCompareHigh = (b: Uint8Array, o: number): number => u32(b, o + 20);
export const atomicEthCompareLow = (b: Uint8Array, o: number): number => u32(b, o + 24);

export function writeAtomicEth(
  b: Uint8Array,
  o: number,
  vaHigh: number,
  vaLow: number,
  rkey: number,
  swapAddHigh: number,
  swapAddLow: number,
  compareHigh: number,
  compareLow: number,
): void {
  setU32(b, o, vaHigh);
  setU32(b, o + 4, vaLow);
  setU32(b, o + 8, rkey);
  setU32(b, o + 12, swapAddHigh);
  setU32(b, o + 16, swapAddLow);
  setU32(b, o + 20, compareHigh);
  setU32(b, o + 24, compareLow);
}

/** Decoded AtomicETH, for display and tests. */
export interface AtomicEthValue {
  va: bigint;
  rkey: number;
  swapAdd: bigint;
  compare: bigint;
}

export const decodeAtomicEth = (b: Uint8Array, o: number): AtomicEthValue => ({
  va: wide(atomicEthVaHigh(b, o), atomicEthVaLow(b, o)),
  rkey: atomicEthRkey(b, o),
  swapAdd: wide(atomicEthSwapAddHigh(b, o), atomicEthSwapAddLow(b, o)),
  compare: wide(atomicEthCompareHigh(b, o), atomicEthCompareLow(b, o)),
});

export function encodeAtomicEth(b: Uint8Array, o: number, value: AtomicEthValue): void {
  const va = checked64('AtomicETH va', value.va);
  const rkey = checked('AtomicETH rkey', value.rkey, 32);
  const swapAdd = checked64('AtomicETH swapAdd', value.swapAdd);
  const compare = checked64('AtomicETH compare', value.compare);
  const operands = [highWord(swapAdd), lowWord(swapAdd), highWord(compare), lowWord(compare)] as const;
  writeAtomicEth(b, o, highWord(va), lowWord(va), rkey, ...operands);
}

export const ATOMIC_ACK_ETH_BYTES = 8;

/** High word of the memory before the operation. */
export const atomicAckHigh = (b: Uint8Array, o: number): number => u32(b, o);
export const atomicAckLow = (b: Uint8Array, o: number): number => u32(b, o + 4);

export function writeAtomicAck(b: Uint8Array, o: number, high: number, low: number): void {
  setU32(b, o, high);
  setU32(b, o + 4, low);
}

/** Decoded AtomicAckETH, for display and tests. */
export interface AtomicAckEthValue {
  original: bigint;
}

export const decodeAtomicAck = (b: Uint8Array, o: number): AtomicAckEthValue => ({
  original: wide(atomicAckHigh(b, o), atomicAckLow(b, o)),
});

export function encodeAtomicAck(b: Uint8Array, o: number, value: AtomicAckEthValue): void {
  const original = checked64('AtomicAckETH original', value.original);
  writeAtomicAck(b, o, highWord(original), lowWord(original));
}
