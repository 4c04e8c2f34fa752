/** A capture file in, its analysis out. */
import type { CaptureSource } from '@node-roce/pcap/node';
import type { Analysis } from '../flow/analysis.ts';
import { type AnalyzeOptions, analyzeBy } from '../flow/analyze.ts';
import { readPackets } from './read.ts';

/**
 * Reads a capture (pcap or pcapng, plain, gzip or Zstandard; several files are one) and analyzes its connections, in memory that does not grow
 * with its length.
 *
 * ```ts
 * const { connections, findings } = await analyzeCapture('trace.pcapng.gz');
 * for (const { text } of findings) console.log(text);
 * ```
 *
 * Rejects with the system's error where the file can't be read, and with the signal's reason; damage in the file
 * ends the reading and stands in `summary.damage`.
 */
export function analyzeCapture(
  source: CaptureSource | readonly string[],
  options: AnalyzeOptions = {},
): Promise<Analysis> {
  return analyzeBy((reading) => readPackets(source, reading), options);
}
