/**
 * Base Transport Header (IBTA vol 1 §9.2), the first header of every packet.
 *
 *     0 opcode   1 SE 0x80, MigReq 0x40, pad count 0x30, header version 0x0f   2 P_Key
 *     4 FECN 0x80, BECN 0x40, six reserved bits: switches may change this byte, and the ICRC masks it
 *     5 destination QP   8 AckReq 0x80, seven reserved bits   9 PSN
 *
 * As in every file of this folder: the view (functions that read or write a field of the bytes in place and allocate
 * nothing), and the plain value. `o` is the offset of the header. An offset is a literal of the accessor and of the writer,
 * by which the value is read and written, because V8 then inlines a packet's accessors: with offsets read from a table, parsing and
 * writing a BTH, RETH and AETH took 2.8 times as long, with constants of the file 1.1 times.
 */
import { checked, setU16, setU32, u16, u24 } from '../bytes.ts';

export const BTH_BYTES = 12;

/** Bits of the second byte, for `writeBth`; or in `pad << BTH_PAD_SHIFT`. */
export const BthFlags = { SOLICITED: 0x80, MIG_REQ: 0x40, PAD: 0x30, TVER: 0x0f } as const;
export const BTH_PAD_SHIFT = 4;
/** AckReq in the last word, for `writeBth`; or in the PSN. */
export const BTH_ACK_REQ = 0x8000_0000;

export const bthOpcode = (b: Uint8Array, o: number): number => b[o];
/** Solicited event: 0 or 1, as all bits here. */
export const bthSolicited = (b: Uint8Array, o: number): number => b[o + 1] >> 7;
export const bthMigReq = (b: Uint8Array, o: number): number => (b[o + 1] >> 6) & 1;
/** Zero bytes between the payload and the ICRC, 0 … 3. */
export const bthPad = (b: Uint8Array, o: number): number => (b[o + 1] >> 4) & 3;
/** Transport header version; only 0 is defined. */
export const bthTver = (b: Uint8Array, o: number): number => b[o + 1] & 0x0f;
export const bthPkey = (b: Uint8Array, o: number): number => u16(b, o + 2);
export const bthFecn = (b: Uint8Array, o: number): number => b[o + 4] >> 7;
export const bthBecn = (b: Uint8Array, o: number): number => (b[o + 4] >> 6) & 1;
export const bthDestQp = (b: Uint8Array, o: number): number => u24(b, o + 5);
export const bthAckReq = (b: Uint8Array, o: number): number => b[o + 8] >> 7;
export const bthPsn = (b: Uint8Array, o: number): number => u24(b, o + 9);

/**
 * Writes all 12 bytes, FECN, BECN and the reserved bits as 0.
 * @param flags the second byte: `BthFlags` or-ed with the pad count
 * @param ackReqAndPsn PSN, or-ed with `BTH_ACK_REQ` to ask for an ACK
 */
export function writeBth(
  b: Uint8Array,
  o: number,
  opcode: number,
  flags: number,
  pkey: number,
  destQp: number,
  ackReqAndPsn: number,
): void {
  b[o] = opcode;
  b[o + 1] = flags;
  setU16(b, o + 2, pkey);
  setU32(b, o + 4, destQp & 0xff_ffff);
  setU32(b, o + 8, ackReqAndPsn);
}

/** Decoded BTH, for display and tests. */
export interface BthValue {
  opcode: number;
  solicited: boolean;
  migReq: boolean;
  /** 0 … 3. */
  pad: number;
  /** 0 … 15. */
  tver: number;
  pkey: number;
  fecn: boolean;
  becn: boolean;
  /** The low six bits of the fifth byte; not 0 in packets of some adapters. */
  reserved6: number;
  destQp: number;
  ackReq: boolean;
  /** The low seven bits of the ninth byte. */
  reserved7: number;
  psn: number;
}

export function decodeBth(b: Uint8Array, o: number): BthValue {
  return {
    opcode: bthOpcode(b, o),
    solicited: bthSolicited(b, o) === 1,
    migReq: bthMigReq(b, o) === 1,
    pad: bthPad(b, o),
    tver: bthTver(b, o),
    pkey: bthPkey(b, o),
    fecn: bthFecn(b, o) === 1,
    becn: bthBecn(b, o) === 1,
    reserved6: b[o + 4] & 0x3f,
    destQp: bthDestQp(b, o),
    ackReq: bthAckReq(b, o) === 1,
    reserved7: b[o + 8] & 0x7f,
    psn: bthPsn(b, o),
  };
}

/** @throws RangeError for a value that does not fit its field, as every `encode…` here */
export function encodeBth(b: Uint8Array, o: number, value: BthValue): void {
  const flags =
    (value.solicited ? BthFlags.SOLICITED : 0) |
    (value.migReq ? BthFlags.MIG_REQ : 0) |
    (checked('BTH pad', value.pad, 2) << BTH_PAD_SHIFT) |
    checked('BTH tver', value.tver, 4);
  const opcode = checked('BTH opcode', value.opcode, 8);
  const pkey = checked('BTH pkey', value.pkey, 16);
  const destQp = checked('BTH destQp', value.destQp, 24);
  writeBth(b, o, opcode, flags, pkey, destQp, checked('BTH psn', value.psn, 24));
  // Bits that the writer leaves 0.
  b[o + 4] = (value.fecn ? 0x80 : 0) | (value.becn ? 0x40 : 0) | checked('BTH reserved6', value.reserved6, 6);
  b[o + 8] = (value.ackReq ? 0x80 : 0) | checked('BTH reserved7', value.reserved7, 7);
}
