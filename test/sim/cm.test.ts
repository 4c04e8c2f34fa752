/**
 * packages/cm against the model of the state tables, over networks that lose, copy, reorder and delay messages, with
 * programs that connect both ways at once, refuse, wait too long, end and destroy in every state, and restart.
 */
import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FLOORS } from './cm/floors.ts';
import { play } from './cm/play.ts';
import type { Kind, SideName } from './cm/sides.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 20);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);

/** Plays a seed; `again` is the command that plays it alone. */
function playSeed(seed: number, kinds: Record<SideName, Kind>, tally: Map<string, number>): void {
  const again = `ROCE_SIM_CM=${seed},${kinds.A},${kinds.B} npx vitest run test/sim/cm.test.ts`;
  const { complaints, trace } = play(seed, kinds, tally);
  if (complaints.length > 0) console.log(trace.slice(0, 100).join('\n'));
  expect(complaints, `seed ${seed}; again: ${again}`).toEqual([]);
}

async function playAll(kindsOf: (seed: number) => Record<SideName, Kind>, seeds: number) {
  const tally = new Map<string, number>();
  for (let seed = FIRST; seed < FIRST + seeds; seed++) {
    playSeed(seed, kindsOf(seed), tally);
    await setImmediate();
  }
  console.log(`${seeds} seeds: ${textOf(tally)}`);
  return tally;
}

const textOf = (tally: ReadonlyMap<string, number>) =>
  [...tally]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([what, times]) => `${what} ${times}`)
    .join(', ');

const replay = process.env.ROCE_SIM_CM;
if (replay) {
  test(`again: ${replay}`, () => {
    const [seed, A, B] = replay.split(',');
    const tally = new Map<string, number>();
    try {
      playSeed(Number(seed), { A: A as Kind, B: B as Kind }, tally);
    } finally {
      console.log(textOf(tally));
    }
  });
} else {
  test('model and model', { timeout: 300_000 + SEEDS * 1000 }, async () => {
    await playAll(() => ({ A: 'model', B: 'model' }), Math.ceil(SEEDS / 4));
  });

  test('packages/cm and model: every state ends', { timeout: 300_000 + SEEDS * 1000 }, async () => {
    const tally = await playAll(
      (seed) => (seed % 2 ? { A: 'product', B: 'model' } : { A: 'model', B: 'product' }),
      SEEDS,
    );
    console.log(`result: ${SEEDS} seeds, ${tally.get('product hears established')} ends of connections`);
    const seldom = Object.entries(FLOORS)
      .map(([what, least]) => ({
        what,
        least: Math.floor((least * SEEDS) / 40),
        times: tally.get(what) ?? 0,
      }))
      .filter(({ least, times }) => times < least);
    expect(seldom).toEqual([]);
  });
}
