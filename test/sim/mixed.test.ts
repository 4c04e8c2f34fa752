/**
 * Every service, every operation, at once: reliable connections with and without an SRQ and through memory windows, UC, UD,
 * multicast, over every kind of bad network. Reliable lanes deliver everything once, in order, byte for byte; unreliable
 * ones exactly the messages whose packets the wire brought. The model against itself, the engine against the model, and
 * against itself.
 *
 * Again: ROCE_SIM_MIXED=seed,a,b,network npx vitest run test/sim/mixed.test.ts; more of it: ROCE_SIM_SEEDS=300.
 */
import { setImmediate } from 'node:timers/promises';
import type { EndpointKind } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { NETWORKS, type NetworkKind, writeCapture } from './run.ts';
import { runServices } from './run-services.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 3);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);

const replay = process.env.ROCE_SIM_MIXED;
if (replay !== undefined) {
  test(`again: ${replay}`, () => {
    const [seed, a, b, network] = replay.split(',');
    const kinds = { a: a as EndpointKind, b: b as EndpointKind, network: network as NetworkKind };
    const outcome = runServices({ seed: Number(seed), ...kinds });
    console.log(`capture: ${writeCapture(outcome)}`);
    expect(outcome.fault).toBeUndefined();
  });
} else {
  const pairs: [EndpointKind, EndpointKind][] = [
    ['model', 'model'],
    ['engine', 'model'],
    ['engine', 'engine'],
  ];
  describe.each(pairs)('%s and %s', (a, b) => {
    test('every kind of network', { timeout: 300_000 + SEEDS * 2000 }, async () => {
      const delivered = { RC: 0, UC: 0, UD: 0 };
      const placements = { flushes: 0, atomicWrites: 0 };
      let limitsReached = 0;
      let cnpHandled = 0;
      for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
        const network = NETWORKS[seed % NETWORKS.length];
        const outcome = runServices({ seed, a, b, network });
        if (outcome.fault !== undefined) {
          const again = `ROCE_SIM_MIXED=${outcome.replay} npx vitest run test/sim/mixed.test.ts`;
          throw new Error(`${outcome.fault}\n  capture: ${writeCapture(outcome)}\n  again:   ${again}`);
        }
        delivered.RC += outcome.delivered.RC;
        delivered.UC += outcome.delivered.UC;
        delivered.UD += outcome.delivered.UD;
        placements.flushes += outcome.placements.flushes;
        placements.atomicWrites += outcome.placements.atomicWrites;
        limitsReached += outcome.limitsReached;
        cnpHandled += outcome.cnpHandled;
        // In a long run the runner wants to hear from this thread.
        await setImmediate();
      }
      // All of it happened: messages of every service, and SRQs that ran low.
      expect(Math.min(delivered.RC, delivered.UC, delivered.UD)).toBeGreaterThan(SEEDS * 10);
      expect(Math.min(placements.flushes, placements.atomicWrites)).toBeGreaterThan(SEEDS * 5);
      // 466 times in 2,000 seeds of two engines; other seeds of a short run differ.
      expect(limitsReached).toBeGreaterThan(SEEDS / 8);
      // Some of the engines were under DCQCN, and were slowed down.
      if (a === 'engine') expect(cnpHandled).toBeGreaterThan(2 * SEEDS);
    });
  });
}
