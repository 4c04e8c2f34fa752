/** The fields of a packet that stand in the base transport header (IBTA vol 1 §9.2). */
import { BTH_BYTES, type OpcodeInfo, u16, u24 } from '@node-roce/wire';
import type { RocePacket } from './packet.ts';

/** BTH and the longest extension headers: RDETH, DETH and AtomicETH (IBTA vol 1 §9.2). */
export const LONGEST_HEADER_BYTES = BTH_BYTES + 4 + 8 + 28;

/**
 * Fills them from the BTH at `o`.
 * @param end of the packet as it was captured, ICRC included
 */
export function fillBth(
  packet: RocePacket,
  b: Uint8Array,
  o: number,
  info: OpcodeInfo,
  end: number,
  payloadLength: number,
): void {
  const flags = b[o + 1];
  packet.bth = o;
  packet.extensions = o + BTH_BYTES;
  packet.payload = o + info.headerLength;
  packet.end = end;
  packet.payloadLength = payloadLength;
  packet.info = info;
  packet.opcode = info.opcode;
  packet.solicited = (flags & 0x80) !== 0;
  packet.migReq = (flags & 0x40) !== 0;
  packet.padCount = (flags >> 4) & 3;
  packet.pkey = u16(b, o + 2);
  packet.fecn = (b[o + 4] & 0x80) !== 0;
  packet.becn = (b[o + 4] & 0x40) !== 0;
  packet.destQp = u24(b, o + 5);
  packet.ackReq = (b[o + 8] & 0x80) !== 0;
  packet.psn = u24(b, o + 9);
}
