/** Seeded runs of the life workloads, and the events that each has to have had. */
import { setImmediate } from 'node:timers/promises';
import type { EndpointKind } from '@node-roce/sim';
import { expect, test } from 'vitest';
import { Life } from './life/life.ts';
import { type LifeName, type LifeProfile, PROFILES } from './life/profile.ts';
import { Tally } from './life/tally.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 4);
/** Seeds of the model against itself, which shows only whether a workload asks for results that the rules give. */
const MODELS = Number(process.env.ROCE_SIM_MODELS ?? 1);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);
/** Seeds that the least counts of a workload are for. */
const COUNTED = 20;

function live(name: LifeName, seed: number, a: EndpointKind, b: EndpointKind): Life {
  const life = new Life({ profile: PROFILES[name], seed, a, b });
  try {
    life.run();
  } catch (error) {
    const again = `ROCE_SIM_LIFE=${[name, seed, a, b].join(',')} npx vitest run test/sim/life.test.ts`;
    throw new Error(`${(error as Error).message}\n  at ${life.network.now} µs\n  again: ${again}`, {
      cause: error,
    });
  }
  return life;
}

async function liveAll(
  name: LifeName,
  seeds: number,
  peerOf: (seed: number) => [EndpointKind, EndpointKind],
) {
  const tally = new Tally();
  for (let seed = FIRST; seed < FIRST + seeds; seed++) {
    tally.merge(live(name, seed, ...peerOf(seed)).tally);
    // In a long run the runner wants to hear from this thread.
    await setImmediate();
  }
  console.log(`${name}, ${seeds} seeds: ${tally.text}`);
  return tally;
}

/** Of the seeds, the odd ones are the engine against the model, the even ones the engine against itself. */
export function testLives(name: LifeName): void {
  test(`${name}: model and model`, { timeout: 300_000 + MODELS * 10_000 }, async () => {
    const tally = await liveAll(name, MODELS, () => ['model', 'model']);
    expect(tally.of('sessions')).toBeGreaterThan(MODELS);
  });

  test(`${name}: engine and model, engine and engine`, { timeout: 300_000 + SEEDS * 10_000 }, async () => {
    const tally = await liveAll(name, SEEDS, (seed) => ['engine', seed % 2 === 1 ? 'model' : 'engine']);
    const { counts }: LifeProfile = PROFILES[name];
    for (const [what, least] of Object.entries(counts)) {
      expect(tally.of(what), what).toBeGreaterThanOrEqual(Math.floor((least * SEEDS) / COUNTED));
    }
  });
}

/** The life that `ROCE_SIM_LIFE` names, if any. */
export function testReplay(): boolean {
  const replay = process.env.ROCE_SIM_LIFE;
  if (replay === undefined) return false;
  test(`again: ${replay}`, () => {
    const [name, seed, a, b] = replay.split(',');
    console.log(live(name as LifeName, Number(seed), a as EndpointKind, b as EndpointKind).tally.text);
  });
  return true;
}
