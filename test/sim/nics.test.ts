/**
 * The engine with peers that have the habits of real adapters (test/sim/nic-endpoint.ts), over a clean network and over ones that lose and
 * reorder: each message once, in order, byte for byte, whatever the responder keeps, and nothing stuck.
 *
 * More of it: ROCE_SIM_SEEDS=100.
 */
import {
  ARENA_BYTES,
  createRandom,
  EngineEndpoint,
  MixedWorkload,
  Pair,
  type PairOptions,
} from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { type Habit, NicEndpoint } from './nic-endpoint.ts';
import { wireOf } from './run.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 1);
const limit = { timeout: 300_000 + 20_000 * SEEDS };
const NETWORKS = ['clean', 'lossy', 'reordering'] as const;
const REQUESTS = 120;

/** Least times that the habit shows in a run. */
const HABITS: readonly [Habit, number, Partial<PairOptions>][] = [
  ['early', 100, {}],
  ['merged', 20, {}],
  ['zero', 50, { credits: true }],
  ['cnp', 0, {}],
];

describe.each(HABITS)('%s', (habit, least, options) => {
  test.each(['off', 'quiet'] as const)('early packets: %s', limit, (keepEarly) => {
    let shown = 0;
    for (let seed = 1; seed <= SEEDS; seed++) {
      for (const network of NETWORKS) {
        const what = `seed ${seed}, ${network}`;
        const random = createRandom(seed * 97 + 5);
        const wire = wireOf(network, 0.03, random.pick([1, 5, 20]));
        let nic: NicEndpoint | undefined;
        const pair = new Pair({
          a: (made) => new EngineEndpoint({ ...made, recovery: { keepEarly } }),
          b: ({ gid, psn, arenaBytes }) => {
            nic = new NicEndpoint({ gid, psn, arenaBytes, qpn: 0x12 }, habit);
            return nic;
          },
          arenaBytes: ARENA_BYTES,
          seed,
          aToB: wire,
          bToA: wire,
          timeout: 14,
          pathMtu: random.pick([256, 1024]),
          ...options,
        });
        const workload = new MixedWorkload(pair.a, pair.b, REQUESTS, random);
        expect(
          pair.run(() => workload.step(), 600e6),
          what,
        ).toBe(true);
        expect(workload.failure, what).toBeUndefined();
        // A retry timer of 134 ms would show.
        const { timeouts } = (pair.a as EngineEndpoint).adapter.counters();
        expect(timeouts, what).toBeLessThanOrEqual(network === 'clean' ? 0 : 2);
        shown += nic?.shown ?? 0;
      }
    }
    expect(shown).toBeGreaterThan((habit === 'cnp' ? 10 : least) * SEEDS);
  });
});
