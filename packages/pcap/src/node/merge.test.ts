/** Several captures as one: packets by time, damage of one, few open at a time. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { PcapEncoder } from '../index.ts';
import { openCaptures } from './reader.ts';

const folder = mkdtempSync(join(tmpdir(), 'roce-merge-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** A file with a packet of one byte, its own number, at each of these times. */
function file(name: string, packets: [seconds: number, mark: number][], cut = 0): string {
  const encoder = new PcapEncoder({ linkType: 1 });
  for (const [seconds, mark] of packets)
    encoder.packet({ seconds, nanoseconds: 0, data: Uint8Array.of(mark) });
  const path = join(folder, name);
  const bytes = encoder.take();
  writeFileSync(path, bytes.subarray(0, bytes.length - cut));
  return path;
}

async function read(paths: string[], recycle = false): Promise<{ marks: number[]; error?: Error }> {
  const marks: number[] = [];
  await using captures = openCaptures(paths, { recycle });
  try {
    for await (const batch of captures) for (const { data } of batch) marks.push(data[0]);
  } catch (error) {
    return { marks, error: error as Error };
  }
  return { marks };
}

test('packets come by time, those of the same time in the order of the files', async () => {
  const a = file(
    'a',
    [1, 3, 5, 9].map((time) => [time, time]),
  );
  const b = file(
    'b',
    [2, 3, 4].map((time) => [time, 10 + time]),
  );
  expect(await read([a, b])).toEqual({ marks: [1, 12, 3, 13, 14, 5, 9] });
  expect(await read([b, a], true)).toEqual({ marks: [1, 12, 13, 3, 14, 5, 9] });
});

test('a ring in any order of names, with a file without packets', async () => {
  const parts = [30, 10, 20].map((start) =>
    file(
      `ring-${start}`,
      Array.from({ length: 10 }, (_, i) => [start + i, start + i]),
    ),
  );
  const { marks } = await read([...parts, file('empty', [])]);
  expect(marks).toEqual(Array.from({ length: 30 }, (_, i) => 10 + i));
});

test('a packet that is older than the one before it in its file keeps its place', async () => {
  const a = file('unsorted', [
    [5, 5],
    [1, 1],
    [6, 6],
  ]);
  const b = file('sorted', [
    [2, 2],
    [7, 7],
  ]);
  expect(await read([a, b])).toEqual({ marks: [2, 5, 1, 6, 7] });
});

test('damage ends one file; the others are read to their end, and it is thrown then', async () => {
  const a = file(
    'cut',
    [
      [1, 1],
      [3, 3],
    ],
    1,
  );
  const b = file('whole', [
    [2, 2],
    [4, 4],
  ]);
  const { marks, error } = await read([a, b]);
  expect(marks).toEqual([1, 2, 4]);
  expect(error).toMatchObject({ code: 'ERR_PCAP_TRUNCATED', message: expect.stringContaining(`${a}: `) });
});

test('a missing file is the error of the system', async () => {
  const missing = join(folder, 'nothing');
  expect((await read([file('one', [[1, 1]]), missing])).error).toMatchObject({ code: 'ENOENT' });
});
