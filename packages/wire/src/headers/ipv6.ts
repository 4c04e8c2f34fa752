/**
 * IPv6 (RFC 8200 §3), and the Global Route Header of RoCE v1 (IBTA vol 1 §8.3), which has the same layout
 * and next header 0x1b.
 */

import { checked, setU16, setU32, u16, u32 } from '../bytes.ts';
import { formatIpAddress } from '../gid.ts';
import { addressBytes } from './ipv4.ts';

export const IPV6_BYTES = 40;
export const GRH_BYTES = 40;
export const Ipv6 = {
  VERSION_CLASS_LABEL: 0,
  PAYLOAD_LENGTH: 4,
  NEXT_HEADER: 6,
  HOP_LIMIT: 7,
  SOURCE: 8,
  DESTINATION: 24,
} as const;

export const ipv6TrafficClass = (b: Uint8Array, o: number): number => ((b[o] & 0x0f) << 4) | (b[o + 1] >> 4);
export const ipv6FlowLabel = (b: Uint8Array, o: number): number => u32(b, o) & 0xf_ffff;
/** Bytes after the 40 of the header; of a GRH the ICRC is counted too. */
export const ipv6PayloadLength = (b: Uint8Array, o: number): number => u16(b, o + 4);
export const ipv6NextHeader = (b: Uint8Array, o: number): number => b[o + 6];
export const ipv6HopLimit = (b: Uint8Array, o: number): number => b[o + 7];

/** An IPv6 header or GRH for people. */
export interface Ipv6Value {
  version: 6;
  trafficClass: number;
  /** 20 bits. */
  flowLabel: number;
  payloadLength: number;
  nextHeader: number;
  hopLimit: number;
  source: string;
  destination: string;
}

export function decodeIpv6(b: Uint8Array, o: number): Ipv6Value {
  return {
    version: 6,
    trafficClass: ipv6TrafficClass(b, o),
    flowLabel: ipv6FlowLabel(b, o),
    payloadLength: ipv6PayloadLength(b, o),
    nextHeader: ipv6NextHeader(b, o),
    hopLimit: ipv6HopLimit(b, o),
    source: formatIpAddress(b, o + 8, 16),
    destination: formatIpAddress(b, o + 24, 16),
  };
}

export function encodeIpv6(b: Uint8Array, o: number, value: Ipv6Value): void {
  const trafficClass = checked('IPv6 trafficClass', value.trafficClass, 8);
  setU32(b, o, 0x6000_0000 | (trafficClass << 20) | checked('IPv6 flowLabel', value.flowLabel, 20));
  setU16(b, o + 4, checked('IPv6 payloadLength', value.payloadLength, 16));
  b[o + 6] = checked('IPv6 nextHeader', value.nextHeader, 8);
  b[o + 7] = checked('IPv6 hopLimit', value.hopLimit, 8);
  b.set(addressBytes(value.source, 16), o + 8);
  b.set(addressBytes(value.destination, 16), o + 24);
}
