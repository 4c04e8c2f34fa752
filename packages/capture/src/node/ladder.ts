/** The packets of one connection for a ladder, however many the capture has of others. */
import type { CaptureSource } from '@node-roce/pcap/node';
import type { LadderPacket } from '../flow/analysis.ts';
import { FlowAnalyzer } from '../flow/analyzer.ts';
import { ladderPacket } from '../flow/record/ladder.ts';
import { filterLadder, type LadderFilter } from '../ladder/kind.ts';
import { type ConnectionName, senderFinder } from '../read/filter.ts';
import type { ReadOptions } from '../read/read.ts';
import { readPackets } from './read.ts';

export interface LadderReadOptions extends Omit<ReadOptions, 'onPacket' | 'onChunk'> {
  filter?: LadderFilter | undefined;
  /** Packets at most: the first that the filter lets pass. */
  most: number;
}

/**
 * Reads a capture again for the packets of a connection that an analysis of it found: the analysis itself
 * keeps the first of each connection and those about findings only.
 *
 * @returns the packets in the order of the capture; one more than `most` means that there are more
 */
export async function readLadder(
  source: CaptureSource | readonly string[],
  connection: ConnectionName,
  { filter = {}, most, ...options }: LadderReadOptions,
): Promise<LadderPacket[]> {
  const kept: LadderPacket[] = [];
  let analyzer: FlowAnalyzer | undefined;
  let senderOf: ReturnType<typeof senderFinder> | undefined;
  await readPackets(source, {
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
