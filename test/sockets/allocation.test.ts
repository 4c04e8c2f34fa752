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

/** A young generation, in MiB, that holds all that is counted: V8 then has no reason to collect it. */
const YOUNG = 64;

/** Bytes of the smallest object, and of a number that is no small integer; a place in a list that grows has 8. */
const OBJECT = 24;
const NUMBER = 16;

interface Figures {
  /** Bytes for each round trip or message, of the slice with the least. */
  allocated: number;
  /** Bytes for each of a million messages that are left after all garbage is collected. */
  kept?: number;
}

/** Code is compiled in the thread itself, so that it is when bytes are counted. */
async function figuresOf(kind: string): Promise<Figures> {
  const young = [`--min-semi-space-size=${YOUNG}`, `--max-semi-space-size=${YOUNG}`];
  const args = ['--no-concurrent-recompilation', '--expose-gc', ...young, SIDE, DIST, String(ownPort), kind];
  return JSON.parse((await promisify(execFile)(process.execPath, args)).stdout);
}

// The clock is read once a side, before what is owed leaves with the answer: it returns a number of 16 bytes.
test('a round trip allocates the times of two turns, and nothing else', { timeout: 600_000 }, async () => {
  expect((await figuresOf('roundTrips')).allocated).toBeLessThan(40);
});

// Keys and addresses are random: half of their words are above 2^31, where a number that is not a small integer has 16 bytes.
test('a WRITE on one of many queue pairs allocates nothing', { timeout: 600_000 }, async () => {
  expect((await figuresOf('many')).allocated).toBeLessThan(NUMBER);
});

test.each(['objects', 'batches', 'numbers', 'prepared'])(
  'SENDs by %s allocate nothing for each, and of a million nothing is left',
  { timeout: 600_000 },
  async (kind) => {
    const { allocated, kept } = await figuresOf(kind);
    expect(allocated).toBeLessThan(NUMBER / 2);
    expect(kept).toBeLessThan(1);
  },
);

test('an object that is kept for each message is noticed', { timeout: 600_000 }, async () => {
  const { allocated, kept } = await figuresOf('leak');
  expect(allocated).toBeGreaterThan(OBJECT);
  expect(kept).toBeGreaterThan(OBJECT);
});
