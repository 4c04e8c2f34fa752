/** Management datagrams (IBTA vol 1 §13.4.2): 256 bytes that queue pair 1 sends and receives. */
import { bitsOf, type Field, readFields, uint, type ValuesOf, word, writeFields } from './field.ts';

export const MAD_BYTES = 256;
export const MAD_HEADER_BYTES = 24;

/** Queue pair of the connection manager and other general services (IBTA vol 1 §3.5.4). */
export const GSI_QPN = 1;
/** Q_Key of queue pair 1 (IBTA vol 1 §10.2.5). */
export const GSI_QKEY = 0x8001_0000;

/** `managementClass` of the connection manager, and the class version of its messages (§12.6.2). */
export const CM_CLASS = 0x07;
export const CM_CLASS_VERSION = 2;

/** `method`: every message of the connection manager is a Send (§13.4.5). */
export const MadMethod = { GET: 0x01, SET: 0x02, SEND: 0x03, GET_RESP: 0x81 } as const;

/** The common header (§13.4.3). */
export const MadHeader = {
  /** 1. */
  baseVersion: uint(0, 8),
  managementClass: uint(1, 8),
  classVersion: uint(2, 8),
  /** With the response bit. */
  method: bitsOf(3, 7, 0),
  status: uint(4, 16),
  classSpecific: uint(6, 16),
  /** Opaque: chosen by the requester, echoed by answers. */
  transactionId: word(8),
  attributeId: uint(16, 16),
  attributeModifier: uint(20, 32),
} satisfies Record<string, Field<unknown>>;

export type MadHeaderValue = ValuesOf<typeof MadHeader>;

/** The header of a MAD at `o`; bytes that are missing read as 0. */
export const decodeMadHeader = (b: Uint8Array, o: number): MadHeaderValue => readFields(MadHeader, b, o);

/** @throws RangeError for a value that does not fit its field */
export const encodeMadHeader = (b: Uint8Array, o: number, value: Partial<MadHeaderValue>): void =>
  writeFields(MadHeader, b, o, value, 'MAD');
