/** An IP packet around a RoCE payload, for captures: what a UDP socket neither takes nor shows. */
import { ICRC_BYTES, IP_MAY_FRAGMENT, isIpv4Mapped, writeIcrc } from '@node-roce/wire';
import { FlowIcrc } from './flow-icrc.ts';

export interface IpPacketParts {
  /** GIDs, 16 bytes each. */
  source: Uint8Array;
  destination: Uint8Array;
  trafficClass: number;
  hopLimit: number;
  /** IPv4 Identification, with `IP_MAY_FRAGMENT` for a header without "don't fragment". */
  id: number;
  sourcePort: number;
  destinationPort: number;
  /** BTH through pad. */
  payload: Uint8Array;
  /** The ICRC as it arrived, 4 bytes; without it the right one. */
  icrc?: Uint8Array;
}

/** The packet from its IPv4 or IPv6 header through the ICRC, with the IPv4 checksum; UDP checksum 0. */
export function ipPacket(parts: IpPacketParts): Uint8Array<ArrayBuffer> {
  const { source, destination, payload } = parts;
  const v4 = isIpv4Mapped(destination);
  const ip = v4 ? 20 : 40;
  const udpLength = 8 + payload.length + ICRC_BYTES;
  const bytes = new Uint8Array(ip + udpLength);
  const view = new DataView(bytes.buffer);
  if (v4) {
    bytes[0] = 0x45;
    bytes[1] = parts.trafficClass;
    view.setUint16(2, bytes.length);
    view.setUint16(4, parts.id);
    view.setUint16(6, (parts.id & IP_MAY_FRAGMENT) === 0 ? 0x4000 : 0); // DF
    bytes[8] = parts.hopLimit;
    bytes[9] = 17;
    bytes.set(source.subarray(12, 16), 12);
    bytes.set(destination.subarray(12, 16), 16);
    let sum = 0;
    for (let i = 0; i < 20; i += 2) sum += view.getUint16(i);
    sum = (sum & 0xffff) + (sum >>> 16);
    view.setUint16(10, ~(sum + (sum >>> 16)) & 0xffff);
  } else {
    view.setUint32(0, (0x6000_0000 | (parts.trafficClass << 20)) >>> 0);
    view.setUint16(4, udpLength);
    bytes[6] = 17;
    bytes[7] = parts.hopLimit;
    bytes.set(source.subarray(0, 16), 8);
    bytes.set(destination.subarray(0, 16), 24);
  }
  view.setUint16(ip, parts.sourcePort);
  view.setUint16(ip + 2, parts.destinationPort);
  view.setUint16(ip + 4, udpLength);
  bytes.set(payload, ip + 8);
  const end = bytes.length - ICRC_BYTES;
  if (parts.icrc) bytes.set(parts.icrc, end);
  else writeIcrc(bytes, end, new FlowIcrc(parts).of(bytes, ip + 8, end, parts.id));
  return bytes;
}
