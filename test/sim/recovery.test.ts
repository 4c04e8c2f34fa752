/**
 * Engines that recover from losses in every way: with and without probes and selective retransmission, with responders that discard, keep
 * quietly and keep ahead, under AIMD and DCQCN. Against the model and against each other, over each kind of bad network: nothing lost, twice or stuck.
 *
 * Again: ROCE_SIM=seed,a,b,network,loss,count npx vitest run test/sim/random; more of it: ROCE_SIM_SEEDS=2000, and ROCE_SIM_FIRST=101
 * for a slice.
 */
import { setImmediate } from 'node:timers/promises';
import type { EndpointKind } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { type MixedOutcome, NETWORKS, runMixed, writeCapture } from './run.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 16);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);
const COUNT = 150;
const LOSSES = [0.01, 0.05, 0.2];
const BAD = NETWORKS.filter((network) => network !== 'clean');

/** Least counts for each seed, by the way in which an engine recovers. */
const FLOORS: Readonly<Record<string, number>> = {
  'early packets discarded, off': 2,
  'early packets kept, quiet': 2,
  'early packets kept, ahead': 0.5,
  'probes, selective': 1,
  'probes, go-back-N': 0.1,
  'timeouts without probes': 0.5,
  'missing responses, selective': 0.5,
  'missing responses, go-back-N': 0.05,
  'sequence NAKs, selective': 2,
  'sequence NAKs, go-back-N': 0.5,
  'runs under AIMD alone': 0.5,
  'runs with CNPs handled': 0.3,
};

function tally(counts: Map<string, number>, { engines, cnpHandled }: MixedOutcome): void {
  const add = (what: string, count: number) => counts.set(what, (counts.get(what) ?? 0) + count);
  add(cnpHandled > 0 ? 'runs with CNPs handled' : 'runs under AIMD alone', 1);
  for (const { recovery, counters } of engines) {
    const { keepEarly, probes, selective } = recovery;
    const way = selective ? 'selective' : 'go-back-N';
    if (keepEarly === 'off') add('early packets discarded, off', counters.outOfSeqRequest);
    else add(`early packets kept, ${keepEarly}`, counters.keptPackets);
    if (probes) add(`probes, ${way}`, counters.probes);
    else add('timeouts without probes', counters.timeouts);
    add(`missing responses, ${way}`, counters.impliedNakSeqErr);
    add(`sequence NAKs, ${way}`, counters.receivedSeqErr);
    if (keepEarly === 'off') expect(counters.keptPackets).toBe(0);
    if (!probes) expect(counters.probes).toBe(0);
  }
}

const pairs: [EndpointKind, EndpointKind][] = [
  ['engine', 'model'],
  ['engine', 'engine'],
];
const counts = new Map<string, number>();

describe.each(pairs)('%s and %s', (a, b) => {
  test(`${SEEDS} seeds from ${FIRST} on`, { timeout: 300_000 + SEEDS * 3000 }, async () => {
    let gaveUp = 0;
    for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
      const network = BAD[seed % BAD.length];
      const loss = LOSSES[seed % LOSSES.length];
      const outcome = runMixed({ seed, a, b, network, loss, count: COUNT });
      if (outcome.fault !== undefined) {
        const again = `ROCE_SIM=${outcome.replay} npx vitest run test/sim/random`;
        throw new Error(`${outcome.fault}\n  capture: ${writeCapture(outcome)}\n  again:   ${again}`);
      }
      if (outcome.gaveUp) gaveUp++;
      tally(counts, outcome);
      // In a long run the runner wants to hear from this thread.
      await setImmediate();
    }
    // A burst can be longer than all retries together: by the rule, which runMixed has checked.
    expect(gaveUp).toBeLessThanOrEqual(Math.ceil(SEEDS / 20));
  });
});

test('they did what they are for', () => {
  const found = Object.fromEntries([...counts].sort());
  console.log(`recovery, ${SEEDS} seeds from ${FIRST} on: ${JSON.stringify(found)}`);
  const kept = (found['early packets kept, quiet'] ?? 0) + (found['early packets kept, ahead'] ?? 0);
  console.log(
    `result: ${2 * SEEDS} runs, ${found['runs with CNPs handled']} with CNPs handled, ${kept} packets kept`,
  );
  for (const [what, least] of Object.entries(FLOORS)) {
    expect(found[what], what).toBeGreaterThanOrEqual(Math.floor(least * SEEDS));
  }
});
