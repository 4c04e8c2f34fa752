/**
 * The rules against the engine in virtual time: the requester asks again early, by probes, at moments that depend on the seed
 * and on the way. Deviations are those of the list.
 */
import {
  acceptFrame,
  adapterBench,
  type Bench,
  compare,
  judgeCases,
  LISTS,
  play,
  RULES,
  type Rule,
} from '@node-roce/conform';
import { EngineDevice } from '@node-roce/sim';
import { expect, test } from 'vitest';
import { stalled } from './stalls.ts';

/** µs of the way: a probe leaves before an answer comes, or not. ROCE_CONFORM_DELAYS has another number of them, up to 5 ms. */
const MANY = Number(process.env.ROCE_CONFORM_DELAYS ?? 0);
const DELAYS =
  MANY > 0
    ? Array.from({ length: MANY }, (_, i) => 1 + Math.floor((i * 5000) / MANY))
    : [1, 300, 700, 1500, 4000];

/** Headers that the kernel's UDP socket hides from the device on a network. */
const OF_THE_KERNEL = ['HDR-11', 'HDR-13'];

/** Seeds; ROCE_CONFORM_STALLS has another number of them. With 34, the engine repeats a SEND while ATO-12 waits for an atomic. */
const SEEDS = Number(process.env.ROCE_CONFORM_STALLS ?? 0);
const STALLS = SEEDS > 0 ? [...Array(SEEDS).keys()] : [1, 4, 34];

const PLAYED = RULES.filter(({ id }) => id !== 'FUZ-01');

const engineBench = (seed: number, delay: number): Bench =>
  adapterBench(({ gid }) => new EngineDevice({ gid, arenaBytes: 65_536, seed }), {
    name: 'engine',
    accept: acceptFrame,
    delay,
  });

async function holds(rule: Rule, bench: Bench, how: string): Promise<void> {
  const result = await play(rule, bench);
  const [{ verdict, why, ladder }] = compare([result], LISTS['node-roce']);
  const fine = OF_THE_KERNEL.includes(rule.id) ? ['mended'] : ['pass', 'known', 'not testable'];
  expect(fine, `${how}: ${verdict}: ${why.join('\n')}\n${ladder}`).toContain(verdict);
  const besides = judgeCases([result], bench.line).filter((each) => each.verdict !== 'pass');
  expect(besides, `${how}\n${ladder}`).toEqual([]);
}

test.each(PLAYED)('$id $title', async (rule) => {
  for (const [seed, delay] of DELAYS.entries()) await holds(rule, engineBench(seed, delay), `${delay} µs`);
});

test.each(PLAYED)('$id while the tester stalls', async (rule) => {
  for (const seed of STALLS)
    await holds(
      rule,
      stalled(engineBench(seed, DELAYS[seed % DELAYS.length]), seed),
      `stalls of seed ${seed}`,
    );
});
