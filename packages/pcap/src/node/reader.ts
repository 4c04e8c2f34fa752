import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { CaptureError } from '../errors.ts';
import { CaptureParser, type CaptureParserOptions } from '../parser.ts';
import type { PacketRecord, SectionInfo } from '../record.ts';
import { gunzip } from './gunzip.ts';

/** A path, or bytes as they come: a Node stream such as `process.stdin`, or any async iterable. */
export type CaptureSource = string | URL | AsyncIterable<Uint8Array>;

/** Bytes read from a file at a time. */
const READ_SIZE = 262_144;

/**
 * Opens a capture for reading: pcap or pcapng, plain or gzip, told apart by their first bytes.
 *
 * ```ts
 * const capture = openCapture('trace.pcapng.gz');
 * for await (const batch of capture) {
 *   for (const record of batch) use(record);
 * }
 * ```
 */
export function openCapture(source: CaptureSource, options?: CaptureParserOptions): CaptureReader {
  return new CaptureReader(source, options);
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
  #error: CaptureError | undefined;
  readonly #batches: AsyncGenerator<PacketRecord[], void, undefined>;

  /** @throws RangeError for a bad `maxBlockLength` */
  constructor(source: CaptureSource, options?: CaptureParserOptions) {
    this.#parser = new CaptureParser(options);
    this.#source = source;
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
    const parser = this.#parser;
    try {
      for await (const chunk of inflated(chunksOf(this.#source))) {
        parser.push(chunk);
        const batch = [...parser];
        if (batch.length > 0) yield batch;
        if (parser.error !== undefined) throw parser.error;
      }
      parser.end();
      if (parser.error !== undefined) throw parser.error;
    } catch (error) {
      if (error instanceof CaptureError) this.#error = error;
      throw error;
    }
  }
}

async function* chunksOf(source: CaptureSource): AsyncGenerator<Uint8Array> {
  const isPath = typeof source === 'string' || source instanceof URL;
  const stream = isPath ? createReadStream(source, { highWaterMark: READ_SIZE }) : source;
  for await (const chunk of stream) {
    if (!(chunk instanceof Uint8Array)) throw new TypeError('a capture stream must give bytes, not text');
    yield chunk;
  }
}

/** Puts a gunzip between when the input starts with the magic of gzip (RFC 1952 §2.3.1). */
async function* inflated(source: AsyncGenerator<Uint8Array>): AsyncGenerator<Uint8Array> {
  let first: Uint8Array = new Uint8Array(0);
  while (first.length < 2) {
    const { value, done } = await source.next();
    if (done) break;
    first = first.length === 0 ? value : Buffer.concat([first, value]);
  }
  const whole = prepend(first, source);
  yield* first[0] === 0x1f && first[1] === 0x8b ? gunzip(whole) : whole;
}

async function* prepend(first: Uint8Array, rest: AsyncGenerator<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield first;
    yield* rest;
  } finally {
    // Reached without `yield*` having closed it when the consumer stops at the first chunk.
    await rest.return(undefined);
  }
}
