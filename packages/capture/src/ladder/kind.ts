/** What a packet is in the eyes of a reader: decides its colour, and what a filter asks for. */
import type { LadderPacket } from '../flow/analysis.ts';

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

/** IBTA vol 1 §9.2.1 and annex A17: the whole opcode of a CNP, and the operations that answer. */
const CNP = 0x81;
const READ_RESPONSE_FIRST = 0x0d;
const READ_RESPONSE_ONLY = 0x10;
const ACKNOWLEDGE = 0x11;
const ATOMIC_ACKNOWLEDGE = 0x12;

/** IBTA vol 1 §9.7.5.1.1, table 43: bits 6:5 of the syndrome. */
const SyndromeKind = { RNR: 1, NAK: 3 } as const;

export function kindOf({ opcode, aeth, retransmission }: LadderPacket): PacketKind {
  if (opcode === CNP) return 'cnp';
  const operation = opcode & 0x1f;
  const syndrome = aeth === undefined ? 0 : (aeth.syndrome >> 5) & 3;
  if (syndrome === SyndromeKind.RNR) return 'rnr';
  if (syndrome === SyndromeKind.NAK) return 'nak';
  if (retransmission !== undefined) return 'retransmission';
  if (operation === ACKNOWLEDGE) return 'ack';
  const answers = operation >= READ_RESPONSE_FIRST && operation <= READ_RESPONSE_ONLY;
  return answers || operation === ATOMIC_ACKNOWLEDGE ? 'response' : 'request';
}

/** What a ladder is to show of its packets; what is absent lets everything pass. */
export interface LadderFilter {
  /** Nanoseconds since the first frame, both ends included. */
  from?: number | undefined;
  to?: number | undefined;
  kinds?: ReadonlySet<PacketKind> | undefined;
  /** Part of a packet's label (`write`, `psn 0x12`, `nak`), upper or lower case, or `#` and a frame's number. */
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

/** What stands on a packet's arrow: `RC Send First · PSN 1193046 · 1024 B · AckReq`. */
export function packetLabel(packet: LadderPacket): string {
  const { aeth, reth } = packet;
  const kind = kindOf(packet);
  const isAnswer = kind === 'ack' || kind === 'nak' || kind === 'rnr';
  const parts = [isAnswer && aeth !== undefined ? aeth.text : packet.opcodeName];
  if (kind !== 'cnp') parts.push(`PSN ${packet.psn}`);
  if (aeth !== undefined) parts.push(`MSN ${aeth.msn}`);
  // A READ request has no payload: its RETH says how much is asked for.
  if (packet.payloadLength > 0) parts.push(`${packet.payloadLength} B`);
  else if (reth !== undefined) parts.push(`of ${reth.length} B`);
  if (packet.ackReq) parts.push('AckReq');
  return parts.join(' · ');
}

/** What is odd about a packet: retransmission and cause, a bad ICRC, a mark, a repeated frame. */
export function packetNotes(packet: LadderPacket): string[] {
  const notes: string[] = [];
  if (packet.retransmission !== undefined) {
    notes.push(
      packet.retransmission === 'unknown' ? 'sent again' : `sent again: ${causeNames[packet.retransmission]}`,
    );
  }
  if (packet.icrc === 'bad') notes.push('ICRC bad');
  if (packet.ecnMarked) notes.push('ECN CE');
  if (packet.repeatedFrame) notes.push('same frame again');
  return notes;
}

export const causeNames = {
  timeout: 'timeout',
  'sequence-nak': 'sequence NAK',
  'implied-nak': 'implied NAK',
  rnr: 'RNR NAK',
  adaptive: 'adaptive timer',
  unknown: 'cause unknown',
} as const;
