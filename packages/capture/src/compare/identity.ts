/** The identity of a packet in two captures of its way. */
import type { RocePacket } from '../read/packet.ts';
import type { PacketReader } from '../read/reader.ts';

/**
 * The fields that no switch changes: addresses, UDP source port, IPv4 Identification, and of the BTH opcode, AckReq, queue pair and PSN. The
 * ICRC is not among them, so that a damaged packet is found. Where the Identification is 0, or in IPv6, a
 * retransmission has the identity of the first copy.
 */
export function identityOf(packet: RocePacket, reader: PacketReader): string {
  const { opcode, destQp, psn, ipId, sourcePort, payloadLength, ackReq } = packet;
  const { addresses } = reader;
  const ends = `${addresses.text(packet.source)}>${addresses.text(packet.destination)}`;
  return `${ends} ${sourcePort} ${ipId} ${opcode} ${destQp} ${psn} ${payloadLength} ${ackReq ? 1 : 0}`;
}

/** FNV-1a, 32 bits: which identities are samples. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
