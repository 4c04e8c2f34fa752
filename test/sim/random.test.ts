/**
 * Mixed operations in both directions over every kind of bad network, in virtual time: each message once,
 * in order, byte for byte; each atomic exactly once; each completion as foreseen. Engine against model,
 * engine against engine, and the model against itself.
 *
 * A failure leaves a pcapng and prints how to run it again:
 *   ROCE_SIM=seed,a,b,network,loss,count npx vitest run test/sim/random.test.ts
 * More of it: ROCE_SIM_SEEDS=500 and ROCE_SIM_COUNT=10000, in slices by ROCE_SIM_FIRST=101 and -t 'all'
 * (docs/simulation.md lists the runs).
 */
import { setImmediate } from 'node:timers/promises';
import type { EndpointKind } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { NETWORKS, type Outcome, parseReplay, type RunOptions, runMixed, writeCapture } from './run.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 3);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);
const COUNT = Number(process.env.ROCE_SIM_COUNT ?? 150);
const LOSSES = [0.01, 0.05, 0.2];

/** Runs it; a fault becomes a message with the command that repeats it. */
function check(options: RunOptions): Outcome {
  const outcome = runMixed(options);
  if (outcome.fault !== undefined) {
    const path = writeCapture(outcome);
    throw new Error(
      `${outcome.fault}\n  capture: ${path}\n  again:   ROCE_SIM=${outcome.replay} npx vitest run test/sim/random.test.ts`,
    );
  }
  return outcome;
}

const replay = process.env.ROCE_SIM;
if (replay !== undefined) {
  test(`again: ${replay}`, () => {
    const outcome = runMixed(parseReplay(replay));
    console.log(`capture: ${writeCapture(outcome)}`);
    expect(outcome.fault).toBeUndefined();
  });
} else {
  const pairs: [EndpointKind, EndpointKind][] = [
    ['engine', 'model'],
    ['engine', 'engine'],
    ['model', 'model'],
  ];
  describe.each(pairs)('%s and %s', (a, b) => {
    test.each(NETWORKS)('%s', { timeout: 300_000 + SEEDS * COUNT * 20 }, async (network) => {
      // By the loss that they ran into.
      const gaveUp = new Map<number, number>();
      let cnpHandled = 0;
      for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
        const loss = LOSSES[(seed - 1) % LOSSES.length];
        const outcome = check({ seed, a, b, network, loss, count: COUNT });
        cnpHandled += outcome.cnpHandled;
        if (outcome.gaveUp) gaveUp.set(loss, (gaveUp.get(loss) ?? 0) + 1);
        // In an hour of it the runner wants to hear from this thread.
        await setImmediate();
      }
      for (const [loss, runs] of gaveUp) {
        console.log(`${a} and ${b}, ${network}, loss ${loss}: ${runs} out of retries`);
        // A burst can be longer than all retries together. And with a fifth lost one try in three or four fails:
        // among tens of thousands of packets one has eight such tries in a row (runMixed checks that it had).
        const each = Math.ceil(SEEDS / LOSSES.length);
        const allowed = network === 'bursty' ? SEEDS / 4 : loss > 0.1 && COUNT > 1000 ? each : 0;
        expect(runs, `loss ${loss}`).toBeLessThanOrEqual(allowed);
      }
      // Some of the engines were under DCQCN, and were slowed down.
      if (a === 'engine') expect(cnpHandled).toBeGreaterThan(SEEDS);
    });
  });
}

test('the same seed gives the same run', () => {
  const options: RunOptions = { seed: 77, a: 'engine', b: 'model', network: 'all', loss: 0.05, count: 100 };
  const [first, second] = [runMixed(options), runMixed(options)];
  expect(first.network.now).toBe(second.network.now);
  expect(first.network.trace).toEqual(second.network.trace);
});
