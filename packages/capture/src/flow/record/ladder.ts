/** Packets kept whole for the ladder: the first of each direction, and those around what findings speak of. */
import {
  AethKind,
  aethKind,
  aethMsn,
  aethSyndrome,
  CREDIT_UNLIMITED,
  creditsOf,
  describeSyndrome,
  ECN_CE,
  immDt,
  toHex,
  u32,
  u64,
} from '@node-roce/wire';
import { type RocePacket, verdictName } from '../../read/packet.ts';
import type { LadderPacket } from '../facts.ts';
import type { Verdict } from '../track/verdict.ts';

const FIRST_PACKETS = 200;
/** The same once half of the packets that may be kept of a capture is used up: very many connections each get a little. */
const FEW_PACKETS = 20;
const MAX_PACKETS = 30_000;
const AROUND_PACKETS = 300;
/** Packets after one that a finding speaks of. */
const AFTER = 4;
/** Bytes of a packet that are kept. */
const BYTES = 96;

/** Why a packet of a ladder was retransmitted. */
type LadderVerdict = Pick<Verdict, 'cause' | 'grade' | 'evidenceFrame'>;

/** Packets that may still be kept, for all directions of a capture. */
export class LadderBudget {
  left = MAX_PACKETS;

  get isTight(): boolean {
    return this.left < MAX_PACKETS / 2;
  }
}

/** The packets of one direction that are kept for the ladder. */
export class Ladder {
  readonly packets: LadderPacket[] = [];
  readonly #budget: LadderBudget;
  #first = FIRST_PACKETS;
  #around = AROUND_PACKETS;
  #after = 0;

  constructor(budget: LadderBudget) {
    this.#budget = budget;
  }

  /** @param special a finding may speak of it */
  offer(
    packet: RocePacket,
    from: 'a' | 'b',
    special: boolean,
    retransmission: LadderVerdict | undefined,
    repeatedFrame: boolean,
  ): void {
    if (this.#first > 0 && this.#budget.isTight) this.#first = Math.min(this.#first, FEW_PACKETS);
    if (this.#first > 0) {
      this.#first--;
    } else {
      if (special) this.#after = AFTER;
      else if (this.#after === 0) return;
      else this.#after--;
      if (this.#around === 0) return;
      this.#around--;
    }
    if (this.#budget.left === 0) return;
    this.#budget.left--;
    this.packets.push(ladderPacket(packet, from, retransmission, repeatedFrame));
  }
}

/** A packet as ladders have it; a copy of the bytes that they need. */
export function ladderPacket(
  packet: RocePacket,
  from: 'a' | 'b',
  retransmission: LadderVerdict | undefined,
  repeatedFrame: boolean,
): LadderPacket {
  const { info, bytes, bth, end } = packet;
  const at = (name: 'aeth' | 'reth' | 'immDt', length: number) => {
    const offset = info.offsets[name];
    return offset >= 0 && bth + offset + length <= end ? bth + offset : undefined;
  };
  const aeth = at('aeth', 4);
  const reth = at('reth', 16);
  const immediate = at('immDt', 4);
  return {
    frame: packet.frame,
    part: packet.part,
    time: packet.time,
    from,
    opcode: packet.opcode,
    opcodeName: info.name,
    psn: packet.psn,
    destQp: packet.destQp,
    payloadLength: packet.payloadLength,
    ackReq: packet.ackReq,
    aeth: aeth === undefined ? undefined : aethOf(bytes, aeth),
    reth:
      reth === undefined
        ? undefined
        : {
            va: `0x${u64(bytes, reth).toString(16)}`,
            rkey: u32(bytes, reth + 8),
            length: u32(bytes, reth + 12),
          },
    immediate: immediate === undefined ? undefined : immDt(bytes, immediate),
    retransmission: retransmission?.cause,
    grade: retransmission?.grade,
    evidence:
      retransmission === undefined || retransmission.evidenceFrame === 0
        ? undefined
        : retransmission.evidenceFrame,
    repeatedFrame,
    icrc: verdictName(packet.icrc),
    ecnMarked: packet.ecn === ECN_CE,
    message: undefined,
    bytes: toHex(bytes.subarray(bth, Math.min(end, bth + BYTES))),
  };
}

function aethOf(bytes: Uint8Array, at: number): LadderPacket['aeth'] {
  const syndrome = aethSyndrome(bytes, at);
  const credits = creditsOf(syndrome);
  const limited = aethKind(syndrome) === AethKind.ACK && (syndrome & 31) !== CREDIT_UNLIMITED;
  return {
    text: describeSyndrome(syndrome),
    syndrome,
    msn: aethMsn(bytes, at),
    credits: limited ? credits : undefined,
  };
}
