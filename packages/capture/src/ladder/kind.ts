/** Kinds of packets, as a reader sees them: decides its colour, and what a filter asks for. */
import { AethKind, aethKind, Opcode, OperationBits, opcodeInfo } from '@node-roce/wire';
import type { LadderPacket } from '../flow/analysis.ts';
import { formatPsn } from '../units.ts';

/** In the order in which legends and filters show them. */
export const PACKET_KINDS = ['request', 'response', 'ack', 'nak', 'rnr', 'retransmission', 'cnp'] as const;
export type PacketKind = (typeof PACKET_KINDS)[number];

export const kindNames: Readonly<Record<PacketKind, string>> = {
  request: 'Request',
  response: 'Response',
  ack: 'ACK',
  nak: 'NAK',
  rnr: 'RNR NAK',
  retransmission: 'Retransmission',
  cnp: 'CNP',
};

/** The kind of a packet; of several that apply, the most specific one. */
export function kindOf({ opcode, aeth, retransmission }: LadderPacket): PacketKind {
  if (opcode === Opcode.CNP) return 'cnp';
  const answer = aeth === undefined ? AethKind.ACK : aethKind(aeth.syndrome);
  if (answer === AethKind.RNR_NAK) return 'rnr';
  if (answer === AethKind.NAK) return 'nak';
  if (retransmission !== undefined) return 'retransmission';
  const info = opcodeInfo(opcode);
  if (info?.operation === OperationBits.ACKNOWLEDGE) return 'ack';
  return info?.isResponse ? 'response' : 'request';
}

/** A filter of a ladder's packets; options that are absent let everything pass. */
export interface LadderFilter {
  /** Nanoseconds since the first frame, both ends included. */
  from?: number | undefined;
  to?: number | undefined;
  kinds?: ReadonlySet<PacketKind> | undefined;
  /** Part of a packet's label (`write`, `psn 12`, `nak`) in letters of any case, or `#` and the number of a frame. */
  text?: string | undefined;
}

/** The packets that a filter lets pass, in their order. */
export function filterLadder(packets: readonly LadderPacket[], filter: LadderFilter): LadderPacket[] {
  const { from = -Infinity, to = Infinity, kinds, text = '' } = filter;
  const wanted = text.trim().toLowerCase();
  const frame = /^#(\d+)$/.exec(wanted)?.[1];
  return packets.filter(
    (packet) =>
      packet.time >= from &&
      packet.time <= to &&
      (kinds === undefined || kinds.has(kindOf(packet))) &&
      (frame === undefined
        ? wanted === '' || searchText(packet).includes(wanted)
        : packet.frame === Number(frame)),
  );
}

const searchText = (packet: LadderPacket): string =>
  `${packetLabel(packet)} ${packetNotes(packet).join(' ')}`.toLowerCase();

/** The transport is that of the connection, and most responders promise nothing about their receives. */
const shortened = (text: string): string =>
  text.replace(/^(?:RC|UC|UD|RD|XRC) (?:RDMA )?/, '').replace(/^ACK, unlimited credits$/, 'ACK');

/**
 * The text on a packet's arrow: `Send First · PSN 1193046 = 0x123456 · 1024 B · AckReq`.
 * @param isShort where there is little room: PSNs in decimal only, no MSN
 */
export function packetLabel(packet: LadderPacket, isShort = false): string {
  const { aeth, reth } = packet;
  const kind = kindOf(packet);
  const isAnswer = kind === 'ack' || kind === 'nak' || kind === 'rnr';
  const parts = [shortened(isAnswer && aeth !== undefined ? aeth.text : packet.opcodeName)];
  if (kind !== 'cnp') parts.push(isShort ? `${packet.psn}` : `PSN ${formatPsn(packet.psn)}`);
  if (aeth !== undefined && !isShort) parts.push(`MSN ${aeth.msn}`);
  // A READ request has no payload: its RETH has the length that is asked for.
  if (packet.payloadLength > 0) parts.push(`${packet.payloadLength} B`);
  else if (reth !== undefined) parts.push(`of ${reth.length} B`);
  if (packet.ackReq && !isShort) parts.push('AckReq');
  return parts.join(' · ');
}

/** The anomalies of a packet: retransmission and cause, a bad ICRC, a mark, a repeated frame. */
export function packetNotes(packet: LadderPacket): string[] {
  const notes: string[] = [];
  if (packet.retransmission !== undefined) {
    const grade = packet.grade === 'likely' ? ' (likely)' : '';
    const evidence = packet.evidence === undefined ? '' : `, frame ${packet.evidence}`;
    notes.push(
      packet.retransmission === 'unknown'
        ? 'retransmission'
        : `retransmission: ${causeNames[packet.retransmission]}${grade}${evidence}`,
    );
  }
  if (packet.icrc === 'bad') notes.push('ICRC bad');
  if (packet.ecnMarked) notes.push('ECN CE');
  if (packet.repeatedFrame) notes.push('duplicate frame');
  return notes;
}

export const causeNames = {
  timeout: 'timeout',
  'sequence-nak': 'sequence NAK',
  'implied-nak': 'implied NAK',
  rnr: 'RNR NAK',
  probe: 'probe timer',
  unknown: 'cause unknown',
} as const;
