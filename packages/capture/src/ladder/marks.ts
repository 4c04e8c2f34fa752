/** Rows and joins that a ladder has in addition to its packets: missing packets, recoveries with their evidence, stalls. */
import { AethKind, aethKind, OperationBits, opcodeInfo } from '@node-roce/wire';
import type { LadderPacket, Recovery, Stall } from '../flow/analysis.ts';
import { findLosses, lossText, missingText, recoveryText, type SeenPacket, stallText } from './evidence.ts';

/** A line between two packets of a ladder: before the second. */
export interface Annotation {
  kind: 'missing' | 'recovery' | 'note';
  text: string;
}

/** From the evidence of a recovery to its first packet. */
export interface Join {
  requester: 'a' | 'b';
  /** Frames. */
  from: number;
  to: number;
  /** A silence, not a packet that asked for it. */
  isSilence: boolean;
}

/** All marks of a connection's ladder. */
export interface LadderMarks {
  /** By the frame of the packet that they stand before. */
  before: ReadonlyMap<number, readonly Annotation[]>;
  /** Packets that were lost behind the tap, by frame: why. */
  lost: ReadonlyMap<number, string>;
  /** By the frame that ended it. */
  stalls: ReadonlyMap<number, string>;
  joins: readonly Join[];
}

interface Marked {
  ladder: readonly LadderPacket[];
  recoveries?: readonly Recovery[];
  stalls?: readonly Stall[];
}

/** Finds the marks of a connection among the packets that are kept of it. */
export function ladderMarks({ ladder, recoveries = [], stalls = [] }: Marked): LadderMarks {
  const before = new Map<number, Annotation[]>();
  const add = (frame: number, annotation: Annotation) =>
    before.set(frame, [...(before.get(frame) ?? []), annotation]);
  const lost = new Map<number, string>();
  for (const { recovery, seen, behind } of findLosses(ladder.flatMap(seenPacket), recoveries)) {
    if (seen !== undefined) lost.set(seen.frame, lossText(recovery));
    else add(behind?.frame ?? recovery.frame, { kind: 'missing', text: missingText(recovery) });
  }
  for (const recovery of recoveries) add(recovery.frame, { kind: 'recovery', text: recoveryText(recovery) });
  return {
    before,
    lost,
    stalls: new Map(stalls.map((stall) => [stall.frame, stallText(stall)])),
    joins: recoveries.flatMap(({ from, evidence, frame, cause }) =>
      evidence === undefined || evidence >= frame
        ? []
        : [
            {
              requester: from,
              from: evidence,
              to: frame,
              isSilence: cause === 'timeout' || cause === 'probe',
            },
          ],
    ),
  };
}

/** Requests, and answers that carry data. An ACK covers those before it, so its PSN can not be missing. */
function seenPacket({ frame, psn, from, opcode, aeth }: LadderPacket): SeenPacket[] {
  const info = opcodeInfo(opcode);
  if (info === undefined) return [];
  const isAnswer = info.isResponse;
  const isAck =
    info.operation === OperationBits.ACKNOWLEDGE ||
    (aeth !== undefined && aethKind(aeth.syndrome) !== AethKind.ACK);
  if (isAnswer && isAck) return [];
  const requester = isAnswer ? (from === 'a' ? 'b' : 'a') : from;
  return [{ frame, psn, requester, isRequest: !isAnswer }];
}
