/**
 * The headers of one 32-bit field: ImmDt (IBTA vol 1 §9.3.6), IETH (§9.3.7) and FETH (annex A19).
 */
import { checked, setU32, u32 } from '../bytes.ts';

export const IMM_DT_BYTES = 4;

/** Immediate data: four bytes that mean what the programs agreed on, read as a big-endian number. */
export const immDt = (b: Uint8Array, o: number): number => u32(b, o);
export const writeImmDt = (b: Uint8Array, o: number, value: number): void => setU32(b, o, value);

export const IETH_BYTES = 4;

/** The R_Key that SEND with invalidate invalidates. */
export const iethRkey = (b: Uint8Array, o: number): number => u32(b, o);
export const writeIeth = (b: Uint8Array, o: number, rkey: number): void => setU32(b, o, rkey);

export const FETH_BYTES = 4;
/** The guarantees of a FLUSH: global visibility at the responder, or persistence; bits of `fethPlacement`. */
export const FlushPlacement = { GLOBAL_VISIBILITY: 0x1, PERSISTENCE: 0x2 } as const;
/** How much a FLUSH covers; the values of `fethSelectivity`. */
export const FlushSelectivity = { RANGE: 0, MEMORY_REGION: 1 } as const;

/** Placement type, four bits. */
export const fethPlacement = (b: Uint8Array, o: number): number => b[o + 3] & 0x0f;
/** Selectivity level, two bits. */
export const fethSelectivity = (b: Uint8Array, o: number): number => (b[o + 3] >> 4) & 3;
export const writeFeth = (b: Uint8Array, o: number, placement: number, selectivity: number): void =>
  setU32(b, o, (selectivity << 4) | placement);

/** Decoded FETH, for display and tests. */
export interface FethValue {
  placement: number;
  selectivity: number;
  /** The high 26 bits. */
  reserved: number;
}

export const decodeFeth = (b: Uint8Array, o: number): FethValue => ({
  placement: fethPlacement(b, o),
  selectivity: fethSelectivity(b, o),
  reserved: u32(b, o) >>> 6,
});

export function encodeFeth(b: Uint8Array, o: number, value: FethValue): void {
  const selectivity = checked('FETH selectivity', value.selectivity, 2);
  writeFeth(b, o, checked('FETH placement', value.placement, 4), selectivity);
  setU32(b, o, (checked('FETH reserved', value.reserved, 26) << 6) | u32(b, o));
}
