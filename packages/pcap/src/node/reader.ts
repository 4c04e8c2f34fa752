import { type FileHandle, open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { batchesOf, type RecordSource } from '../batches.ts';
import { inflated } from '../compressed/inflated.ts';
import { CaptureError } from '../errors.ts';
import { mergeCaptures } from '../merge.ts';
import { CaptureParser, type CaptureParserOptions } from '../parser.ts';
import type { PacketRecord, SectionInfo } from '../record.ts';
import { gunzip } from './gunzip.ts';

/** A path, or bytes as they come: a Node stream such as `process.stdin`, or any async iterable. */
export type CaptureSource = string | URL | AsyncIterable<Uint8Array>;

/** Bytes read from a file at a time. */
const READ_SIZE = 262_144;
/** The same into memory that is used again; fewer and larger pieces cost less. */
const RECYCLED_SIZE = 1_048_576;

export interface CaptureReaderOptions extends CaptureParserOptions {
  /**
   * Records hold only until the next batch is asked for: all of a file is then read into the same two pieces of
   * memory, which is quicker. Default false: they hold as long as they are kept.
   */
  readonly recycle?: boolean;
}

/**
 * Opens a capture for reading: pcap or pcapng, plain, gzip or Zstandard, distinguished by their first bytes.
 *
 * ```ts
 * const capture = openCapture('trace.pcapng.gz');
 * for await (const batch of capture) {
 *   for (const record of batch) use(record);
 * }
 * ```
 */
export function openCapture(source: CaptureSource, options?: CaptureReaderOptions): CaptureReader {
  return new CaptureReader(source, options);
}

/**
 * Opens files as one capture: see `mergeCaptures`.
 *
 * @param paths files; the order decides between packets of the same time
 */
export function openCaptures(paths: readonly string[], options?: CaptureReaderOptions): RecordSource {
  return mergeCaptures(paths.map((path) => ({ name: path, open: () => openCapture(path, options) })));
}

/**
 * An opened capture: an async iterable of batches, each the packets that a chunk of input completed.
 *
 * It can be iterated once. Iteration throws after the last good packet: `CaptureError` for damage, the
 * system's error for I/O (ENOENT among them: a file is opened by the first step). Leaving the loop
 * early closes the source. Records stay good as long as they are kept; each keeps its chunk of
 * input (256 KiB of a file), so copy `data` of the few to be held long.
 */
export class CaptureReader implements AsyncIterable<PacketRecord[]>, AsyncDisposable {
  readonly #parser: CaptureParser;
  readonly #source: CaptureSource;
  readonly #recycles: boolean;
  #error: CaptureError | undefined;
  readonly #batches: AsyncGenerator<PacketRecord[], void, undefined>;

  /** @throws RangeError for a bad `maxBlockLength` */
  constructor(source: CaptureSource, options?: CaptureReaderOptions) {
    this.#parser = new CaptureParser(options);
    this.#source = source;
    this.#recycles = options?.recycle ?? false;
    this.#batches = this.#read();
  }

  /** The section being read; see `CaptureParser`. Undefined before iteration begins. */
  get section(): SectionInfo | undefined {
    return this.#parser.section;
  }

  /** The damage that iteration threw. */
  get error(): CaptureError | undefined {
    return this.#error;
  }

  /** Packets read so far. */
  get packetCount(): number {
    return this.#parser.packetCount;
  }

  /** Bytes of the (inflated) input read so far. */
  get offset(): number {
    return this.#parser.offset;
  }

  [Symbol.asyncIterator](): AsyncGenerator<PacketRecord[], void, undefined> {
    return this.#batches;
  }

  /** The packets one by one; slower than batches by a promise for each. */
  async *records(): AsyncGenerator<PacketRecord, void, undefined> {
    for await (const batch of this.#batches) yield* batch;
  }

  /** Closes the source. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#batches.return();
    if (this.#source instanceof Readable) this.#source.destroy();
  }

  async *#read(): AsyncGenerator<PacketRecord[], void, undefined> {
    try {
      yield* batchesOf(this.#parser, inflated(chunksOf(this.#source, this.#recycles), gunzip));
    } catch (error) {
      if (error instanceof CaptureError) this.#error = error;
      throw error;
    }
  }
}

async function* chunksOf(source: CaptureSource, recycles: boolean): AsyncGenerator<Uint8Array> {
  const isPath = typeof source === 'string' || source instanceof URL;
  for await (const chunk of isPath ? chunksAt(source, recycles) : source) {
    if (!(chunk instanceof Uint8Array)) throw new TypeError('a capture stream must give bytes, not text');
    yield chunk;
  }
}

async function* chunksAt(path: string | URL, recycles: boolean): AsyncGenerator<Uint8Array> {
  const file = await open(path);
  const isRegular = await file.stat().then(
    (stat) => stat.isFile(),
    () => false,
  );
  // A pipe may keep a read waiting for ever; a stream can be destroyed meanwhile.
  if (isRegular) yield* chunksAhead(file, recycles);
  else yield* file.createReadStream({ highWaterMark: READ_SIZE });
}

/** Reads the next chunk while the caller is busy with the last one. */
async function* chunksAhead(file: FileHandle, recycles: boolean): AsyncGenerator<Uint8Array> {
  // Not zeroed, and not a part of Node's pool: a view of a piece is a view of it alone.
  const size = recycles ? RECYCLED_SIZE : READ_SIZE;
  const newPiece = () => Buffer.allocUnsafeSlow(size);
  const pieces = recycles ? [newPiece(), newPiece()] : undefined;
  let turn = 0;
  const read = async (): Promise<Uint8Array> => {
    const { buffer, bytesRead } = await file.read(pieces?.[turn++ & 1] ?? newPiece(), 0, size, null);
    return buffer.subarray(0, bytesRead);
  };
  let next = read();
  try {
    for (let chunk = await next; chunk.length > 0; chunk = await next) {
      next = read();
      // An awaiting reader gets a failure; after an early end nobody does.
      next.catch(() => {});
      yield chunk;
    }
  } finally {
    await next.catch(() => {});
    await file.close();
  }
}
