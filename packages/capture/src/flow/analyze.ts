/** A capture in, its analysis out. */
import type { RecordSource } from '@node-roce/pcap';
import type { Addresses } from '../read/packet.ts';
import { type ReadOptions, type ReadResult, readRecords } from '../read/read.ts';
import type { Analysis, Message } from './analysis.ts';
import { FlowAnalyzer, type FlowOptions, type MessageQps } from './analyzer.ts';

export interface AnalyzeOptions
  extends Omit<ReadOptions, 'onPacket' | 'onPause' | 'onIcmp' | 'onRefused'>,
    Omit<FlowOptions, 'onMessage'> {
  /** Called for each message at its end; of one connection and direction in the order of PSNs. */
  readonly onMessage?: ((message: Message, qps: MessageQps, addresses: Addresses) => void) | undefined;
  /** Called once, before the first message, with the time of the first frame: `startTime` of the summary. */
  readonly onStart?: ((startTime: string | undefined) => void) | undefined;
}

/**
 * Analyzes the connections of an opened capture, in memory that does not grow with its length. Runs in browsers too; in Node,
 * `analyzeCapture` opens files.
 *
 * @param about the file's name for the summary, and its length for `onProgress`
 *
 * Rejects as `readRecords` does.
 */
export function analyzeRecords(
  capture: RecordSource,
  options: AnalyzeOptions = {},
  about: { file?: string | undefined; total?: number | undefined } = {},
): Promise<Analysis> {
  return analyzeBy((reading) => readRecords(capture, reading, about), options);
}

/** The analysis of what `read` reads. */
export async function analyzeBy(
  read: (options: ReadOptions) => Promise<ReadResult>,
  { onMessage, onPacket, onStart, ...reading }: AnalyzeOptions,
): Promise<Analysis> {
  let names: Addresses | undefined;
  const analyzer = new FlowAnalyzer({
    onMessage: onMessage && ((message, qps) => names && onMessage(message, qps, names)),
    onPacket,
  });
  const { summary, addresses } = await read({
    ...reading,
    onPacket: (packet, reader) => {
      if (names === undefined) onStart?.(reader.startTime);
      names = reader.addresses;
      // Between samples packets are missing by design.
      if (!packet.sampled) analyzer.add(packet);
    },
    onPause: (pause) => analyzer.addPause(pause),
    onIcmp: (error) => analyzer.addIcmp(error),
  });
  return analyzer.finish(summary, addresses);
}
