/** The packets of one connection for a ladder, however many the capture has of others. */
import type { LadderPacket } from '../flow/analysis.ts';
import { FlowAnalyzer } from '../flow/analyzer.ts';
import { ladderPacket } from '../flow/record/ladder.ts';
import { type ConnectionName, senderFinder } from '../read/filter.ts';
import type { ReadOptions, ReadResult } from '../read/read.ts';
import { filterLadder, type LadderFilter } from './kind.ts';

export interface LadderReadOptions extends Omit<ReadOptions, 'onPacket' | 'onChunk'> {
  filter?: LadderFilter | undefined;
  /** Packets at most: the first that the filter lets pass. */
  most: number;
}

/** The packets that `read` finds of a connection, one more than `most` if there are more. */
export async function ladderBy(
  read: (options: ReadOptions) => Promise<ReadResult>,
  connection: ConnectionName,
  { filter = {}, most, ...options }: LadderReadOptions,
): Promise<LadderPacket[]> {
  const kept: LadderPacket[] = [];
  let analyzer: FlowAnalyzer | undefined;
  let senderOf: ReturnType<typeof senderFinder> | undefined;
  await read({
    ...options,
    onPacket: (packet, { addresses }) => {
      senderOf ??= senderFinder(connection, addresses);
      analyzer ??= new FlowAnalyzer({
        onPacket: (each, { retransmission: cause, grade, evidence: evidenceFrame, repeatedFrame }) => {
          const from = senderOf!(each);
          if (from === undefined) return;
          const again = cause === undefined ? undefined : { cause, grade: grade!, evidenceFrame };
          kept.push(...filterLadder([ladderPacket(each, from, again, repeatedFrame)], filter));
        },
      });
      // The packets after the last one asked for need no causes.
      if (kept.length <= most) analyzer.add(packet);
    },
    onChunk: () => kept.length <= most,
  });
  return kept;
}
