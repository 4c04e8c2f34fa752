/** The packets of an opened capture. */
import { CaptureError, type RecordSource } from '@node-roce/pcap';
import type { Addresses } from './packet.ts';
import { PacketReader, type PacketReaderOptions } from './reader.ts';
import type { CaptureSummary } from './summary.ts';

/** Where a long reading stands. */
export interface ReadProgress {
  /** Of the file, inflated where it is compressed. */
  bytes: number;
  /** All of the file; undefined for streams and compressed files. */
  total: number | undefined;
  frames: number;
  rocePackets: number;
}

export interface ReadOptions extends PacketReaderOptions {
  /** Called after each chunk of input, 1 MiB of a file. */
  readonly onProgress?: ((progress: ReadProgress) => void) | undefined;
  /** Awaited after each chunk: for consumers that write what they were given. `false` ends the reading. */
  readonly onChunk?: (() => Promise<void> | boolean | void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The result of reading a capture. */
export interface ReadResult {
  summary: CaptureSummary;
  /** The addresses behind the numbers in packets. */
  addresses: Addresses;
}

/**
 * Gives the RoCE packets of an opened capture to `onPacket`; memory does not grow with the capture. Damage ends the reading and stands
 * in `summary.damage`: what came before it counts. Runs in browsers too; in Node, `readPackets` opens files.
 *
 * @param about the file's name for the summary, and its length for `onProgress`
 *
 * Rejects with the system's error where the capture can't be read, and with the signal's reason.
 */
export async function readRecords(
  capture: RecordSource,
  options: ReadOptions = {},
  about: { file?: string | undefined; total?: number | undefined } = {},
): Promise<ReadResult> {
  const { onProgress, onChunk, signal } = options;
  const reader = new PacketReader(options);
  let damage: string | undefined;
  try {
    signal?.throwIfAborted();
    for await (const batch of capture) {
      signal?.throwIfAborted();
      for (const record of batch) reader.frame(record);
      const { frames, rocePackets } = reader;
      onProgress?.({ bytes: capture.offset, total: about.total, frames, rocePackets });
      const more = onChunk?.();
      if ((more instanceof Promise ? await more : more) === false) break;
    }
  } catch (error) {
    if (!(error instanceof CaptureError)) throw error;
    damage = error.message;
  }
  return { summary: reader.summary(about.file, damage), addresses: reader.addresses };
}
