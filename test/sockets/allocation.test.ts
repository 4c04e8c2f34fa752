/**
 * Bytes that V8 allocates for each message between two devices that poll, on real loopback. A number with a fraction or above 2^31 that
 * passes from function to function costs 16 bytes, wherever V8 does not inline the call.
 */
// @module-tag slow
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';

const SIDE = fileURLToPath(new URL('allocation/side.mjs', import.meta.url));
const DIST = new URL('../../packages/verbs-api/dist/index.js', import.meta.url).href;

/** Bytes for each; code is compiled in the thread itself, so that it is when they are counted. */
async function allocated(kind: string): Promise<number> {
  const args = ['--no-concurrent-recompilation', SIDE, DIST, String(ownPort), kind];
  return Number((await promisify(execFile)(process.execPath, args)).stdout);
}

// The clock is read once a side, before what is owed leaves with the answer: it returns a number of 16 bytes.
test('a round trip allocates the times of two turns, and nothing else', { timeout: 300_000 }, async () => {
  expect(await allocated('roundTrips')).toBeLessThan(40);
});

// A key above 2^31, read from the RETH: this thread's V8 does not inline that call.
test('a WRITE on one of many queue pairs allocates one number', { timeout: 300_000 }, async () => {
  expect(await allocated('many')).toBeLessThan(24);
});
