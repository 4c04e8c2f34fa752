/** A capture file in, its analysis out. */
import type { CaptureSource } from '@node-roce/pcap/node';
import { type ReadOptions, readPackets } from '../read/read.ts';
import type { Analysis } from './analysis.ts';
import { FlowAnalyzer, type FlowOptions } from './analyzer.ts';

export interface AnalyzeOptions extends Omit<ReadOptions, 'onPacket' | 'onRefused'>, FlowOptions {}

/**
 * Reads a capture (pcap or pcapng, plain or gzip) and says what happened in it, in memory that does not grow
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
export async function analyzeCapture(source: CaptureSource, options: AnalyzeOptions = {}): Promise<Analysis> {
  const { onMessage, onPacket, ...reading } = options;
  const analyzer = new FlowAnalyzer({ onMessage, onPacket });
  const { summary, addresses } = await readPackets(source, {
    ...reading,
    onPacket: (packet) => analyzer.add(packet),
  });
  return analyzer.finish(summary, addresses);
}
