/**
 * Lives of connections (packages/sim/src/life): programs that make, use and end them over bad networks. The model against
 * itself, the engine against the model, and against itself. Each workload says what it is for, and fails where that
 * happened too seldom.
 *
 * Again: ROCE_SIM_LIFE=workload,seed,a,b npx vitest run test/sim-life; more of it: ROCE_SIM_SEEDS=200, and
 * ROCE_SIM_FIRST=101 for a slice.
 */

import { setImmediate } from 'node:timers/promises';
import { type EndpointKind, Life, type LifeName, type LifeProfile, PROFILES, Tally } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 3);
/** Seeds of the model against itself, which shows only whether the workload asks for what the rules give. */
const MODELS = Number(process.env.ROCE_SIM_MODELS ?? 1);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);
/** Seeds that the least counts of a workload are for. */
const COUNTED = 20;

function live(name: LifeName, seed: number, a: EndpointKind, b: EndpointKind): Life {
  const life = new Life({ profile: PROFILES[name], seed, a, b });
  try {
    life.run();
  } catch (error) {
    const again = `ROCE_SIM_LIFE=${[name, seed, a, b].join(',')} npx vitest run test/sim-life`;
    throw new Error(`${(error as Error).message}\n  at ${life.network.now} µs\n  again: ${again}`, {
      cause: error,
    });
  }
  return life;
}

const replay = process.env.ROCE_SIM_LIFE;
if (replay !== undefined) {
  test(`again: ${replay}`, () => {
    const [name, seed, a, b] = replay.split(',');
    console.log(live(name as LifeName, Number(seed), a as EndpointKind, b as EndpointKind).tally.text);
  });
} else {
  const pairs: [EndpointKind, EndpointKind][] = [
    ['model', 'model'],
    ['engine', 'model'],
    ['engine', 'engine'],
  ];
  describe.each(Object.keys(PROFILES) as LifeName[])('%s', (name) => {
    test.each(pairs)('%s and %s', { timeout: 60_000 + SEEDS * 10_000 }, async (a, b) => {
      const tally = new Tally();
      const seeds = a === 'model' ? MODELS : SEEDS;
      for (let seed = FIRST; seed < FIRST + seeds; seed++) {
        tally.merge(live(name, seed, a, b).tally);
        // In a long run the runner wants to hear from this thread.
        await setImmediate();
      }
      console.log(`${name}, ${a} and ${b}, ${seeds} seeds: ${tally.text}`);
      // The model makes no packet that it can't send, and has no rings.
      if (a === 'model') return;
      const { counts }: LifeProfile = PROFILES[name];
      for (const [what, least] of Object.entries(counts)) {
        expect(tally.of(what), what).toBeGreaterThanOrEqual(Math.floor((least * SEEDS) / COUNTED));
      }
    });
  });
}
