/**
 * ACK Extended Transport Header (IBTA vol 1 §9.3.5): a message sequence number and a syndrome, which is
 * an ACK with a count of receive credits, a receiver-not-ready NAK with a timer code (see `timers.ts`), or
 * a NAK with a reason (§9.7.5.2).
 */
import { checked, setU24, u24 } from '../bytes.ts';
import { rnrTimerMicroseconds } from '../timers.ts';

export const AETH_BYTES = 4;

export const aethSyndrome = (b: Uint8Array, o: number): number => b[o];
/** Message sequence number, 24 bits: messages the responder has completed. */
export const aethMsn = (b: Uint8Array, o: number): number => u24(b, o + 1);

export function writeAeth(b: Uint8Array, o: number, syndrome: number, msn: number): void {
  b[o] = syndrome;
  setU24(b, o + 1, msn);
}

/** Decoded AETH, for display and tests. */
export interface AethValue {
  syndrome: number;
  msn: number;
}

export const decodeAeth = (b: Uint8Array, o: number): AethValue => ({
  syndrome: aethSyndrome(b, o),
  msn: aethMsn(b, o),
});

export const encodeAeth = (b: Uint8Array, o: number, value: AethValue): void =>
  writeAeth(b, o, checked('AETH syndrome', value.syndrome, 8), checked('AETH msn', value.msn, 24));

/** `syndrome >> 5`; the top bit of the byte is reserved, 2 too. */
export const AethKind = { ACK: 0, RNR_NAK: 1, NAK: 3 } as const;

/** The kind of a syndrome: one of `AethKind`, or 2 (reserved). The reserved top bit is left out. */
export const aethKind = (syndrome: number): number => (syndrome >> 5) & 3;

/** The low five bits: credit code, RNR timer code or NAK reason. */
export const aethValue = (syndrome: number): number => syndrome & 0x1f;

/** The syndromes of NAKs; others from 0x65 to 0x7f are reserved. */
export const NakCode = {
  PSN_SEQUENCE_ERROR: 0x60,
  INVALID_REQUEST: 0x61,
  REMOTE_ACCESS_ERROR: 0x62,
  REMOTE_OPERATIONAL_ERROR: 0x63,
  INVALID_RD_REQUEST: 0x64,
} as const;

/** Credit code of a responder that does not limit its requester (an SRQ, or credits off). */
export const CREDIT_UNLIMITED = 31;

// Receive credits per code 0 … 30: a mantissa of two bits that doubles every second code.
const credits = [
  0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
  6144, 8192, 12288, 16384, 24576, 32768,
];

/** Messages that may be sent past the ACK's MSN; `Infinity` for code 31. Bits past the five are left out. */
export function creditsOf(code: number): number {
  const value = code & 0x1f;
  return value === CREDIT_UNLIMITED ? Number.POSITIVE_INFINITY : credits[value];
}

/** The largest code that promises no more than `posted` receives, 0 … 30. */
export function creditCodeFor(posted: number): number {
  let code = 0;
  while (code < 30 && credits[code + 1] <= posted) code++;
  return code;
}

const nakReasons = [
  'PSN sequence error',
  'invalid request',
  'remote access error',
  'remote operational error',
  'invalid RD request',
];

/** `640 µs`, `10.24 ms`. */
const rnrWait = (microseconds: number): string =>
  microseconds < 1000 ? `${microseconds} µs` : `${microseconds / 1000} ms`;

/** A syndrome in words: `ACK, 6 credits`, `RNR NAK, 640 µs`, `NAK, PSN sequence error`. */
export function describeSyndrome(syndrome: number): string {
  const value = aethValue(syndrome);
  const reserved = syndrome & 0x80 ? ', reserved bit set' : '';
  switch (aethKind(syndrome)) {
    case AethKind.ACK:
      return `ACK, ${value === CREDIT_UNLIMITED ? 'unlimited' : creditsOf(value)} credits${reserved}`;
    case AethKind.RNR_NAK:
      return `RNR NAK, ${rnrWait(rnrTimerMicroseconds(value))}${reserved}`;
    case AethKind.NAK:
      return `NAK, ${nakReasons[value] ?? `reserved reason ${value}`}${reserved}`;
    default:
      return `reserved kind 2, value ${value}${reserved}`;
  }
}
