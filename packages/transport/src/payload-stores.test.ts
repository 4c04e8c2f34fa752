import { expect, test } from 'vitest';
import { storePayload, wordViews } from './payload-stores.ts';

const slab = new Uint8Array(new SharedArrayBuffer(512), 16, 300).map((_, i) => i + 1);
const own = new Uint8Array(512);
const shared = new Uint8Array(new SharedArrayBuffer(512));

test.each([
  ['byte by byte, to memory of this thread', own, undefined],
  ['by the words of the slab, to memory of this thread', own, wordViews(slab)],
  ['byte by byte, to shared memory', shared, undefined],
  ['by the words of the slab, to shared memory', shared, wordViews(slab)],
])('%s, the bytes of a payload are stored, and no others', (_, memory, slabWords) => {
  const view = memory.subarray(8, 500);
  const words = wordViews(view);
  expect(words.shared).toBe(memory === shared);
  for (let length = 1; length <= 140; length++)
    for (let source = 0; source < 5; source++)
      for (let offset = 0; offset < 9; offset++) {
        memory.fill(0xee);
        storePayload(view, words, offset, slab, source, length, slabWords);
        const expected = new Uint8Array(512).fill(0xee);
        expected.set(slab.subarray(source, source + length), 8 + offset);
        if (Buffer.compare(memory, expected) !== 0)
          expect.fail(`${length} bytes from ${source} to ${offset}: ${memory.slice(0, 160)}`);
      }
});
