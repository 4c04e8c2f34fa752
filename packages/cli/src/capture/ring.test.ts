/** A ring of files: which stay, and which events keep them. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ownFolder, removeFolders } from '../../testing/folder.ts';
import { ring } from '../options.ts';
import { FlowCounts } from './flow-counts.ts';
import type { Batch } from './recorder.ts';
import { RingRecorder, ringPath } from './ring.ts';
import { Trigger } from './trigger.ts';

removeFolders();

/** A ring of files of two packets of 68 bytes (100 in pcapng); each file's content are the numbers of its packets. */
async function ringOf(files: number) {
  const path = join(ownFolder(), 'trace.pcapng');
  const contents = new Map<string, number[]>();
  const recorder = await RingRecorder.start(path, { files, bytes: 200 }, async (file) => {
    writeFileSync(file, '');
    const marks: number[] = [];
    contents.set(file, marks);
    return {
      write: async (batch) => void marks.push(...batch.map(({ data }) => data[0])),
      close: async () => {},
    };
  });
  const left = () => readdirSync(join(path, '..')).map((name) => Number(/-(\d+)\.pcapng$/.exec(name)?.[1]));
  return { path, contents, recorder, left };
}

const packets = (...marks: number[]) =>
  marks.map((mark) => ({ data: new Uint8Array(68).fill(mark) })) as Batch;

test('files end between packets, in one batch or several, and the oldest is removed', async () => {
  const { path, contents, recorder, left } = await ringOf(3);
  await recorder.write(packets(1, 2, 3, 4, 5));
  await recorder.write(packets(6));
  await recorder.write(packets(7, 8, 9));
  await recorder.close();
  expect([...contents.values()]).toEqual([[1, 2], [3, 4], [5, 6], [7, 8], [9]]);
  expect(left()).toEqual([3, 4, 5]);
  expect(existsSync(ringPath(path, 3))).toBe(true);
});

test('an event keeps its file, the one before and the one after, whatever follows', async () => {
  const { recorder, left } = await ringOf(2);
  await recorder.write(packets(1, 2, 3, 4, 5));
  recorder.keep();
  for (let i = 6; i < 20; i++) await recorder.write(packets(i));
  await recorder.close();
  expect(left()).toEqual([2, 3, 4, 9, 10]);
});

test('only the chosen events count, and each once', () => {
  const counts = new FlowCounts();
  const frames = { pauseFrames: 0, icmpErrors: 0 };
  const trigger = new Trigger(['nak', 'icmp'], counts, frames);
  expect(trigger.happened()).toBe(false);
  counts.rnrNaks++;
  expect(trigger.happened()).toBe(false);
  counts.naks++;
  expect(trigger.happened()).toBe(true);
  expect(trigger.happened()).toBe(false);
  frames.icmpErrors++;
  expect(trigger.happened()).toBe(true);
});

test('--ring takes files and bytes', () => {
  expect(ring('10x100M')).toEqual({ files: 10, bytes: 100 * 2 ** 20 });
  for (const wrong of ['', '10', '1x1M', 'x1M', '10x', '10x1', '10x1M2', '-2x1M'])
    expect(() => ring(wrong)).toThrow();
});
