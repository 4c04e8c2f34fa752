/**
 * Very many busy queue pairs with short timeouts on a link of 256 packets a millisecond that loses nothing: no timer runs
 * out, nothing is retransmitted, and a lone message of the other side is acknowledged between all the others.
 *
 * ROCE_SIM_SEEDS=200 npx vitest run test/sim/busy: as many draws of the number of queue pairs, the bytes and the timeout;
 * ROCE_SIM_BUSY=2097152: bytes of each WRITE in the two cases that issue 10 names.
 */
import { createRandom } from '@node-roce/sim';
import { describe, expect, test } from 'vitest';
import { type BusyOptions, runBusy } from './express/busy.ts';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 2);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);
const BYTES = Number(process.env.ROCE_SIM_BUSY ?? 16_384);
const PACKETS_PER_MS = 256;
/** Where nothing is sent but ACKs, one of them leaves with the next batch: four steps of the link for the way there and back. */
const SOON = 2500;

function expectQuiet(options: BusyOptions): void {
  const { timeouts, retransmitted, packets, lone, time } = runBusy(options);
  console.log(`${JSON.stringify(options)}: ${packets} packets in ${time / 1000} ms, lone message ${lone} µs`);
  expect({ timeouts, retransmitted }).toEqual({ timeouts: 0, retransmitted: 0 });
  if (!options.bothWays) expect(lone).toBeLessThanOrEqual(SOON);
}

describe('no timer runs out', () => {
  test.each([
    { queuePairs: 1000, timeout: 12 },
    { queuePairs: 2600, timeout: 14 },
  ])('$queuePairs queue pairs, timeout $timeout', { timeout: 300_000 + BYTES }, ({ queuePairs, timeout }) => {
    expectQuiet({ seed: 1, queuePairs, bytes: BYTES, timeout, packetsPerMs: PACKETS_PER_MS });
  });

  test(`1 to 2600 queue pairs, ${SEEDS} draws`, { timeout: 300_000 + SEEDS * 20_000 }, () => {
    for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
      const random = createRandom(seed);
      const timeout = random.pick([12, 14]);
      const most = timeout === 12 ? 1000 : 2600;
      const queuePairs = random.chance(0.3) ? random.between(1, 16) : random.between(16, most);
      const packets = random.between(1, 20_000);
      const bytes = 1024 * Math.max(1, Math.min(1024, Math.floor(packets / queuePairs)));
      const bothWays = random.chance(0.4);
      expectQuiet({ seed, queuePairs, bytes, timeout, packetsPerMs: PACKETS_PER_MS, bothWays });
    }
  });
});
