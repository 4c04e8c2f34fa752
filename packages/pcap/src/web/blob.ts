/** A capture that a browser holds, read by slices. */
import { batchesOf, type RecordSource } from '../batches.ts';
import { inflated } from '../compressed/inflated.ts';
import { CaptureParser, type CaptureParserOptions } from '../parser.ts';
import type { PacketRecord } from '../record.ts';
import { gunzip } from './gunzip.ts';

/** Bytes read from a file at a time. */
const SLICE = 4_194_304;

export interface BlobOptions extends CaptureParserOptions {
  /** Called with the bytes of the blob that were read, compressed as they are. */
  readonly onRead?: ((bytes: number) => void) | undefined;
}

/**
 * Opens a `Blob` or `File` for reading: pcap or pcapng, plain, gzip or Zstandard, distinguished by their first bytes. One slice is in
 * memory at a time. Iteration throws after the last good packet: `CaptureError` for damage, the browser's error for a file that
 * can not be read.
 */
export function openBlob(blob: Blob, options?: BlobOptions): RecordSource {
  return new BlobCapture(blob, options);
}

class BlobCapture implements RecordSource {
  readonly #parser: CaptureParser;
  readonly #batches: AsyncGenerator<PacketRecord[], void, undefined>;

  constructor(blob: Blob, options: BlobOptions = {}) {
    this.#parser = new CaptureParser(options);
    this.#batches = batchesOf(this.#parser, inflated(slicesOf(blob, options.onRead), gunzip));
  }

  get offset(): number {
    return this.#parser.offset;
  }

  [Symbol.asyncIterator](): AsyncGenerator<PacketRecord[], void, undefined> {
    return this.#batches;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#batches.return();
  }
}

/** Reads the next slice while the caller is busy with the last one. */
async function* slicesOf(blob: Blob, onRead?: (bytes: number) => void): AsyncGenerator<Uint8Array> {
  const slice = (at: number) => blob.slice(at, at + SLICE).arrayBuffer();
  let next = slice(0);
  for (let at = 0; at < blob.size; at += SLICE) {
    const bytes = new Uint8Array(await next);
    if (at + SLICE < blob.size) {
      next = slice(at + SLICE);
      // An awaiting reader gets a failure; after an early end nobody does.
      next.catch(() => {});
    }
    yield bytes;
    onRead?.(at + bytes.length);
  }
}
