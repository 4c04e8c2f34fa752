/** Common parts of mutants of a responder: requests and answers that are altered. */
import type { ModelPacket, Responder } from '@node-roce/sim';
import { Opcode, opcodeInfo, psnDiff } from '@node-roce/wire';
import { isRequest, type Mutant, type Victim } from '../broken-device.ts';

export const rowOf = ({ opcode }: ModelPacket) => opcodeInfo(opcode)!;
export const kindOf = ({ aeth }: ModelPacket): number => (aeth === undefined ? -1 : aeth.syndrome >> 5);
export const isAck = (packet: ModelPacket): boolean =>
  packet.opcode === Opcode.RC_ACKNOWLEDGE && kindOf(packet) === 0;
export const isNak = ({ aeth }: ModelPacket, syndrome: number): boolean => aeth?.syndrome === syndrome;
export const NO_DATA = new Uint8Array(0);

/** How far a request is ahead of the one that is expected; below 0: it was executed before. */
export function ahead(packet: ModelPacket, { rc }: Victim): number {
  return rc !== undefined && isRequest(packet) ? psnDiff(packet.psn, rc.responder.ePsn) : 0;
}

/** Executes requests out of their turn: the PSN is taken for the expected one, and put back afterwards. */
export function executing(
  which: (packet: ModelPacket, victim: Victim) => boolean,
): Pick<Mutant, 'hear' | 'after'> {
  return {
    hear(packet, victim) {
      const { rc, notes } = victim;
      if (rc !== undefined && which(packet, victim)) {
        notes.ePsn = rc.responder.ePsn;
        rc.responder.ePsn = packet.psn;
      }
      return packet;
    },
    after({ rc, notes }) {
      if (rc === undefined || notes.ePsn === undefined) return;
      rc.responder.ePsn = notes.ePsn as number;
      notes.ePsn = undefined;
    },
  };
}

/** Changes the saved READs and atomics before a repetition is answered. */
export function savedAs(
  change: (saved: Responder['saved'], packet: ModelPacket) => Responder['saved'],
): Mutant['hear'] {
  return (packet, { rc }) => {
    if (rc !== undefined && isRequest(packet)) rc.responder.saved = change(rc.responder.saved, packet);
    return packet;
  };
}

export const savedRead = (saved: Responder['saved'], { psn }: ModelPacket) =>
  saved.find((s) => psnDiff(psn, s.firstPsn) >= 0 && psnDiff(psn, s.lastPsn) <= 0);

/** Answers are changed, those of requests that fit. */
export const answer = (
  fits: (packet: ModelPacket) => boolean,
  change: (packet: ModelPacket) => ModelPacket | ModelPacket[],
) =>
  ({
    send: (packet) => (fits(packet) && !isRequest(packet) ? [change(packet)].flat() : [packet]),
  }) satisfies Pick<Mutant, 'send'>;

/** Requests are changed before they are looked at. */
export const request = (
  fits: (packet: ModelPacket, victim: Victim) => boolean,
  change: (packet: ModelPacket, victim: Victim) => ModelPacket | undefined,
) =>
  ({
    hear: (packet, victim) =>
      victim.rc !== undefined && isRequest(packet) && fits(packet, victim) ? change(packet, victim) : packet,
  }) satisfies Pick<Mutant, 'hear'>;

/** The region that a request means: the one of its key, or any. */
export function regionOf({ reth, atomicEth }: ModelPacket, { rc }: Victim) {
  const key = (reth ?? atomicEth)?.rkey;
  const { regions } = rc!.responder.memory;
  return regions.find(({ rkey }) => rkey === key) ?? regions.at(-1)!;
}

/** Address and key of a request. */
export function withRange(
  packet: ModelPacket,
  range: { va?: bigint; rkey?: number; length?: number },
): ModelPacket {
  if (packet.atomicEth) return { ...packet, atomicEth: { ...packet.atomicEth, ...range } };
  return packet.reth ? { ...packet, reth: { ...packet.reth, ...range } } : packet;
}

export const isSendOrWrite = (packet: ModelPacket) => rowOf(packet).isSend || rowOf(packet).isWrite;
