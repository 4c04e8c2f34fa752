/** Inflates Zstandard (RFC 8878), in which Wireshark writes captures: Node 20 has no decoder of its own. */
import { Decompress } from 'fzstd';
import { CaptureError, CaptureErrorCode } from '../errors.ts';

/**
 * Compressed bytes inflated at a time. Four bytes can stand for a block of 128 KiB, so this bounds what is in memory at about 32 MiB
 * however hostile the input is.
 */
const PIECE = 1024;

/**
 * Inflates frames, one after the other. All that can be inflated is yielded before damage or a missing end is thrown. Content
 * checksums are not verified.
 *
 * @throws CaptureError `ERR_PCAP_COMPRESSED`, its offset in inflated bytes
 */
export async function* unzstd(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let ready: Uint8Array[] = [];
  let offset = 0;
  const decoder = new Decompress((chunk) => {
    // A copy: the decoder may use its window again.
    if (chunk.length > 0) ready.push(chunk.slice());
  });
  const take = (): Uint8Array[] => {
    const taken = ready;
    ready = [];
    for (const { length } of taken) offset += length;
    return taken;
  };
  const push = (bytes: Uint8Array, isLast: boolean): CaptureError | undefined => {
    try {
      decoder.push(bytes, isLast);
      return undefined;
    } catch (error) {
      return damage(offset + ready.reduce((sum, { length }) => sum + length, 0), error);
    }
  };
  for await (const chunk of source) {
    for (let at = 0; at < chunk.length; at += PIECE) {
      // A copy: the decoder keeps what it can't use yet, and the source may use its memory again.
      const error = push(chunk.slice(at, at + PIECE), false);
      yield* take();
      if (error !== undefined) throw error;
    }
  }
  const error = push(new Uint8Array(0), true);
  yield* take();
  if (error !== undefined) throw error;
}

const damage = (offset: number, cause: unknown): CaptureError =>
  new CaptureError(
    CaptureErrorCode.COMPRESSED,
    offset,
    `the zstd stream is damaged or cut off after ${offset} inflated bytes: ${(cause as Error).message}`,
    { cause },
  );
