/** Inflates gzip, member by member, so that nothing of a whole member is lost to what follows it. */
import { crc32, createInflateRaw, type InflateRaw } from 'node:zlib';
import { CaptureError, CaptureErrorCode } from '../errors.ts';

/**
 * Compressed bytes inflated at a time. Deflate expands at most 1032-fold, so this bounds what is in
 * memory at about 16 MiB however hostile the input is; it is also the most that is lost before the
 * place of damage, because zlib gives nothing of a piece in which it fails.
 */
const PIECE = 16_384;

/** RFC 1952 §2.3: magic, compression method, flags; §2.3.1: the flags. */
const MAGIC = [0x1f, 0x8b];
const DEFLATE = 8;
const HEADER_BYTES = 10;
const TRAILER_BYTES = 8;
const Flag = { HEADER_CRC: 0x02, EXTRA: 0x04, NAME: 0x08, COMMENT: 0x10, RESERVED: 0xe0 } as const;

/**
 * Inflates gzip, of one or several members. All that can be inflated is yielded before damage, a
 * missing end, or what follows and is no member, is thrown. Zeros after a member are padding.
 *
 * @throws CaptureError `ERR_PCAP_COMPRESSED`, its offset in inflated bytes
 */
export async function* gunzip(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const input = new Input(source);
  let offset = 0;
  try {
    for (let members = 0; await input.has(1); members++) {
      if (members > 0 && input.bytes[0] === 0) {
        while (await input.has(1)) input.skip(input.bytes.length);
        return;
      }
      const problem = await skipHeader(input);
      if (problem !== undefined)
        throw new Error(members === 0 ? problem : `${problem} (after a whole member)`);
      for await (const chunk of inflateMember(input)) {
        offset += chunk.length;
        yield chunk;
      }
    }
  } catch (error) {
    // The source's own failures are no damage.
    if (error === input.failure) throw error;
    const { message } = error as Error;
    throw new CaptureError(
      CaptureErrorCode.COMPRESSED,
      offset,
      `the gzip stream is damaged or cut off after ${offset} inflated bytes: ${message}`,
      { cause: error },
    );
  } finally {
    await input.close();
  }
}

const CUT_OFF = 'unexpected end of file';

/** @returns what is wrong with it */
async function skipHeader(input: Input): Promise<string | undefined> {
  for (const [i, byte] of MAGIC.entries())
    if ((await input.has(i + 1)) && input.bytes[i] !== byte) return 'incorrect header check';
  if (!(await input.has(HEADER_BYTES))) return CUT_OFF;
  const [, , method, flags] = input.bytes;
  if (method !== DEFLATE) return 'unknown compression method';
  if ((flags & Flag.RESERVED) !== 0) return 'unknown header flags set';
  input.skip(HEADER_BYTES);
  if (flags & Flag.EXTRA) {
    if (!(await input.has(2))) return CUT_OFF;
    const length = 2 + input.bytes[0] + 256 * input.bytes[1];
    if (!(await input.has(length))) return CUT_OFF;
    input.skip(length);
  }
  for (const flag of [Flag.NAME, Flag.COMMENT]) if (flags & flag && !(await input.skipText())) return CUT_OFF;
  if (flags & Flag.HEADER_CRC) {
    if (!(await input.has(2))) return CUT_OFF;
    input.skip(2);
  }
  return undefined;
}

/** The inflated bytes of a member; then checks its trailer. */
async function* inflateMember(input: Input): AsyncGenerator<Uint8Array> {
  const inflate = createInflateRaw({ chunkSize: 65_536 });
  let crc = 0;
  let length = 0;
  try {
    for await (const chunk of inflateBody(inflate, input)) {
      crc = crc32(chunk, crc);
      length += chunk.length;
      yield chunk;
    }
  } finally {
    inflate.destroy();
  }
  if (!(await input.has(TRAILER_BYTES))) throw new Error(CUT_OFF);
  const { buffer, byteOffset } = input.bytes;
  const trailer = new DataView(buffer, byteOffset, TRAILER_BYTES);
  if (trailer.getUint32(0, true) !== crc) throw new Error('incorrect data check');
  if (trailer.getUint32(4, true) !== length % 2 ** 32) throw new Error('incorrect length check');
  input.skip(TRAILER_BYTES);
}

/** A transform stream would throw away what its reader has not yet taken: here it is taken piece by piece. */
async function* inflateBody(inflate: InflateRaw, input: Input): AsyncGenerator<Uint8Array> {
  let inflated: Uint8Array[] = [];
  inflate.on('data', (chunk: Buffer) => inflated.push(chunk));
  let failure: Error | undefined;
  let isOver = false;
  const over = new Promise<void>((resolve) => {
    inflate.on('error', (error) => {
      failure = error;
      resolve();
    });
    inflate.on('end', () => {
      isOver = true;
      resolve();
    });
  });
  while (!isOver && failure === undefined && (await input.has(1))) {
    const before = inflate.bytesWritten;
    const piece = input.bytes.subarray(0, PIECE);
    const written = new Promise<void>((resolve) => inflate.write(piece, () => resolve()));
    await Promise.race([written, over]);
    const taken = inflate.bytesWritten - before;
    if (taken < piece.length) await over;
    input.skip(taken);
    const ready = inflated;
    inflated = [];
    yield* ready;
  }
  if (!isOver) inflate.end();
  await over;
  yield* inflated;
  if (failure !== undefined) throw failure;
}

/** Bytes of a source as they come, as many at a time as are needed. */
class Input {
  /** Bytes that came and were not skipped. */
  bytes: Uint8Array = new Uint8Array(0);
  /** The error of the source. */
  failure: unknown;
  readonly #source: AsyncIterator<Uint8Array>;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Reads until so many bytes are there; false where the source ends before. */
  async has(count: number): Promise<boolean> {
    while (this.bytes.length < count) {
      // A copy: the source may use its memory again.
      const left = this.bytes.slice();
      const chunk = await this.#next();
      if (chunk === undefined) return false;
      this.bytes = left.length === 0 ? chunk : Buffer.concat([left, chunk]);
    }
    return true;
  }

  skip(count: number): void {
    this.bytes = this.bytes.subarray(count);
  }

  /** Skips up to and with the next zero; false where there is none. */
  async skipText(): Promise<boolean> {
    while (await this.has(1)) {
      const end = this.bytes.indexOf(0);
      this.skip(end < 0 ? this.bytes.length : end + 1);
      if (end >= 0) return true;
    }
    return false;
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }

  async #next(): Promise<Uint8Array | undefined> {
    try {
      const { value, done } = await this.#source.next();
      return done ? undefined : value;
    } catch (error) {
      this.failure = error;
      throw error;
    }
  }
}
