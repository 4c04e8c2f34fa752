/** Copies into memory that another processor polls: its last bytes are new last. */
import { randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { copier, copyBatch } from '../index.js';

/** Looks for a first word that is older than the last word was before it. `flags`: end, rounds, words that were older. */
const POLLER = `
  const { workerData: { memory, last, flags } } = require('node:worker_threads');
  const words = new Int32Array(memory);
  const [END, ROUNDS, OLDER] = [0, 1, 2];
  function look() {
    let older = 0;
    for (let i = 0; i < 10_000; i++) {
      const version = Atomics.load(words, last);
      if (((words[0] - version) | 0) < 0) older++;
    }
    return older;
  }
  do {
    Atomics.add(flags, OLDER, look());
    Atomics.add(flags, ROUNDS, 1);
  } while (!Atomics.load(flags, END));
`;

// On one processor the poller sees what a thread sees that was held up between two stores: almost never anything.
test.skipIf(availableParallelism() < 2).each([1500, 1024, 1000, 4096])(
  'who polls the last bytes of %i finds the first ones no older',
  async (length) => {
    const memory = new SharedArrayBuffer(8192);
    const flags = new Int32Array(new SharedArrayBuffer(12));
    const last = length / 4 - 1;
    const poller = new Worker(POLLER, { eval: true, workerData: { memory, last, flags } });
    try {
      await once(poller, 'online');
      while (Atomics.load(flags, 1) === 0) await new Promise(setImmediate);
      // As payload stands in a slab: behind headers.
      const slab = new Uint8Array(new SharedArrayBuffer(8192));
      const payload = new Int32Array(slab.buffer, 44, length / 4);
      const list = new Uint32Array(new SharedArrayBuffer(20));
      list.set([44, 0, 0, 0, length]);
      const copy = copier(slab, [new Uint8Array(memory)], list);
      for (let version = 1; version <= 500_000; version++) {
        payload.fill(version);
        copy(1);
      }
    } finally {
      Atomics.store(flags, 0, 1);
      await once(poller, 'exit');
    }
    expect(Atomics.load(flags, 2)).toBe(0);
  },
);

test('every length at every alignment is copied, and no other byte changes', () => {
  const slab = randomFillSync(new Uint8Array(400));
  for (let length = 1; length <= 300; length++) {
    for (let at = 8; at < 16; at++) {
      const from = length % 67;
      const memory = new Uint8Array(324).fill(0xee);
      const expected = memory.slice();
      expected.set(slab.subarray(from, from + length), at);
      expect(copyBatch(slab, [memory], Uint32Array.of(from, 0, at, 0, length), 1)).toBe(1);
      if (Buffer.compare(memory, expected) !== 0) expect.fail(`${length} bytes to ${at}`);
    }
  }
});
