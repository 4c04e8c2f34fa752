/** Frames as a capture of the simulated network would show them: IP packets with ICRCs, good or bad as they were. */
import {
  gidToIpBytes,
  ICRC_BYTES,
  icrcV2,
  isIpv4Mapped,
  ROCE_UDP_PORT,
  setU16,
  writeIcrc,
} from '@node-roce/wire';
import type { SimPacket } from './wire.ts';

const UDP_BYTES = 8;

/**
 * The IPv4 or IPv6 packet that a simulated packet stands for. Its ICRC is right, or wrong where the
 * packet is corrupt.
 */
export function frameOf(packet: SimPacket): Uint8Array<ArrayBuffer> {
  const v4 = isIpv4Mapped(packet.source);
  const ipBytes = v4 ? 20 : 40;
  const frame = new Uint8Array(ipBytes + UDP_BYTES + packet.bytes.length + ICRC_BYTES);
  const udpLength = frame.length - ipBytes;
  if (v4) writeIpv4(frame, packet);
  else writeIpv6(frame, packet, udpLength);
  setU16(frame, ipBytes, packet.sourcePort);
  setU16(frame, ipBytes + 2, ROCE_UDP_PORT);
  setU16(frame, ipBytes + 4, udpLength);
  frame.set(packet.bytes, ipBytes + UDP_BYTES);
  const at = frame.length - ICRC_BYTES;
  const icrc = icrcV2(frame, 0, at);
  writeIcrc(frame, at, packet.corrupt ? icrc ^ 1 : icrc);
  return frame;
}

function writeIpv4(frame: Uint8Array, packet: SimPacket): void {
  frame[0] = 0x45;
  frame[1] = packet.trafficClass;
  setU16(frame, 2, frame.length);
  setU16(frame, 4, packet.ipId ?? 0);
  frame[6] = 0x40; // DF
  frame[8] = 64;
  frame[9] = 17;
  frame.set(gidToIpBytes(packet.source), 12);
  frame.set(gidToIpBytes(packet.destination), 16);
  let sum = 0;
  for (let i = 0; i < 20; i += 2) sum += (frame[i] << 8) | frame[i + 1];
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  setU16(frame, 10, ~sum & 0xffff);
}

function writeIpv6(frame: Uint8Array, packet: SimPacket, udpLength: number): void {
  frame[0] = 0x60 | (packet.trafficClass >> 4);
  frame[1] = (packet.trafficClass & 15) << 4;
  setU16(frame, 4, udpLength);
  frame[6] = 17;
  frame[7] = 64;
  frame.set(packet.source, 8);
  frame.set(packet.destination, 24);
}
