/** The packets of one connection for a ladder, read from files. */
import type { CaptureSource } from '@node-roce/pcap/node';
import type { LadderPacket } from '../flow/analysis.ts';
import { type LadderReadOptions, ladderBy } from '../ladder/again.ts';
import type { ConnectionName } from '../read/filter.ts';
import { readPackets } from './read.ts';

/**
 * Reads a capture again for the packets of a connection that an analysis of it found: the analysis itself
 * keeps the first of each connection and those about findings only.
 *
 * @returns the packets in the order of the capture; one more than `most` means that there are more
 */
export function readLadder(
  source: CaptureSource | readonly string[],
  connection: ConnectionName,
  options: LadderReadOptions,
): Promise<LadderPacket[]> {
  return ladderBy((reading) => readPackets(source, reading), connection, options);
}
