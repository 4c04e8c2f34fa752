/** Chunks of a capture in, batches of its packets out. */
import type { CaptureParser } from './parser.ts';
import type { PacketRecord } from './record.ts';

/** A capture as its readers need it: batches of records, and how far the reading is. */
export interface RecordSource extends AsyncIterable<PacketRecord[]>, AsyncDisposable {
  /** Bytes of the (inflated) input read so far. */
  readonly offset: number;
}

/**
 * The packets that each chunk completes.
 *
 * @throws CaptureError after the last good packet, if the capture is damaged
 */
export async function* batchesOf(
  parser: CaptureParser,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<PacketRecord[], void, undefined> {
  for await (const chunk of chunks) {
    parser.push(chunk);
    const batch: PacketRecord[] = [];
    for (let record = parser.read(); record !== undefined; record = parser.read()) batch.push(record);
    if (batch.length > 0) yield batch;
    if (parser.error !== undefined) throw parser.error;
  }
  parser.end();
  if (parser.error !== undefined) throw parser.error;
}
