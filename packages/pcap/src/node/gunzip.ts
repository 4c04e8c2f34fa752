import { createGunzip } from 'node:zlib';
import { CaptureError, CaptureErrorCode } from '../errors.ts';

/**
 * Compressed bytes inflated at a time. Deflate expands at most 1032-fold, so this bounds what is in
 * memory at about 16 MiB however hostile the input is; it is also the most that is lost before the
 * place of damage, because zlib gives nothing of a piece in which it fails.
 */
const PIECE = 16_384;

/**
 * Inflates gzip, of one or several members. All that can be inflated is yielded before damage or a
 * missing end is thrown: a transform stream would throw away what its reader has not yet taken.
 *
 * @throws CaptureError `ERR_PCAP_COMPRESSED`, its offset in inflated bytes
 */
export async function* gunzip(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const inflate = createGunzip({ chunkSize: 65_536 });
  let inflated: Uint8Array[] = [];
  let offset = 0;
  let failure: Error | undefined;
  inflate.on('data', (chunk: Buffer) => {
    offset += chunk.length;
    inflated.push(chunk);
  });
  const failed = new Promise<void>((resolve) => {
    inflate.on('error', (error) => {
      failure = error;
      resolve();
    });
  });
  const ended = new Promise<void>((resolve) => inflate.on('end', resolve));

  try {
    for await (const chunk of source) {
      for (let at = 0; at < chunk.length && failure === undefined; at += PIECE) {
        const piece = chunk.subarray(at, at + PIECE);
        const written = new Promise<void>((resolve) => inflate.write(piece, () => resolve()));
        await Promise.race([written, failed]);
        const ready = inflated;
        inflated = [];
        yield* ready;
      }
      if (failure !== undefined) break;
    }
    inflate.end();
    await Promise.race([ended, failed]);
    yield* inflated;
  } finally {
    inflate.destroy();
  }
  if (failure !== undefined) {
    throw new CaptureError(
      CaptureErrorCode.COMPRESSED,
      offset,
      `the gzip stream is damaged or cut off after ${offset} inflated bytes: ${failure.message}`,
      { cause: failure },
    );
  }
}
