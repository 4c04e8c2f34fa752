/** A capture file in, its analysis out. */
import type { CaptureSource } from '@node-roce/pcap/node';
import type { Addresses } from '../read/packet.ts';
import { type ReadOptions, readPackets } from '../read/read.ts';
import type { Analysis, Message } from './analysis.ts';
import { FlowAnalyzer, type FlowOptions, type MessageQps } from './analyzer.ts';

export interface AnalyzeOptions
  extends Omit<ReadOptions, 'onPacket' | 'onPause' | 'onIcmp' | 'onRefused'>,
    Omit<FlowOptions, 'onMessage'> {
  /** Called for each message at its end; of one connection and direction in the order of PSNs. */
  readonly onMessage?: ((message: Message, qps: MessageQps, addresses: Addresses) => void) | undefined;
}

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
export async function analyzeCapture(
  source: CaptureSource | readonly string[],
  options: AnalyzeOptions = {},
): Promise<Analysis> {
  const { onMessage, onPacket, ...reading } = options;
  let names: Addresses | undefined;
  const analyzer = new FlowAnalyzer({
    onMessage: onMessage && ((message, qps) => names && onMessage(message, qps, names)),
    onPacket,
  });
  const { summary, addresses } = await readPackets(source, {
    ...reading,
    onPacket: (packet, reader) => {
      names = reader.addresses;
      // Between samples packets are missing by design.
      if (!packet.sampled) analyzer.add(packet);
    },
    onPause: (pause) => analyzer.addPause(pause),
    onIcmp: (error) => analyzer.addIcmp(error),
  });
  return analyzer.finish(summary, addresses);
}
