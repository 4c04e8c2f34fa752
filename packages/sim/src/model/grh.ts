/**
 * The 40 bytes at the head of a datagram's receive: the GRH's place, where RoCEv2 puts the IP header that the packet came
 * with (IBTA vol 1 §11.4.1.2, annex A17.4.5.2). IPv6's fills it; IPv4's stands at its end, after 20 zero bytes.
 */
import { isIpv4Mapped } from '@node-roce/wire/rules';
import { GRH_BYTES } from './ud-responder.ts';

const UDP_HEADER = 8;
const ICRC = 4;
const UDP = 17;

export interface IpRoute {
  /** GIDs, 16 bytes each. */
  source: Uint8Array;
  destination: Uint8Array;
  trafficClass: number;
  hopLimit: number;
}

/** @param length bytes from the BTH through the pad */
export function grhArea(
  { source, destination, trafficClass, hopLimit }: IpRoute,
  length: number,
): Uint8Array {
  const area = new Uint8Array(GRH_BYTES);
  const view = new DataView(area.buffer);
  const udpBytes = UDP_HEADER + length + ICRC;
  if (!isIpv4Mapped(source)) {
    view.setUint32(0, (6 << 28) | (trafficClass << 20));
    view.setUint16(4, udpBytes);
    area.set([UDP, hopLimit], 6);
    area.set(source, 8);
    area.set(destination, 24);
    return area;
  }
  const header = 20;
  area.set([0x45, trafficClass], header);
  view.setUint16(header + 2, 20 + udpBytes);
  view.setUint16(header + 6, 0x4000); // don't fragment; the identification is 0
  area.set([hopLimit, UDP], header + 8);
  area.set(source.subarray(12), header + 12);
  area.set(destination.subarray(12), header + 16);
  view.setUint16(header + 10, internetChecksum(view, header));
  return area;
}

/** RFC 1071, of the 20 bytes at `offset`. */
function internetChecksum(view: DataView, offset: number): number {
  let sum = 0;
  for (let i = 0; i < 20; i += 2) sum += view.getUint16(offset + i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}
