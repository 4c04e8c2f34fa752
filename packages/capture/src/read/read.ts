/** The packets of a capture file or stream. */
import { stat as lookAt, open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { CaptureError } from '@node-roce/pcap';
import { type CaptureSource, isCompressed, openCapture, openCaptures } from '@node-roce/pcap/node';
import type { CaptureSummary } from '../flow/analysis.ts';
import type { Addresses } from './packet.ts';
import { PacketReader, type PacketReaderOptions } from './reader.ts';

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
 * Reads pcap or pcapng, plain, gzip or Zstandard, and gives its RoCE packets to `onPacket`; memory does not grow with the
 * capture. Damage ends the reading and stands in `summary.damage`: what came before it counts.
 *
 * ```ts
 * const { summary } = await readPackets('trace.pcapng.gz', {
 *   onPacket: (packet) => console.log(packet.frame, packet.info.name, packet.psn),
 * });
 * ```
 *
 * Several files are one capture: their packets by time.
 *
 * Rejects with the system's error where the file can't be read, and with the signal's reason.
 */
export async function readPackets(
  source: CaptureSource | readonly string[],
  options: ReadOptions = {},
): Promise<ReadResult> {
  const { onProgress, onChunk, signal } = options;
  const reader = new PacketReader(options);
  const total = onProgress === undefined ? undefined : await plainSize(source);
  await using capture = Array.isArray(source)
    ? openCaptures(source, { recycle: true })
    : openCapture(source as CaptureSource, { recycle: true });
  // A stream may keep us waiting for ever.
  const abort = () => source instanceof Readable && source.destroy(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  let damage: string | undefined;
  try {
    signal?.throwIfAborted();
    for await (const batch of capture) {
      signal?.throwIfAborted();
      for (const record of batch) reader.frame(record);
      const { frames, rocePackets } = reader;
      onProgress?.({ bytes: capture.offset, total, frames, rocePackets });
      const more = onChunk?.();
      if ((more instanceof Promise ? await more : more) === false) break;
    }
  } catch (error) {
    if (!(error instanceof CaptureError)) throw error;
    damage = error.message;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
  const file = typeof source === 'string' ? source : source instanceof URL ? source.pathname : undefined;
  return { summary: reader.summary(file, damage), addresses: reader.addresses };
}

/** Bytes of a file that is not compressed; undefined for all else. */
async function plainSize(source: CaptureSource | readonly string[]): Promise<number | undefined> {
  if (typeof source !== 'string' && !(source instanceof URL)) return undefined;
  try {
    // Nothing else is opened here: a pipe would be at its end for its writer.
    const stat = await lookAt(source);
    if (!stat.isFile()) return undefined;
    await using file = await open(source);
    const { buffer } = await file.read(new Uint8Array(4), 0, 4, 0);
    return isCompressed(buffer) ? undefined : stat.size;
  } catch {
    // Reading it fails with the reason.
    return undefined;
  }
}
