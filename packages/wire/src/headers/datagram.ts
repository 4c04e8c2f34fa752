/**
 * Headers that name the queue pairs or contexts of a packet: DETH of UD and RD (IBTA vol 1
 * §9.3.2), RDETH of RD (§9.3.1) and XRCETH (annex A14).
 */
import { checked, setU32, u24, u32 } from '../bytes.ts';

export const DETH_BYTES = 8;

export const dethQkey = (b: Uint8Array, o: number): number => u32(b, o);
export const dethSrcQp = (b: Uint8Array, o: number): number => u24(b, o + 5);

export function writeDeth(b: Uint8Array, o: number, qkey: number, srcQp: number): void {
  setU32(b, o, qkey);
  setU32(b, o + 4, srcQp & 0xff_ffff);
}

/** Decoded DETH, for display and tests. */
export interface DethValue {
  qkey: number;
  reserved: number;
  srcQp: number;
}

export const decodeDeth = (b: Uint8Array, o: number): DethValue => ({
  qkey: dethQkey(b, o),
  reserved: b[o + 4],
  srcQp: dethSrcQp(b, o),
});

export function encodeDeth(b: Uint8Array, o: number, value: DethValue): void {
  const srcQp = checked('DETH srcQp', value.srcQp, 24);
  writeDeth(b, o, checked('DETH qkey', value.qkey, 32), srcQp);
  b[o + 4] = checked('DETH reserved', value.reserved, 8);
}

export const RDETH_BYTES = 4;

/** End-to-end context of the receiver, 24 bits. */
export const rdethEeContext = (b: Uint8Array, o: number): number => u24(b, o + 1);
export const writeRdeth = (b: Uint8Array, o: number, eeContext: number): void =>
  setU32(b, o, eeContext & 0xff_ffff);

/** Decoded RDETH, for display and tests. */
export interface RdethValue {
  reserved: number;
  eeContext: number;
}

export const decodeRdeth = (b: Uint8Array, o: number): RdethValue => ({
  reserved: b[o],
  eeContext: rdethEeContext(b, o),
});

export function encodeRdeth(b: Uint8Array, o: number, value: RdethValue): void {
  writeRdeth(b, o, checked('RDETH eeContext', value.eeContext, 24));
  b[o] = checked('RDETH reserved', value.reserved, 8);
}

export const XRCETH_BYTES = 4;

/** Number of the shared receive queue that the request is for, 24 bits. */
export const xrcethSrq = (b: Uint8Array, o: number): number => u24(b, o + 1);
export const writeXrceth = (b: Uint8Array, o: number, srq: number): void => setU32(b, o, srq & 0xff_ffff);

/** Decoded XRCETH, for display and tests. */
export interface XrcethValue {
  reserved: number;
  srq: number;
}

export const decodeXrceth = (b: Uint8Array, o: number): XrcethValue => ({
  reserved: b[o],
  srq: xrcethSrq(b, o),
});

export function encodeXrceth(b: Uint8Array, o: number, value: XrcethValue): void {
  writeXrceth(b, o, checked('XRCETH srq', value.srq, 24));
  b[o] = checked('XRCETH reserved', value.reserved, 8);
}
