/** Inflates Zstandard (RFC 8878), in which Wireshark writes captures: Node 20 has no decoder of its own. */
import { Decompress } from 'fzstd';
import { CaptureError, CaptureErrorCode } from '../errors.ts';
import { Xxh64 } from './xxh64.ts';
import { ZSTD_MAGIC, ZstdFrames } from './zstd-frames.ts';

/**
 * Compressed bytes inflated at a time. Four bytes can stand for a block of 128 KiB, so this bounds what is in memory at about 32 MiB
 * however hostile the input is.
 */
const PIECE = 1024;

/**
 * Inflates frames, one after the other, and verifies their content checksums. All that can be inflated is yielded before damage, a
 * wrong checksum or a missing end is thrown.
 *
 * @throws CaptureError `ERR_PCAP_COMPRESSED`, its offset in inflated bytes
 */
export async function* unzstd(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const stream = new Inflation();
  for await (const chunk of source) {
    for (let at = 0; at < chunk.length; at += PIECE) {
      stream.push(chunk.subarray(at, at + PIECE));
      yield* stream.take();
      if (stream.error !== undefined) throw stream.error;
    }
  }
  stream.end();
  yield* stream.take();
  if (stream.error !== undefined) throw stream.error;
}

/** A stream with what was inflated of it, frame by frame: each has a decoder of its own. */
class Inflation {
  error: CaptureError | undefined;
  readonly #frames = new ZstdFrames();
  #decoder: Decompress | undefined;
  #hash: Xxh64 | undefined;
  #ready: Uint8Array[] = [];
  #inflated = 0;

  push(bytes: Uint8Array): void {
    try {
      for (let at = 0; at < bytes.length; ) {
        const end = this.#frames.next(bytes, at);
        // A copy: the decoder keeps what it can't use yet, and the source may use its memory again.
        this.#inflate(bytes.slice(at, end));
        at = end;
      }
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  /** Nothing follows. */
  end(): void {
    if (!this.#frames.isBetween && this.error === undefined) this.#fail(new Error('unexpected EOF'));
  }

  /** What was inflated since the last time. */
  take(): Uint8Array[] {
    const taken = this.#ready;
    this.#ready = [];
    return taken;
  }

  #inflate(bytes: Uint8Array): void {
    const { isKnown, isBegin, isBetween, isSkippable, hasChecksum, checksum } = this.#frames;
    if (!isKnown) return;
    if (isBegin && !isSkippable) {
      this.#decoder = new Decompress((chunk) => this.#add(chunk));
      this.#decoder.push(Uint8Array.from(ZSTD_MAGIC), false);
      return;
    }
    if (hasChecksum) this.#hash ??= new Xxh64();
    this.#decoder?.push(bytes, isBetween);
    if (!isBetween) return;
    const hash = this.#hash;
    this.#decoder = this.#hash = undefined;
    if (hash === undefined) return;
    const found = Number(BigInt.asUintN(32, hash.digest()));
    if (found !== checksum) throw new Error('wrong content checksum');
  }

  #add(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#hash?.update(chunk);
    // A copy: the decoder may use its window again.
    this.#ready.push(chunk.slice());
    this.#inflated += chunk.length;
  }

  #fail(cause: Error): void {
    this.error = new CaptureError(
      CaptureErrorCode.COMPRESSED,
      this.#inflated,
      `the zstd stream is damaged or cut off after ${this.#inflated} inflated bytes: ${cause.message}`,
      { cause },
    );
  }
}
