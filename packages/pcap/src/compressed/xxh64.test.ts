/** XXH64 with seed 0: values that xxHash's own program prints. */
import { describe, expect, test } from 'vitest';
import { Xxh64 } from './xxh64.ts';

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

describe.each([
  ['', 'ef46db3751d8e999'],
  ['a', 'd24ec4f1a98c6e5b'],
  ['abc', '44bc2cf5ad770999'],
  ['Nobody inspects the spammish repetition', 'fbcea83c8a378bf1'],
])('%j', (text, expected) => {
  test('whole', () => {
    const hash = new Xxh64();
    hash.update(bytesOf(text));
    expect(hash.digest().toString(16)).toBe(expected);
  });

  test('byte by byte', () => {
    const hash = new Xxh64();
    for (const byte of bytesOf(text)) hash.update(Uint8Array.of(byte));
    expect(hash.digest().toString(16)).toBe(expected);
  });
});

describe('many stripes', () => {
  const bytes = Uint8Array.from({ length: 1000 }, (_, i) => (i * 167 + (i >> 3)) & 0xff);
  // As `xxhsum -H64` 0.8.1 of Debian's package xxhash prints it, of a file with these bytes.
  const expected = '6a6bb4c6b936c86e';

  test('whole', () => {
    const hash = new Xxh64();
    hash.update(bytes);
    expect(hash.digest().toString(16)).toBe(expected);
  });

  test.each([1, 7, 31, 32, 33, 100, 999])('in pieces of %i bytes', (size) => {
    const hash = new Xxh64();
    for (let at = 0; at < bytes.length; at += size) hash.update(bytes.subarray(at, at + size));
    expect(hash.digest().toString(16)).toBe(expected);
  });
});
