/** Compressed captures: distinguished by their first bytes, and inflated while they are read. */
import { unzstd } from './unzstd.ts';

/** Inflates a stream. */
export type Inflate = (source: AsyncIterable<Uint8Array>) => AsyncIterable<Uint8Array>;

/** Longest magic number of a compression. */
const MAGIC_BYTES = 4;

const isGzip = (bytes: Uint8Array): boolean => bytes[0] === 0x1f && bytes[1] === 0x8b;

/** Whether a frame of Zstandard begins with these bytes (RFC 8878 §3.1.1). */
const isZstd = (bytes: Uint8Array): boolean =>
  bytes[0] === 0x28 && bytes[1] === 0xb5 && bytes[2] === 0x2f && bytes[3] === 0xfd;

/** Whether a file that begins with these four bytes is inflated while it is read. */
export const isCompressed = (first: Uint8Array): boolean => isGzip(first) || isZstd(first);

/** Puts `gunzip` or a decoder of Zstandard between when the input starts with the magic of either (RFC 1952 §2.3.1, RFC 8878 §3.1.1). */
export async function* inflated(
  source: AsyncGenerator<Uint8Array>,
  gunzip: Inflate,
): AsyncGenerator<Uint8Array> {
  let first: Uint8Array = new Uint8Array(0);
  while (first.length < MAGIC_BYTES) {
    const { value, done } = await source.next();
    if (done) break;
    first = first.length === 0 ? value : joined(first, value);
  }
  const whole = prepend(first, source);
  if (isGzip(first)) yield* gunzip(whole);
  else yield* isZstd(first) ? unzstd(whole) : whole;
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
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
