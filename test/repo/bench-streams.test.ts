/** `node bench/streams/run.mjs`: sizes beyond 2 GiB, and its arguments. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { transfersOf } from '../../bench/streams/rstream.mjs';

const bench = join(import.meta.dirname, '../../bench/streams/run.mjs');

test('transfers of 64 KiB for any size, also where its bytes have more than 31 bits', () => {
  for (const mebibytes of [1, 256, 2047, 2048, 4096, 1e6])
    expect(transfersOf(mebibytes)).toBe(16 * mebibytes);
});

test.each([[['0']], [['1', '1.5']]])('rounds and MiB %j: usage, exit code 2', async (args) => {
  const failure = await promisify(execFile)(process.execPath, [bench, ...args]).catch((error) => error);
  expect(failure.code).toBe(2);
  expect(failure.stderr).toContain('usage: node bench/streams/run.mjs');
});
