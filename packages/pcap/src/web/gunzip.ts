/** Inflates gzip by the decompressor that browsers and Node have (`DecompressionStream`). */
import { CaptureError, CaptureErrorCode } from '../errors.ts';

/**
 * Compressed bytes inflated at a time. Deflate expands at most 1032-fold, so this bounds what is in memory at about 16 MiB; it is also
 * the most that is lost before the place of damage.
 */
const PIECE = 16_384;

/**
 * Inflates gzip of one member. All output before the damaged piece is yielded before the error is thrown: damage, a missing end, or
 * bytes that follow the member.
 *
 * @throws CaptureError `ERR_PCAP_COMPRESSED`, its offset in inflated bytes
 */
export async function* gunzip(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const { readable, writable } = new DecompressionStream('gzip');
  const writer = writable.getWriter();
  const reader = readable.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  let failure: unknown;
  const feed = async () => {
    try {
      // A copy: the source may use its memory again.
      for await (const chunk of noting(source, (error) => (failure = error)))
        for (let at = 0; at < chunk.length; at += PIECE) await writer.write(chunk.slice(at, at + PIECE));
      // Taken when all output before it was read: an error of `close` would throw it away.
      await writer.write(new Uint8Array(0));
      await writer.close();
    } catch (error) {
      // An error of the decompressor comes out of its other end, too; one of the source does not.
      await writer.abort(error).catch(() => {});
      throw error;
    }
  };
  let offset = 0;
  const feeding = feed();
  feeding.catch(() => {});
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      offset += value.length;
      yield value;
    }
    await feeding;
  } catch (error) {
    // The source's own failures are no damage.
    if (failure !== undefined) throw failure;
    throw new CaptureError(
      CaptureErrorCode.COMPRESSED,
      offset,
      `the gzip stream is damaged, cut off or of several parts; read up to ${offset} inflated bytes: ${(error as Error).message}`,
      { cause: error },
    );
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function* noting(
  source: AsyncIterable<Uint8Array>,
  note: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* source;
  } catch (error) {
    note(error);
    throw error;
  }
}
