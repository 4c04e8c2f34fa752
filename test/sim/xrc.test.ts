/**
 * XRC (IBTA vol 1 annex A14): three initiators of each device, whose requests of every kind are for two SRQs of the other in
 * turn, over every kind of bad network. Everything arrives once, in order, at the SRQ that was named, and completes in its
 * queue under the target's number. No other implementation has confirmed it: the model, written from the rules by another
 * hand, is the peer.
 *
 * Again: ROCE_SIM_XRC=seed,a,b,network npx vitest run test/sim/xrc.test.ts; more of it: ROCE_SIM_SEEDS=300.
 */
import { setImmediate } from 'node:timers/promises';
import type { EndpointKind } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { NETWORKS, type NetworkKind } from './run.ts';
import { runXrc } from './run-xrc.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 1);

const replay = process.env.ROCE_SIM_XRC;
if (replay !== undefined) {
  test(`again: ${replay}`, () => {
    const [seed, a, b, network] = replay.split(',');
    const kinds = { a: a as EndpointKind, b: b as EndpointKind, network: network as NetworkKind };
    expect(runXrc({ seed: Number(seed), ...kinds }).fault).toBeUndefined();
  });
} else {
  const pairs: [EndpointKind, EndpointKind][] = [
    ['model', 'model'],
    ['engine', 'model'],
    ['engine', 'engine'],
  ];
  describe.each(pairs)('%s and %s', (a, b) => {
    test('every kind of network', { timeout: 300_000 + SEEDS * 2000 }, async () => {
      let delivered = 0;
      const placements = { flushes: 0, atomicWrites: 0 };
      for (let seed = 1; seed <= SEEDS; seed++) {
        const outcome = runXrc({ seed, a, b, network: NETWORKS[seed % NETWORKS.length] });
        if (outcome.fault !== undefined) {
          throw new Error(
            `${outcome.fault}\n  again: ROCE_SIM_XRC=${outcome.replay} npx vitest run test/sim/xrc.test.ts`,
          );
        }
        delivered += outcome.delivered;
        placements.flushes += outcome.placements.flushes;
        placements.atomicWrites += outcome.placements.atomicWrites;
        // In a long run the runner wants to hear from this thread.
        await setImmediate();
      }
      expect(delivered).toBeGreaterThan(SEEDS * 60);
      expect(Math.min(placements.flushes, placements.atomicWrites)).toBeGreaterThan(SEEDS * 5);
    });
  });
}
