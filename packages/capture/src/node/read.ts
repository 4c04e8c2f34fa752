/** The packets of a capture file or stream. */
import { stat as lookAt, open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { crc32 as zlibCrc32 } from 'node:zlib';
import { type CaptureSource, isCompressed, openCapture, openCaptures } from '@node-roce/pcap/node';
import type { Crc32 } from '../read/icrc-check.ts';
import { type ReadOptions, type ReadResult, readRecords } from '../read/read.ts';

const crc32OfZlib: Crc32 = (bytes, before, start, end) => zlibCrc32(bytes.subarray(start, end), before);

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
  const { signal } = options;
  const total = options.onProgress === undefined ? undefined : await plainSize(source);
  await using capture = Array.isArray(source)
    ? openCaptures(source, { recycle: true })
    : openCapture(source as CaptureSource, { recycle: true });
  // A stream may keep us waiting for ever.
  const abort = () => source instanceof Readable && source.destroy(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  const file = typeof source === 'string' ? source : source instanceof URL ? source.pathname : undefined;
  try {
    const withCrc = { ...options, crc32: options.crc32 ?? crc32OfZlib };
    return await readRecords(capture, withCrc, { file, total });
  } finally {
    signal?.removeEventListener('abort', abort);
  }
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
