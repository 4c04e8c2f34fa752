/** Packets, syndromes and PSNs in words, as verdicts and ladders have them. */
import { AethKind, aethKind, aethValue, NakCode, type Packet } from '@node-roce/wire';

/** NAKs by the names that rules use. */
export const NAK_CODES = {
  sequence: NakCode.PSN_SEQUENCE_ERROR,
  invalid: NakCode.INVALID_REQUEST,
  access: NakCode.REMOTE_ACCESS_ERROR,
  operational: NakCode.REMOTE_OPERATIONAL_ERROR,
} as const;

/** `READ response FIRST` instead of `RC_RDMA_READ_RESPONSE_FIRST`. */
export function nameOfPacket({ info }: Packet): string {
  if (info.key === 'RC_ACKNOWLEDGE' || info.key === 'XRC_ACKNOWLEDGE') return 'ACK packet';
  return info.name.replace(/^RC /, '');
}

/** The meaning of an AETH's syndrome. */
export function syndromeText(syndrome: number): string {
  if (syndrome > 0x7f) return `syndrome 0x${syndrome.toString(16)}`;
  const kind = aethKind(syndrome);
  if (kind === AethKind.RNR_NAK) return `RNR NAK timer ${aethValue(syndrome)}`;
  if (kind === AethKind.ACK) return syndrome === 0x1f ? 'ACK' : `ACK credits ${aethValue(syndrome)}`;
  const name = Object.entries(NAK_CODES).find(([, code]) => code === syndrome)?.[0];
  return kind === AethKind.NAK
    ? `NAK 0x${syndrome.toString(16)}${name ? ` (${name})` : ''}`
    : `syndrome 0x${syndrome.toString(16)}`;
}

/** `+3`, `-1`. */
export const relative = (n: number): string => (n < 0 ? `psn${n}` : `psn+${n}`);
